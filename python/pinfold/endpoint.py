"""Endpoints: one party to the exchange of messages."""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Callable, List, NamedTuple, Optional, Tuple

from . import _native, arrow, objects
from .arena import Arena
from .memory import whole_buffer

_open: "weakref.WeakSet[Endpoint]" = weakref.WeakSet()


class Peer(NamedTuple):
    """Facts about a connected peer."""

    number: int
    """Its number at this endpoint, by which calls name it."""
    name: str
    """Its label and process, as errors name it."""
    pid: int
    """Its process; 0 if that lies in another namespace, or on another host."""
    uid: int
    """Its user; the largest number for a peer on another host."""
    paths: Tuple[str, ...]
    """The paths by which messages to it can go."""


class Endpoint(_native.Endpoint):
    """One party to the exchange of messages: it connects to others, and others to it if it has a
    name; messages go both ways between connected peers.

    `name`: others on this host connect to it; a bare name or "local:NAME". `listen`:
    "tcp:HOST:PORT" for others on other hosts, which takes `key` (bytes) or `key_file` beyond the
    loopback.
    Settings: `label`, `strict`, `paths` (names), `users` (names or numbers), `encrypt`,
    `dedicated_progress`, `local_shortcut`, `io_uring`, `move_pages`, `prepare_receives`;
    `connect_timeout` and `reconnect_timeout` in seconds; `lane_bytes_max`, `mapped_bytes_max`,
    `unexpected_bytes_max`, `given_bytes_max`, `active_bytes_max` in bytes, `peers_max`.

    Calls: `connect(address, timeout=30.0)` and `accept(timeout=None)` return a peer's number;
    `send(peer, data, tag=0, timeout=None)` returns a receipt when the memory is the caller's again;
    `recv(peer=None, tag=None, timeout=None)` a Message, `recv_view(...)` a View,
    `recv_into(buffer, peer=None, tag=None, timeout=None)` a Received. Tags are 0 to 2**63 - 1; a
    peer or tag of None is any. Time-outs are in seconds, None is without a limit, 0 is not to wait.
    Each `post_...` returns a Request in place of waiting.

    Memory for peers: `region(nbytes, writable=False)` makes a Region, `register(buffer,
    writable=False)` has peers use an object's memory where it lies, until it is revoked. Both have
    a `key`, 24 bytes, which the program sends to those that may. `open_region(peer, key,
    timeout=None)` and `open_space(...)` return a Remote, by offsets and by the peer's addresses. A
    peer with the key may read, and write, at any moment: what it writes shows in the object.

    Active messages: `handle(id, function)` has `function(active)` called for messages with this
    number, on threads that call this endpoint, one at a time for each peer, or with
    `dedicated_progress` on its own thread. `handlers={id: function}` sets them before any peer can
    send. `call(peer, id, data=None, timeout=None)` sends one, `ask(...)` waits for the answer, a
    Message. The exception of a handler goes to `sys.unraisablehook`, and the one that asked gets
    NotHandled. A handler may call the endpoint, and while it waits no other of this endpoint runs
    on its thread. Ids are 0 to 2**32 - 1; messages without a handler are dropped.

    Any thread may call it, several at a time; the interpreter's lock is released meanwhile, and
    Ctrl-C ends a wait within 0.1 s. A child made by fork has no part in it (Forked), and can make
    its own.

    As a context manager it is closed at the end of the block, and at the interpreter's exit.
    """

    def __init__(self, *_: Any, **__: Any) -> None:
        _open.add(self)

    def __enter__(self) -> "Endpoint":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self.peers())} peers"
        return f"<pinfold.Endpoint: {state}>"

    def peers(self) -> List[Peer]:
        """The connected peers. Errors: Closed."""
        return [Peer(*facts[:4], tuple(facts[4])) for facts in self.peer_facts()]

    def arena(self, **settings: Any) -> Arena:
        """An arena for messages to peers; the settings are those of `Arena`. It is of no endpoint:
        any may send what lies in it, and it outlives this one."""
        return Arena(**settings)

    def handoff(self, peer: int, array: Any, tag: int = 0, timeout: Optional[float] = None) -> None:
        """Gives an array of an arena away: the message is the memory itself, at the same cost for
        any size. The receiver gets it by `recv_view`, without a copy; other receives copy it.

        The array stays valid here, and shows what the receiver sees. It is not to be written any
        more, and is made read-only if NumPy's; other arrays over the same memory are not. If the
        arena is `writable`, both sides may go on writing, and see each other's bytes.

        Waits at most `timeout` seconds while the peer has as much as it may have
        (`given_bytes_max`). Errors: ValueError if the array is not all of a buffer of an arena;
        LimitReached; and as `send`.
        """
        buffer = self._buffer(array)
        self.give(peer, buffer._block, tag, timeout)
        objects.freeze(array, buffer)

    def post_handoff(self, peer: int, array: Any, tag: int = 0) -> _native.Request:
        """As `handoff`, never waiting; the request ends, with the receipt, when the receiver has
        done with the memory."""
        buffer = self._buffer(array)
        request = self.post_give(peer, buffer._block, tag)
        objects.freeze(array, buffer)
        return request

    @staticmethod
    def _buffer(array: Any) -> Any:
        buffer = whole_buffer(array)
        if buffer is None:
            raise ValueError(
                "only an array that is all of a buffer of an arena can be given away: make it with "
                "Arena.empty, and give the whole; send() takes any array"
            )
        return buffer

    def send_object(
        self,
        peer: int,
        value: Any,
        tag: int = 0,
        timeout: Optional[float] = None,
        *,
        give: bool = True,
    ) -> None:
        """Sends any object that can be pickled, by protocol 5. Arrays in it of 32 KiB and more are
        not pickled: those of an arena are given away as by `handoff` if `give`, others are sent
        from where they lie.

        `timeout`, in seconds, is for each of the messages that this takes. Errors: those of pickle,
        and as `send`. After one in mid-object the peer may wait for the rest.
        """
        objects.send(self, peer, objects.encode(value), tag, timeout, give)

    def recv_object(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Receives an object that `send_object` sent. Its large arrays lie in the memory that they
        came in, without a further copy, and are read-only unless they were given out of a writable
        arena.

        Pickle runs code that the sender chooses: receive objects from peers that are trusted.
        Errors: ValueError if the message is no object, those of pickle, and as `recv`.
        """
        return objects.receive(self, peer, tag, timeout)[0]

    def send_arrow(
        self, peer: int, data: Any, tag: int = 0, timeout: Optional[float] = None
    ) -> None:
        """Sends a record batch or table of pyarrow, or anything with the Arrow PyCapsule interface.
        Its buffers are copied once, to an arena, and given away as by `handoff`. Takes pyarrow.

        Errors: TypeError if it is no Arrow data, and as `handoff`.
        """
        self.handoff(peer, arrow.pack(data), tag, timeout)

    def recv_arrow(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """Receives what `send_arrow` sent, as a RecordBatch or Table of pyarrow, without a copy.

        Its offsets are not checked: `validate(full=True)` does, as long as the sender leaves the
        memory alone, so receive Arrow data from peers that are trusted. Errors: ValueError if the
        message is no Arrow data, and as `recv`.
        """
        return arrow.unpack(self.recv_view(peer, tag, timeout))


before_exit: List[Callable[[], None]] = []
"""Functions that are called before the endpoints are closed at the interpreter's exit."""


@atexit.register
def _close_all() -> None:
    """Ends connections in order. Daemon threads do not come back from their waits."""
    for function in before_exit:
        function()
    _native.begin_exit()
    for endpoint in list(_open):
        endpoint.close(force=True)
