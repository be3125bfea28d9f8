#!/usr/bin/env python3
"""Runs mpi4py's complete test suite over Pinfold under each MPI.

Tests that are left out stand in mpi/exclude: MPI.txt for Pinfold, MPI-CARRIER.txt for a carrier of libfabric's own on
the same MPI, one name a line with its reason behind `#`. Pinfold's list may have no name that the list of a carrier has
not. With --baseline the suite runs over those carriers, too.

A test that fails is run again alone, as scripts/steady.sh does, and a suite that stops is run again whole: two cores
that others share can starve it. Each test of a suite is counted once, on rank 0; a run in which another rank fails, or
that does not end, counts as one failure more.

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
# Seconds without a test's beginning or end after which a run counts as hung if it had the processors, and those after
# which its stacks are shown.
HANGS, SHOWS = 150, 100
# Messages that the suite exchanges at the least; fewer mean that they went another way.
MESSAGES_MIN = 1000
# Failures that run again alone. Many are no accident.
AGAIN_MAX = 6
# The modules that `make test` runs: those whose tests are messages and collectives.
PART = r"test_(p2p_buf|p2p_obj|cco_buf|cco_obj)\.py$"


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
        self.names = sorted(set(re.findall(r"^(?:FAIL|ERROR): \w+ \((test_[\w.]+)\)", log, re.M)))
        self.skipped = count.get("skipped", 0) + count.get("expected failures", 0)
        self.passed = int(ran[-1]) - self.failed - self.skipped if ran else 0
        # The test that was begun last, for a run that did not end.
        begun = re.findall(r"^\w+ \((test_[\w.]+)\) \.\.\. ?", log, re.M)
        self.last = begun[-1] if begun else None
        stacks = re.search(r"Timeout \([\d:.]+\)!\n(?:(?:Thread |  File ).*\n|\n)*", log)
        self.stacks = stacks.group(0) if stacks and not self.ended else ""


class Suite:
    """One run of the suite: `names` are the tests that failed, `hung` the one in which it stopped."""

    def __init__(self, ground, mpi, over, ranks, options, logs):
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        words = [ground.python(mpi), ROOT / "scripts" / "mpi_rank.py", logs, SHOWS, ground.suite(), "-v", *options]
        began = time.monotonic()
        run = ground.run(mpi, words, over=over, ranks=ranks, timeout=HANGS, logs=logs)
        texts = {file.name: file.read_text(errors="replace") for file in sorted(logs.glob("rank-*.log"))}
        outcomes = {name: Outcome(text) for name, text in texts.items()}
        self.first = outcomes.get("rank-0.log", Outcome(""))
        self.names = sorted({name for outcome in outcomes.values() for name in outcome.names})
        self.timed_out = run.timed_out
        self.hung = next((outcome.last for outcome in outcomes.values() if not outcome.ended), None)
        self.troubles = [run.trouble()] if run.trouble() else []
        if len(outcomes) < ranks:
            self.troubles.append(f"{len(outcomes)} of {ranks} ranks began")
        for name, outcome in outcomes.items():
            if not outcome.ended:
                self.troubles.append(f"{name}: it ended, or hung, in {outcome.last}\n{outcome.stacks}")
            self.troubles += [f"{name}: {test}" for test in outcome.names]
        if over == "pinfold" and not self.troubles and "-k" not in options:
            messages, _ = run.sent()
            processes = run.summary["reported"]["processes"]
            if messages < MESSAGES_MIN or processes < ranks:
                self.troubles.append(f"only {messages} messages of {processes} processes went over Pinfold")
        self.counts = (self.first.passed, max(self.first.failed, 1 if self.troubles else 0), self.first.skipped)
        word = "FAILED" if self.troubles else "ok"
        told = "{} passed, {} failed, {} skipped".format(*self.counts)
        part = "a part, " if "-i" in options else ""
        words = [word for word in options if word not in ("-i", PART)]
        what = f"mpi4py ({part}{NAMES[mpi]}, {ranks} ranks, over {over})" + "".join(f" {word}" for word in words)
        print(f"test {what} ... {word}: {told}, {time.monotonic() - began:.0f} s", flush=True)
        for trouble in self.troubles:
            print(f"    {trouble}", flush=True)
        if self.troubles:
            print(f"    logs: {logs}\n{run.errors[-2000:]}", flush=True)


def checked(ground, mpi, over, ranks, options, logs):
    """A run, and another of what failed in it. Returns its counts, and the tests that passed when they ran once more."""
    suite = Suite(ground, mpi, over, ranks, options, logs)
    passed, failed, _ = suite.counts
    if not suite.troubles:
        return suite.counts, []
    where = f"{NAMES[mpi]}, {ranks} ranks, over {over}"
    if suite.timed_out:
        again = Suite(ground, mpi, over, ranks, options, logs.with_name(f"{logs.name}-again"))
        if again.troubles:
            return again.counts, []
        passed, failed, skipped = again.counts
        # One of them is counted as unsteady.
        counts = (passed - 1, failed, skipped)
        return counts, [f"mpi4py ({where}): it hung in {suite.hung}, and passed once more"]
    if suite.hung is None and 0 < len(suite.names) <= AGAIN_MAX:
        alone = [Suite(ground, mpi, over, ranks, ["-k", name], logs.with_name(f"{logs.name}-again"))
                 for name in suite.names]
        if not any(one.troubles for one in alone):
            names = [f"{name} ({where}): failed beside others, passed alone" for name in suite.names]
            return (passed, 0, suite.counts[2]), names
    return suite.counts, []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", required=True, help="where scripts/mpi_setup.sh put the MPIs")
    parser.add_argument("--pinfold", required=True, help="the command")
    parser.add_argument("--ranks", default="2,3", help="numbers of ranks [default: %(default)s]")
    parser.add_argument("--mpi", choices=NAMES, help="only this MPI")
    parser.add_argument("--over", action="append", help="only these carriers; may be given several times")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only tests with this name (-k)")
    parser.add_argument("--part", action="store_true", help="only messages and collectives, as in make test")
    parser.add_argument("--baseline", action="store_true", help="run over libfabric's own carriers, too")
    args = parser.parse_args()
    ground, totals, troubles, unsteady = Ground(args.place, args.pinfold), [0, 0, 0], compare(), []
    logs = pathlib.Path(args.place).resolve() / "logs"
    for mpi in [args.mpi] if args.mpi else ground.mpis():
        for over in args.over or ["pinfold"] + (BASELINES[mpi] if args.baseline else []):
            for ranks in map(int, args.ranks.split(",")):
                options = [word for name in excluded(mpi, over) for word in ("-x", name)]
                options += [word for name in args.only for word in ("-k", name)]
                options += ["-i", PART] if args.part else []
                counts, seldom = checked(ground, mpi, over, ranks, options, logs / f"{mpi}-{over}-{ranks}")
                totals = [a + b for a, b in zip(totals, counts)]
                unsteady += seldom
    for trouble in troubles:
        print(f"error: {trouble}", flush=True)
    return counted(totals[0], totals[1] + len(troubles), totals[2], unsteady)


if __name__ == "__main__":
    sys.exit(main())
