package operations_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowlock/ledger/tests/harness"
)

var fenced = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```$")

// The walkthrough runs as it is pasted, and prints what it says.
func testWalkthrough(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("SKIPPED: there is no curl to paste the walkthrough with")
	}
	text, err := os.ReadFile("../../docs/walkthrough.md")
	if err != nil {
		t.Fatal(err)
	}
	var script, want strings.Builder
	for _, block := range fenced.FindAllSubmatch(text, -1) {
		if string(block[1]) == "sh" {
			script.Write(block[2])
		} else {
			want.Write(block[2])
		}
	}
	p := harness.Serve(t, harness.EmptyURL(t), "--migrate")
	cmd := exec.Command("sh", "-eu", "-c", script.String())
	cmd.Env = append(os.Environ(), "URL="+p.URL)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("the walkthrough: %v\n%s", err, stderr.String())
	}
	if diff := cmp.Diff(want.String(), stdout.String()); diff != "" {
		t.Errorf("the walkthrough prints something else (-said +printed):\n%s", diff)
	}
	p.Stop(t)
}
