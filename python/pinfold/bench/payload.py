"""The bytes that are moved, and the check that all of them came."""

from __future__ import annotations

import functools
from typing import Any

numpy: Any
try:
    import numpy
except ImportError:
    numpy = None

WORD = 8
SIZE_MIN = 2 * WORD


@functools.lru_cache(maxsize=4)
def pattern(size: int) -> bytes:
    """The bytes between the two words of a payload."""
    unit = bytes((7 * n + 3) % 251 for n in range(251))
    return (unit * (size // len(unit) + 1))[: size - SIZE_MIN]


class Payload:
    """A payload in some memory: its number in the first and the last 8 bytes, a pattern between."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self._view = memoryview(memory)
        self._view[WORD : len(self._view) - WORD] = pattern(len(self._view))

    def number(self, number: int) -> None:
        """Makes it the payload of this number."""
        word = number.to_bytes(WORD, "little")
        self._view[:WORD] = word
        self._view[len(self._view) - WORD :] = word


def check(memory: Any) -> int:
    """The number of a payload; -1 if any byte of it is not as it should be."""
    view = memoryview(memory).cast("B")
    first, last = bytes(view[:WORD]), bytes(view[len(view) - WORD :])
    between, expected = view[WORD : len(view) - WORD], pattern(len(view))
    if numpy is None:
        is_right = bytes(between) == expected
    else:
        is_right = numpy.array_equal(
            numpy.frombuffer(between, "u1"), numpy.frombuffer(expected, "u1")
        )
    return int.from_bytes(first, "little") if is_right and first == last else -1
