#!/usr/bin/env bash
# A private PostgreSQL cluster in a directory of its own, on a free loopback port.
#
#   scripts/postgres.sh start   DIR [--throwaway]   start it (made at the first call) and print its URL
#   scripts/postgres.sh url     DIR                 print the URL of the running cluster
#   scripts/postgres.sh stop    DIR                 stop it, keep its data
#   scripts/postgres.sh destroy DIR                 stop it and delete everything it wrote
#   scripts/postgres.sh bin                         print the directory of the server programs
#
# --throwaway turns durability off: for tests, whose data nobody needs after a crash.
#
# The server programs are those of $PG_BIN if set, else the newest that this machine has, else
# what its package manager installs. PostgreSQL refuses to run as root, so root runs it as the
# user "postgres" (or "nobody"); everyone else runs it as themselves. It listens on 127.0.0.1
# only, with a password of its own and no Unix socket. Works with the bash 3.2 of macOS.
set -euo pipefail

readonly MIN_MAJOR=14
readonly INSTALL_HINT="install PostgreSQL $MIN_MAJOR or newer (Debian, Ubuntu: apt-get install postgresql;
    Fedora: dnf install postgresql-server; Alpine: apk add postgresql; macOS: brew install postgresql@17),
    or set PG_BIN to the directory that holds initdb, pg_ctl and postgres,
    or set DATABASE_URL (tests: TOCSIN_TEST_DATABASE_URL) to a PostgreSQL that is already running"

say() { printf 'postgres: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# --- the server programs ---------------------------------------------------------------------

is_bin_dir() { [ -x "$1/postgres" ] && [ -x "$1/initdb" ] && [ -x "$1/pg_ctl" ]; }

# major_of DIR: the major version of DIR/postgres, nothing if it cannot be told.
major_of() { LC_ALL=C "$1/postgres" -V 2>/dev/null | sed -n 's/^[^0-9]*\([0-9][0-9]*\).*/\1/p'; }

candidates() {
  local dir
  for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/libexec/postgresql* \
    /opt/homebrew/opt/postgresql*/bin /usr/local/opt/postgresql*/bin \
    /home/linuxbrew/.linuxbrew/opt/postgresql*/bin \
    /Applications/Postgres.app/Contents/Versions/*/bin /opt/local/lib/postgresql*/bin; do
    echo "$dir"
  done
  pg_config --bindir 2>/dev/null || true
  if dir=$(command -v initdb 2>/dev/null); then dirname "$dir"; fi
}

# find_bin [MAJOR]: the newest usable directory, or the one of that major version.
find_bin() {
  local want=${1:-} dir major best='' best_major=0
  while IFS= read -r dir; do
    is_bin_dir "$dir" || continue
    major=$(major_of "$dir")
    [ -n "$major" ] && [ "$major" -ge "$MIN_MAJOR" ] || continue
    if [ -n "$want" ]; then
      [ "$major" = "$want" ] && { echo "$dir"; return 0; }
    elif [ "$major" -gt "$best_major" ]; then
      best=$dir best_major=$major
    fi
  done <<LIST
$(candidates)
LIST
  [ -n "$best" ] && echo "$best"
}

# as_admin CMD…: as root, or through a sudo that asks for no password.
as_admin() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_admin() {
  [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; }
}

# announced CMD…: runs it with its output kept for the case that it fails.
announced() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" != 0 ]; then tail -n 20 "$log" >&2; fi
  rm -f "$log"
  return "$status"
}

apt_install() {
  # Debian makes and starts a cluster of its own when the package is installed, unless told not to.
  local conf=/etc/postgresql-common/createcluster.d status=0
  local quiet='apt-get install -y -q --no-install-recommends postgresql'
  as_admin mkdir -p "$conf"
  echo 'create_main_cluster = false' | as_admin tee "$conf/tocsin-private.conf" >/dev/null
  # shellcheck disable=SC2086
  announced as_admin env DEBIAN_FRONTEND=noninteractive $quiet 2>/dev/null || {
    announced as_admin apt-get update -q &&
      announced as_admin env DEBIAN_FRONTEND=noninteractive $quiet
  } || status=$?
  as_admin rm -f "$conf/tocsin-private.conf"
  return "$status"
}

