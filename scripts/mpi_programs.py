#!/usr/bin/env python3
"""Runs the programs of mpi/programs over Pinfold under each MPI, and checks what came of it.

Of each run: the program found all contents right, every rank left its counters, and messages and bytes that went over
Pinfold are no fewer than those the program exchanged: so nothing went another way. Each pair of program and MPI is one
test.

Ends with 0 if all passed, 1 if one did not.
"""

import argparse
import sys

from mpi_ground import NAMES, Ground, counted

# Programs with few repetitions, and how many ranks run them.
RUNS = [
    ("pingpong", ["--sizes", "0,1,8,56,57,4096,64K,1M,8M", "--seconds", "0.05"], 2),
    ("pingpong", ["--sizes", "8,1M", "--seconds", "0.05", "--memory", "mpi"], 2),
    ("window", ["--sizes", "8,64K,1M", "--seconds", "0.05"], 2),
    ("alltoall", ["--sizes", "8,64K", "--seconds", "0.1"], 3),
    ("sort", ["--keys", "19"], 2),
    ("fft", ["--side", "32"], 2),
    ("mapper", [], 2),
    ("fork", [], 2),
    # Sixteen times as many as there are processors.
    ("alltoall", ["--sizes", "8,4K", "--seconds", "0.1"], 32),
]
ON_TWO_HOSTS = [RUNS[0], *RUNS[4:8]]


def check(run, ranks):
    """What is wrong with a run, or None."""
    trouble = run.trouble()
    if trouble:
        return trouble
    results = run.results()
    if not results or run.summary is None:
        return "it said nothing"
    wrong = sum(result["wrong"] for result in results)
    if wrong:
        return f"{wrong} wrong words"
    processes = run.summary["reported"]["processes"]
    if processes != ranks:
        return f"{processes} of {ranks} ranks left their counters"
    messages, sent = run.sent()
    needed = sum(result["bytes"] for result in results)
    # From 8 ranks on MPICH combines short messages of an all-to-all (Bruck's algorithm): fewer and longer ones.
    counted = sum(result.get("messages", 0) for result in results) if ranks < 8 else 0
    if sent < needed or messages < counted:
        return f"{messages} messages of {sent} bytes went over Pinfold, and the program sent {needed} bytes"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", required=True, help="where scripts/mpi_setup.sh put the MPIs")
    parser.add_argument("--pinfold", required=True, help="the command")
    parser.add_argument("--hosts", default="1,2", help="numbers of hosts [default: %(default)s]")
    args = parser.parse_args()
    ground, passed, failed, skipped = Ground(args.place, args.pinfold), 0, 0, 0
    unsteady = []
    grounds = [(1, (), "")] if "1" in args.hosts.split(",") else []
    if "2" in args.hosts.split(","):
        grounds.append((2, (), ", 2 hosts"))
        # An ordinary user becomes root in a user namespace.
        if ordinary := ground.ordinary():
            grounds.append((2, ordinary, ", 2 hosts, an ordinary user"))
    for mpi in ground.mpis():
        for hosts, before, how in grounds:
            env = {"HOME": "/tmp"} if before else {}
            for name, options, ranks in RUNS if hosts == 1 else ON_TWO_HOSTS:
                words = [ground.build(mpi, name), *options]
                run = ground.run(mpi, words, ranks=ranks, hosts=hosts, before=before, env=env)
                where = f"{NAMES[mpi]}, {ranks} ranks{how}"
                if hosts == 2 and run.exit == 125 and "network namespaces" in run.errors:
                    print(f"SKIPPED: mpi: {name}, {where}: {run.errors.splitlines()[-1]}", flush=True)
                    skipped += 1
                    continue
                trouble, is_again = check(run, ranks), False
                if trouble:
                    # As scripts/steady.sh does: two cores that others share can starve it of its time.
                    print(f"{name} ({where}): {trouble}; once more\n{run.errors[-4000:]}", flush=True)
                    run, is_again = ground.run(mpi, words, ranks=ranks, hosts=hosts, before=before, env=env), True
                    trouble = check(run, ranks)
                print(f"test {name} ({where}) ... {trouble or 'ok'}", flush=True)
                if trouble:
                    failed += 1
                    print(run.errors[-4000:], flush=True)
                elif is_again:
                    unsteady.append(f"{name} ({where})")
                else:
                    passed += 1
    return counted(passed, failed, skipped, unsteady)


if __name__ == "__main__":
    sys.exit(main())
