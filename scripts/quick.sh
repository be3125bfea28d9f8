#!/usr/bin/env bash
# What can be known in a minute or two: formatting, the rules, examples, and of each crate with changed files clippy's
# word and its unit tests. Changed since BASE (HEAD); where nothing is, since the commit before. Then: make test.
. "$(dirname "$0")/lib.sh"

changed() { { git diff --name-only "$1"; git ls-files --others --exclude-standard; } | sort -u; }
base=${BASE:-HEAD}
files=$(changed "$base")
[ -n "$files" ] || { base=HEAD~1; files=$(changed "$base"); }
mapfile -t crates < <(sed -n 's|^crates/\([^/]*\)/.*|\1|p; s|^tests/.*|pinfold-tests|p' <<< "$files" | sort -u)

scripts/fmt.sh
scripts/rules.sh
scripts/examples.sh
[ ${#crates[@]} -gt 0 ] || { say "no crate has changed since $base"; exit 0; }
say "since $base: ${crates[*]}"
packages=("${crates[@]/#/--package=}")
if cargo clippy --version > /dev/null 2>&1; then
    cargo clippy --locked "${packages[@]}" --all-targets -- -D warnings
fi
# The unit tests of libraries and programs; the whole-system tests take longer.
cargo test --locked "${packages[@]}" --lib --bins --no-fail-fast
