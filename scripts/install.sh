#!/usr/bin/env bash
# Installs the C library below PREFIX (/usr/local): scripts/install.sh. DESTDIR goes before it, for packages.
# BUILT names a folder with a libpinfold_capi.so and .a that are there already; else they are built.
. "$(dirname "$0")/lib.sh"
prefix=${PREFIX:-/usr/local}
case $prefix in /*) ;; *) die "PREFIX is $prefix, not an absolute path" ;; esac
crate=crates/pinfold-capi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
abi=$(sed -n 's/.*-soname,libpinfold\.so\.\([0-9]*\).*/\1/p' "$crate/build.rs")
[ -n "$version" ] && [ -n "$abi" ] || die "no version in Cargo.toml, or none of the interface in $crate/build.rs"

if [ -z "${BUILT:-}" ]; then
    cargo build --locked --release --package pinfold-capi
    BUILT=$target/release
fi

to=${DESTDIR:-}$prefix
install -d "$to/include" "$to/lib/pkgconfig" "$to/lib/cmake/pinfold"
install -m 644 "$crate/include/pinfold.h" "$crate/include/pinfold.hpp" "$to/include/"
install -m 644 "$BUILT/libpinfold_capi.a" "$to/lib/libpinfold.a"
install -m 755 "$BUILT/libpinfold_capi.so" "$to/lib/libpinfold.so.$version"
ln -sf "libpinfold.so.$version" "$to/lib/libpinfold.so.$abi"
ln -sf "libpinfold.so.$abi" "$to/lib/libpinfold.so"
fill() {
    sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|g; s|@ABI@|$abi|" "$crate/packaging/$1.in" > "$2/$1"
}
fill pinfold.pc "$to/lib/pkgconfig"
fill pinfold-config.cmake "$to/lib/cmake/pinfold"
fill pinfold-config-version.cmake "$to/lib/cmake/pinfold"
say "installed below $to"
