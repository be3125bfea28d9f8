#!/usr/bin/env bash
# The tests that kill a process at every numbered point of the protocol. They need a build of
# the library that has those points.
. "$(dirname "$0")/lib.sh"
targets=()
for name in $(grep -rl 'feature = "failpoints"' tests/tests | cut -d / -f 3 | sort -u); do
    targets+=(--test "${name%.rs}")
done
# The whole workspace is named so that what tests.sh has built serves here, too.
cargo test --locked --workspace --features pinfold-tests/failpoints --no-fail-fast \
    "${targets[@]}" "$@"
