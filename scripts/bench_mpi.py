#!/usr/bin/env python3
"""Measures MPI over Pinfold beside the same MPI over libfabric's shm and tcp and over its own transports.

All contenders of a group run in turns, round after round, in another order each time; before and after each run the
distance of the two cores is measured, and only runs of the same class (near, far, mixed) are compared. Contents are
checked in each run; one that fails or is wrong has no figure and is told.

First come the rows where Pinfold is behind the best of all others, then all rows, then the NAS-like programs with the
hits and misses of the pin-down cache, as Table 3 of the paper on it has them.

Ends with 0 if all runs were right, 1 if one was not.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import bench_plot
from mpi_ground import NAMES, PROGRAMS, Ground

# Nanoseconds of a cache line's way: near below the one, far from the other on.
NEAR_BELOW, FAR_FROM = 80, 120
SIZES = "8,4K,64K,256K,1M,4M"
# The rows of point-to-point groups, by their beginnings.
PREFIXES = {"libfabric": "libfabric, ", "mpi": "MPI, ", "large": "MPI, ", "allocated": "MPI_Alloc_mem, ",
            "hosts": "2 hosts, ", "neighbour": "beside a burner, "}
CARRIERS = {"mpich": ["pinfold", "shm", "tcp", "own"], "openmpi": ["pinfold", "tcp", "own"]}


class Row:
    """A figure of all contenders; `more` says whether more of it is better."""

    def __init__(self, name, unit, more, factor=1.0):
        self.name, self.unit, self.more, self.factor = name, unit, more, factor
        # (contender, class): values.
        self.values = {}

    def add(self, contender, distance, value):
        self.values.setdefault((contender, distance), []).append(value * self.factor)

    def median(self, contender, distance):
        values = self.values.get((contender, distance))
        return statistics.median(values) if values else None

    def classes(self):
        return sorted({distance for _, distance in self.values})

    def ratio(self, ours, theirs):
        """How many times as good `ours` is."""
        return ours / theirs if self.more else theirs / ours


class Bench:
    def __init__(self, args):
        self.args, self.ground = args, Ground(args.place, args.pinfold)
        self.seconds = str(args.seconds)
        self.cpus = sorted(os.sched_getaffinity(0))[:2]
        self.rows, self.runs, self.troubles, self.nas = {}, [], [], {}
        self.hop = self.compile("hop", "-pthread")
        self.fabric = self.compile("fabric", "-lfabric")
        if self.fabric is None:
            print("SKIPPED: rows at libfabric's level: no libfabric-dev here; run: apt-get install libfabric-dev")

    def compile(self, name, library):
        """A program without MPI; None where its library is missing."""
        program = self.ground.place / "programs" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-std=gnu11", "-O2", str(PROGRAMS / f"{name}.c"), "-o", str(program), library]
        done = subprocess.run(command, capture_output=True, text=True)
        return str(program) if done.returncode == 0 else None

    def distance(self):
        if self.hop is None:
            return None
        done = subprocess.run(self.bound([self.hop]), capture_output=True, text=True)
        return json.loads(done.stdout)["hop_ns"] if done.returncode == 0 else None

    def bound(self, words):
        return ["taskset", "-c", ",".join(map(str, self.cpus)), *words] if shutil.which("taskset") else words

    def row(self, name, unit, more, factor=1.0):
        return self.rows.setdefault(name, Row(name, unit, more, factor))

    def turns(self, group, contenders, measure):
        """Runs each contender once, bracketed; `measure` returns results, or a text of what went wrong."""
        turn = self.round % max(1, len(contenders))
        for contender in contenders[turn:] + contenders[:turn]:
            before = self.distance()
            found = measure(contender)
            after = self.distance()
            name = "-".join(contender)
            if isinstance(found, str):
                self.troubles.append(f"{group}, {name}: {found}")
                continue
            self.add({"group": group, "contender": name, "class": class_of(before, after), "hop_ns": [before, after],
                      "round": self.round, **found})

    def add(self, run):
        """Counts a run in its rows."""
        self.runs.append(run)
        group, name, distance = run["group"], run["contender"], run["class"]
        for result in run["results"]:
            size = bytes_text(result["size"]) if "size" in result else None
            if group == "crowd":
                row = self.row(f"all-to-all, 8 ranks on 2 cores, {size}", "us", False, 1e-3)
                row.add(name, distance, result["mean_ns"])
            elif group not in PREFIXES:
                self.row(f"{group}, 2 ranks", "Mop/s", True).add(name, distance, result["mop_s"])
                if name.endswith("-pinfold"):
                    self.nas[group, name] = run
            elif result["size"] < 64 << 10:
                self.row(f"latency, {PREFIXES[group]}{size}", "ns", False).add(name, distance, typical_ns(group, result))
            else:
                row = self.row(f"bandwidth, {PREFIXES[group]}{size}", "GB/s", True)
                row.add(name, distance, result["size"] / typical_ns(group, result))

    def mpi(self, name, options, **more):
        """A measure of a program under an MPI."""
        def run(contender):
            mpi, over = contender
            run = self.ground.run(mpi, [self.ground.build(mpi, name), *options], over=over, cpus=self.cpus, **more)
            results = run.results()
            trouble = run.trouble() or (None if results else "it said nothing")
            if trouble or any(result["wrong"] for result in results):
                return trouble or "contents were wrong"
            return {"results": results, "pinned": run.summary["pinned"], "paths": run.summary["paths"]}
        return run

    def contenders(self, carriers=None):
        return [(mpi, over) for mpi in self.ground.mpis() for over in CARRIERS[mpi]
                if carriers is None or over in carriers]

    def libfabric(self):
        if self.fabric is None:
            return
        library = self.ground.place / "mpich" / "lib" / "mpich"
        env = {**os.environ, "FI_PROVIDER_PATH": self.provider()}
        if library.exists():
            env["LD_LIBRARY_PATH"] = str(library)

        def run(contender):
            words = [self.fabric, contender[1], SIZES, self.seconds]
            try:
                done = subprocess.run(self.bound(words), capture_output=True, text=True, env=env, timeout=60)
            except subprocess.TimeoutExpired:
                return "it did not end in time"
            if done.returncode != 0:
                return f"exit {done.returncode}: {done.stderr.strip()[-200:]}"
            return {"results": [json.loads(line) for line in done.stdout.splitlines()]}
        self.turns("libfabric", [("fabric", over) for over in ("pinfold", "shm", "tcp")], run)

    def provider(self):
        """A directory with the provider under the name that libfabric looks for."""
        named = pathlib.Path(os.environ.get("PINFOLD_PROVIDER", self.ground.pinfold.parent))
        files = [named] if named.is_file() else [named / name for name in ("libpinfold-fi.so", "libpinfold_fi.so")]
        directory = self.ground.place / "provider"
        directory.mkdir(exist_ok=True)
        link = directory / "libpinfold-fi.so"
        link.unlink(missing_ok=True)
        link.symlink_to(next((file.resolve() for file in files if file.exists()), files[0]))
        return str(directory)

    def short_and_long(self):
        options = ["--sizes", SIZES, "--seconds", self.seconds]
        self.turns("mpi", self.contenders(), self.mpi("pingpong", options))

    def large(self):
        options = ["--sizes", "64M", "--seconds", self.seconds]
        self.turns("large", self.contenders(), self.mpi("pingpong", options))

    def allocated(self):
        options = ["--sizes", "1M,4M", "--seconds", self.seconds, "--memory", "mpi"]
        self.turns("allocated", self.contenders(), self.mpi("pingpong", options))

    def hosts(self):
        measure = self.mpi("pingpong", ["--sizes", "8,1M", "--seconds", self.seconds], hosts=2)
        self.turns("hosts", self.contenders(["pinfold", "tcp"]), measure)

    def crowd(self):
        measure = self.mpi("alltoall", ["--sizes", "8,64K", "--seconds", self.seconds], ranks=8)
        self.turns("crowd", self.contenders(), measure)

    def neighbour(self):
        burner = subprocess.Popen(self.bound([sys.executable, "-c", "while True: pass"]))
        try:
            measure = self.mpi("pingpong", ["--sizes", "8,64K,1M", "--seconds", self.seconds])
            self.turns("neighbour", self.contenders(), measure)
        finally:
            burner.kill()
            burner.wait()

    def programs(self):
        for program, options in (("sort", ["--keys", "21"]), ("fft", ["--side", "64"])):
            self.turns(program, self.contenders(), self.mpi(program, options))

    def all(self):
        groups = {"libfabric": self.libfabric, "mpi": self.short_and_long, "large": self.large,
                  "allocated": self.allocated, "hosts": self.hosts, "crowd": self.crowd, "neighbour": self.neighbour, "nas": self.programs}
        for self.round in range(self.args.rounds):
            for name, group in groups.items():
                if not self.args.only or name in self.args.only:
                    print(f"round {self.round + 1} of {self.args.rounds}: {name}", file=sys.stderr, flush=True)
                    group()

    def compared(self):
        """Each row in each class: Pinfold's, the same MPI's best other carrier, and the best of all others."""
        for row in self.rows.values():
            for distance in row.classes():
                names = sorted({name for name, at in row.values if at == distance})
                best = max if row.more else min
                others = [name for name in names if not name.endswith("-pinfold")]
                for name in names:
                    if name not in others and others:
                        level = name.split("-")[0]
                        same = [other for other in others if other.startswith(level + "-")]
                        pick = lambda among: best(among, key=lambda other: row.median(other, distance))
                        yield row, distance, name, pick(same) if same else None, pick(others)


def typical_ns(group, result):
    """The median; where others take the cores away for a while, the mean, of which the waits for them are a part."""
    return result["mean_ns" if group == "neighbour" else "median_ns"]


def class_of(before, after):
    if before is None or after is None:
        return "unknown"
    if max(before, after) < NEAR_BELOW:
        return "near"
    return "far" if min(before, after) >= FAR_FROM else "mixed"


def bytes_text(size):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(bench):
    """Lines for people."""
    found = []
    for row, distance, name, same, best in bench.compared():
        ours = row.median(name, distance)
        text = f"{number(ours):>10} {row.unit:<6}"
        against = []
        for other in (same, best):
            value = row.median(other, distance) if other else None
            against.append(f"{row.ratio(ours, value):6.2f}x {number(value):>10} {other}" if other else "-")
        ratio = row.ratio(ours, row.median(best, distance))
        found.append((ratio, f"{row.name:<44} {distance:<6} {name:<16} {text} {against[0]:<36} {against[1]}"))
    head = f"{'row':<44} {'class':<6} {'Pinfold under':<16} {'':<17} {'the same MPI, best other':<36} the best of all others"
    behind = sorted(entry for entry in found if entry[0] < 1)
    lines = [f"WHERE PINFOLD IS BEHIND: in {len(behind)} of {len(found)} rows", head]
    lines += [line for _, line in behind] + ["", "ALL ROWS", head] + [line for _, line in found]
    if bench.nas:
        lines += ["", "NAS-LIKE PROGRAMS, and the pin-down cache (hits: TLB and cache; size: bytes of a message, mean)",
                  f"{'program':<8} {'MPI':<10} {'best otherwise':>14} {'Pinfold':>10} {'speed-up':>9} {'hit':>8} {'miss':>8} "
                  f"{'ratio %':>8} {'size':>10}"]
        lines += nas_lines(bench)
    return lines


def nas_lines(bench):
    for row, distance, name, best, _ in bench.compared():
        program = row.name.split(",")[0]
        found = bench.nas.get((program, name))
        if found is None or best is None:
            continue
        ours, theirs = row.median(name, distance), row.median(best, distance)
        pinned = found["pinned"]
        hits, misses = pinned["tlb_hits"] + pinned["pin_hits"], pinned["pin_misses"]
        ratio = f"{hits * 100 / (hits + misses):.1f}" if hits + misses else "-"
        paths = found["paths"].values()
        messages = sum(path["messages"] for path in paths)
        size = sum(path["bytes"] for path in paths) // messages if messages else 0
        yield (f"{program:<8} {NAMES[name.split('-')[0]]:<10} {theirs:>14.1f} {ours:>10.1f} {ours / theirs:>8.2f}x "
               f"{hits:>8} {misses:>8} {ratio:>8} {size:>10}  {distance}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", required=True, help="where scripts/mpi_setup.sh put the MPIs")
    parser.add_argument("--pinfold", required=True, help="the command")
    parser.add_argument("--rounds", type=int, default=5, help="rounds [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=0.2, help="of one size in one run [default: %(default)s]")
    parser.add_argument("--only", action="append",
                        help="only libfabric, mpi, large, allocated, hosts, crowd, neighbour or nas; may be repeated")
    parser.add_argument("--add", action="store_true", help="add to the runs that are in the file of --json already")
    parser.add_argument("--json", metavar="FILE", help="write each run to a file, one object a line")
    parser.add_argument("--svg", metavar="FILE", help="write a plot of bandwidth by size to a file")
    args = parser.parse_args()
    bench = Bench(args)
    earlier = pathlib.Path(args.json) if args.add and args.json else None
    if earlier and earlier.exists():
        for line in earlier.read_text(encoding="utf-8").splitlines():
            bench.add(json.loads(line))
    bench.all()
    print("\n".join(table(bench)))
    for trouble in sorted(set(bench.troubles)):
        print(f"no figure: {trouble}")
    if args.json:
        lines = [json.dumps(run) + "\n" for run in bench.runs]
        pathlib.Path(args.json).write_text("".join(lines), encoding="utf-8")
    if args.svg:
        pathlib.Path(args.svg).write_text(bench_plot.bandwidth(bench.runs), encoding="utf-8")
    return 1 if bench.troubles else 0


if __name__ == "__main__":
    sys.exit(main())
