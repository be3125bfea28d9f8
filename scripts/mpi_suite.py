#!/usr/bin/env python3
"""Runs mpi4py's complete test suite over Pinfold under each MPI.

Tests that are left out stand in mpi/exclude: MPI.txt for Pinfold, MPI-CARRIER.txt for a carrier of libfabric's own on
the same MPI, one name a line with its reason behind `#`. Pinfold's list may have no name that the list of a carrier has
not. With --baseline the suite runs over those carriers, too. With --recheck each name that Pinfold's list has is run by
itself over Pinfold: one that passes has to go from the list, unless its reason says that it fails "now and then".

Each test of a suite is counted once, on rank 0; a run in which another rank fails, or that does not end in time, counts
as one failure more.

Ends with 0 if all passed, 1 if one did not.
"""

import argparse
import pathlib
import re
import shutil
import sys
import time

from mpi_ground import NAMES, ROOT, Ground, counted

EXCLUDE = ROOT / "mpi" / "exclude"
# Libfabric's carriers that an MPI accepts.
BASELINES = {"mpich": ["shm", "tcp"], "openmpi": ["tcp"]}
# Seconds that a run may take.
TIMEOUT = 300
# Messages that the suite exchanges at the least; fewer mean that they went another way.
MESSAGES_MIN = 1000
# Words of a reason: the test may pass by itself.
SELDOM = "now and then"


def excluded(mpi, over):
    """Names and reasons of a list."""
    name = mpi if over == "pinfold" else f"{mpi}-{over}"
    file = EXCLUDE / f"{name}.txt"
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        test, _, reason = line.partition("#")
        if test.strip():
            if not reason.strip():
                sys.exit(f"{file}: {test.strip()} is left out without a reason")
            found[test.strip()] = reason.strip()
    return found


def compare():
    """What makes Pinfold's lists longer than those of the carriers."""
    return [f"mpi/exclude/{mpi}.txt leaves out {name}, and mpi/exclude/{mpi}-{over}.txt does not"
            for mpi, carriers in BASELINES.items() for over in carriers
            for name in excluded(mpi, "pinfold") if name not in excluded(mpi, over)]


class Outcome:
    """What a rank's log says."""

    def __init__(self, log):
        ran = re.findall(r"^Ran (\d+) tests? in", log, re.M)
        last = re.findall(r"^(?:OK|FAILED)(?: \((.*)\))?$", log, re.M)
        counts = dict(re.findall(r"([a-z ]+)=(\d+)", last[-1] if last else ""))
        count = {name.strip(): int(value) for name, value in counts.items()}
        self.ended = bool(ran and last)
        self.failed = count.get("failures", 0) + count.get("errors", 0) + count.get("unexpected successes", 0)
        self.skipped = count.get("skipped", 0) + count.get("expected failures", 0)
        self.passed = int(ran[-1]) - self.failed - self.skipped if ran else 0
        self.names = re.findall(r"^(?:FAIL|ERROR): (.*)$", log, re.M)
        # The test that was begun last, for a run that did not end.
        begun = re.findall(r"^(\w+ \(test_[\w.]+\)) \.\.\. ?", log, re.M)
        self.last = begun[-1] if begun else "none was begun"
        stacks = re.search(r"Timeout \([\d:.]+\)!\n(?:(?:Thread |  File ).*\n|\n)*", log)
        self.stacks = stacks.group(0) if stacks and not self.ended else ""


