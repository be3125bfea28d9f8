#!/usr/bin/env bash
# Unit, integration and documentation tests of the whole workspace.
. "$(dirname "$0")/lib.sh"
cargo test --locked --workspace --no-fail-fast "$@"
