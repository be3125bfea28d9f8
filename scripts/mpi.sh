#!/usr/bin/env bash
# MPI over Pinfold: programs that verify what they exchange, and mpi4py's whole suite with 2 ranks, under MPICH and
# Open MPI. As many ranks as wanted, and the same suite over libfabric's own providers: make mpi-test.
. "$(dirname "$0")/lib.sh"
[ -d crates/pinfold-ofi ] || skip "this tree has no provider"
have python3 || skip "no Python 3 here; run: apt-get install python3"
scripts/mpi_setup.sh || exit $?

# The whole workspace is named so that what tests.sh has built serves here, too.
cargo test --locked --workspace --no-run
place=$target/mpi pinfold=$target/debug/pinfold
export PINFOLD_PROVIDER=$target/debug/deps
status=0
python3 scripts/mpi_programs.py --place "$place" --pinfold "$pinfold" || status=1
python3 scripts/mpi_suite.py --place "$place" --pinfold "$pinfold" "${@:---ranks=2}" || status=1
exit $status
