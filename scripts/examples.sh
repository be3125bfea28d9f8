#!/usr/bin/env bash
# Has each public type of the library an example in its documentation?
. "$(dirname "$0")/lib.sh"
have python3 || skip "no Python 3 here; run: apt-get install python3"
python3 scripts/examples.py --self-test
exec python3 scripts/examples.py "$@"
