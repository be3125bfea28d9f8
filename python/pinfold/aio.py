"""Endpoints for asyncio: what waits is awaited, on the endpoint's descriptor.

    endpoint = pinfold.aio.Endpoint("greeter")
    message = await endpoint.recv()

Cancellation takes an operation back: a message that has come for a receive goes to the next one
that matches, and memory is the caller's again when the call has raised.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, List, Optional

from . import _native, objects
from . import endpoint as plain
from .errors import Cancelled, NotTaken, Timeout

LOOK_S = 0.25
"""How long a call of the plain endpoint, which disarms the descriptor, may go unseen, seconds."""

GRACE_S = 0.1
"""How long a send that is taken back waits for its peer to confirm that."""


class _Late(Exception):
    """The time is up: the operation was given up, a send without its peer's confirmation."""


class Endpoint:
    """A `pinfold.Endpoint` whose calls are coroutines; the arguments and errors are the same.

    It belongs to the loop in which it is first awaited. Calls of the plain endpoint, `plain`, are
    possible, but a coroutine may then see its message up to `LOOK_S` late. An operation costs a
    turn of the loop for each other one that is awaited at the time: it is made for dozens of them.

    As any endpoint it makes progress while it is called: a peer may wait for one of which nothing
    is awaited, unless it has a thread (`dedicated_progress=True`).
    """

    def __init__(self, name: Optional[str] = None, **settings: Any) -> None:
        self.plain = plain.Endpoint(name, **settings)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._waiters: List["asyncio.Future[None]"] = []
        self._is_arming = False
        self._look: Optional[asyncio.TimerHandle] = None
        self._fd = -1

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    def close(self, *, force: bool = False) -> None:
        """Closes it: coroutines that wait raise Closed."""
        self._stop_watching()
        self.plain.close(force=force)
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
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._waiters:
                raise RuntimeError("the endpoint is awaited in another loop")
            self._loop = loop
        waiter = loop.create_future()
        self._waiters.append(waiter)
        if not self._is_arming:
            self._is_arming = True
            loop.call_soon(self._arm)
        timer = None if left is None else loop.call_later(left, self._wake)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if not self._waiters:
                self._stop_watching()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _arm(self) -> None:
        """Has the loop watch the descriptor, unless something is there already."""
        self._is_arming = False
        if not self._waiters or self._loop is None:
            return
        if self.plain.closed:
            self._wake()
            return
        if self._fd < 0:
            self._fd = self.plain.fileno()
            self._loop.add_reader(self._fd, self._readable)
        if self._look is None:
            self._look = self._loop.call_later(LOOK_S, self._look_again)
        if not self.plain.arm():
            self.plain.progress()
            self._wake()

    def _readable(self) -> None:
        self.plain.progress()
        self._wake()

    def _look_again(self) -> None:
        self._look = None
        self._wake()

    def _stop_watching(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if self._fd >= 0 and self._loop is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            self._fd = -1

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
        try:
            return await self._ended(
                self.plain.post_send(peer, data, tag), timeout, uses_memory=True, sends=True
            )
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
