//go:build race

package race

// The service is built as the test was: with Go's race detector.
const raceDetector = true