install_server() {
  say "no PostgreSQL $MIN_MAJOR or newer found on this machine"
  if [ "$(id -u)" != 0 ] && command -v brew >/dev/null 2>&1; then
    say "installing it: brew install postgresql@17 (takes a few minutes)"
    announced brew install postgresql@17
    return
  fi
  if ! can_admin; then
    say "not root, and sudo is missing or wants a password, so it cannot be installed from here"
    return 1
  fi
  if command -v apt-get >/dev/null 2>&1; then
    say "installing it: apt-get install postgresql (a minute or two; no system cluster is created)"
    apt_install
  elif command -v dnf >/dev/null 2>&1; then
    say "installing it: dnf install postgresql-server (a minute or two)"
    announced as_admin dnf install -y postgresql-server
  elif command -v apk >/dev/null 2>&1; then
    say "installing it: apk add postgresql"
    announced as_admin apk add postgresql
  else
    say "no package manager that this script knows (apt-get, dnf, apk, brew)"
    return 1
  fi
}

# set_bin: sets BIN to the directory of the server programs that fit the cluster in DIR.
set_bin() {
  local major=
  if [ -n "${PG_BIN:-}" ]; then
    is_bin_dir "$PG_BIN" || die "PG_BIN=$PG_BIN holds no initdb, pg_ctl and postgres"
    major=$(major_of "$PG_BIN")
    [ -n "$major" ] && [ "$major" -ge "$MIN_MAJOR" ] ||
      die "PG_BIN=$PG_BIN is PostgreSQL ${major:-of unknown version}; $MIN_MAJOR or newer is needed"
    BIN=$PG_BIN
    return
  fi
  if [ -n "${HOME_DIR:-}" ] && [ -f "$HOME_DIR/major" ]; then
    major=$(cat "$HOME_DIR/major")
    BIN=$(find_bin "$major") && return
    die "the cluster in $DIR was made by PostgreSQL $major, which is not on this machine any more:
    bring it back, or drop the local data with: $0 destroy $DIR"
  fi
  BIN=$(find_bin) && return
  install_server || die "there is no PostgreSQL to run. Ways out:
    $INSTALL_HINT"
  BIN=$(find_bin) || die "PostgreSQL was installed but its server programs were not found. Ways out:
    $INSTALL_HINT"
}

# --- who runs it, and where its files lie ----------------------------------------------------

# set_runner: RUN_AS is the user that root hands the server to, empty for everyone else.
set_runner() {
  RUN_AS=
  [ "$(id -u)" = 0 ] || return 0
  for RUN_AS in postgres nobody; do
    if id "$RUN_AS" >/dev/null 2>&1; then return 0; fi
  done
  die "PostgreSQL does not run as root, and there is neither a user 'postgres' nor 'nobody' to run it as"
}

# as_runner CMD…: from / (the caller's directory may be closed to that user), reading nothing.
as_runner() {
  if [ -z "$RUN_AS" ]; then (cd / && exec "$@" </dev/null); return; fi
  if command -v runuser >/dev/null 2>&1; then
    (cd / && exec runuser -u "$RUN_AS" -- "$@" </dev/null)
  elif command -v setpriv >/dev/null 2>&1; then
    (cd / && exec setpriv --reuid="$RUN_AS" --regid="$(id -g "$RUN_AS")" --clear-groups -- "$@" </dev/null)
  elif command -v sudo >/dev/null 2>&1; then
    (cd / && exec sudo -n -u "$RUN_AS" -- "$@" </dev/null)
  else
    # BusyBox's su takes no arguments after the command, so they travel quoted.
    local line='' word
    for word in "$@"; do line="$line '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
    (cd / && exec su -s /bin/sh "$RUN_AS" -c "exec $line" </dev/null)
  fi
}

# try_home PATH: makes PATH the cluster's home if its user can work in it.
try_home() {
  mkdir -p "$1" 2>/dev/null || return 1
  chmod 700 "$1"
  if [ -n "$RUN_AS" ]; then chown "$RUN_AS" "$1" || return 1; fi
  as_runner test -w "$1" 2>/dev/null && as_runner test -x "$1" 2>/dev/null
}

