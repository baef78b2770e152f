# shellcheck shell=bash
# ingest and dispatcher as background processes of this checkout: a pid, a log and a stamp of what
# was started lie in .local/run. Sourced by up.sh and down.sh, which set root and run.

# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

say() { printf '%s\n' "$*" >&2; }
die() { say "make: $*"; exit 1; }

# pid_of SERVICE: its pid if it runs and really is ours.
pid_of() {
  local pid
  pid=$(cat "$run/$1.pid" 2>/dev/null) || return 1
  case $(args_of "$pid") in
    "$root/bin/$1 "* | "$root/bin/$1") echo "$pid" ;;
    *) return 1 ;;
  esac
}

# start_service SERVICE STAMP: in a process group of its own, so that Ctrl-C here does not reach it.
start_service() {
  [ ! -f "$run/$1.log" ] || mv "$run/$1.log" "$run/$1.log.1"
  (
    set -m
    nohup "$root/bin/$1" </dev/null >"$run/$1.log" 2>&1 &
    echo $! >"$run/$1.pid"
  )
  printf '%s\n' "$2" >"$run/$1.stamp"
}

# stop_service SERVICE: SIGTERM, and SIGKILL when its own grace is long over.
stop_service() {
  local pid waited=0
  if pid=$(pid_of "$1"); then
    kill -TERM "$pid" 2>/dev/null || true
    while pid_of "$1" >/dev/null; do
      if [ "$waited" = 300 ]; then
        say "$1 (pid $pid) did not stop within 30 s; killing it"
        kill -KILL "$pid" 2>/dev/null || true
      fi
      [ "$waited" -lt 350 ] || die "$1 (pid $pid) does not stop"
      waited=$((waited + 1))
      sleep 0.1
    done
    say "stopped $1 (pid $pid)"
  fi
  rm -f "$run/$1.pid" "$run/$1.stamp"
}
