#!/usr/bin/env python3
"""Loads batches in forked workers, as the data loaders of machine learning do.

Each worker makes batches in its arena and puts them in a queue: this process gets them as arrays
over the workers' memory, without a copy, in the order in which they were asked for.
"""

from __future__ import annotations

import argparse
from typing import Any, Dict, Iterator, Tuple

import numpy

import pinfold
from pinfold.multiprocessing import get_context

SHAPE = (32, 64, 64, 3)


def batch(number: int) -> Any:
    """A batch of made-up pictures, in memory that can be given away."""
    pictures = pinfold.empty(SHAPE, "float32")
    pictures[:] = number
    pictures[0, 0, 0] = (number, number + 1, number + 2)
    return pictures


def work(tasks: Any, results: Any) -> None:
    """Makes the batches that are asked for, until None is."""
    for number in iter(tasks.get, None):
        results.put(
            (number, {"pictures": batch(number), "labels": list(range(number, number + 4))})
        )


class Loader:
    """Iterates over batches that `workers` processes make, at most `ahead` for each at a time."""

    def __init__(self, batches: int, workers: int = 2, ahead: int = 2) -> None:
        self.batches, self.workers, self.ahead = batches, workers, ahead

    def __iter__(self) -> Iterator[Tuple[int, Dict[str, Any]]]:
        context = get_context("fork")
        tasks, results = context.Queue(), context.Queue()
        processes = [
            context.Process(target=work, args=(tasks, results)) for _ in range(self.workers)
        ]
        for process in processes:
            process.start()
        asked = 0
        waiting: Dict[int, Any] = {}
        for number in range(self.batches):
            while asked < self.batches and asked < number + self.ahead * self.workers:
                tasks.put(asked)
                asked += 1
            while number not in waiting:
                made, value = results.get()
                waiting[made] = value
            yield number, waiting.pop(number)
        for _ in processes:
            tasks.put(None)
        for process in processes:
            process.join()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--batches", type=int, default=100)
    options.add_argument("--workers", type=int, default=2)
    args = options.parse_args()
    uncopied = 0
    for number, value in Loader(args.batches, args.workers):
        pictures = value["pictures"]
        assert pictures[0, 0, 0].tolist() == [number, number + 1, number + 2]
        assert (pictures[1:] == number).all() and value["labels"][0] == number
        receipt = pinfold.memory.owner(pictures)[0].receipt
        uncopied += receipt.path == "handoff" and receipt.copied == 0
    print(f"{args.batches} batches, all as they should be; {uncopied} came without a copy")


if __name__ == "__main__":
    main()
