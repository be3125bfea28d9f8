#!/usr/bin/env bash
# Builds the documentation; a broken link is an error.
. "$(dirname "$0")/lib.sh"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --package pinfold --package pinfold-sys
say "documentation: $target/doc/pinfold/index.html"
