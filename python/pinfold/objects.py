"""Objects as messages: pickle protocol 5, with large arrays beside the pickle.

An object is one message: `HEAD`, the length of each array, the pickle. Each array is a further
message with a tag of its own, in which bit 63 is set: no receive of any tag takes it.
"""

from __future__ import annotations

import itertools
import os
import pickle
import struct
import sys
from typing import TYPE_CHECKING, Any, Iterator, List, NamedTuple, Optional, Tuple

from .memory import Buffer, View, whole_buffer

if TYPE_CHECKING:
    from .endpoint import Endpoint

HEAD = struct.Struct("<4sIQ")  # magic, arrays, tag of the first
MAGIC = b"PFO1"
LENGTH = struct.Struct("<Q")
APART_MIN = 32 << 10
"""Shorter arrays are pickled: a message of their own would cost more, bytes."""
ARRAYS_MAX = 1 << 20

_OWN = 1 << 63
_sequence = itertools.count(int.from_bytes(os.urandom(4), "little"))


class Encoded(NamedTuple):
    """An object, ready to be sent."""

    stream: bytes
    arrays: List[Any]
    """Arrays that go beside it: whatever pickle had, so that arenas' can be told."""


def encode(value: Any, apart_min: int = APART_MIN) -> Encoded:
    """Pickles an object; arrays of `apart_min` bytes and more are left out."""
    arrays: List[Any] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < apart_min:
            return True
        arrays.append(memoryview(buffer))
        return False

    stream = pickle.dumps(value, protocol=5, buffer_callback=keep)
    return Encoded(stream, arrays)


def head(encoded: Encoded, first: int) -> bytes:
    """The first message of an object whose arrays have the tags from `first` on."""
    lengths = b"".join(LENGTH.pack(array.nbytes) for array in encoded.arrays)
    return HEAD.pack(MAGIC, len(encoded.arrays), first) + lengths + encoded.stream


def tags(count: int) -> int:
    """The first of `count` tags that this process has not used, `ARRAYS_MAX` at most.

    Errors: ValueError beyond that.
    """
    if count > ARRAYS_MAX:
        raise ValueError(f"{count} large arrays in one object; {ARRAYS_MAX} may be")
    return _OWN | next(_sequence) * ARRAYS_MAX % _OWN


def parse(message: Any) -> Tuple[int, List[int], memoryview]:
    """The tag of the first array, the length of each, and the pickle.

    Errors: ValueError if it is no object's message.
    """
    view = memoryview(message)
    if view.nbytes < HEAD.size:
        raise ValueError("the message is no object; recv() takes any message")
    magic, count, first = HEAD.unpack_from(view)
    begin = HEAD.size + count * LENGTH.size
    if magic != MAGIC or count > ARRAYS_MAX or begin > view.nbytes or not first & _OWN:
        raise ValueError("the message is no object; recv() takes any message")
    lengths = [LENGTH.unpack_from(view, HEAD.size + n * LENGTH.size)[0] for n in range(count)]
    return first, lengths, view[begin:]


def freeze(array: Any, buffer: Buffer) -> None:
    """Makes an array read-only whose memory was given away, unless peers may write it as well."""
    module = sys.modules.get("numpy")
    if buffer.shared or module is None or not isinstance(array, module.ndarray):
        return
    array.flags.writeable = False


def buffers(encoded: Encoded, give: bool) -> Iterator[Tuple[Any, Optional[Buffer]]]:
    """Each array, with the arena's buffer that it is all of, if it is to be given."""
    for array in encoded.arrays:
        yield array, whole_buffer(array) if give else None


def send(
    endpoint: "Endpoint",
    peer: int,
    encoded: Encoded,
    tag: int,
    timeout: Optional[float],
    give: bool,
) -> None:
    """Sends an object, see `Endpoint.send_object`."""
    first = tags(len(encoded.arrays))
    endpoint.send(peer, head(encoded, first), tag, timeout)
    for number, (array, buffer) in enumerate(buffers(encoded, give)):
        if buffer is None:
            endpoint.send(peer, array, first + number, timeout)
        else:
            endpoint.give(peer, buffer._block, first + number, timeout)
            freeze(array.obj, buffer)


def receive(
    endpoint: "Endpoint", peer: Optional[int], tag: Optional[int], timeout: Optional[float]
) -> Tuple[Any, List[View]]:
    """An object, and the views that its arrays lie in."""
    message = endpoint.recv_view(peer, tag, timeout)
    first, lengths, stream = parse(message)
    views = [endpoint.recv_view(message.peer, first + n) for n in range(len(lengths))]
    return assemble(stream, lengths, views), views


def assemble(stream: memoryview, lengths: List[int], views: List[View]) -> Any:
    """The object. Errors: ValueError if an array is not as long as the first message said."""
    if [view.nbytes for view in views] != lengths:
        raise ValueError("an array of the object has another length than was announced")
    return pickle.loads(stream, buffers=views)
