#!/usr/bin/env bash
# Every public call of the library, unoptimised, on a stack of 64 KiB: what programs that are being debugged have of
# it. Two minutes.
. "$(dirname "$0")/lib.sh"
CARGO_TARGET_DIR=$target/unoptimised cargo test --locked --package pinfold-tests --test small_stack \
    --config profile.test.opt-level=0 "$@"
