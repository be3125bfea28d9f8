"""The ways of `goals`: each does the same work with a child, in its own manner."""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from multiprocessing import shared_memory
from typing import Any

import pinfold

from .subjects import FORK

WORD = struct.Struct("<Q")
LIMIT_S = 60


class Way:
    """One way. Made before the fork; then one side calls `serve`, the other `open`. For each
    exchange `prepare` writes the data of its number anew, and `exchange` moves them; that alone is
    timed. Numbers are from 1 on; 0 is the last."""

    name = ""
    divisor = 1
    """What the time of an exchange is divided by: 2 for a message and its answer of one kind."""

    def __init__(self) -> None:
        self.address = f"bench-{os.getpid()}-{id(self)}"

    def serve(self) -> None:
        """The child."""
        raise NotImplementedError

    def open(self) -> None:
        """The parent, after the fork."""

    def prepare(self, number: int) -> None:
        """The parent, before the clock starts."""

    def exchange(self, number: int) -> bool:
        """The parent. Returns whether the child had what it should have."""
        raise NotImplementedError

    def close(self) -> None:
        """The parent, at the end."""


# 8 bytes, there and back: half of it is one way.


class Words(Way):
    """The child sends each number back, one greater."""

    divisor = 2

    def ask(self, word: bytes) -> Any:
        raise NotImplementedError

    def exchange(self, number: int) -> bool:
        return WORD.unpack(self.ask(WORD.pack(number)))[0] == number + 1

    def answers(self, take: Any, give: Any) -> None:
        number = 1
        while number:
            (number,) = WORD.unpack(take())
            give(WORD.pack(number + 1))


class PinfoldWords(Words):
    name = "pinfold"

    def serve(self) -> None:
        with pinfold.Endpoint() as endpoint:
            peer, room = endpoint.connect(self.address), bytearray(8)

            def take() -> bytearray:
                endpoint.recv_into(room, peer)
                return room

            self.answers(take, lambda word: endpoint.send(peer, word))
            endpoint.drain(5)

    def open(self) -> None:
        self.endpoint, self.room = pinfold.Endpoint(self.address), bytearray(8)
        self.peer = self.endpoint.accept(LIMIT_S)

    def ask(self, word: bytes) -> bytearray:
        self.endpoint.send(self.peer, word)
        self.endpoint.recv_into(self.room, self.peer)
        return self.room

    def close(self) -> None:
        self.endpoint.close()


class PipeWords(Words):
    name = "multiprocessing.Pipe"

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.theirs = FORK.Pipe()

    def serve(self) -> None:
        self.answers(self.theirs.recv_bytes, self.theirs.send_bytes)

    def ask(self, word: bytes) -> bytes:
        self.ours.send_bytes(word)
        return self.ours.recv_bytes()


class SpinningPipeWords(PipeWords):
    name = "multiprocessing.Pipe, spinning"

    @staticmethod
    def spin(end: Any) -> bytes:
        while not end.poll():
            pass
        return end.recv_bytes()

    def serve(self) -> None:
        self.answers(lambda: self.spin(self.theirs), self.theirs.send_bytes)

    def ask(self, word: bytes) -> bytes:
        self.ours.send_bytes(word)
        return self.spin(self.ours)


class ZeroMQWords(Words):
    name = "ZeroMQ"
    spins = False

    def __init__(self) -> None:
        import zmq

        super().__init__()
        self.zmq = zmq
        self.folder = tempfile.TemporaryDirectory()

    def end(self, call: str) -> Any:
        end = self.zmq.Context().socket(self.zmq.PAIR)
        getattr(end, call)(f"ipc://{self.folder.name}/socket")
        return end

    def take(self, end: Any) -> bytes:
        if not self.spins:
            return end.recv()
        while True:
            try:
                return end.recv(self.zmq.NOBLOCK)
            except self.zmq.Again:
                pass

    def serve(self) -> None:
        end = self.end("connect")
        self.answers(lambda: self.take(end), end.send)
        end.close(linger=1000)

    def open(self) -> None:
        self.socket = self.end("bind")

    def ask(self, word: bytes) -> bytes:
        self.socket.send(word)
        return self.take(self.socket)

    def close(self) -> None:
        self.socket.close()
        self.folder.cleanup()


