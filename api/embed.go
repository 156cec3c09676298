// Package api holds the contract of the HTTP interface: openapi.yaml. The
// server serves it, its tests hold every answer against it, and the Go client
// is generated from it.
package api

import _ "embed"

// Contract is the text of openapi.yaml.
//
//go:embed openapi.yaml
var Contract []byte
