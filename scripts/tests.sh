#!/usr/bin/env bash
# Unit, integration and documentation tests of the whole workspace.
. "$(dirname "$0")/lib.sh"
triple=$(host_triple | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${triple}_RUNNER=$PWD/scripts/steady.sh"
cargo test --locked --workspace --no-fail-fast "$@"
