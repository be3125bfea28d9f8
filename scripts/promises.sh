#!/usr/bin/env bash
# Attacks what the library promises, for MINUTES: transfers out of memory that changes, peers that are killed, peers
# that attack, fuzzed decoders. Each run adds to what those before have found. Options go to scripts/promises.py:
# --minutes N, --only KIND, --publish, --json, --help.
. "$(dirname "$0")/lib.sh"
python3 -c 'import tomllib' 2> /dev/null || skip "no Python 3.11 or later here; run: apt-get install python3"
exec python3 scripts/promises.py --target "$target" "$@"
