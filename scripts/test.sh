#!/usr/bin/env bash
# Runs every check, whatever the one before said, and adds up what they counted.
# Names of checks as arguments run only those: scripts/test.sh fmt tests
. "$(dirname "$0")/lib.sh"

checks=("$@")
[ $# -gt 0 ] || checks=(fmt mutations rules examples map circles packages clippy doc tests loom fuzz nobody python mpi)

scripts/setup.sh || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }

logs=$target/checks
mkdir -p "$logs"
passed=0 failed=0 skipped=0 unsteady=0 summary=() broken=()

# The sum of what all `test result:` lines of a log say under a name.
sum() {
    sed -n "s/^test result:.* \([0-9]*\) $2.*/\1/p" "$1" | awk '{ n += $1 } END { print n + 0 }'
}

# Each test of a check that failed, and the first lines of what it said; the end of what the check said where it has
# no such test. Who sees only the end of a long run then knows where to look.
failures() {
    local said
    said=$(awk -v check="$1" '
        /^failures:$/ { left = 0 }
        /^---- .* stdout ----$/ { left = 12; print "  " check ": " $2; next }
        left > 0 && NF { print "    " $0; left-- }
    ' "$logs/$1.log")
    [ -n "$said" ] || said=$(printf '  %s:\n' "$1"; tail -n 12 "$logs/$1.log" | sed 's/^/    /')
    printf '%s\n' "$said"
}

for check in "${checks[@]}"; do
    say "$check"
    log=$logs/$check.log
    # Tests that find they cannot run here write a line to this file.
    export PINFOLD_SKIP_LOG=$logs/$check.skips
    : > "$PINFOLD_SKIP_LOG"
    begun=$SECONDS
    status=0
    "scripts/$check.sh" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}

    p=$(sum "$log" passed) f=$(sum "$log" failed) s=$(sum "$log" ignored)
    # Such a test is among those that failed, and passed when it ran once more (steady.sh).
    u=$(grep -c '^unsteady: ' "$log" || true)
    p=$((p + u)) f=$((f - u)) unsteady=$((unsteady + u))
    if [ "$status" = 77 ]; then
        s=1
    elif ! grep -q '^test result:' "$log"; then
        # A check without tests of its own counts as one.
        if [ "$status" = 0 ]; then p=1; else f=1; fi
    elif [ "$status" != 0 ] && [ "$f" = 0 ]; then
        # It did not build, or a test program died.
        f=1
    fi
    [ "$f" = 0 ] || broken+=("$check")
    # Such a test passed as far as its runner knows.
    inside=$(sed 's/: .*//' "$PINFOLD_SKIP_LOG" | sort -u | wc -l)
    p=$((p - inside)) s=$((s + inside))
    summary+=("$(printf '%-10s %4d passed %3d failed %3d skipped %5d s' \
        "$check" "$p" "$f" "$s" $((SECONDS - begun)))")
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done

say "in all"
printf '%s\n' "${summary[@]}"
if [ "$skipped" -gt 0 ]; then
    echo "skipped:"
    for check in "${checks[@]}"; do
        { grep -h '^SKIPPED: ' "$logs/$check.log" || true; } | sed "s/^SKIPPED: /  $check: /" | sort -u
    done
fi
if [ "$unsteady" -gt 0 ]; then
    echo "unsteady:"
    for check in "${checks[@]}"; do
        { grep -h '^unsteady: ' "$logs/$check.log" || true; } | sed "s/^unsteady: /  $check: /"
    done
fi
if [ "$failed" -gt 0 ]; then
    echo "failed:"
    for check in "${broken[@]}"; do failures "$check"; done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
