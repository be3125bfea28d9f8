# Sourced by the other scripts: strict mode, the root of the tree, a few words.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Rust installed by rustup is not always on the path of a fresh shell.
if ! command -v cargo > /dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi

# Where cargo builds, absolute.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

# The target that this Rust builds for by itself.
host_triple() { rustc -vV | sed -n 's/^host: //p'; }

have() { command -v "$1" > /dev/null; }

say() { printf '== %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Ends a check that cannot run here. 77 is what test.sh counts as skipped.
skip() {
    printf 'SKIPPED: %s: %s\n' "$(basename "$0" .sh)" "$*" >&2
    exit 77
}
