package secret_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tocsin-dev/tocsin/internal/secret"
)

func ring(t *testing.T, ids ...string) *secret.Keyring {
	t.Helper()
	var entries []string
	for _, id := range ids {
		key := bytes.Repeat([]byte(id[:1]), 32)
		entries = append(entries, id+":"+base64.StdEncoding.EncodeToString(key))
	}
	r, err := secret.ParseKeyring(secret.Text(strings.Join(entries, ",")))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSealedDataOpensWithTheSameRingAndPurposeOnly(t *testing.T) {
	t.Parallel()
	a, b := ring(t, "a"), ring(t, "b")
	for _, plaintext := range [][]byte{[]byte("x\x00y"), {}} {
		sealed := a.Seal("body", plaintext)
		got, err := a.Open("body", sealed)
		if err != nil || got == nil || !bytes.Equal(got, plaintext) {
			t.Errorf("open: %q, %v, want %q", got, err, plaintext)
		}
		if _, err := a.Open("state", sealed); !errors.Is(err, secret.ErrSealed) {
			t.Errorf("another purpose: %v, want ErrSealed", err)
		}
		if _, err := b.Open("body", sealed); !errors.Is(err, secret.ErrSealed) {
			t.Errorf("another ring: %v, want ErrSealed", err)
		}
	}
}

func TestNilStaysNil(t *testing.T) {
	t.Parallel()
	r := ring(t, "a")
	if sealed := r.Seal("body", nil); sealed != nil {
		t.Errorf("Seal(nil) = %v", sealed)
	}
	if opened, err := r.Open("body", nil); opened != nil || err != nil {
		t.Errorf("Open(nil) = %v, %v", opened, err)
	}
}

func TestAnOldKeyOpensAndTheFirstSeals(t *testing.T) {
	t.Parallel()
	sealed := ring(t, "old").Seal("body", []byte("text"))
	rotated := ring(t, "new", "old")
	if got, err := rotated.Open("body", sealed); err != nil || string(got) != "text" {
		t.Errorf("open with the rotated ring: %q, %v", got, err)
	}
	if _, err := ring(t, "new").Open("body", rotated.Seal("body", []byte("text"))); err != nil {
		t.Errorf("the first key did not seal: %v", err)
	}
}

func TestDamagedDataIsRefused(t *testing.T) {
	t.Parallel()
	r := ring(t, "a")
	sealed := r.Seal("body", []byte("text"))
	for i := range sealed {
		damaged := bytes.Clone(sealed)
		damaged[i] ^= 0x40
		if _, err := r.Open("body", damaged); err == nil {
			t.Errorf("byte %d changed: opened", i)
		}
		if _, err := r.Open("body", sealed[:i]); err == nil {
			t.Errorf("cut at %d: opened", i)
		}
	}
}

func TestBadKeyringsAreRefusedWithoutShowingKeys(t *testing.T) {
	t.Parallel()
	const canary = "Y2FuYXJ5LWNhbmFyeQ"
	for _, text := range []string{"", "a", "a:", ":" + canary, "a:" + canary, "a:not base64 " + canary} {
		_, err := secret.ParseKeyring(secret.Text(text))
		if err == nil {
			t.Errorf("%q was accepted", text)
			continue
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

func TestTextDoesNotPrint(t *testing.T) {
	t.Parallel()
	text := secret.Text("canary")
	if got := fmt.Sprintf("%s %v %+v %#v %q", text, text, struct{ T secret.Text }{text}, text, text); strings.Contains(got, "canary") {
		t.Errorf("printed: %s", got)
	}
}

func TestDevKeysParse(t *testing.T) {
	t.Parallel()
	if _, err := secret.ParseKeyring(secret.DevKeys); err != nil {
		t.Error(err)
	}
}
