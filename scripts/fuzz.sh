#!/usr/bin/env bash
# Each decoder of peers' bytes under cargo-fuzz, SECONDS seconds each: scripts/fuzz.sh [SECONDS [TARGET...]]
# The tests of `pinfold::fuzzing` run the same targets a short while without it.
. "$(dirname "$0")/lib.sh"
cargo +nightly --version > /dev/null 2>&1 ||
    skip "no nightly Rust here; run: rustup toolchain install nightly"
cargo +nightly fuzz --version > /dev/null 2>&1 ||
    skip "no cargo-fuzz here; run: cargo install cargo-fuzz"
seconds=${1:-60}
case $seconds in *[!0-9]* | '') die "$seconds is no number of seconds" ;; esac
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd fuzz && cargo +nightly fuzz list)
[ ${#targets[@]} -gt 0 ] || die "there are no targets"
# What was found interesting stays in fuzz/corpus, what fails in fuzz/artifacts.
for name in "${targets[@]}"; do
    say "$name, $seconds s"
    cargo +nightly fuzz run "$name" --target-dir "$target/fuzz" -- \
        -max_total_time="$seconds" -max_len=4096 -print_final_stats=1
done
