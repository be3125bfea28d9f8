#!/usr/bin/env bash
# Builds the command and the provider, and measures MPI over Pinfold beside its rivals; figures of each run go to
# target/mpi/bench.json, a plot to target/mpi/bench.svg. Arguments go to scripts/bench_mpi.py.
. "$(dirname "$0")/lib.sh"

scripts/setup.sh
scripts/mpi_setup.sh || exit $?
say "building (minutes the first time)"
cargo build --locked --release --package pinfold-cli --package pinfold-ofi
export PINFOLD_PROVIDER=$target/release
status=0
python3 scripts/bench_mpi.py --place "$target/mpi" --pinfold "$target/release/pinfold" \
    --json "$target/mpi/bench.json" --svg "$target/mpi/bench.svg" "$@" || status=$?
say "runs: $target/mpi/bench.json, plot: $target/mpi/bench.svg"
exit $status
