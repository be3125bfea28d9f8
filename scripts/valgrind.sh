#!/usr/bin/env bash
# Every public call of the library under Valgrind: nothing reads or writes what is not there or was never written, and what
# Valgrind does not know of processor and kernel is done without. Some minutes.
. "$(dirname "$0")/lib.sh"
have valgrind || skip "there is no valgrind; run: apt-get install valgrind"
program=$(cargo test --locked --package pinfold-tests --test small_stack --no-run \
    --message-format=json-render-diagnostics | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
# Of its threads one runs at a time; who spins for another is to let it.
valgrind --quiet --error-exitcode=9 --fair-sched=yes --suppressions=scripts/valgrind.supp \
    "$program" --test-threads=1 "$@"
