#!/usr/bin/env bash
# A tenth of what scripts/mutants.sh does, at random.
. "$(dirname "$0")/lib.sh"
exec scripts/mutants.sh --sample 10 "$@"
