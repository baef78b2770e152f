package registry

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/tocsin-dev/tocsin/internal/hook"
	"github.com/tocsin-dev/tocsin/internal/hook/bundle"
	"github.com/tocsin-dev/tocsin/internal/trigger"
)

// Codes of LoadError: w6w's, and this host's invalid_bundle for code that
// cannot be put together or must not be read.
const (
	CodeMissingPackageJSON = "missing_package_json"
	CodeInvalidJSON        = "invalid_json"
	CodeMissingManifest    = "missing_manifest"
	CodeInvalidManifest    = "invalid_manifest"
	CodeNPMDependencies    = "npm_dependencies_forbidden"
	CodeInvalidAction      = "invalid_action"
	CodeInvalidHealthCheck = "invalid_health_check"
	CodeExecSHAMismatch    = "exec_sha_mismatch"
	// CodeInvalidTrigger has exactly three cases: no key; onSubscribe without
	// onUnsubscribe; poll with onSubscribe (amendment §Two forms).
	CodeInvalidTrigger = "invalid_trigger"
	CodeInvalidBundle  = hook.CodeInvalidBundle
)

// LoadError says why an app does not load. Its phase is always "load".
type LoadError struct {
	Code    string
	Message string
	// Where is file:line inside the app's directory, or the file alone, or "".
	Where   string
	Details []trigger.FieldError
	// Stack is the app's source-mapped stack when its module threw.
	Stack string
}

func (e *LoadError) Error() string {
	if e.Where == "" {
		return e.Code + ": " + e.Message
	}
	return e.Code + ": " + e.Where + ": " + e.Message
}

// Phase is the w6w phase of every LoadError.
func (e *LoadError) Phase() string { return "load" }

// at says where in the app it is.
func (e *LoadError) at(where string) *LoadError {
	e.Where = where
	return e
}

func refuse(code, format string, args ...any) *LoadError {
	return &LoadError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// asLoadError gives any failure of the bundler or the runtime a code.
func asLoadError(err error) *LoadError {
	if own, ok := errors.AsType[*LoadError](err); ok {
		return own
	}
	if bundled, ok := errors.AsType[*bundle.Error](err); ok {
		return bundleError(bundled)
	}
	var hooked *hook.Error
	if !errors.As(err, &hooked) {
		return refuse(CodeInvalidBundle, "%s", err)
	}
	message := hooked.Message
	if hooked.Name != "" {
		message = hooked.Name + ": " + message
	}
	return &LoadError{Code: hooked.Code, Message: message, Stack: strings.TrimSpace(hooked.Stack)}
}

func bundleError(err *bundle.Error) *LoadError {
	out := refuse(CodeInvalidBundle, "%s", strings.TrimPrefix(err.Error(), "bundle app: "))
	for _, p := range err.Problems {
		out.Details = append(out.Details, trigger.FieldError{Path: strings.TrimSuffix(p.String(), ": "+p.Message), Message: p.Message})
		if p.File == "" {
			out.Details[len(out.Details)-1].Path = ""
		}
	}
	if len(err.Problems) == 1 {
		out.Where, out.Message = out.Details[0].Path, out.Details[0].Message
	}
	return out
}

// locate names the first place of the stack that is one of the app's files.
func (e *LoadError) locate(s *source) {
	if e.Where != "" || s == nil {
		return
	}
	for _, at := range regexp.MustCompile(`([\w./-]+\.[jt]sx?):(\d+)`).FindAllStringSubmatch(e.Stack, -1) {
		if name := path.Clean(at[1]); s.has(name) {
			e.Where = name + ":" + at[2]
			return
		}
	}
}
