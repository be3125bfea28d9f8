#!/usr/bin/env bash
# Whether the product compiles for AArch64 without a warning; its copies and what they need, under qemu.
exec "$(dirname "$0")/aarch64.sh" --quick "$@"
