# shellcheck shell=bash
# What the scripts share. Works with the bash 3.2 of macOS.

# args_of PID: the command line of a process; empty if there is none, or a zombie.
args_of() {
  if [ -r "/proc/$1/cmdline" ]; then tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null || true
  else ps -ww -p "$1" -o args= 2>/dev/null || true; fi
}

# lock PATH: one caller at a time; a lock whose holder is gone is taken over. Released at exit.
lock() {
  local waited=0 holder
  LOCK=$1
  until mkdir "$LOCK" 2>/dev/null; do
    holder=$(cat "$LOCK/pid" 2>/dev/null) || holder=
    if [ -n "$holder" ] && [ -z "$(args_of "$holder")" ]; then
      # Renaming is what only one of several waiters can do; whoever caught a fresh lock gives it back.
      if mv "$LOCK" "$LOCK.stale.$$" 2>/dev/null; then
        if [ "$(cat "$LOCK.stale.$$/pid" 2>/dev/null)" = "$holder" ]; then rm -rf "$LOCK.stale.$$"
        else mv "$LOCK.stale.$$" "$LOCK" 2>/dev/null || rm -rf "$LOCK.stale.$$"; fi
      fi
      continue
    fi
    [ "$waited" -lt 3000 ] || die "another call has held $LOCK for ten minutes; if none is running, delete it"
    waited=$((waited + 1))
    sleep 0.2
  done
  echo $$ >"$LOCK/pid"
  trap 'rm -rf "$LOCK"' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

random_hex() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }

# port_is_free PORT: nobody answers on this machine's loopback.
port_is_free() {
  ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && ! (exec 3<>"/dev/tcp/::1/$1") 2>/dev/null
}
