#!/usr/bin/env bash
# The whole-system tests again as `nobody`: an ordinary user without any privilege. Those that go on for many rounds
# have fewer.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "only root can become nobody (and the tests have just run unprivileged)"
have setpriv || skip "there is no setpriv"

# nobody may not be able to reach this tree, so the test programs go where everybody can.
place=$(mktemp -d /tmp/pinfold-nobody.XXXXXX)
trap 'rm -rf "$place"' EXIT
chmod 755 "$place"
mkdir "$place/bin" "$place/home"
touch "$place/skips"
cp scripts/steady.sh "$place/"
chown nobody "$place/home" "$place/skips"

# The whole workspace is named so that what tests.sh has built serves here, too.
cargo test --locked --workspace --no-run --message-format=json |
    grep 'pinfold-tests.*"kind":\["test"\]' | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' |
    while read -r program; do
        # The same file under another name, where that can be.
        cp --link "$program" "$place/bin/" 2> /dev/null || cp "$program" "$place/bin/"
    done

cd "$place/home"
failed=0
for program in "$place"/bin/*; do
    printf '     Running %s as nobody\n' "$(basename "$program")"
    setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups env -i \
        PATH=/usr/local/bin:/usr/bin:/bin HOME="$place/home" TMPDIR="$place/home" \
        PINFOLD_SKIP_LOG="$place/skips" PINFOLD_AGAIN=1 \
        "$place/steady.sh" "$program" "$@" || failed=1
done
[ -z "${PINFOLD_SKIP_LOG:-}" ] || cat "$place/skips" >> "$PINFOLD_SKIP_LOG"
exit $failed
