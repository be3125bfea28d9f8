#!/usr/bin/env bash
# The ring, the bells, the claims, the regions and the sequence lock in all orders that their steps can take (loom).
# LOOM_MAX_PREEMPTIONS=N looks further.
. "$(dirname "$0")/lib.sh"
# Loom stands in for the atomics of the whole build, so it has a build of its own. Optimised,
# for there are many orders; but not for the last percent, which takes longer than it saves.
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$target/loom
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
cargo test --locked --release --package pinfold --lib model_tests "$@"
