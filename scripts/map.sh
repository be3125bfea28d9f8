#!/usr/bin/env bash
# Are there all the files, types and functions that ARCHITECTURE.md and docs/ name, and is the map still a map?
. "$(dirname "$0")/lib.sh"
have python3 || skip "no Python 3 here; run: apt-get install python3"
python3 scripts/map.py --self-test
exec python3 scripts/map.py "$@"
