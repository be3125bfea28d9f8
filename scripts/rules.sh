#!/usr/bin/env bash
# Do sources and documents keep CONTRIBUTING's rules: how long lines and files are, how a file begins?
. "$(dirname "$0")/lib.sh"
have python3 || skip "no Python 3 here; run: apt-get install python3"
python3 scripts/rules.py --self-test
exec python3 scripts/rules.py "$@"
