#!/usr/bin/env bash
# Stops what scripts/up.sh started, and nothing else. The data stays in .local/.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
run=$root/.local/run
# shellcheck source=scripts/services.sh
. "$root/scripts/services.sh"

[ -d "$root/.local" ] || exit 0
lock "$root/.local/up.lock"
stop_service dispatcher
stop_service ingest
if "$root/scripts/postgres.sh" url "$root/.local/postgres" >/dev/null 2>&1; then
  "$root/scripts/postgres.sh" stop "$root/.local/postgres"
  say "stopped PostgreSQL (its data is in .local/; make clean deletes it)"
fi
