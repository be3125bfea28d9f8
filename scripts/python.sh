#!/usr/bin/env bash
# The Python package: builds its wheel, installs it in an environment of its own below target/python, runs its tests.
# With --wheel it builds the wheel alone. Names of tests as arguments run only those. No Python to be had: skips, loudly.
# PYTHON names another interpreter than python3, a free-threaded one too, which gets a wheel and an environment of its own.
. "$(dirname "$0")/lib.sh"

interpreter=${PYTHON:-python3}
place=$target/python
tools="maturin>=1.9.4,<2"
# The tests use these where they can be had; those that lack something are skipped, and say so.
libraries=(numpy pyzmq pyarrow)

have "$interpreter" || skip "no $interpreter here; run: scripts/setup.sh"
"$interpreter" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "Python is older than 3.9"
"$interpreter" -c 'import ensurepip, venv' 2> /dev/null || skip "Python 3 lacks venv; run: scripts/setup.sh"
have cargo || skip "no cargo here; run: scripts/setup.sh"
mkdir -p "$place"

version=$("$interpreter" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3] + getattr(sys, "abiflags", ""))')
environment=$place/venv
[ -z "${PYTHON:-}" ] || environment=$place/venv-$version
ready=$environment/ready-$version
if [ ! -e "$ready" ]; then
    say "an environment of Python $version"
    rm -rf "$environment"
    log=$place/setup.log
    { "$interpreter" -m venv "$environment" && "$environment/bin/python" -m pip install --quiet "$tools"; } > "$log" 2>&1 ||
        { tail -n 5 "$log" >&2; skip "cannot install maturin"; }
    for library in "${libraries[@]}"; do
        "$environment/bin/python" -m pip install --quiet "$library" >> "$log" 2>&1 || say "not installed: $library"
    done
    touch "$ready"
fi
python=$environment/bin/python

say "the wheel"
rm -rf "$place/wheels"
# A wheel that is only tested is linked sooner.
if [ "${1:-}" = --wheel ]; then profile=release; else profile=checked; fi
CARGO_TARGET_DIR=$place/build "$environment/bin/maturin" build --quiet --profile "$profile" --locked \
    --interpreter "$python" --manifest-path python/Cargo.toml --out "$place/wheels"
wheel=$(ls "$place"/wheels/*.whl)
say "wheel: $wheel"
[ "${1:-}" != --wheel ] || exit 0

"$python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
# From where no source of the package is found in place of the wheel.
tests=$PWD/python/tests
cd "$place"
exec "$python" "$tests/run.py" "$@"
