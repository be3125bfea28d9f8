#!/usr/bin/env bash
# Is everything formatted?
. "$(dirname "$0")/lib.sh"
cargo fmt --version > /dev/null 2>&1 || skip "rustfmt is not installed"
cargo fmt --all -- --check
cargo fmt --manifest-path python/Cargo.toml -- --check
