"""Endpoints for asyncio: what waits is awaited, on the endpoint's descriptor.

    endpoint = pinfold.aio.Endpoint("greeter")
    message = await endpoint.recv()

Cancellation takes an operation back: a message that has come for a receive goes to the next one
that matches, and memory is the caller's again when the call has raised.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from . import _native, arrow, objects
from . import endpoint as plain
from .errors import Cancelled, Closed, NotTaken, Timeout

LOOK_S = 0.25
"""How long a call of the plain endpoint, which disarms the descriptor, may go unseen, seconds."""

GRACE_S = 0.1
"""How long a send that is taken back waits for its peer to confirm that."""


class _Late(Exception):
    """The time is up: the operation was given up, a send without its peer's confirmation."""


class Endpoint:
    """A `pinfold.Endpoint` whose calls are coroutines; the arguments and errors are the same.

    It belongs to the loop in which it is first awaited. Calls of the plain endpoint, `plain`, are
    possible, but a coroutine may then see its message up to `LOOK_S` late. Sends, calls and
    requests cost the same however many are awaited; a receive, or a send with a time-out, costs a
    turn of the loop for each other of these: it is made for dozens.

    As any endpoint it makes progress while it is called: a peer may wait for one of which nothing
    is awaited, unless it has a thread (`dedicated_progress=True`).
    """

    def __init__(self, name: Optional[str] = None, **settings: Any) -> None:
        self.plain = plain.Endpoint(name, **settings)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._waiters: List["asyncio.Future[None]"] = []
        self._is_arming = False
        self._look: Optional[asyncio.TimerHandle] = None
        self._fds: List[int] = []
        self._queue: Optional[_native.Queue] = None
        self._queued: "Dict[int, asyncio.Future[Any]]" = {}
        self._numbers = itertools.count()
        self._tasks: "Set[asyncio.Task[None]]" = set()

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    def close(self, *, force: bool = False) -> None:
        """Closes it: coroutines that wait raise Closed."""
        self._stop_watching()
        self.plain.close(force=force)
        self._close_queued()
        self._wake()

    # A coroutine's turns: look at its request, have the descriptor watched, wait for a turn.

    async def _ended(
        self,
        request: _native.Request,
        timeout: Optional[float],
        *,
        uses_memory: bool = False,
        sends: bool = False,
    ) -> Any:
        end = None if timeout is None else time.monotonic() + timeout
        is_late = False
        try:
            while True:
                result = request.try_wait()
                if result is not None:
                    return result
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    if is_late or not uses_memory:
                        raise _Late
                    # A receive into the caller's memory has to end first; a send may be left.
                    is_late = True
                    is_ending = request.cancel()
                    end = time.monotonic() + GRACE_S if is_ending and sends else None
                    continue
                await self._turn(left)
        finally:
            request.drop()

    async def _turn(self, left: Optional[float]) -> None:
        loop = self._here()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        self._arm_soon(loop)
        timer = None if left is None else loop.call_later(left, self._wake)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self._stop_if_idle()

    def _add(self, request: _native.Request) -> "Tuple[int, asyncio.Future[Any]]":
        """The number of a send, call or request in the queue, and a future of its end."""
        loop, number = self._here(), next(self._numbers)
        if self._queue is None:
            self._queue = _native.Queue()
        future = self._queued[number] = loop.create_future()
        self._queue.add(request, number)
        self._arm_soon(loop)
        return number, future

    def _asked(self, peer: int, id: int, data: Any) -> "asyncio.Future[Any]":
        """Asks, and returns a future of the answer: as `_add`, without a request between."""
        loop, number = self._here(), next(self._numbers)
        if self._queue is None:
            self._queue = _native.Queue()
        self._queue.ask(self.plain, number, peer, id, data)
        future = self._queued[number] = loop.create_future()
        if not self._is_arming:
            self._is_arming = True
            loop.call_soon(self._arm)
        return future

    async def _end(self, request: _native.Request) -> Any:
        """The end of a send or call. Cancelled, it goes on if it has met its counterpart, else it
        ends."""
        result = request.try_wait()
        if result is not None:
            return result
        number, future = self._add(request)
        try:
            return await future
        except asyncio.CancelledError:
            if self._queue is not None and number in self._queued:
                self._queue.cancel(number)
            raise

    @staticmethod
    def _late(future: "asyncio.Future[Any]", error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def _here(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._waiters or not all(future.done() for future in self._queued.values()):
                raise RuntimeError("the endpoint is awaited in another loop")
            self._stop_watching()
            # A turn that an earlier loop owed is not coming.
            self._loop, self._is_arming = loop, False
        return loop

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _take(self) -> None:
        """Tells those whose operations have ended, after a turn of progress at least."""
        if self._queue is None or not self._queued:
            self.plain.progress()
            return
        self._queue.settle(self._queued)

    def _arm_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_arming:
            self._is_arming = True
            loop.call_soon(self._arm)

    def _arm(self) -> None:
        """Has the loop watch the descriptors, unless something is there already."""
        self._is_arming = False
        if self._loop is None or not (self._waiters or self._queued):
            self._stop_if_idle()
            return
        if self.plain.closed:
            self._close_queued()
            self._wake()
            return
        ends = [self.plain] if self._queue is None else [self.plain, self._queue]
        for end in ends[len(self._fds) :]:
            self._fds.append(end.fileno())
            self._loop.add_reader(self._fds[-1], self._readable)
        if self._look is None:
            self._look = self._loop.call_later(LOOK_S, self._look_again)
        # The queue arms the endpoint as well.
        armed = self._queue if self._queue is not None and self._queued else self.plain
        if not armed.arm():
            self._readable()

    def _readable(self) -> None:
        if not self.plain.closed:
            self._take()
        self._wake()
        if self._queued and self._loop is not None:
            self._arm_soon(self._loop)

    def _look_again(self) -> None:
        self._look = None
        self._readable()

    def _stop_if_idle(self) -> None:
        if not self._waiters and not self._queued:
            self._stop_watching()

    def _stop_watching(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        fds, self._fds = self._fds, []
        if self._loop is not None and not self._loop.is_closed():
            for fd in fds:
                self._loop.remove_reader(fd)

    def _close_queued(self) -> None:
        queued, self._queued = self._queued, {}
        for future in queued.values():
            if not future.done():
                future.set_exception(Closed("the endpoint is closed"))

    async def _received(
        self, request: _native.Request, timeout: Optional[float], uses_memory: bool = False
    ) -> Any:
        try:
            return await self._ended(request, timeout, uses_memory=uses_memory)
        except (Cancelled, _Late):
            raise Timeout(f"nothing happened within {timeout} s") from None

    async def connect(self, address: str, timeout: Optional[float] = 30.0) -> int:
        """The number of the peer that listens at `address`."""
        return await self._ended(self.plain.post_connect(address, timeout), None)

    async def accept(self, timeout: Optional[float] = None) -> int:
        """The number of the next peer that connects."""
        return await self._received(self.plain.post_accept(), timeout)

    async def send(
        self, peer: int, data: Any, tag: int = 0, timeout: Optional[float] = None
    ) -> _native.Receipt:
        """Sends, and returns the receipt when the memory is the caller's again. Cancelled before it
        has met its receive nothing is sent; after that it goes on, and keeps the memory."""
        return await self._sent(self.plain.post_send(peer, data, tag), timeout)

    async def _sent(self, request: _native.Request, timeout: Optional[float]) -> _native.Receipt:
        try:
            if timeout is None:
                return await self._end(request)
            return await self._ended(request, timeout, uses_memory=True, sends=True)
        except Cancelled as error:
            why = f"the peer did not take the message within {timeout} s; nothing was sent"
            raise NotTaken(why) from error
        except _Late:
            why = f"the peer did not take the message within {timeout} s; it may receive it yet"
            late = NotTaken(why)
            late.unsure = True
            raise late from None

    async def recv(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """A Message."""
        return await self._received(self.plain.post_recv(peer, tag), timeout)

    async def recv_view(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """A View."""
        return await self._received(self.plain.post_recv_view(peer, tag), timeout)

    async def recv_into(
        self,
        buffer: Any,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """The facts of a message that came into `buffer`."""
        return await self._received(self.plain.post_recv_into(buffer, peer, tag), timeout, True)

    async def handoff(self, peer: int, array: Any, tag: int = 0) -> _native.Receipt:
        """Gives an array of an arena away, and returns when the receiver has done with it. If it is
        cancelled, it goes on."""
        return await self._ended(self.plain.post_handoff(peer, array, tag), None)

    async def open_region(self, peer: int, key: Any, timeout: Optional[float] = None) -> Any:
        """A Remote, whose own calls do not wait for the loop: they are short on one host."""
        return await self._received(self.plain.post_open_region(peer, key), timeout)

    async def open_space(self, peer: int, key: Any, timeout: Optional[float] = None) -> Any:
        """As `open_region`, by addresses."""
        return await self._received(self.plain.post_open_space(peer, key), timeout)

    def handle(self, id: int, function: Callable[[Any], Any]) -> None:
        """Sets a handler, as `pinfold.Endpoint.handle`. It is called in the loop's thread while
        something of this endpoint is awaited. A coroutine function runs as a task of the loop, and
        what it returns is the answer."""
        if not inspect.iscoroutinefunction(function):
            self.plain.handle(id, function)
            return

        async def answered(active: Any) -> None:
            try:
                answer = await function(active)
                if answer is not None:
                    active.reply(answer)
            except BaseException:
                # The exception keeps its frames, and those keep the request.
                active.give_up()
                raise

        def start(active: Any) -> None:
            task = asyncio.get_running_loop().create_task(answered(active))
            # The loop itself keeps weak references to tasks.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.plain.handle(id, start)

    async def call(
        self, peer: int, id: int, data: Any = None, timeout: Optional[float] = None
    ) -> _native.Receipt:
        """Has a handler of the peer called, see `pinfold.Endpoint.call`."""
        return await self._sent(self.plain.post_call(peer, id, data), timeout)

    def ask(
        self, peer: int, id: int, data: Any = None, timeout: Optional[float] = None
    ) -> "asyncio.Future[Any]":
        """A future of the answer of a handler of the peer, a Message; it is asked at once, so many
        may be asked before the first is awaited. Cancelled, it is handled all the same."""
        future = self._asked(peer, id, data)
        if timeout is not None:
            error = Timeout(f"there was no answer within {timeout} s")
            timer = future.get_loop().call_later(timeout, self._late, future, error)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    async def send_object(
        self,
        peer: int,
        value: Any,
        tag: int = 0,
        timeout: Optional[float] = None,
        *,
        give: bool = True,
    ) -> None:
        """Sends an object, see `pinfold.Endpoint.send_object`. Cancelled in its midst the peer may
        wait for the rest, until it is gone or cancels as well."""
        encoded = objects.encode(value)
        first = objects.tags(len(encoded.arrays))
        await self.send(peer, objects.head(encoded, first), tag, timeout)
        for number, (array, buffer) in enumerate(objects.buffers(encoded, give)):
            if buffer is None:
                await self.send(peer, array, first + number, timeout)
            else:
                # Not waited for: a request of a hand-off that is dropped goes on.
                self.plain.post_give(peer, buffer._block, first + number)
                objects.freeze(array.obj, buffer)

    async def recv_object(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """An object."""
        message = await self.recv_view(peer, tag, timeout)
        first, lengths, stream = objects.parse(message)
        views = [await self.recv_view(message.peer, first + n) for n in range(len(lengths))]
        return objects.assemble(stream, lengths, views)

    async def send_arrow(self, peer: int, data: Any, tag: int = 0) -> None:
        """Sends Arrow data, see `pinfold.Endpoint.send_arrow`; returns before it is taken."""
        self.plain.post_handoff(peer, arrow.pack(data), tag)

    async def recv_arrow(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any:
        """A RecordBatch or Table, see `pinfold.Endpoint.recv_arrow`."""
        return arrow.unpack(await self.recv_view(peer, tag, timeout))
