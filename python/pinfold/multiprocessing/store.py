"""The large arrays of this process that others fetch.

A pipe or a queue of the standard library carries tokens: a small object whole, a large one as the
name of its process's endpoint and a number. The receiver connects there, asks for the number, and
is given the object's arrays (`objects`): it looks at them where they lie.

A process has one store, made when it first puts or fetches something large: an endpoint, an arena,
and a thread that answers. A child made by fork makes its own.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import threading
import time
import uuid
from multiprocessing import util
from typing import Any, Dict, Optional, Tuple

from .. import objects
from ..arena import Arena
from ..endpoint import Endpoint, before_exit
from ..errors import Error, NameGone, PeerDied, PeerGone
from ..memory import whole_buffer

ASK_TAG = (1 << 62) + 1
"""The tag of requests: a number, 8 bytes."""
GIVE_TAG = 1 << 61
"""The tag of an answer, less the number that was asked for."""
MISSING = b"PFO?"
"""The answer if there is no such object."""
FLUSH_PRIORITY = 5
"""Of the finalizer that waits for the others to fetch; the standard library's queues have -5."""

Token = Tuple[str, int]


class Store:
    """The endpoint of this process, and the objects that others have not fetched yet."""

    def __init__(self) -> None:
        self.name = f"pf-{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self.endpoint = Endpoint(self.name, label="pinfold.multiprocessing")
        self.arena = Arena()
        self._objects: Dict[int, objects.Encoded] = {}
        self._numbers = itertools.count(1)
        self._peers: Dict[str, int] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.may_leave = False
        threading.Thread(target=self._answer, name="pinfold-store", daemon=True).start()
        util.Finalize(None, self.flush, exitpriority=FLUSH_PRIORITY)
        before_exit.append(self.flush)

    def put(self, encoded: objects.Encoded) -> Token:
        """Keeps an object until it is fetched. Arrays of ordinary memory are copied, once, so that
        the caller may change them; those of an arena are not."""
        arrays = []
        for array in encoded.arrays:
            if whole_buffer(array) is None:
                buffer = self.arena.alloc(array.nbytes)
                memoryview(buffer)[:] = _flat(array)
                array = memoryview(buffer)
            arrays.append(array)
        number = next(self._numbers)
        self._objects[number] = objects.Encoded(encoded.stream, arrays)
        return self.name, number

    def fetch(self, token: Token) -> Any:
        """Fetches an object of another process, or of this one.

        Errors: PeerGone if that process has ended, LookupError if the object was fetched before.
        """
        name, number = token
        peer = self._peer(name)
        tag = GIVE_TAG | number
        self.endpoint.send(peer, number.to_bytes(8, "little"), ASK_TAG)
        message = self.endpoint.recv_view(peer, tag)
        if bytes(message) == MISSING:
            raise LookupError(f"object {number} of {name} was fetched before")
        first, lengths, stream = objects.parse(message)
        views = [self.endpoint.recv_view(peer, first + n) for n in range(len(lengths))]
        return objects.assemble(stream, lengths, views)

    def _peer(self, name: str) -> int:
        with self._lock:
            peer = self._peers.get(name)
            if peer is None:
                try:
                    peer = self.endpoint.connect(name, timeout=0)
                except NameGone as error:
                    why = f"the process whose store is {name} has ended, and what it put with it"
                    raise PeerDied(why) from error
                self._peers[name] = peer
            return peer

    def _answer(self) -> None:
        """Gives what is asked for, until the endpoint is closed."""
        while True:
            try:
                question = self.endpoint.recv(None, ASK_TAG, timeout=None)
                self._give(question.peer, int.from_bytes(bytes(question)[:8], "little"))
            except PeerGone:
                if self.endpoint.closed:
                    return
                # Nobody is left, or the one that asked is gone: another may come.
                time.sleep(0.01)
            except Error:
                return

    def _give(self, peer: int, number: int) -> None:
        encoded = self._objects.get(number)
        tag = GIVE_TAG | number
        if encoded is None:
            self.endpoint.send(peer, MISSING, tag)
            return
        objects.send(self.endpoint, peer, encoded, tag, None, True)
        # Only now, so that `flush` waits for what is on its way.
        self._objects.pop(number, None)

    def flush(self) -> None:
        """Waits until all was fetched, as queues do at a process's exit, but no longer than
        somebody is there that could: the parent, or a child that is no daemon. In a
        child made by fork it does nothing: the objects are the parent's."""
        if self._process != os.getpid():
            return
        while self._objects and not self.may_leave and not self.endpoint.closed:
            if not _has_relatives():
                return
            time.sleep(0.002)


def _flat(array: memoryview) -> memoryview:
    """The bytes of a contiguous array, in the order in which they lie."""
    return pickle.PickleBuffer(array).raw()


def _has_relatives() -> bool:
    parent = multiprocessing.parent_process()
    if parent is not None and parent.is_alive():
        return True
    return any(not child.daemon for child in multiprocessing.active_children())


_store: Optional[Store] = None
_process = 0
_making = threading.Lock()


def store() -> Store:
    """The store of this process."""
    global _store, _process
    if _store is not None and _process == os.getpid():
        return _store
    with _making:
        if _store is None or _process != os.getpid():
            _store, _process = Store(), os.getpid()
        return _store


def _forget() -> None:
    """A child made by fork begins without a store; the lock may have been another thread's."""
    global _store, _making
    _making = threading.Lock()
    _store = None


os.register_at_fork(after_in_child=_forget)

SMALL, LARGE = b"s", b"l"


def pack(value: Any) -> bytes:
    """An object as the bytes that a pipe carries."""
    encoded = objects.encode(value)
    if not encoded.arrays:
        return SMALL + encoded.stream
    return LARGE + pickle.dumps(store().put(encoded))


def unpack(data: bytes) -> Any:
    """The object of those bytes."""
    if data[:1] == SMALL:
        return pickle.loads(memoryview(data)[1:])
    return store().fetch(pickle.loads(memoryview(data)[1:]))
