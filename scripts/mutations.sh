#!/usr/bin/env bash
# Is each text of tests/mutations/ still found once in the sources? Without a build.
. "$(dirname "$0")/lib.sh"
exec scripts/mutants.sh --check "$@"
