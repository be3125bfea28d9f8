"""Taking the times, and what is made of them."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Type

from . import subjects


class Facts(Dict[str, Any]):
    """The figures of one subject at one size. Times are in microseconds, over all exchanges."""


def quantile(sorted_times: List[float], share: float) -> float:
    """The smallest time that this share of them does not exceed."""
    at = max(0, -(-int(share * 1000) * len(sorted_times) // 1000) - 1)
    return sorted_times[at]


def summary(name: str, size: int, rounds: List[List[float]], base: List[List[float]]) -> Facts:
    """The facts of the times of each round; `base` has those of the first subject."""
    times = sorted(time for times in rounds for time in times)
    mean = statistics.fmean(times)
    pairs = [statistics.fmean(ours) / statistics.fmean(first) for ours, first in zip(rounds, base)]
    return Facts(
        subject=name,
        bytes=size,
        exchanges=len(times),
        mean_us=mean,
        median_us=statistics.median(times),
        p99_us=quantile(times, 0.99),
        gb_per_s=size / mean / 1000,
        times_first=statistics.median(pairs),
    )


def measure(
    kinds: List[Type[subjects.Subject]],
    size: int,
    rounds: int,
    each: int,
    warm: int = 5,
    tell: Optional[Callable[[str], None]] = None,
) -> List[Facts]:
    """Measures all subjects at one size: `rounds` rounds, in each of which every subject has `each`
    exchanges, in an order that turns. All processes are there all the time.

    Errors: RuntimeError if a payload did not arrive as it was sent.
    """
    present = []
    for kind in kinds:
        subject = subjects.make(kind, size)
        if subject is None:
            if tell is not None:
                tell(f"{kind.name}: not installed")
        else:
            present.append(subject)
    children = [subjects.FORK.Process(target=subject.serve) for subject in present]
    for child in children:
        child.start()
    try:
        for subject in present:
            subject.open()
        payloads = [subject.payload() for subject in present]
        numbers = [0] * len(present)

        def exchange(at: int, number: int) -> float:
            payloads[at].number(number)
            begun = time.perf_counter_ns()
            found = present[at].exchange(payloads[at])
            took = (time.perf_counter_ns() - begun) / 1000
            if found != number:
                raise RuntimeError(
                    f"{present[at].name}: payload {number} did not arrive as it was sent"
                )
            return took

        times: List[List[List[float]]] = [[] for _ in present]
        for turn in range(-1, rounds):
            for step in range(len(present)):
                at = (step + turn) % len(present)
                took = []
                for _ in range(each if turn >= 0 else warm):
                    numbers[at] += 1
                    took.append(exchange(at, numbers[at]))
                if turn >= 0:
                    times[at].append(took)
        for at in range(len(present)):
            exchange(at, 0)
        for child in children:
            child.join(10)
    finally:
        for child in children:
            if child.is_alive():
                child.terminate()
        for subject in present:
            subject.close()
    return [summary(it.name, size, rounds, times[0]) for it, rounds in zip(present, times)]
