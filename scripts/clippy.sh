#!/usr/bin/env bash
# Does clippy have anything to say, with and without the features?
. "$(dirname "$0")/lib.sh"
cargo clippy --version > /dev/null 2>&1 || skip "clippy is not installed"
cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
cargo clippy --locked --package pinfold --no-default-features -- -D warnings
# Checking the extension module takes no interpreter.
export PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=$target/python/build
cargo clippy --locked --manifest-path python/Cargo.toml -- -D warnings
