"""Shared by the tests: pairs of endpoints, processes, counts of what a process holds."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pinfold

try:
    import numpy
except ImportError:
    numpy = None

PYTHON = Path(__file__).resolve().parent.parent
ROOT = PYTHON.parent
LIMIT_S = 60
"""The longest that anything here waits, in seconds: a hang is a failure."""

_numbers = itertools.count()

needs_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")


def fresh_name() -> str:
    """A name that nothing else listens under."""
    return f"pytest-{os.getpid()}-{next(_numbers)}"


class Running:
    """A function in a thread of its own, with its result or exception."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._outcome: List[Tuple[bool, Any]] = []

        def run() -> None:
            try:
                self._outcome.append((True, function(*arguments)))
            except BaseException as error:
                self._outcome.append((False, error))

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Any:
        self._thread.join(LIMIT_S)
        if self._thread.is_alive():
            raise AssertionError("a thread still runs")
        went_well, value = self._outcome[0]
        if not went_well:
            raise value
        return value


class Pair:
    """Two endpoints of this process, connected: `one` has the number `to_other`, and so on."""

    def __init__(self, **settings: Any) -> None:
        name = fresh_name()
        self.one = pinfold.Endpoint(name, **settings)
        self.other = pinfold.Endpoint(**settings)
        accepting = Running(self.one.accept, LIMIT_S)
        self.to_one = self.other.connect(name)
        self.to_other = accepting.result()

    def __enter__(self) -> "Pair":
        return self

    def __exit__(self, *_: Any) -> None:
        self.one.close()
        self.other.close()


class Child:
    """A Python program in a process of its own."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=str(Path(__file__).parent),
        )

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> None:
        """Writes a line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kills it by SIGKILL."""
        self.process.kill()
        self.finish()

    def finish(self) -> Tuple[int, str, str]:
        """Waits for its end: the status, and what it printed and complained of since."""
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def descriptors() -> int:
    """How many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    """How many mappings this process has."""
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)
