#!/usr/bin/env bash
# mpi4py's whole suite with 2 and 3 ranks over Pinfold under both MPIs, over libfabric's own providers, and the tests
# that are left out by themselves; after the programs of scripts/mpi.sh.
. "$(dirname "$0")/lib.sh"
scripts/setup.sh
exec scripts/mpi.sh --ranks 2,3 --baseline --recheck "$@"
