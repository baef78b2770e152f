package registry

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// identity is an app's manifest: who it is and where it may connect to.
type identity struct {
	id, version, title, description string
	allow                           []string
	// manifest is the whole as one JSON object.
	manifest json.RawMessage
}

// nativeFields are taken from package.json itself unless the w6w block has them.
func nativeFields() []string {
	return []string{"name", "version", "description", "license", "author", "categories"}
}

// requiredFields of a manifest, beside id (w6w manifest RFC).
func requiredFields() []string {
	return []string{"name", "displayName", "version", "categories", "appearance", "author", "license"}
}

// readPackage reads package.json and its w6w block (contract §1.1).
func readPackage(s *source) (*identity, error) {
	if !s.has("package.json") {
		return nil, refuse(CodeMissingPackageJSON, "the directory has no package.json")
	}
	native, err := s.object("package.json")
	if err != nil {
		return nil, err
	}
	if err := refuseDependencies(s, native); err != nil {
		return nil, err
	}
	block, where, err := manifestBlock(s, native)
	if err != nil {
		return nil, err
	}
	merged := map[string]json.RawMessage{}
	for _, name := range nativeFields() {
		if value, ok := native[name]; ok {
			merged[name] = value
		}
	}
	maps.Copy(merged, block)
	return readManifest(s, merged, where)
}

// refuseDependencies: apps are self-contained (w6w hook runtime RFC).
func refuseDependencies(s *source, native map[string]json.RawMessage) error {
	for _, name := range []string{"dependencies", "devDependencies", "optionalDependencies"} {
		if value, ok := native[name]; ok && !isEmptyObject(value) {
			return refuse(CodeNPMDependencies, "package.json has %s; apps bring no npm packages", name).
				at(s.line("package.json", fieldPattern(name)))
		}
	}
	return nil
}

func isEmptyObject(value json.RawMessage) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal(value, &o) == nil && len(o) == 0
}

// manifestBlock gives the w6w block, joined with the identity file that it may
// point to, and the file to name in errors.
func manifestBlock(s *source, native map[string]json.RawMessage) (map[string]json.RawMessage, string, error) {
	text, ok := native["w6w"]
	if !ok || string(text) == "null" {
		return nil, "", refuse(CodeMissingManifest, `package.json has no "w6w" block`).at("package.json")
	}
	var block map[string]json.RawMessage
	if json.Unmarshal(text, &block) != nil {
		return nil, "", refuse(CodeInvalidManifest, `"w6w" must be an object`).at(s.line("package.json", fieldPattern("w6w")))
	}
	file := textOf(block["manifest"])
	if file == "" {
		return block, "package.json", nil
	}
	name := path.Clean(file)
	if !s.has(name) {
		return nil, "", refuse(CodeMissingManifest, "w6w.manifest names %s, which is not there", file).
			at(s.line("package.json", fieldPattern("manifest")))
	}
	joined, err := s.object(name)
	if err != nil {
		return nil, "", err
	}
	maps.Copy(joined, block)
	delete(joined, "manifest")
	return joined, name, nil
}

// readManifest checks a manifest's fields; where is the file it stands in.
func readManifest(s *source, fields map[string]json.RawMessage, where string) (*identity, error) {
	var wrong []trigger.FieldError
	lacks := func(name, message string) {
		wrong = append(wrong, trigger.FieldError{Path: name, Message: message})
	}
	id := &identity{
		id: textOf(fields["id"]), version: textOf(fields["version"]),
		title: textOf(fields["displayName"]), description: textOf(fields["description"]),
	}
	if message := idProblem(id.id); message != "" {
		lacks("id", message)
	}
	for _, name := range requiredFields() {
		if isBlank(fields[name]) {
			lacks(name, "is required")
		}
	}
	allow, message := readAllow(fields["network"])
	if message != "" {
		lacks("network.allow", message)
	}
	if len(wrong) > 0 {
		return nil, manifestError(s, where, wrong)
	}
	id.allow = allow
	if _, ok := fields["manifestVersion"]; !ok {
		fields["manifestVersion"] = json.RawMessage(`"1"`)
	}
	if author := textOf(fields["author"]); author != "" {
		fields["author"] = parseAuthor(author)
	}
	manifest, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write manifest: %w", err)
	}
	id.manifest = manifest
	return id, nil
}

func manifestError(s *source, where string, wrong []trigger.FieldError) *LoadError {
	var lines []string
	for _, field := range wrong {
		lines = append(lines, field.Path+" "+field.Message)
	}
	first, _, _ := strings.Cut(wrong[0].Path, ".")
	at := s.line(where, fieldPattern(first))
	if at == where {
		at = s.line(where, fieldPattern("w6w"))
	}
	err := refuse(CodeInvalidManifest, "%s", strings.Join(lines, "; ")).at(at)
	err.Details = wrong
	return err
}

// idPattern is an app id: reverse-DNS, or a single name as in the RFC's own
// example. It never holds a slash, so it fits a URL segment.
func idPattern() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9][A-Za-z0-9_-]*)*$`)
}

func idProblem(id string) string {
	switch {
	case id == "":
		return "is required"
	case strings.HasPrefix(strings.ToLower(id), "@w6w/"):
		return "starts with @w6w/, which is reserved for the host's own nodes"
	case len(id) > 200 || !idPattern().MatchString(id):
		return "must be a reverse-DNS name such as com.example.app"
	}
	return ""
}

// allowPattern is a hostname, or *.hostname (contract §2.3); * alone is any.
func allowPattern() *regexp.Regexp {
	return regexp.MustCompile(`^(\*\.)?([a-z0-9_]([a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$`)
}

// readAllow reads network.allow; an app without it may connect nowhere.
func readAllow(network json.RawMessage) ([]string, string) {
	if isBlank(network) {
		return nil, ""
	}
	var block struct {
		Allow []string `json:"allow"`
	}
	if json.Unmarshal(network, &block) != nil {
		return nil, "must be a list of host names"
	}
	allow := make([]string, 0, len(block.Allow))
	for _, entry := range block.Allow {
		host := strings.ToLower(strings.TrimSpace(entry))
		if host != "*" && !allowPattern().MatchString(host) {
			return nil, fmt.Sprintf("%q is neither a host name, nor *.host, nor *", entry)
		}
		allow = append(allow, host)
	}
	return allow, ""
}

// parseAuthor reads npm's "Name <mail> (url)".
func parseAuthor(author string) json.RawMessage {
	parts := regexp.MustCompile(`^([^<(]*)(?:<([^>]*)>)?\s*(?:\(([^)]*)\))?`).FindStringSubmatch(author)
	fields := map[string]string{"name": strings.TrimSpace(parts[1])}
	if parts[2] != "" {
		fields["email"] = parts[2]
	}
	if parts[3] != "" {
		fields["url"] = parts[3]
	}
	text, _ := json.Marshal(fields) // strings always encode
	return text
}

func fieldPattern(name string) *regexp.Regexp {
	return regexp.MustCompile(`"` + regexp.QuoteMeta(name) + `"\s*:`)
}

// textOf gives a JSON string's text, "" for anything else.
func textOf(value json.RawMessage) string {
	var text string
	if len(value) == 0 || json.Unmarshal(value, &text) != nil {
		return ""
	}
	return text
}

func isBlank(value json.RawMessage) bool {
	text := strings.TrimSpace(string(value))
	return text == "" || text == "null" || text == `""`
}
