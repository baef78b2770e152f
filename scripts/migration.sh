#!/usr/bin/env bash
# scripts/migration.sh NAME: the next pair of empty migrations in db/schema.
set -euo pipefail

cd "$(dirname "$0")/../db/schema"
name=${1:-}
case $name in
  '' | *[!a-z0-9_]*) echo "usage: make migration NAME=add_something (a-z, 0-9, _)" >&2; exit 2 ;;
esac
last=$(find . -name '*.up.sql' | sed -n 's|^./\([0-9]\{6\}\)_.*|\1|p' | sort -n | tail -n 1)
next=$(printf '%06d' $((10#${last:-0} + 1)))
for way in up down; do
  printf 'BEGIN;\n\nCOMMIT;\n' >"${next}_$name.$way.sql"
  echo "db/schema/${next}_$name.$way.sql"
done