# make_home: the cluster lies in DIR/cluster, or in a temporary directory where the way to DIR
# is closed to the user that runs it (a checkout below /root). DIR/home says where.
make_home() {
  local tmp
  if try_home "$DIR/cluster"; then
    HOME_DIR=$DIR/cluster
  else
    rmdir "$DIR/cluster" 2>/dev/null || true
    for tmp in "${TMPDIR:-/tmp}" /tmp /var/tmp; do
      HOME_DIR=$(mktemp -d "${tmp%/}/tocsin-postgres.XXXXXX" 2>/dev/null) || continue
      if try_home "$HOME_DIR"; then break; fi
      rm -rf "$HOME_DIR"
      HOME_DIR=
    done
    [ -n "$HOME_DIR" ] || die "user $RUN_AS can write neither below $DIR nor in a temporary directory"
    say "user $RUN_AS cannot reach $DIR, so the data lies in $HOME_DIR"
  fi
  printf '%s\n' "$HOME_DIR" >"$DIR/home"
}

# --- state -----------------------------------------------------------------------------------

# server_pid: the pid of this cluster's server, nothing if it does not run. A pid file that
# outlived its server may name a stranger, so the process must also look like ours.
server_pid() {
  local pid
  [ -n "$HOME_DIR" ] && [ -f "$HOME_DIR/data/postmaster.pid" ] || return 1
  pid=$(sed -n 1p "$HOME_DIR/data/postmaster.pid" 2>/dev/null) || return 1
  case $pid in '' | *[!0-9]*) return 1 ;; esac
  case $(args_of "$pid") in
    *"$HOME_DIR/data"*) echo "$pid" ;;
    *) return 1 ;;
  esac
}

# data_is_open: does a child of a server that died still work in the data directory?
data_is_open() {
  local cwd
  for cwd in /proc/[0-9]*/cwd; do
    if [ "$(readlink "$cwd" 2>/dev/null)" = "$HOME_DIR/data" ]; then return 0; fi
  done
  return 1
}

url() { printf 'postgres://tocsin:%s@127.0.0.1:%s/tocsin?sslmode=disable\n' "$(cat "$DIR/password")" "$(cat "$DIR/port")"; }

# --- commands --------------------------------------------------------------------------------

free_port() {
  local port tries=0
  while [ "$tries" -lt 50 ]; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    if port_is_free "$port"; then echo "$port"; return; fi
    tries=$((tries + 1))
  done
  die "found no free port on 127.0.0.1"
}

make_cluster() {
  local new=$HOME_DIR/data.new pw=$HOME_DIR/initdb-password options='' settings log=$HOME_DIR/initdb.log
  as_runner rm -rf "$new"
  (umask 077 && random_hex >"$DIR/password")
  # initdb reads the password as the user that runs it.
  (umask 077 && cat "$DIR/password" >"$pw")
  [ -z "$RUN_AS" ] || chown "$RUN_AS" "$pw"
  settings="
# Tocsin's private cluster: loopback only, no Unix socket.
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 400
timezone = 'UTC'
log_timezone = 'UTC'
"
  if [ "$THROWAWAY" = 1 ]; then
    options=--no-sync
    settings="$settings
fsync = off
synchronous_commit = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 4GB
"
  fi
  # shellcheck disable=SC2086
  if ! as_runner "$BIN/initdb" -D "$new" -U tocsin -E UTF8 --no-locale --auth=scram-sha-256 \
    --pwfile="$pw" $options >"$log" 2>&1; then
    rm -f "$pw"
    cat "$log" >&2
    die "initdb failed; its programs are those of $BIN${RUN_AS:+, run as user $RUN_AS}"
  fi
  rm -f "$pw" "$log"
  printf '%s' "$settings" >>"$new/postgresql.conf"
  # A single-user server makes the database, so that no client program is needed.
  echo 'CREATE DATABASE tocsin;' >"$HOME_DIR/create.sql"
  chmod 644 "$HOME_DIR/create.sql"
  as_runner sh -c "'$BIN/postgres' --single -D '$new' postgres <'$HOME_DIR/create.sql'" >/dev/null 2>&1 ||
    die "could not create the database in $new"
  rm -f "$HOME_DIR/create.sql"
  major_of "$BIN" >"$HOME_DIR/major"
  as_runner mv "$new" "$HOME_DIR/data"
}

