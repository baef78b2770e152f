package verify

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"regexp"
)

// keyURL says where a key comes from: a fixed URL, or a URL that the call
// names. What a call names is a stranger's word, so its host and path must be
// the vendor's.
type keyURL struct {
	fixed  string
	header string // lower case
	host   *regexp.Regexp
	path   *regexp.Regexp
}

// SafeURL parses a URL that a call named and that is to be fetched: https, a
// host and path that match as a whole, and nothing that could mean another
// host: no user, no port, no fragment (vendors contract §3, class 9).
func SafeURL(text string, host, path *regexp.Regexp) (string, bool) {
	const longest = 4 << 10
	if len(text) > longest {
		return "", false
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Opaque != "" || u.User != nil || u.Fragment != "" || u.Port() != "" {
		return "", false
	}
	// Hostname drops a trailing colon and brackets; the text itself must match.
	if !whole(host, u.Host) || path != nil && !whole(path, u.EscapedPath()) {
		return "", false
	}
	return u.String(), true
}

func whole(pattern *regexp.Regexp, text string) bool {
	match := pattern.FindStringIndex(text)
	return match != nil && match[0] == 0 && match[1] == len(text)
}

// certificate gets the PEM of the certificate that the call names.
func (a *attempt) certificate(ctx context.Context) (string, error) {
	named, err := a.single(place{headers: []string{a.spec.keyURL.header}}, ReasonFieldMissing, ReasonFieldAmbiguous)
	if err != nil {
		return "", err
	}
	return a.fetchCertificate(ctx, named)
}

func (a *attempt) fetchCertificate(ctx context.Context, named string) (string, error) {
	address, ok := SafeURL(named, a.spec.keyURL.host, a.spec.keyURL.path)
	if !ok {
		return "", ReasonKeyURLRefused
	}
	text, err := a.fetch(ctx, address)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", ReasonCertificateRefused
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || a.in.Now.Before(certificate.NotBefore) || a.in.Now.After(certificate.NotAfter) {
		return "", ReasonCertificateRefused
	}
	return string(pem.EncodeToMemory(block)), nil
}

func (a *attempt) fetch(ctx context.Context, address string) ([]byte, error) {
	if a.in.Keys == nil {
		return nil, ErrKeysUnavailable
	}
	text, err := a.in.Keys.Fetch(ctx, address)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeysUnavailable, err)
	}
	return text, nil
}
