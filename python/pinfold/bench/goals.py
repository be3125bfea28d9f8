"""`python -m pinfold.bench --goals`: Pinfold beside each rival at its own work, with a goal for each.

Ways take turns in rounds; the children of the others are stopped meanwhile, since some spin. Every
exchange is of data that were written anew, and is checked. Times are of exchanges alone: mean,
median and 99th percentile of all of them, in microseconds. "times" is the rival's mean over
Pinfold's, the median of the rounds'.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type

from . import requests, ways
from .measure import quantile
from .subjects import FORK


class Row(NamedTuple):
    """A work, the ways of it, and what Pinfold is to be faster by."""

    work: str
    ours: Type[ways.Way]
    rivals: Dict[Type[ways.Way], Optional[float]]
    each: int
    """Exchanges in a round."""


ROWS = [
    Row(
        "8 B one way",
        ways.PinfoldWords,
        {
            ways.PipeWords: 3.0,
            ways.SpinningPipeWords: 3.0,
            ways.ZeroMQWords: 3.0,
            ways.SpinningZeroMQWords: 3.0,
            ways.Iceoryx2Words: None,
        },
        400,
    ),
    Row(
        "100 MB array handed over and read once",
        ways.PinfoldArray,
        {ways.QueueArray: 20.0, ways.SharedArray: 1.0},
        2,
    ),
    Row(
        "object with 64 arrays of 1 MiB",
        ways.PinfoldObject,
        {ways.PipeObject: 5.0, ways.PinfoldOrdinaryObject: None},
        3,
    ),
    Row(
        "one of 1,000 outstanding requests, asyncio",
        requests.PinfoldRequests,
        {requests.StreamRequests: 2.0},
        3,
    ),
]


def present(kinds: List[Type[ways.Way]], tell: Callable[[str], None]) -> List[ways.Way]:
    """The ways that can be had here, in order."""
    made = []
    for kind in kinds:
        try:
            made.append(kind())
        except ImportError:
            tell(f"{kind.name}: not installed")
    return made


def measure(row: Row, rounds: int, tell: Callable[[str], None]) -> Dict[str, Any]:
    """The facts of a row.

    Errors: RuntimeError if an exchange was not of the right data.
    """
    there = present([row.ours, *row.rivals], tell)
    for way in there:
        # What both sides need is made before the fork.
        getattr(way, "ready", None)
    children = [FORK.Process(target=way.serve, daemon=True) for way in there]
    for child in children:
        child.start()
    times: List[List[List[float]]] = [[] for _ in there]
    numbers = [0] * len(there)

    def one(at: int) -> float:
        numbers[at] += 1
        there[at].prepare(numbers[at])
        begun = time.perf_counter_ns()
        is_right = there[at].exchange(numbers[at])
        took = (time.perf_counter_ns() - begun) / 1000 / there[at].divisor
        if not is_right:
            raise RuntimeError(f"{there[at].name}: {row.work}: exchange {numbers[at]} went wrong")
        return took

    try:
        for way in there:
            way.open()
        for child in children:
            signal_child(child, signal.SIGSTOP)
        for turn in range(-1, rounds):
            for step in range(len(there)):
                at = (step + turn) % len(there)
                signal_child(children[at], signal.SIGCONT)
                took = [one(at) for _ in range(row.each)]
                signal_child(children[at], signal.SIGSTOP)
                if turn >= 0:
                    times[at].append(took)
        for way, child in zip(there, children):
            signal_child(child, signal.SIGCONT)
            way.prepare(0)
            way.exchange(0)
        for child in children:
            child.join(10)
    finally:
        for child in children:
            if child.is_alive():
                child.terminate()
                signal_child(child, signal.SIGCONT)
        for way in there:
            way.close()
    return facts(row, there, times)


def signal_child(child: Any, number: int) -> None:
    """Stops a child, or has it go on."""
    os.kill(child.pid, number)


def facts(row: Row, there: List[ways.Way], times: List[List[List[float]]]) -> Dict[str, Any]:
    """What came of the times, which are by way, round and exchange."""
    told = []
    for way, rounds in zip(there, times):
        flat = sorted(one for took in rounds for one in took)
        pairs = [statistics.fmean(a) / statistics.fmean(b) for a, b in zip(rounds, times[0])]
        times_ours = statistics.median(pairs)
        goal = row.rivals.get(type(way))
        told.append(
            {
                "way": way.name,
                "exchanges": len(flat),
                "mean_us": statistics.fmean(flat),
                "median_us": statistics.median(flat),
                "p99_us": quantile(flat, 0.99),
                "times": times_ours,
                "goal": goal,
                "met": None if goal is None else times_ours >= goal,
            }
        )
    return {"work": row.work, "ways": told}


def shown(fact: Dict[str, Any]) -> str:
    """A row as a table."""
    lines = [f"{fact['work']}: {fact['ways'][0]['exchanges']} exchanges each, microseconds"]
    lines.append(f"{'':32}{'mean':>12}{'median':>12}{'p99':>12}{'times':>9}{'goal':>7}")
    for way in fact["ways"]:
        goal = "" if way["goal"] is None else f"{way['goal']:g}"
        missed = "  missed" if way["met"] is False else ""
        lines.append(
            f"{way['way']:32}{way['mean_us']:12.2f}{way['median_us']:12.2f}{way['p99_us']:12.2f}"
            f"{way['times']:9.2f}{goal:>7}{missed}"
        )
    return "\n".join(lines)
