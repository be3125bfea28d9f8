"""Arenas: memory that peers can map, as arrays."""

from __future__ import annotations

import math
import os
import struct
from typing import Any, Optional

from . import _native
from .memory import Buffer, Shape


class Arena(_native.Arena):
    """Memory of this process that its peers can map. Messages out of it are copied once, or not at
    all if it is given away (`Endpoint.handoff`).

    `bytes_max`: address space, in bytes (0: 64 GiB), taken piece by piece. `bytes_budget`: memory,
    in bytes (0: half of the machine's). `writable`: peers may write what they are given, and its
    buffers, as long as they live; without it nobody but this process can.

    Peers to which something of an arena was sent can read all of it: use several for peers that
    must not see each other's data. A child made by fork has no part in it: its arrays must not be
    touched there, which ends the child by SIGSEGV.

    Errors: NoMemory, LimitReached, SystemFailed.
    """

    def alloc(self, nbytes: int, align: int = 64) -> Buffer:
        """A buffer of `nbytes` bytes at a multiple of `align`, a power of two up to 2 MiB. Its
        contents are those of an earlier buffer, or zeros."""
        return Buffer(self.block(nbytes, align))

    def empty(self, shape: Shape, dtype: Any = None, order: Any = "C") -> Any:
        """A NumPy array in the arena, its contents unspecified. `dtype` defaults to float64.

        Without NumPy: a memoryview of this shape, where `dtype` is a letter of `struct` ("d" by
        default), and `order` is "C".

        Cost: some microseconds, and 0.1 to 1 ms a MiB where the arena has to grow.
        """
        sizes = [shape] if isinstance(shape, int) else [int(size) for size in shape]
        try:
            import numpy
        except ImportError:
            return self._view(sizes, "d" if dtype is None else dtype, order)
        kind = numpy.dtype(float if dtype is None else dtype)
        if kind.hasobject:
            raise TypeError(
                "an array of Python objects cannot lie in an arena: a peer has other objects"
            )
        buffer: Any = self.alloc(math.prod(sizes) * kind.itemsize)
        return numpy.ndarray(sizes, kind, buffer=buffer, order=order)

    def _view(self, sizes: list, letter: str, order: str) -> memoryview:
        if order != "C":
            raise ValueError("without NumPy only order='C' can be had")
        flat: Any = memoryview(self.alloc(math.prod(sizes) * struct.calcsize(letter)))
        return flat.cast(letter, sizes) if flat.nbytes else flat.cast(letter)

    def zeros(self, shape: Shape, dtype: Any = None, order: Any = "C") -> Any:
        """As `empty`, all zeros."""
        array = self.empty(shape, dtype, order)
        if isinstance(array, memoryview):
            array.cast("B")[:] = bytes(array.nbytes)
        else:
            array[...] = 0
        return array

    def copy(self, array: Any) -> Any:
        """A copy of an array in the arena, of the same shape, type and order."""
        import numpy

        source = numpy.asarray(array)
        order = "F" if source.flags.f_contiguous and not source.flags.c_contiguous else "C"
        made = self.empty(source.shape, source.dtype, order)
        made[...] = source
        return made


_default: Optional[Arena] = None
_process = 0


def default() -> Arena:
    """The arena of this process that `pinfold.empty` takes memory of; made when first asked for."""
    global _default, _process
    if _default is None or _process != os.getpid():
        _default, _process = Arena(), os.getpid()
    return _default


def empty(shape: Shape, dtype: Any = None, order: Any = "C") -> Any:
    """As `Arena.empty`, of the process's own arena."""
    return default().empty(shape, dtype, order)


def zeros(shape: Shape, dtype: Any = None, order: Any = "C") -> Any:
    """As `Arena.zeros`, of the process's own arena."""
    return default().zeros(shape, dtype, order)
