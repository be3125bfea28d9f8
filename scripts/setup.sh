#!/usr/bin/env bash
# Installs what building and testing needs and this machine lacks. Nothing lacking: does nothing.
. "$(dirname "$0")/lib.sh"

rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# A linker and the C library: cargo needs both to link anything.
packages=()
if ! have cc && ! have gcc; then packages+=(gcc); fi
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
