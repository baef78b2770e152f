#!/usr/bin/env bash
# The whole system on this machine: PostgreSQL (the one in DATABASE_URL, else a private cluster),
# ingest, dispatcher, the sample apps and a subscription to each. Safe to repeat: what runs and has
# not changed is left running. Needs Go and nothing else; everything it writes is in bin/ and .local/.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
run=$root/.local/run
# shellcheck source=scripts/services.sh
. "$root/scripts/services.sh"

# answers PORT PATH: does GET PATH on this machine answer 200? (A fresh machine may have no curl.)
answers() {
  local line=''
  {
    printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$2" >&3
    IFS= read -r -t 5 line <&3 || true
  } 3<>"/dev/tcp/127.0.0.1/$1" || return 1
  case $line in *" 200 "*) return 0 ;; *) return 1 ;; esac
} 2>/dev/null

# set_address SERVICE VARIABLE PORT: exports VARIABLE_ADDR, as the environment has it or else on this
# machine's loopback, and sets VARIABLE_PORT. A service that runs keeps its port.
set_address() {
  local file=$run/$2.port address='' port
  eval "address=\${$2_ADDR:-}"
  if [ -n "$address" ]; then
    port=${address##*:}
  else
    port=$3
    if pid_of "$1" >/dev/null && [ -f "$file" ]; then
      port=$(cat "$file")
    else
      until port_is_free "$port"; do port=$((port + 10)); done
      [ "$port" = "$3" ] || say "port $3 is taken; $1 listens on $port instead"
    fi
    address=127.0.0.1:$port
  fi
  echo "$port" >"$file"
  eval "export $2_ADDR=$address; $2_PORT=$port"
}

# secret FILE: a random key of this checkout, made at the first call.
secret() {
  [ -s "$root/.local/$1" ] || (umask 077 && random_hex >"$root/.local/$1")
  cat "$root/.local/$1"
}

# stamp SERVICE: changes with everything that the running process cannot notice itself.
stamp() {
  {
    cat "$root/bin/$1"
    find "$APPS_DIR" -type f -exec cat {} + 2>/dev/null
    env | grep -E '^(LISTEN_)?DATABASE_URL=|^(INGEST|API|DISPATCHER)_ADDR=|^HOST_URL=|^APPS_DIR=|^MAX_BODY_BYTES=|^FALLBACK_INTERVAL=|^LEASE=|^HOOK_|^SHUTDOWN_GRACE=|^ENGINE_|^EMBEDDED_|^ALLOW_PRIVATE_EGRESS=|^TOCSIN_DEV=|^ENCRYPTION_KEYS=|^BOOTSTRAP_API_KEY=|^LOG_|^OTEL_' | sort
  } | cksum
}

# bring_up SERVICE: starts it, or starts it anew if it changed.
bring_up() {
  local now
  now=$(stamp "$1")
  if pid_of "$1" >/dev/null; then
    [ "$(cat "$run/$1.stamp" 2>/dev/null)" != "$now" ] || return 0
    say "$1 has changed: starting it anew"
    stop_service "$1"
  fi
  start_service "$1" "$now"
}

# await SERVICE PORT: until it says it is ready, or ends, or a minute has passed.
await() {
  local deadline=$((SECONDS + 60))
  until answers "$2" /readyz; do
    if ! pid_of "$1" >/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      tail -n 20 "$run/$1.log" >&2
      pid_of "$1" >/dev/null || die "$1 ended; above is the end of its log, $run/$1.log"
      die "$1 is not ready after a minute; above is the end of its log, $run/$1.log"
    fi
    sleep 0.1
  done
}

# subscription NAME ARGUMENTS…: the id of this checkout's subscription, made if the database lacks it.
subscription() {
  local file=$run/$1.subscription id status=0
  shift
  id=$(cat "$file" 2>/dev/null) || id=
  if [ -n "$id" ]; then
    "$root/bin/tocsin" subscriptions show "$id" --json >/dev/null 2>"$run/tocsin.log" || status=$?
    case $status in
      0) echo "$id" && return ;;
      3) ;; # no such subscription: another database
      *) cat "$run/tocsin.log" >&2 && die "the subscription could not be looked up" ;;
    esac
  fi
  id=$("$root/bin/tocsin" subscriptions create "$@" --json | sed -n 's/.*"id": *"\(sub_[^"]*\)".*/\1/p' | head -n 1)
  [ -n "$id" ] || die "the subscription could not be made"
  (umask 077 && echo "$id" >"$file")
  echo "$id"
}

