package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// The files of a built app.
const (
	artifactCode     = "app.js"
	artifactManifest = "manifest.json"
)

// artifact is a built app's manifest.json (contract §1.2). Unknown keys are
// errors.
type artifact struct {
	ArtifactVersion int               `json:"artifactVersion"`
	ID              string            `json:"id"`
	Version         string            `json:"version"`
	Manifest        json.RawMessage   `json:"manifest"`
	Actions         []json.RawMessage `json:"actions"`
	Auth            []struct {
		Auth  json.RawMessage `json:"auth"`
		Hooks []string        `json:"hooks"`
	} `json:"auth"`
	Triggers []struct {
		Trigger json.RawMessage `json:"trigger"`
		Hooks   []string        `json:"hooks"`
	} `json:"triggers"`
	HealthChecks []json.RawMessage `json:"healthChecks"`
	Interfaces   json.RawMessage   `json:"interfaces"`
	Exec         *struct {
		SHA256 string `json:"sha256"`
		Bytes  *int64 `json:"bytes"`
		Format string `json:"format"`
	} `json:"exec"`
	Map          json.RawMessage `json:"map"`
	SourceDigest json.RawMessage `json:"sourceDigest"`
	BuildInfo    json.RawMessage `json:"buildInfo"`
}

// isArtifact says whether a directory holds a built app.
func isArtifact(s *source) bool {
	return s.has(artifactManifest) && s.has(artifactCode) && !s.has("package.json")
}

// readArtifact reads a built app: what it declares comes from manifest.json,
// and the code is held against its hash.
func readArtifact(s *source) (*identity, *hook.Description, error) {
	built, err := parseArtifact(s)
	if err != nil {
		return nil, nil, err
	}
	if err := built.checkCode(s.files[artifactCode]); err != nil {
		return nil, nil, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(built.Manifest, &fields) != nil || fields == nil {
		return nil, nil, refuse(CodeInvalidManifest, "manifest must be an object").at(artifactManifest)
	}
	id, err := readManifest(s, fields, artifactManifest)
	if err != nil {
		return nil, nil, err
	}
	if id.id != built.ID || id.version != built.Version {
		return nil, nil, refuse(CodeInvalidManifest, "id and version are %s %s, but manifest's are %s %s", built.ID, built.Version, id.id, id.version).
			at(artifactManifest)
	}
	description, err := built.description()
	if err != nil {
		return nil, nil, err
	}
	return id, description, nil
}

// parseArtifact is strict: a key it does not know may change what another one
// means.
func parseArtifact(s *source) (*artifact, error) {
	content := s.files[artifactManifest]
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	built := &artifact{}
	if err := d.Decode(built); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, invalidJSON(artifactManifest, content, err)
		}
		return nil, refuse(CodeInvalidManifest, "%s", strings.TrimPrefix(err.Error(), "json: ")).at(artifactManifest)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, refuse(CodeInvalidJSON, "has text behind its end").at(artifactManifest)
	}
	if wrong := built.problems(); len(wrong) > 0 {
		return nil, manifestError(s, artifactManifest, wrong)
	}
	return built, nil
}

func (a *artifact) problems() []trigger.FieldError {
	var wrong []trigger.FieldError
	lacks := func(bad bool, path, message string) {
		if bad {
			wrong = append(wrong, trigger.FieldError{Path: path, Message: message})
		}
	}
	lacks(a.ArtifactVersion != 1, "artifactVersion", "must be 1")
	lacks(a.ID == "", "id", "is required")
	lacks(a.Version == "", "version", "is required")
	lacks(isBlank(a.Manifest), "manifest", "is required")
	lacks(a.Exec == nil, "exec", "is required")
	if a.Exec != nil {
		lacks(len(a.Exec.SHA256) != sha256.Size*2, "exec.sha256", "must be 64 hex digits")
		lacks(a.Exec.Bytes == nil, "exec.bytes", "is required")
		lacks(a.Exec.Format != "esm", "exec.format", `must be "esm"`)
	}
	return wrong
}

func (a *artifact) checkCode(code []byte) error {
	sum := sha256.Sum256(code)
	if got := hex.EncodeToString(sum[:]); !strings.EqualFold(got, a.Exec.SHA256) {
		return refuse(CodeExecSHAMismatch, "its SHA-256 is %s, but manifest.json says %s", got, a.Exec.SHA256).at(artifactCode)
	}
	if *a.Exec.Bytes != int64(len(code)) {
		return refuse(CodeExecSHAMismatch, "it has %d bytes, but manifest.json says %d", len(code), *a.Exec.Bytes).at(artifactCode)
	}
	return nil
}

// description gives what the runtime would have found in the module.
func (a *artifact) description() (*hook.Description, error) {
	definition := struct {
		Actions      []json.RawMessage `json:"actions,omitempty"`
		Auth         []json.RawMessage `json:"auth,omitempty"`
		Triggers     []json.RawMessage `json:"triggers,omitempty"`
		HealthChecks []json.RawMessage `json:"healthChecks,omitempty"`
	}{HealthChecks: a.HealthChecks}
	for _, entry := range a.Actions {
		var wrapped struct {
			Action json.RawMessage `json:"action"`
		}
		if json.Unmarshal(entry, &wrapped) == nil && len(wrapped.Action) > 0 {
			entry = wrapped.Action
		}
		definition.Actions = append(definition.Actions, entry)
	}
	for _, method := range a.Auth {
		definition.Auth = append(definition.Auth, orNull(method.Auth))
	}
	var hooks []string
	for _, method := range a.Auth {
		for _, name := range method.Hooks {
			hooks = append(hooks, "auth:"+authKey(objectOf(method.Auth))+"/"+name)
		}
	}
	for _, t := range a.Triggers {
		definition.Triggers = append(definition.Triggers, orNull(t.Trigger))
		var key struct {
			Key string `json:"key"`
		}
		_ = json.Unmarshal(t.Trigger, &key) // a trigger without a key is refused later
		for _, name := range t.Hooks {
			hooks = append(hooks, key.Key+"/"+name)
		}
	}
	text, err := json.Marshal(definition)
	if err != nil {
		return nil, refuse(CodeInvalidManifest, "%s", err).at(artifactManifest)
	}
	return &hook.Description{Definition: text, Hooks: hooks}, nil
}

func orNull(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("null")
	}
	return text
}