class SpinningZeroMQWords(ZeroMQWords):
    name = "ZeroMQ, spinning"
    spins = True


class Iceoryx2Words(Words):
    """Publish and subscribe, one service each way; the subscriber spins, as it has no other way to
    wait but with a further service of events."""

    name = "iceoryx2, spinning"

    def __init__(self) -> None:
        import iceoryx2

        super().__init__()
        self.iox = iceoryx2
        iceoryx2.set_log_level(iceoryx2.LogLevel.Error)

    def connect(self, ours: str, theirs: str) -> None:
        iox = self.iox
        self.node = iox.NodeBuilder.new().create(iox.ServiceType.Ipc)

        def service(name: str) -> Any:
            named = iox.ServiceName.new(f"{self.address}/{name}")
            return self.node.service_builder(named).publish_subscribe(ctypes.c_uint64)

        self.out = service(ours).open_or_create().publisher_builder().create()
        self.into = service(theirs).open_or_create().subscriber_builder().create()

    def give(self, number: int) -> None:
        self.out.loan_uninit().write_payload(ctypes.c_uint64(number)).send()

    def take(self) -> int:
        while True:
            sample = self.into.receive()
            if sample is not None:
                number = sample.payload().contents.value
                sample.delete()
                return number

    def serve(self) -> None:
        self.connect("back", "there")
        self.ready.set()
        number = 1
        while number:
            number = self.take()
            self.give(number + 1)

    @property
    def ready(self) -> Any:
        if not hasattr(self, "_ready"):
            self._ready = FORK.Event()
        return self._ready

    def open(self) -> None:
        self.connect("there", "back")
        if not self.ready.wait(LIMIT_S):
            raise RuntimeError("iceoryx2: the child is not there")

    def exchange(self, number: int) -> bool:
        self.give(number)
        return self.take() == number + 1


# An array of 100 MB, handed over, and read once.


class Array(Way):
    """An array of numbers that count on from the exchange's, whose sum the child returns."""

    length = 100_000_000 // 8

    def __init__(self) -> None:
        import numpy

        super().__init__()
        self.numpy = numpy
        self.counted = numpy.arange(self.length, dtype="u8")

    def fill(self, array: Any, number: int) -> None:
        """All elements anew."""
        self.numpy.add(self.counted, number, out=array)

    def sum(self, array: Any) -> bytes:
        return WORD.pack(int(array.sum()))

    def is_right(self, answer: Any, number: int) -> bool:
        expected = self.length * number + self.length * (self.length - 1) // 2
        return WORD.unpack(answer)[0] == expected

    @staticmethod
    def number(array: Any) -> int:
        return int(array[0])


class PinfoldArray(Array):
    name = "pinfold handoff"

    def serve(self) -> None:
        with pinfold.Endpoint() as endpoint:
            peer, number = endpoint.connect(self.address), 1
            while number:
                array = endpoint.recv_view(peer).array("u8")
                number = self.number(array)
                answer = self.sum(array)
                del array
                endpoint.send(peer, answer)
            endpoint.drain(5)

    def open(self) -> None:
        self.endpoint = pinfold.Endpoint(self.address)
        self.peer = self.endpoint.accept(LIMIT_S)
        self.arena = pinfold.Arena()

    def prepare(self, number: int) -> None:
        self.array = self.arena.empty(self.length, "u8")
        self.fill(self.array, number)

    def exchange(self, number: int) -> bool:
        self.endpoint.handoff(self.peer, self.array)
        return self.is_right(self.endpoint.recv(self.peer), number)

    def close(self) -> None:
        self.endpoint.close()


