#!/usr/bin/env bash
# scripts/fuzz.sh: runs every fuzz target of every module for FUZZTIME (default 30s) each.
set -euo pipefail

cd "$(dirname "$0")/.."
for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' work); do
  for target in $(go test -run='^$' -list='^Fuzz' "$package" | grep '^Fuzz' || true); do
    echo "== $target ($package)"
    go test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-30s}" "$package"
  done
done
