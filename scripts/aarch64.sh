#!/usr/bin/env bash
# The product for AArch64: cross-compiled, clippy's word on it, and under qemu's emulation of single programs the unit
# tests of pinfold-sys. What a test misses there (io_uring, userfaultfd, filters on system calls, advice about memory)
# it finds out, and is skipped and counted. Arguments go to the tests, which have LIMIT seconds (1,200). --quick:
# checked, not built, and only the tests of the copies.
. "$(dirname "$0")/lib.sh"
triple=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc
# Where the C library of such programs is.
root=/usr/aarch64-linux-gnu
packages="qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
[ "$(host_triple)" != "$triple" ] || skip "this machine is one: the ordinary checks are for it"

quick=
if [ "${1:-}" = --quick ]; then quick=yes; shift; fi

lacks() { ! have qemu-aarch64 || ! have "$compiler" || [ ! -e "$root/lib/libc.so.6" ]; }
if lacks && [ -z "$quick" ] && have apt-get && [ "$(id -u)" = 0 ]; then
    say "installing $packages"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive \
        apt-get install -qy --no-install-recommends $packages; } > /dev/null 2>&1 || true
fi
for tool in qemu-aarch64 "$compiler"; do
    have "$tool" || skip "there is no $tool; run: apt-get install $packages"
done
[ -e "$root/lib/libc.so.6" ] || skip "there is no $root/lib/libc.so.6; run: apt-get install libc6-dev-arm64-cross"

has_std() { [ -d "$(rustc --print target-libdir --target "$triple" 2> /dev/null)" ]; }
has_std || ! have rustup || rustup target add "$triple" > /dev/null 2>&1 || true
has_std || skip "there is no standard library for $triple; run: rustup target add $triple"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$compiler CC_aarch64_unknown_linux_gnu=$compiler
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $root"
export CARGO_INCREMENTAL=0
product=(-p pinfold-sys -p pinfold -p pinfold-bench -p pinfold-cli -p pinfold-capi -p pinfold-ofi)

# Runs the tests of pinfold-sys that arguments name, all without any.
# qemu on x86-64 keeps more order than the processor would: the test of what a fence does would tell nothing.
run() {
    local status=0 limit=${LIMIT:-1200}
    timeout --foreground "$limit" \
        cargo test --locked --target "$triple" -p pinfold-sys --lib -- --skip visibility "$@" || status=$?
    [ "$status" != 124 ] || die "the tests ran past $limit s"
    return "$status"
}

if [ -n "$quick" ]; then
    # Flags for the compiler would have everything compiled twice.
    said=$(cargo check --locked --target "$triple" "${product[@]}" 2>&1) || die "$said"
    ! grep -A 12 '^warning' <<< "$said" || die "it compiles with warnings"
    run cpu:: "$@"
    exit
fi
# Without the tests: some name system calls that this architecture does not have.
! cargo clippy --version > /dev/null 2>&1 ||
    cargo clippy --locked --target "$triple" "${product[@]}" --lib --bins -- -D warnings
cargo build --locked --target "$triple" "${product[@]}"
run "$@"
qemu-aarch64 -L "$root" "$target/$triple/debug/pinfold" --version
