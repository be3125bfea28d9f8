"""Compares Pinfold with what else moves bytes between processes of Python.

One exchange: the parent numbers the payload, sends it, and waits for the child's answer; the child
checks every byte of it before it answers. All ways take turns, in rounds, with all processes alive.
Times are of whole exchanges, checks included: mean, median and the 99th percentile of all of them.
"times first" is the median, over the rounds, of the ratio of a way's mean to the first way's.
With --goals, works that have goals instead; --rounds and --only are for these as well.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from typing import Any, Dict, List

from .. import __version__
from . import goals, subjects
from .measure import Facts, measure
from .payload import SIZE_MIN
from .plot import shown, svg

SIZES = [1024, 65_536, 1 << 20, 16 << 20]


def arguments() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m pinfold.bench", description=__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of the payload")
    options.add_argument(
        "--rounds", type=int, default=20, help="rounds for each size (default: 20)"
    )
    options.add_argument("--each", type=int, default=20, help="exchanges of a way in a round")
    options.add_argument("--only", nargs="+", default=[], help="ways whose name has one of these")
    options.add_argument(
        "--goals", action="store_true", help="measure the works that have goals, see goals.py"
    )
    options.add_argument("--json", action="store_true", help="print everything as JSON")
    options.add_argument("--svg", metavar="FILE", help="write a plot")
    args = options.parse_args()
    if min(args.sizes) < SIZE_MIN or args.rounds < 1 or args.each < 1:
        options.error(f"sizes from {SIZE_MIN} bytes on, and at least one round of one exchange")
    return args


def machine() -> Dict[str, Any]:
    """What figures depend on."""
    return {
        "pinfold": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
    }


def measure_goals(args: argparse.Namespace) -> int:
    """Measures the rows whose work has one of the words of `--only`."""
    facts = []
    for row in goals.ROWS:
        if args.only and not any(word in row.work for word in args.only):
            continue
        try:
            fact = goals.measure(row, args.rounds, lambda line: print(line, file=sys.stderr))
        except ImportError as error:
            print(f"{row.work}: {error}", file=sys.stderr)
            continue
        facts.append(fact)
        if not args.json:
            print("\n" + goals.shown(fact), flush=True)
    if args.json:
        print(json.dumps({"machine": machine(), "goals": facts}, indent=1))
    return 0


def main() -> int:
    args = arguments()
    if args.goals:
        return measure_goals(args)
    kinds = [
        kind
        for kind in subjects.ALL
        if not args.only or any(word in kind.name for word in args.only)
    ]
    if not kinds:
        names = ", ".join(kind.name for kind in subjects.ALL)
        print(f"error: no way has such a name; there are: {names}", file=sys.stderr)
        return 2
    facts: List[Facts] = []

    def tell(line: str) -> None:
        print(line, file=sys.stderr)

    for size in args.sizes:
        measured = measure(kinds, size, args.rounds, args.each, tell=tell)
        tell = lambda line: None  # noqa: E731 - told once
        facts += measured
        if not args.json:
            print(f"\n{shown(size)}: {measured[0]['exchanges']} exchanges each, microseconds")
            print(f"{'':24}{'mean':>10}{'median':>10}{'p99':>10}{'GB/s':>8}{'times first':>13}")
            for one in measured:
                print(
                    f"{one['subject']:24}{one['mean_us']:10.1f}{one['median_us']:10.1f}"
                    f"{one['p99_us']:10.1f}{one['gb_per_s']:8.2f}{one['times_first']:13.2f}"
                )
    if args.json:
        print(json.dumps({"machine": machine(), "facts": facts}, indent=1))
    if args.svg:
        with open(args.svg, "w") as file:
            file.write(svg(facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
