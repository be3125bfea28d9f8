#!/usr/bin/env bash
# The tests with hostile peers and those of mapped messages, under AddressSanitizer: nobody reads or
# writes what is not there.
. "$(dirname "$0")/lib.sh"
host=$(rustc +nightly -vV 2> /dev/null | sed -n 's/^host: //p')
[ -n "$host" ] || skip "no nightly Rust here; run: rustup toolchain install nightly"
runtime=$(rustc +nightly --print target-libdir --target "$host")/librustc-nightly_rt.asan.a
[ -e "$runtime" ] || skip "this Rust has no AddressSanitizer for $host"
# Attackers leave a mess, which is theirs; a long quarantine would look like a leak of the victims.
export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16:allocator_may_return_null=1
# Named as a target, or what runs while building would be checked, too.
export RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR=$target/asan
cargo +nightly test --locked --target "$host" --package pinfold-tests --no-fail-fast \
    --test hostile --test mapped "$@" -- --skip address_space
