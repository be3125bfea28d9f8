#!/usr/bin/env bash
# Do the files of the library use each other in circles no larger than they do today? Options go to scripts/circles.py:
# --all, --dot FILE, --help.
. "$(dirname "$0")/lib.sh"
have python3 || skip "no Python 3 here; run: apt-get install python3"
python3 scripts/circles.py --self-test
exec python3 scripts/circles.py "$@"
