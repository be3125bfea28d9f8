#!/usr/bin/env bash
# Builds the command and measures: a table here, plots in target/perf.html.
# Arguments go to `pinfold perf`; without any it is --quick.
. "$(dirname "$0")/lib.sh"

scripts/setup.sh
say "building (a minute or two the first time)"
cargo build --locked --release --package pinfold-cli

report=$target/perf.html
case " ${*:-} " in
    *" --html"* | *" --listen"* | *" --help "* | *" -h "*)
        exec "$target/release/pinfold" perf "$@" ;;
esac
"$target/release/pinfold" perf --html "$report" "${@:---quick}"
say "plots: $report"
