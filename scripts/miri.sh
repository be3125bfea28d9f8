#!/usr/bin/env bash
# What has unsafe steps or atomics and needs no kernel, under Miri: every step checked, atomics with
# all their liberties.
. "$(dirname "$0")/lib.sh"
cargo +nightly miri --version > /dev/null 2>&1 ||
    skip "no Miri here; run: rustup toolchain install nightly --component miri,rust-src"
# proptest reads its settings from the file system. The slots of the trial of paths are never freed, on
# purpose. A few cases each: Miri is slow.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks" PROPTEST_CASES=8
export CARGO_TARGET_DIR=$target/miri
export PROPTEST_DISABLE_FAILURE_PERSISTENCE=1
cargo +nightly miri test --locked --package pinfold --lib -- \
    memory::arena::cells memory::scatter transport::local::slots transport::shm::model_tests "$@"
cargo +nightly miri test --locked --package pinfold-sys --lib -- block:: "$@"
