#!/usr/bin/env bash
# Takes each check of tests/mutations/ out of the sources, one at a time: some test must fail for it. Options go to
# scripts/mutants.py: --only AREA, --sample PERCENT, --list, --help.
. "$(dirname "$0")/lib.sh"
python3 -c 'import tomllib' 2> /dev/null || skip "no Python 3.11 or later here; run: apt-get install python3"
exec python3 scripts/mutants.py --target "$target/mutants" "$@"
