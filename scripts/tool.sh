#!/usr/bin/env bash
# scripts/tool.sh NAME: builds a tool that tools/go.mod pins into .bin/, unless what is there
# already was built from the same pins.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
name=$1
bin=$root/.bin
key=$(cat "$root/tools/go.mod" "$root/tools/go.sum" | cksum)

if [ -x "$bin/$name" ] && [ "$(cat "$bin/$name.key" 2>/dev/null)" = "$key" ]; then exit 0; fi

package=$(cd "$root/tools" && GOWORK=off go list -f '{{.ImportPath}}' tool | grep "/$name\$") ||
  { echo "tools/go.mod pins no tool named $name" >&2; exit 1; }
echo "building $name into .bin (the first time: up to ten minutes on two cores)" >&2
mkdir -p "$bin"
(cd "$root/tools" && GOWORK=off GOBIN="$bin" go install "$package")
echo "$key" >"$bin/$name.key"
