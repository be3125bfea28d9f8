#!/usr/bin/env bash
# Wraps comments at 100 columns, as scripts/rules.sh wants them. Changes sources; takes a nightly rustfmt.
. "$(dirname "$0")/lib.sh"
cargo +nightly fmt --version > /dev/null 2>&1 ||
    die "no nightly rustfmt here; run: rustup toolchain install nightly --component rustfmt"
cargo +nightly fmt --all -- --config wrap_comments=true,comment_width=100
scripts/rules.py