class SharedArray(Array):
    """One block of shared memory, mapped once by both, and a pipe to tell of it."""

    name = "shared_memory by hand"

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.theirs = FORK.Pipe()
        self.block: Any = shared_memory.SharedMemory(create=True, size=8 * self.length)

    def array(self) -> Any:
        return self.numpy.frombuffer(self.block.buf, "u8", self.length)

    def serve(self) -> None:
        array, number = self.array(), 1
        while number:
            self.theirs.recv_bytes()
            number = self.number(array)
            self.theirs.send_bytes(self.sum(array))

    def prepare(self, number: int) -> None:
        self.fill(self.array(), number)

    def exchange(self, number: int) -> bool:
        self.ours.send_bytes(b"x")
        return self.is_right(self.ours.recv_bytes(), number)

    def close(self) -> None:
        self.block.unlink()


class QueueArray(Array):
    name = "multiprocessing.Queue"

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = FORK.Queue(), FORK.Queue()

    def serve(self) -> None:
        number = 1
        while number:
            array = self.there.get()
            number = self.number(array)
            self.back.put(self.sum(array))

    def prepare(self, number: int) -> None:
        self.array = self.numpy.empty(self.length, "u8")
        self.fill(self.array, number)

    def exchange(self, number: int) -> bool:
        self.there.put(self.array)
        return self.is_right(self.back.get(), number)


# An object with 64 arrays of 1 MiB.


class Object(Way):
    """A dictionary of arrays; the child returns the sum of all elements."""

    arrays, length = 64, (1 << 20) // 8

    def __init__(self) -> None:
        import numpy

        super().__init__()
        self.numpy = numpy

    def make(self, empty: Any, number: int) -> Any:
        value = {f"array {at}": empty(self.length, "u8") for at in range(self.arrays)}
        for at, array in enumerate(value.values()):
            array[:] = number + at
        return {"number": number, "arrays": value}

    def sum(self, value: Any) -> bytes:
        return WORD.pack(sum(int(array.sum()) for array in value["arrays"].values()))

    def is_right(self, answer: Any, number: int) -> bool:
        elements = self.arrays * number + self.arrays * (self.arrays - 1) // 2
        return WORD.unpack(answer)[0] == self.length * elements


class PinfoldObject(Object):
    name = "pinfold, arrays of an arena"

    def serve(self) -> None:
        with pinfold.Endpoint() as endpoint:
            peer, number = endpoint.connect(self.address), 1
            while number:
                value = endpoint.recv_object(peer)
                number, answer = value["number"], self.sum(value)
                del value
                endpoint.send(peer, answer)
            endpoint.drain(5)

    def open(self) -> None:
        self.endpoint = pinfold.Endpoint(self.address)
        self.peer = self.endpoint.accept(LIMIT_S)
        self.arena = pinfold.Arena()

    def prepare(self, number: int) -> None:
        self.value = self.make(self.arena.empty, number)

    def exchange(self, number: int) -> bool:
        self.endpoint.send_object(self.peer, self.value)
        return self.is_right(self.endpoint.recv(self.peer), number)

    def close(self) -> None:
        self.endpoint.close()


class PinfoldOrdinaryObject(PinfoldObject):
    name = "pinfold, ordinary arrays"

    def prepare(self, number: int) -> None:
        self.value = self.make(self.numpy.empty, number)


class PipeObject(Object):
    name = "pickle over a Pipe"

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.theirs = FORK.Pipe()

    def serve(self) -> None:
        number = 1
        while number:
            value = self.theirs.recv()
            number = value["number"]
            self.theirs.send_bytes(self.sum(value))

    def prepare(self, number: int) -> None:
        self.value = self.make(self.numpy.empty, number)

    def exchange(self, number: int) -> bool:
        self.ours.send(self.value)
        return self.is_right(self.ours.recv_bytes(), number)