command -v go >/dev/null 2>&1 || die "Go is not installed, or not in PATH; version 1.26 or newer is needed (https://go.dev/dl)"
mkdir -p "$run"
chmod 711 "$root/.local" 2>/dev/null || die "$root/.local belongs to another user; run make clean as that user first"
lock "$root/.local/up.lock"

if [ -z "${DATABASE_URL:-}" ]; then
  DATABASE_URL=$("$root/scripts/postgres.sh" start "$root/.local/postgres")
  database="private cluster in .local/postgres"
else
  database="DATABASE_URL"
fi

[ -x "$root/bin/ingest" ] || say "building (the first time downloads and compiles everything: some minutes on two cores)"
# heartbeat says that the build goes on, until it is killed or this script has ended.
heartbeat() {
  local sleeper
  trap 'kill "$sleeper"; exit' TERM
  while true; do
    sleep 30 >/dev/null 2>&1 &
    sleeper=$!
    wait "$sleeper"
    kill -0 $$ 2>/dev/null || exit
    say "still building, $SECONDS s so far"
  done
}
heartbeat >/dev/null &
beat=$!
make -s --no-print-directory -C "$root" build || { kill "$beat"; die "the build failed"; }
kill "$beat"

INGEST_PORT='' API_PORT='' DISPATCHER_PORT=''
set_address ingest INGEST 8080
set_address ingest API 8081
set_address dispatcher DISPATCHER 8082

BOOTSTRAP_API_KEY=${BOOTSTRAP_API_KEY:-$(secret api-key)}
export DATABASE_URL BOOTSTRAP_API_KEY
export TOCSIN_DEV=1
export ALLOW_PRIVATE_EGRESS=${ALLOW_PRIVATE_EGRESS:-true}
export APPS_DIR=${APPS_DIR:-$root/examples/apps}
export HOST_URL=${HOST_URL:-http://localhost:$INGEST_PORT}
export TOCSIN_API_URL=http://127.0.0.1:$API_PORT TOCSIN_API_KEY=$BOOTSTRAP_API_KEY

"$root/bin/tocsin" migrate >"$run/migrate.log" 2>&1 || { cat "$run/migrate.log" >&2; die "the migration failed"; }
bring_up ingest
bring_up dispatcher
await ingest "$API_PORT"
await dispatcher "$DISPATCHER_PORT"

(
  umask 077
  cat >"$root/.local/env" <<ENV
export DATABASE_URL='$DATABASE_URL'
export TOCSIN_API_URL='$TOCSIN_API_URL'
export TOCSIN_API_KEY='$TOCSIN_API_KEY'
ENV
)

receiver=$(subscription receiver io.tocsin.example.receiver call --workflow wf_hello)
github_secret=$(secret github-secret)
github=$(subscription github io.tocsin.example.github delivery --workflow wf_github --param-file "secret=$root/.local/github-secret")

delivery='{"action":"opened","repository":{"full_name":"octo-org/octo-repo"},"sender":{"login":"octocat"}}'
cat <<TEXT

Tocsin is up.

  calls        $HOST_URL/triggers/webhooks/<subscription id>
  API          http://localhost:$API_PORT (key: .local/api-key)
  dispatcher   http://localhost:$DISPATCHER_PORT/metrics
  PostgreSQL   $database
  logs         .local/run/ingest.log  .local/run/dispatcher.log

The first event. The body of a call to the sample app "receiver" starts a run of workflow wf_hello:

  curl -i -H 'Content-Type: application/json' -d '{"hello":"tocsin"}' $HOST_URL/triggers/webhooks/$receiver
TEXT
if command -v openssl >/dev/null 2>&1; then
  signature=$(printf %s "$delivery" | openssl dgst -sha256 -hmac "$github_secret" | sed 's/^.*= *//')
  cat <<TEXT

A delivery signed as GitHub signs. The sample app "github" checks the signature in its sandbox
(change a byte of it, and the call is stored as failed):

  curl -i -H 'Content-Type: application/json' -H 'X-GitHub-Event: issues' \\
    -H 'X-Hub-Signature-256: sha256=$signature' \\
    -d '$delivery' \\
    $HOST_URL/triggers/webhooks/$github
TEXT
fi
cat <<TEXT

What became of them:

  . .local/env            # where the API is, and its key
  bin/tocsin events list $receiver
  bin/tocsin events show <event id>

make down stops it all; make up again is harmless.
TEXT
