#!/usr/bin/env bash
# scripts/with-postgres.sh [--durable] COMMAND…
#
# Runs COMMAND with TOCSIN_TEST_DATABASE_URL naming a private, throw-away PostgreSQL that is gone
# when the command ends, however it ends. Where the variable is already set, that one is used.
# --durable leaves fsync on: for benchmarks.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
mode=--throwaway
if [ "${1:-}" = --durable ]; then mode='' && shift; fi

if [ -n "${TOCSIN_TEST_DATABASE_URL:-}" ]; then exec "$@"; fi

mkdir -p "$root/.local"
# What a killed run left behind.
for old in "$root"/.local/test.*; do
  pid=${old##*.}
  case $pid in *[!0-9]*) continue ;; esac
  kill -0 "$pid" 2>/dev/null || "$root/scripts/postgres.sh" destroy "$old" || true
done

dir=$root/.local/test.$$
trap '"$root/scripts/postgres.sh" destroy "$dir"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
TOCSIN_TEST_DATABASE_URL=$("$root/scripts/postgres.sh" start "$dir" $mode)
export TOCSIN_TEST_DATABASE_URL

status=0
"$@" || status=$?
exit "$status"
