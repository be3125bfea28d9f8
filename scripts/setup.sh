#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks. Nothing lacking: does nothing.
. "$(dirname "$0")/lib.sh"

rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# A linker and the C library: cargo needs both to link anything.
packages=()
if ! have cc && ! have gcc; then packages+=(gcc); fi
# For the tests of the wrapper for C++, and for the fuzzer.
if ! have c++; then packages+=(g++); fi
if [ ! -e /usr/include/stdio.h ]; then packages+=(libc6-dev); fi
# For scripts/nobody.sh, and for the examples with tar.
have setpriv || packages+=(util-linux)
have tar || packages+=(tar)

if [ ${#packages[@]} -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${packages[*]}"
    have apt-get || die "this machine lacks: ${packages[*]}; install them and run this again"
    as_root=()
    if [ "$(id -u)" != 0 ]; then
        have sudo || die "this machine lacks: ${packages[*]}; as root, run: $install"
        as_root=(sudo)
    fi
    say "installing ${packages[*]}"
    "${as_root[@]}" apt-get update
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install
fi

# For MPI over Pinfold: environments of Python, headers to build mpi4py with, and libfabric for one of the measurements.
# Without them those checks are skipped.
wanted=()
have python3 || wanted+=(python3)
python3 -c 'import ensurepip, venv' 2> /dev/null || wanted+=(python3-venv)
header='import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))'
python3 -c "$header" 2> /dev/null || wanted+=(python3-dev)
if [ ! -e /usr/include/rdma/fabric.h ]; then wanted+=(libfabric-dev); fi
if [ ${#wanted[@]} -gt 0 ] && have apt-get && { [ "$(id -u)" = 0 ] || have sudo; }; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    say "installing ${wanted[*]}"
    { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${wanted[@]}"; } || say "not installed: ${wanted[*]}"
fi

have cargo || die "there is no cargo; install Rust $rust_min or newer (https://rustup.rs)"
rust=$(rustc --version | cut -d ' ' -f 2)
if [ "$(printf '%s\n' "$rust_min" "$rust" | sort -V | head -n 1)" != "$rust_min" ]; then
    die "Rust $rust is too old, $rust_min is the least; run: rustup update"
fi

# Formatting and lints are not part of every installation. Without them those checks are skipped.
for tool in fmt:rustfmt clippy:clippy; do
    if ! cargo "${tool%:*}" --version > /dev/null 2>&1 && have rustup; then
        say "adding ${tool#*:}"
        rustup component add "${tool#*:}" || true
    fi
done
