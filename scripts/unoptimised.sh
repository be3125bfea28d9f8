#!/usr/bin/env bash
# Every public call of the library, and the command, on little stack: unoptimised, as programs that are being debugged
# have it, and as it is released, where calls are made in line of others. Some minutes.
. "$(dirname "$0")/lib.sh"
for package in tests cli; do
    CARGO_TARGET_DIR=$target/unoptimised cargo test --locked --package "pinfold-$package" --test small_stack \
        --config profile.test.opt-level=0 "$@"
    cargo test --locked --release --package "pinfold-$package" --test small_stack "$@"
done
