#!/usr/bin/env bash
# Runs a test program, and each test of it that fails once more, alone: scripts/steady.sh PROGRAM ARGUMENT...
# Two cores that others share can starve a test of its deadline. A test that passes alone is reported as unsteady, with
# how it failed beside the others; a test that fails twice has failed. Many failures are no accident: none runs again.
set -euo pipefail

most=6
said=$(mktemp)
trap 'rm -f "$said"' EXIT

status=0
"$@" 2>&1 | tee "$said" || status=${PIPESTATUS[0]}
[ "$status" != 0 ] || exit 0

# The list of names that ends what a test program says.
mapfile -t failed < <(awk '
    /^failures:$/ { names = ""; next }
    /^    [^ ]+$/ { names = names $1 "\n"; next }
    /^test result: FAILED/ { printf "%s", names }
' "$said" | sort -u)
if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt $most ]; then exit "$status"; fi

again=0
for name in "${failed[@]}"; do
    # Its result line would be counted a second time.
    if "$1" --exact "$name" --test-threads=1 > "$said" 2>&1 && grep -q '^test result: ok\. 1 passed' "$said"; then
        printf 'unsteady: %s: failed beside others, passed alone\n' "$name"
    else
        printf -- '---- %s, alone ----\n' "$name"
        grep -v '^test result:' "$said" || true
        again=$status
    fi
done
exit "$again"
