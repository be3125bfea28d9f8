#!/usr/bin/env bash
# MPI over Pinfold under MPICH and Open MPI: programs that verify what they exchange, and mpi4py's tests of messages
# and collectives with 2 ranks. With arguments (make mpi-test) the programs run on two hosts, too, and all of
# mpi4py's tests with 2 and 3 ranks; the arguments go to scripts/mpi_suite.py.
. "$(dirname "$0")/lib.sh"
[ -d crates/pinfold-ofi ] || skip "this tree has no provider"
have python3 || skip "no Python 3 here; run: apt-get install python3"
scripts/mpi_setup.sh || exit $?

# The whole workspace is named so that what tests.sh has built serves here, too.
cargo test --locked --workspace --no-run
place=$target/mpi pinfold=$target/debug/pinfold
export PINFOLD_PROVIDER=$target/debug/deps
status=0
# Without arguments, as in `make test`: the programs on this host, and a part of the suite.
if [ $# = 0 ]; then
    python3 scripts/mpi_programs.py --place "$place" --pinfold "$pinfold" --hosts 1 || status=1
    python3 scripts/mpi_suite.py --place "$place" --pinfold "$pinfold" --ranks 2 --part || status=1
    exit $status
fi
python3 scripts/mpi_programs.py --place "$place" --pinfold "$pinfold" || status=1
python3 scripts/mpi_suite.py --place "$place" --pinfold "$pinfold" "$@" || status=1
exit $status
