#!/usr/bin/env bash
# Packs each crate that is published, and builds it from what was packed, with the others' packages in place of the
# tree. Minutes. What it needs of other people's is asked of the registry.
. "$(dirname "$0")/lib.sh"
. scripts/published.sh
packages=("${published[@]/#/--package=}")
log=$target/package.log
mkdir -p "$target"
status=0
cargo package --locked --allow-dirty "${packages[@]}" 2>&1 | tee "$log" || status=$?
if [ "$status" != 0 ]; then
    grep -qE 'Could(n.t| not) (resolve host|connect)|spurious network error|failed to download' "$log" &&
        skip "the registry is not reachable"
    exit "$status"
fi
for crate in "${published[@]}"; do
    compgen -G "$target/package/$crate-*.crate" > /dev/null || die "there is no package of $crate"
done