start() {
  local pid port tries=0 log
  mkdir -p "$(dirname "$DIR")"
  lock "$DIR.lock"
  mkdir -p "$DIR"
  # The cluster's user must be able to pass through; what is secret here has its own mode.
  chmod 711 "$DIR" 2>/dev/null || die "$DIR belongs to another user; remove it as that user, or use another checkout"
  HOME_DIR=$(cat "$DIR/home" 2>/dev/null) || HOME_DIR=
  if pid=$(server_pid); then url; return; fi
  [ -n "$HOME_DIR" ] && [ -d "$HOME_DIR/data" ] || HOME_DIR=
  set_bin
  set_runner
  if [ -z "$HOME_DIR" ]; then
    make_home
    say "making a private cluster with $("$BIN/postgres" -V | sed 's/^postgres *//')"
    make_cluster
  fi
  log=$HOME_DIR/server.log
  # A pid file that names a stranger, or a zombie, would stop the start. One that names nobody is
  # left for the server to judge.
  pid=$(sed -n 1p "$HOME_DIR/data/postmaster.pid" 2>/dev/null) || pid=
  if [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
    while data_is_open && [ "$tries" -lt 50 ]; do sleep 0.2; tries=$((tries + 1)); done
    tries=0
    rm -f "$HOME_DIR/data/postmaster.pid"
  fi
  port=$(cat "$DIR/port" 2>/dev/null) || port=
  while [ "$tries" -lt 10 ]; do
    if [ -z "$port" ] || ! port_is_free "$port"; then port=$(free_port); fi
    if as_runner "$BIN/pg_ctl" -D "$HOME_DIR/data" -l "$log" -o "-p $port" -w -t 120 start >/dev/null 2>&1; then
      (umask 077 && echo "$port" >"$DIR/port")
      url
      return
    fi
    case $(tail -n 8 "$log" 2>/dev/null) in
      *"could not create any TCP/IP sockets"* | *"Address already in use"*) port= ;;
      *"shared memory block"*) sleep 1 ;;
      *) break ;;
    esac
    tries=$((tries + 1))
  done
  tail -n 20 "$log" >&2 2>/dev/null || true
  die "the server did not start; its whole log is $log"
}

stop() {
  local mode=$1 pid waited=0
  HOME_DIR=$(cat "$DIR/home" 2>/dev/null) || HOME_DIR=
  pid=$(server_pid) || return 0
  # SIGINT is a fast shutdown, SIGQUIT an immediate one; the server's own signals need no server programs.
  if [ "$mode" = fast ]; then kill -INT "$pid"; else kill -QUIT "$pid"; fi
  while server_pid >/dev/null; do
    if [ "$waited" = 150 ]; then kill -QUIT "$pid" 2>/dev/null || true; fi
    [ "$waited" -lt 300 ] || die "the server (pid $pid) does not stop"
    waited=$((waited + 1))
    sleep 0.1
  done
}

destroy() {
  [ -d "$DIR" ] || { rm -rf "$DIR.lock"; return 0; }
  lock "$DIR.lock"
  stop immediate
  case ${HOME_DIR:-} in
    "$DIR"/cluster | */tocsin-postgres.??????) rm -rf "$HOME_DIR" ;;
  esac
  rm -rf "$DIR"
}

absolute() { case $1 in /*) echo "${1%/}" ;; *) echo "$PWD/${1%/}" ;; esac; }

main() {
  local command=${1:-} usage='sed -n 2,11p'
  shift || true
  DIR='' HOME_DIR='' THROWAWAY=0
  while [ $# -gt 0 ]; do
    case $1 in
      --throwaway) THROWAWAY=1 ;;
      -*) die "unknown flag $1" ;;
      *) DIR=$(absolute "$1") ;;
    esac
    shift
  done
  case $command in
    bin) set_bin && echo "$BIN" && return ;;
    start | url | stop | destroy) ;;
    *) $usage "$0" | sed 's/^# \{0,1\}//' >&2; exit 2 ;;
  esac
  [ -n "$DIR" ] || die "$command needs a directory"
  case $command in
    start) start ;;
    url)
      HOME_DIR=$(cat "$DIR/home" 2>/dev/null) || HOME_DIR=
      server_pid >/dev/null || die "no cluster runs in $DIR"
      url
      ;;
    stop)
      [ -d "$DIR" ] || return 0
      lock "$DIR.lock"
      stop fast
      ;;
    destroy) destroy ;;
  esac
}

main "$@"
