"""Arrow data as messages: record batches and tables, copied once by the sender and never after.

A message is `HEAD`, then an Arrow IPC stream: `pack` writes it into memory of an arena, which is
given away, and `unpack` reads it where it lies. Takes pyarrow. Anything with the Arrow PyCapsule
interface (`__arrow_c_array__`, `__arrow_c_stream__`) is taken, and what comes out has it.
"""

from __future__ import annotations

import struct
from typing import Any, Optional

from .arena import Arena, default
from .memory import Buffer

HEAD = struct.Struct("<4sI56x")  # magic, kind; 64 bytes, so that buffers keep their alignment
MAGIC = b"PFA1"
BATCH, TABLE = 0, 1


def pyarrow() -> Any:
    """pyarrow, or an ImportError that names what is missing."""
    try:
        import pyarrow as module
    except ImportError as error:
        raise ImportError("Arrow data takes pyarrow; install it beside pinfold") from error
    return module


def _imported(data: Any) -> Any:
    """A RecordBatch or a Table of pyarrow.

    Errors: TypeError if it is neither, nor has the interface.
    """
    pa = pyarrow()
    if isinstance(data, (pa.RecordBatch, pa.Table)):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.record_batch(data)
    name = type(data).__name__
    raise TypeError(
        f"a {name} is no Arrow data: a record batch, a table, or anything with __arrow_c_array__ "
        "or __arrow_c_stream__ is"
    )


def _write(data: Any, sink: Any) -> None:
    pa = pyarrow()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)


def pack(data: Any, arena: Optional[Arena] = None) -> Buffer:
    """A buffer of an arena (by default the one of `pinfold.empty`) with a record batch or table in
    it, ready to be given away by `Endpoint.handoff`. One copy of its buffers.

    Errors: TypeError if it is no Arrow data, those of pyarrow, NoMemory, LimitReached.
    """
    pa = pyarrow()
    data = _imported(data)
    counted = pa.MockOutputStream()
    _write(data, counted)
    buffer = (default() if arena is None else arena).alloc(HEAD.size + counted.size())
    view = memoryview(buffer)
    HEAD.pack_into(view, 0, MAGIC, TABLE if isinstance(data, pa.Table) else BATCH)
    with pa.FixedSizeBufferWriter(pa.py_buffer(view[HEAD.size :])) as sink:
        _write(data, sink)
    return buffer


def unpack(memory: Any) -> Any:
    """The RecordBatch or Table that `pack` put into some memory: a View, say. Its buffers are that
    memory, which stays as long as any of them is used. What the peer wrote is not trusted: offsets
    are looked at, and text, so that nothing is read outside of it later; numbers are not read.

    Errors: ValueError if there is none, those of pyarrow if it makes no sense.
    """
    pa = pyarrow()
    view = memoryview(memory)
    if view.nbytes < HEAD.size:
        raise ValueError("the message is no Arrow data; recv() takes any message")
    magic, kind = HEAD.unpack_from(view)
    if magic != MAGIC or kind not in (BATCH, TABLE):
        raise ValueError("the message is no Arrow data; recv() takes any message")
    with pa.ipc.open_stream(pa.py_buffer(view[HEAD.size :])) as reader:
        data = reader.read_next_batch() if kind == BATCH else reader.read_all()
    data.validate(full=True)
    return data
