"""The ways that are measured: each moves the same payload to a child and brings its answer back."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
from multiprocessing import shared_memory
from typing import Any, List, Optional, Type

import pinfold

from .payload import Payload, check

FORK = multiprocessing.get_context("fork")
ANSWER = 8
"""The length of an answer: the number of the payload as the child found it, 8 bytes."""


class Subject:
    """One way. Made before the fork; then one side calls `serve`, the other `open`, and `exchange`
    for each message. `serve` answers each with the number that it found in it, or -1 if the
    contents were not as they should be, and returns after one of number 0."""

    name = ""

    def __init__(self, size: int) -> None:
        self.size = size

    def serve(self) -> None:
        """The child."""
        raise NotImplementedError

    def open(self) -> None:
        """The parent, after the fork."""

    def payload(self) -> Payload:
        """The payload, in memory as suits this way; made once, after `open`."""
        return Payload(bytearray(self.size))

    def exchange(self, payload: Payload) -> int:
        """Sends the payload and returns the answer."""
        raise NotImplementedError

    def close(self) -> None:
        """The parent, at the end."""


def answer(found: int) -> bytes:
    return found.to_bytes(ANSWER, "little", signed=True)


def number_of(data: Any) -> int:
    return int.from_bytes(bytes(data), "little", signed=True)


class Handoff(Subject):
    """An array of an arena, given away each time: no copy."""

    name = "pinfold handoff"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.address = f"bench-{os.getpid()}-{id(self)}"

    def serve(self) -> None:
        with pinfold.Endpoint() as endpoint:
            peer = endpoint.connect(self.address)
            found = -1
            while found:
                view = endpoint.recv_view(peer)
                found = check(view)
                del view
                endpoint.send(peer, answer(found))
            endpoint.drain(5)

    def open(self) -> None:
        self.endpoint = pinfold.Endpoint(self.address)
        self.peer = self.endpoint.accept(30)

    def payload(self) -> Payload:
        self.buffer = pinfold.Arena().alloc(self.size)
        return Payload(self.buffer)

    def exchange(self, payload: Payload) -> int:
        self.endpoint.handoff(self.peer, self.buffer)
        return number_of(self.endpoint.recv(self.peer))

    def close(self) -> None:
        self.endpoint.close()


class Send(Handoff):
    """Ordinary memory, sent and received by the cheapest path."""

    name = "pinfold send"

    def serve(self) -> None:
        with pinfold.Endpoint() as endpoint:
            peer = endpoint.connect(self.address)
            found, room = -1, bytearray(self.size)
            while found:
                endpoint.recv_into(room, peer)
                found = check(room)
                endpoint.send(peer, answer(found))
            endpoint.drain(5)

    def payload(self) -> Payload:
        return Payload(bytearray(self.size))

    def exchange(self, payload: Payload) -> int:
        self.endpoint.send(self.peer, payload.memory)
        return number_of(self.endpoint.recv(self.peer))


class Queue(Subject):
    """multiprocessing.Queue, with the payload as bytes: it pickles them."""

    name = "multiprocessing.Queue"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.there, self.back = self.make(), self.make()

    def make(self) -> Any:
        return FORK.Queue()

    def serve(self) -> None:
        found = -1
        while found:
            found = check(self.there.get())
            self.back.put(found)

    def exchange(self, payload: Payload) -> int:
        self.there.put(payload.memory)
        return self.back.get()


class PinfoldQueue(Queue):
    """The queue of pinfold.multiprocessing, with the payload as an array of an arena."""

    name = "pinfold Queue"

    def make(self) -> Any:
        from ..multiprocessing import get_context

        return get_context("fork").Queue()

    def payload(self) -> Payload:
        import pickle

        self.buffer = pinfold.Arena().alloc(self.size)
        self.value = pickle.PickleBuffer(memoryview(self.buffer))
        return Payload(self.buffer)

    def exchange(self, payload: Payload) -> int:
        self.there.put(self.value)
        return self.back.get()


class Pipe(Subject):
    """multiprocessing.Pipe, bytes without pickling."""

    name = "multiprocessing.Pipe"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.ours, self.theirs = FORK.Pipe()

    def serve(self) -> None:
        found = -1
        while found:
            found = check(self.theirs.recv_bytes())
            self.theirs.send_bytes(answer(found))

    def exchange(self, payload: Payload) -> int:
        self.ours.send_bytes(payload.memory)
        return number_of(self.ours.recv_bytes())


class SharedMemory(Pipe):
    """One block of shared memory, written in place, with a pipe to tell of it: no copy either."""

    name = "shared_memory"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.block: Any = shared_memory.SharedMemory(create=True, size=size)

    def serve(self) -> None:
        found = -1
        while found:
            self.theirs.recv_bytes()
            found = check(self.block.buf[: self.size])
            self.theirs.send_bytes(answer(found))

    def payload(self) -> Payload:
        return Payload(self.block.buf[: self.size])

    def exchange(self, payload: Payload) -> int:
        self.ours.send_bytes(b"x")
        return number_of(self.ours.recv_bytes())

    def close(self) -> None:
        self.block.unlink()


class Socket(Subject):
    """A pair of Unix stream sockets, received into one buffer."""

    name = "Unix socket"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.ours, self.theirs = socket.socketpair()

    @staticmethod
    def fill(end: socket.socket, room: memoryview) -> memoryview:
        got = 0
        while got < len(room):
            count = end.recv_into(room[got:])
            if not count:
                raise EOFError("the other side has gone")
            got += count
        return room

    def serve(self) -> None:
        found, room = -1, memoryview(bytearray(self.size))
        while found:
            found = check(self.fill(self.theirs, room))
            self.theirs.sendall(answer(found))

    def exchange(self, payload: Payload) -> int:
        self.ours.sendall(payload.memory)
        return number_of(self.fill(self.ours, memoryview(bytearray(ANSWER))))


class ZeroMQ(Subject):
    """A pair of ZeroMQ sockets by ipc, without copies in Python."""

    name = "ZeroMQ"

    def __init__(self, size: int) -> None:
        import zmq

        super().__init__(size)
        self.zmq = zmq
        self.folder = tempfile.TemporaryDirectory()
        self.address = f"ipc://{self.folder.name}/socket"

    def serve(self) -> None:
        end = self.zmq.Context().socket(self.zmq.PAIR)
        end.connect(self.address)
        found = -1
        while found:
            found = check(end.recv(copy=False).buffer)
            end.send(answer(found))
        end.close(linger=1000)

    def open(self) -> None:
        self.end = self.zmq.Context().socket(self.zmq.PAIR)
        self.end.bind(self.address)

    def exchange(self, payload: Payload) -> int:
        self.end.send(payload.memory, copy=False)
        return number_of(self.end.recv())

    def close(self) -> None:
        self.end.close()
        self.folder.cleanup()


ALL: List[Type[Subject]] = [
    Handoff,
    Send,
    PinfoldQueue,
    Queue,
    Pipe,
    SharedMemory,
    Socket,
    ZeroMQ,
]


def make(kind: Type[Subject], size: int) -> Optional[Subject]:
    """A subject; None if what it takes is not installed."""
    try:
        return kind(size)
    except ImportError:
        return None
