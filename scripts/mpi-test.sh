#!/usr/bin/env bash
# MPI over Pinfold as scripts/mpi.sh has it, on two hosts as well, and mpi4py's suite over libfabric's own providers.
. "$(dirname "$0")/lib.sh"
scripts/setup.sh
exec scripts/mpi.sh --baseline "$@"
