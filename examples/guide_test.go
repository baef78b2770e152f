package examples

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The guide shows whole files of the sample apps; they must be what is tested.
func TestTheGuideShowsTheSamplesAsTheyAre(t *testing.T) {
	t.Parallel()

	guide, err := os.ReadFile("../docs/writing-an-app.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?s)<!-- file: examples/(\\S+) -->\n```[a-z]+\n(.*?)\n```\n").FindAllStringSubmatch(string(guide), -1)
	if len(shown) < 5 {
		t.Errorf("%d files are shown, want the two apps", len(shown))
	}
	for _, match := range shown {
		source, err := os.ReadFile(match[1])
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if strings.TrimSuffix(string(source), "\n") != match[2] {
			t.Errorf("the guide's %s is not the file's text", match[1])
		}
	}
}
