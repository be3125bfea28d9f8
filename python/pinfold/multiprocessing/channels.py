"""Pipes and queues with the interface of multiprocessing's."""

from __future__ import annotations

import multiprocessing
from multiprocessing import queues
from typing import Any, Optional, Tuple

from .store import pack, store, unpack


class Connection:
    """One end of a pipe, as `multiprocessing.connection.Connection`. `send` and `recv` move large
    arrays by Pinfold; `send_bytes` and `recv_bytes` go through the pipe as they are."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def send(self, obj: Any) -> None:
        """Sends an object. Waits only while the pipe is full, whatever the object's size."""
        self._plain.send_bytes(pack(obj))

    def recv(self) -> Any:
        """Waits for an object. Errors: EOFError; PeerGone if its sender has ended before."""
        return unpack(self._plain.recv_bytes())

    def send_bytes(self, buf: Any, offset: int = 0, size: Optional[int] = None) -> None:
        """As multiprocessing's. Not to be mixed with `recv`."""
        self._plain.send_bytes(buf, offset, size)

    def recv_bytes(self, maxlength: Optional[int] = None) -> bytes:
        """As multiprocessing's. Not to be mixed with `send`."""
        return self._plain.recv_bytes(maxlength)

    def recv_bytes_into(self, buf: Any, offset: int = 0) -> int:
        """As multiprocessing's. Not to be mixed with `send`."""
        return self._plain.recv_bytes_into(buf, offset)

    def poll(self, timeout: Optional[float] = 0.0) -> bool:
        """True if an object can be received."""
        return self._plain.poll(timeout)

    def fileno(self) -> int:
        """The descriptor of the pipe: readable if an object can be received."""
        return self._plain.fileno()

    def close(self) -> None:
        """Closes this end. Objects that were sent can still be received, as long as this process
        lives."""
        self._plain.close()

    @property
    def closed(self) -> bool:
        """True once it was closed."""
        return self._plain.closed

    @property
    def readable(self) -> bool:
        """True if it receives."""
        return self._plain.readable

    @property
    def writable(self) -> bool:
        """True if it sends."""
        return self._plain.writable

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def pipe(duplex: bool, context: Any) -> Tuple[Connection, Connection]:
    """Both ends of a pipe: if not `duplex`, the first receives and the second sends."""
    one, other = context.Pipe(duplex)
    return Connection(one), Connection(other)


class SimpleQueue(queues.SimpleQueue):
    """As `multiprocessing.SimpleQueue`."""

    _reader: Any
    _writer: Any
    _rlock: Any
    _wlock: Any

    def __init__(self, *, ctx: Any) -> None:
        super().__init__(ctx=ctx)
        self._wrap()

    def _wrap(self) -> None:
        self._reader, self._writer = Connection(self._reader), Connection(self._writer)
        self._poll = self._reader.poll

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._poll = self._reader.poll

    def get(self) -> Any:
        """Waits for an object, and removes it."""
        with self._rlock:
            data = self._reader.recv_bytes()
        return unpack(data)

    def put(self, obj: Any) -> None:
        """Adds an object."""
        data = pack(obj)
        if self._wlock is None:
            self._writer.send_bytes(data)
        else:
            with self._wlock:
                self._writer.send_bytes(data)


class Queue:
    """As `multiprocessing.Queue`, for many senders and receivers; large arrays in objects move by
    Pinfold. `put` pickles at once, so that later changes do not change the object, but for arrays
    of an arena, which are given away."""

    def __init__(self, maxsize: int = 0, *, ctx: Any = None) -> None:
        self._plain = (multiprocessing.get_context() if ctx is None else ctx).Queue(maxsize)

    def put(self, obj: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Adds an object. Errors: queue.Full."""
        self._plain.put(pack(obj), block, timeout)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Removes an object. Errors: queue.Empty; PeerGone if its sender was killed before."""
        return unpack(self._plain.get(block, timeout))

    def put_nowait(self, obj: Any) -> None:
        """As `put` without waiting."""
        self.put(obj, False)

    def get_nowait(self) -> Any:
        """As `get` without waiting."""
        return self.get(False)

    def qsize(self) -> int:
        """About how many objects there are."""
        return self._plain.qsize()

    def empty(self) -> bool:
        """True if there was none a moment ago."""
        return self._plain.empty()

    def full(self) -> bool:
        """True if there was no room a moment ago."""
        return self._plain.full()

    def close(self) -> None:
        """This process will put nothing more."""
        self._plain.close()

    def join_thread(self) -> None:
        """After `close`: waits until what was put is in the pipe."""
        self._plain.join_thread()

    def cancel_join_thread(self) -> None:
        """The process may exit with objects that nobody has got."""
        self._plain.cancel_join_thread()
        store().may_leave = True
