"""Memory of the library's: buffers of arenas, messages, views.

Each is an object with the buffer protocol, `__array_interface__` and `__dlpack__`, and keeps its
memory in place as long as it, or anything made of it, lives: `memoryview` and NumPy take it without
a copy, and `bytes` makes one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional, Sequence, Tuple, Union

from . import _native

if TYPE_CHECKING:
    from ._native import Receipt

Shape = Union[int, Sequence[int]]


def numpy() -> Any:
    """NumPy, or an ImportError that names what is missing."""
    try:
        import numpy as module
    except ImportError as error:
        raise ImportError("arrays take NumPy; memoryview(...) works without it") from error
    return module


class Memory(_native.Exporter):
    """Contiguous bytes of the library's."""

    __slots__ = ("__weakref__",)

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""
        return self._block.nbytes

    @property
    def address(self) -> int:
        """The address of its first byte in this process."""
        return self._block.address

    @property
    def readonly(self) -> bool:
        """True if it cannot be written."""
        return self._block.readonly

    def __len__(self) -> int:
        return self._block.nbytes

    def __bytes__(self) -> bytes:
        return memoryview(self).tobytes()

    def tobytes(self) -> bytes:
        """A copy of the bytes."""
        return memoryview(self).tobytes()

    def array(self, dtype: Any = "uint8", shape: Optional[Shape] = None) -> Any:
        """A NumPy array that is this memory, not a copy; read-only where the memory is.

        `shape` defaults to as many elements as there are, in one dimension. ValueError: the memory
        does not have so many bytes. ImportError: there is no NumPy.
        """
        array = numpy().frombuffer(self, dtype=dtype) if self.nbytes else numpy().empty(0, dtype)
        return array if shape is None else array.reshape(shape)

    @property
    def __array_interface__(self) -> dict:
        return {
            "version": 3,
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, self.readonly),
        }

    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule of unsigned bytes, without a copy, by NumPy's."""
        return self.array().__dlpack__(**options)

    def __dlpack_device__(self) -> Tuple[int, int]:
        """(1, 0): the memory of the processor."""
        return (1, 0)


class Buffer(Memory):
    """Memory of an arena, as `Arena.alloc` makes it. It goes back to the arena when nothing refers
    to it any more; if it was given away, when its receivers have done with it as well."""

    __slots__ = ()

    @property
    def given(self) -> bool:
        """True if it was given away: then it is not to be written any more."""
        return self._block.given

    @property
    def shared(self) -> bool:
        """True if peers can write it as well."""
        return self._block.shared

    def __repr__(self) -> str:
        return f"<pinfold.Buffer: {self.nbytes} bytes{', given away' if self.given else ''}>"


class _Received(Memory):
    """Memory that is a message."""

    __slots__ = ()

    @property
    def peer(self) -> int:
        """The number of the peer that sent it."""
        return self._block.peer

    @property
    def tag(self) -> int:
        """Its tag."""
        return self._block.tag

    @property
    def receipt(self) -> "Receipt":
        """How it came."""
        return self._block.receipt

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"<pinfold.{kind}: {self.nbytes} bytes from peer {self.peer}, tag {self.tag}>"


class Message(_Received):
    """A message in memory of this process's own, to be read. It outlives its endpoint."""

    __slots__ = ()


class View(_Received):
    """A message where it is: in the sender's memory if that was given away, else in memory of this
    process's own.

    It stays good when the sender closes or dies. As long as it, or an array made of it, lives, its
    endpoint stays connected, also when it is closed without `force`. When the last is gone the
    memory goes back to its owner.
    """

    __slots__ = ()


def owner(array: Any) -> Tuple[Optional[Memory], int, int]:
    """The memory that an array or memoryview lies in (None: not the library's), its address and
    its length in bytes."""
    if isinstance(array, Memory):
        return array, array.address, array.nbytes
    module = sys.modules.get("numpy")
    is_array = module is not None and isinstance(array, module.ndarray)
    if is_array:
        at, nbytes = array.__array_interface__["data"][0], array.nbytes
        if not (array.flags.c_contiguous or array.flags.f_contiguous):
            return None, at, nbytes
    else:
        array = array if isinstance(array, memoryview) else memoryview(array)
        if not array.contiguous:
            return None, 0, array.nbytes
        at, nbytes = 0, array.nbytes
    found = array
    while found is not None and not isinstance(found, Memory):
        if isinstance(found, memoryview):
            found = found.obj
        elif module is not None and isinstance(found, module.ndarray):
            found = found.base
        else:
            found = None
    if found is not None and not is_array:
        # A memoryview does not tell its address; one of all bytes begins where the memory does.
        at = found.address if nbytes == found.nbytes else -1
    return found, at, nbytes


def whole_buffer(array: Any) -> Optional[Buffer]:
    """The buffer of an arena that an array is all of; None: there is none."""
    found, at, nbytes = owner(array)
    if not isinstance(found, Buffer) or nbytes != found.nbytes or at != found.address:
        return None
    return found