def suite(ground, mpi, over, ranks, options, logs, timeout):
    """One run. Returns passed, failed, skipped."""
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    words = [ground.python(mpi), ROOT / "scripts" / "mpi_rank.py", logs, timeout - 20, ground.suite(), "-v", *options]
    began = time.monotonic()
    run = ground.run(mpi, words, over=over, ranks=ranks, timeout=timeout)
    took = time.monotonic() - began
    texts = {file.name: file.read_text(errors="replace") for file in sorted(logs.glob("rank-*.log"))}
    outcomes = {name: Outcome(text) for name, text in texts.items()}
    first = outcomes.get("rank-0.log", Outcome(""))
    troubles = []
    if run.trouble():
        troubles.append(run.trouble())
    if len(outcomes) < ranks:
        troubles.append(f"{len(outcomes)} of {ranks} ranks began")
    for name, outcome in outcomes.items():
        if not outcome.ended:
            troubles.append(f"{name}: it ended, or hung, in {outcome.last}\n{outcome.stacks}")
        troubles += [f"{name}: {test}" for test in outcome.names]
    if over == "pinfold" and not troubles and not options_are_few(options):
        messages, _ = run.sent()
        processes = run.summary["reported"]["processes"]
        if messages < MESSAGES_MIN or processes < ranks:
            troubles.append(f"only {messages} messages of {processes} processes went over Pinfold")
    failed = max(first.failed, 1 if troubles else 0)
    what = f"mpi4py ({NAMES[mpi]}, {ranks} ranks, over {over})"
    counts = f"{first.passed} passed, {failed} failed, {first.skipped} skipped"
    print(f"test {what} ... {'FAILED' if troubles else 'ok'}: {counts}, {took:.0f} s", flush=True)
    for trouble in troubles:
        print(f"    {trouble}", flush=True)
    if troubles:
        print(f"    logs: {logs}\n{run.errors[-2000:]}", flush=True)
    return first.passed, failed, first.skipped


def options_are_few(options):
    return any(option == "-k" for option in options)


def recheck(ground, mpi, ranks, logs, timeout):
    """Names of Pinfold's list that would pass."""
    passing = []
    for name, reason in excluded(mpi, "pinfold").items():
        print(f"again, by itself: {name} ({NAMES[mpi]})", flush=True)
        passed, failed, _ = suite(ground, mpi, "pinfold", ranks, ["-k", name], logs, timeout)
        if passed and not failed and SELDOM not in reason:
            passing.append(f"mpi/exclude/{mpi}.txt leaves out {name}, which passes")
    return passing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", required=True, help="where scripts/mpi_setup.sh put the MPIs")
    parser.add_argument("--pinfold", required=True, help="the command")
    parser.add_argument("--ranks", default="2", help="numbers of ranks [default: %(default)s]")
    parser.add_argument("--mpi", choices=NAMES, help="only this MPI")
    parser.add_argument("--over", action="append", help="only these carriers; may be given several times")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only tests with this name (-k)")
    parser.add_argument("--baseline", action="store_true", help="run over libfabric's own carriers, too")
    parser.add_argument("--recheck", action="store_true", help="run the tests that are left out, too")
    parser.add_argument("--timeout", type=int, default=TIMEOUT, help="seconds of a run [default: %(default)s]")
    args = parser.parse_args()
    ground, totals, troubles = Ground(args.place, args.pinfold), [0, 0, 0], compare()
    logs = pathlib.Path(args.place).resolve() / "logs"
    for mpi in [args.mpi] if args.mpi else ground.mpis():
        carriers = args.over or ["pinfold"] + (BASELINES[mpi] if args.baseline else [])
        for over in carriers:
            for ranks in map(int, args.ranks.split(",")):
                names = excluded(mpi, over)
                options = [word for name in names for word in ("-x", name)]
                options += [word for name in args.only for word in ("-k", name)]
                found = suite(ground, mpi, over, ranks, options, logs / f"{mpi}-{over}-{ranks}", args.timeout)
                totals = [a + b for a, b in zip(totals, found)]
        if args.recheck:
            troubles += recheck(ground, mpi, 2, logs / f"{mpi}-again", min(args.timeout, 60))
    for trouble in troubles:
        print(f"error: {trouble}", flush=True)
    return counted(totals[0], totals[1] + len(troubles), totals[2])


if __name__ == "__main__":
    sys.exit(main())
