#!/usr/bin/env bash
# Each decoder of peers' bytes under libFuzzer, SECONDS seconds each: scripts/fuzz.sh [SECONDS [TARGET...]]
# Any Rust will do; what the compiler puts in for the fuzzer takes no nightly one. Where there is one, and cargo-fuzz,
# `cargo +nightly fuzz run TARGET` runs the same targets under AddressSanitizer.
# The tests of `pinfold::fuzzing` run them over random inputs without any of this.
. "$(dirname "$0")/lib.sh"
seconds=${1:-5}
case $seconds in *[!0-9]* | '') die "$seconds is no number of seconds" ;; esac
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' fuzz/Cargo.toml | grep -v '^pinfold-fuzz$')
[ ${#targets[@]} -gt 0 ] || die "there are no targets"
# With a target named, build scripts are not made for the fuzzer.
triple=$(host_triple)

build() {
    have c++ || skip "no C++ compiler here, which libFuzzer takes; run: apt-get install g++"
    if ! said=$(cargo fetch --locked --manifest-path fuzz/Cargo.toml 2>&1); then
        case $said in
            *'--locked was passed'*) die "fuzz/Cargo.lock is out of date; run: (cd fuzz && cargo update --workspace)" ;;
            *) skip "libfuzzer-sys cannot be fetched here: $said" ;;
        esac
    fi
    # What cargo-fuzz says to the compiler, but for the sanitizer.
    flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares"
    RUSTFLAGS=$flags cargo build --locked --manifest-path fuzz/Cargo.toml --target "$triple" \
        --target-dir "$target/fuzz"
}

# What calls this again and again builds once.
[ -n "${PINFOLD_FUZZ_BUILT:-}" ] || build

# What was found interesting stays in fuzz/corpus, what fails in fuzz/artifacts.
for name in "${targets[@]}"; do
    say "$name, $seconds s"
    mkdir -p "fuzz/corpus/$name" "fuzz/artifacts/$name"
    "$target/fuzz/$triple/debug/$name" "fuzz/corpus/$name" "-artifact_prefix=fuzz/artifacts/$name/" \
        -max_total_time="$seconds" -max_len=4096 -timeout=20 -print_final_stats=1 2>&1 |
        grep -Ev '^#|^"|dictionary|INFO:'
done
