"""What the programs that run MPI share: where it lies, building programs, running them under `pinfold run`."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "mpi" / "programs"
MPIS = ("mpich", "openmpi")
NAMES = {"mpich": "MPICH", "openmpi": "Open MPI"}
MPI4PY = "mpi4py-4.1.1"
# Seconds between the request to end and the end by force.
GRACE = 10
# Seconds of the processors that the processes of a run must have had since a log grew, or it is starved, not hung; and
# how many times its patience it gets all the same.
HANGS_CPU, STARVED = 60, 4
# The words that make a command one of an ordinary user's.
ORDINARY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@dataclasses.dataclass
class Run:
    """A run's end: `summary` is what `pinfold run --json` said of it, `said` the program's output before that."""

    exit: int
    said: list
    errors: str
    summary: dict
    timed_out: bool

    def results(self):
        """The program's JSON lines."""
        return [json.loads(line) for line in self.said if line.startswith("{")]

    def sent(self):
        """Messages and bytes that all ranks sent over Pinfold."""
        paths = (self.summary or {}).get("paths", {}).values()
        return sum(path["messages"] for path in paths), sum(path["bytes"] for path in paths)

    def trouble(self):
        """Why it failed, in a line, or None."""
        if self.timed_out:
            return "it did not end in time"
        if self.exit != 0:
            last = [line for line in self.errors.splitlines() if line.strip()][-3:]
            return f"exit {self.exit}: " + " / ".join(last)
        return None


class Ground:
    """Both MPIs below `place`, as scripts/mpi_setup.sh leaves them, and the `pinfold` command."""

    def __init__(self, place, pinfold):
        self.place = pathlib.Path(place).resolve()
        self.pinfold = pathlib.Path(pinfold).resolve()

    def mpis(self):
        return [mpi for mpi in MPIS if (self.place / mpi / "bin" / "mpiexec").exists()]

    def python(self, mpi):
        return str(self.place / mpi / "bin" / "python")

    def suite(self):
        return self.place / MPI4PY / "test" / "main.py"

    def build(self, mpi, name):
        """Builds mpi/programs/NAME.c with an MPI's mpicc, if it is older than its sources, and returns the program."""
        source, program = PROGRAMS / f"{name}.c", self.place / "programs" / mpi / name
        newest = max(file.stat().st_mtime for file in (source, PROGRAMS / "common.h"))
        if not program.exists() or program.stat().st_mtime < newest:
            program.parent.mkdir(parents=True, exist_ok=True)
            compiler = str(self.place / mpi / "bin" / "mpicc")
            flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([compiler, *flags, str(source), "-o", str(program), "-lm"], check=True, env=self.env(mpi))
        return str(program)

    def ordinary(self):
        """Words in front of a command that make it one of an ordinary user's, where root runs this and such a user
        reaches all that it takes; else None."""
        if os.geteuid() != 0 or not shutil.which(ORDINARY[0]):
            return None
        reached = subprocess.run([*ORDINARY, "ls", str(self.pinfold), str(self.place)], capture_output=True)
        return ORDINARY if reached.returncode == 0 else None

    def env(self, mpi, **more):
        path = f"{self.place / mpi / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, "PATH": path, **more}

    def run(self, mpi, words, *, over="pinfold", ranks=2, hosts=1, timeout=120, logs=None, cpus=None, env=None,
            before=()):
        """Runs a program under an MPI to its end, or until `timeout` seconds have passed: with `logs`, a directory,
        until none of its files has grown for so long, although its processes had the processors for HANGS_CPU seconds.
        `before` are words in front of the command."""
        command = [str(self.pinfold), "run", "--json", "--mpi", mpi, "--over", over, "-n", str(ranks)]
        command += ["--hosts", str(hosts), "--", *map(str, words)]
        if cpus and shutil.which("taskset"):
            command = ["taskset", "-c", ",".join(map(str, cpus)), *command]
        command = [*before, *command]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=self.env(mpi, **(env or {})), text=True, errors="replace")
        timed_out, size, since, had = False, 0, time.monotonic(), 0
        while True:
            try:
                out, errors = process.communicate(timeout=1)
                break
            except subprocess.TimeoutExpired:
                grown = sum(file.stat().st_size for file in logs.iterdir()) if logs else 0
                if grown != size:
                    size, since, had = grown, time.monotonic(), spent(process.pid)
                waited = time.monotonic() - since
                may_starve = logs is not None and waited <= STARVED * timeout
                if waited > timeout and not (may_starve and spent(process.pid) - had < HANGS_CPU):
                    timed_out = True
                    out, errors = end(process)
                    break
        lines = out.splitlines()
        summary = json.loads(lines.pop()) if lines and lines[-1].startswith('{"') and '"format"' in lines[-1] else None
        return Run(process.returncode, lines, errors, summary, timed_out)


def spent(parent):
    """Seconds that a process and all below it have had of the processors."""
    children, ticks = {}, {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(rest[1]), []).append(pid)
        ticks[pid] = int(rest[11]) + int(rest[12])
    below, total = [parent], 0
    while below:
        pid = below.pop()
        total += ticks.get(pid, 0)
        below += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


def end(process):
    """Asks a run to end, and ends it by force if it does not; the MPI's starter ends with it."""
    for ask in (signal.SIGTERM, signal.SIGKILL):
        process.send_signal(ask)
        try:
            return process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired:
            pass
    return process.communicate()


def counted(passed, failed, skipped, unsteady=()):
    """Prints what scripts/test.sh adds up; it takes those that were unsteady for failed ones that passed once more."""
    word = "FAILED" if failed else "ok"
    counts = f"{passed} passed; {failed + len(unsteady)} failed; {skipped} ignored"
    print("".join(f"unsteady: {name}\n" for name in unsteady) + f"test result: {word}. {counts}", flush=True)
    return 1 if failed else 0
