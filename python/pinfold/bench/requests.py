"""The ways of `goals` by asyncio: 1,000 requests of 64 bytes that are outstanding at a time."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, List

from pinfold import aio

from .ways import LIMIT_S, WORD, Way


class Requests(Way):
    """The child answers each with its bytes in reverse."""

    count = divisor = 1000

    def request(self, number: int, at: int) -> bytes:
        return WORD.pack(number) + WORD.pack(at) * 7

    def open(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(asyncio.wait_for(self.connect(), LIMIT_S))

    async def connect(self) -> None:
        raise NotImplementedError

    def ask(self, data: bytes) -> Any:
        """A future of the answer."""
        raise NotImplementedError

    async def all(self, number: int) -> List[Any]:
        asked = (self.ask(self.request(number, at)) for at in range(self.count))
        return await asyncio.gather(*asked)

    def exchange(self, number: int) -> bool:
        if not number:
            self.loop.run_until_complete(self.all(0))
            return True
        answers = self.loop.run_until_complete(self.all(number))
        expected = (self.request(number, at)[::-1] for at in range(self.count))
        return all(bytes(answer) == right for answer, right in zip(answers, expected))

    def close(self) -> None:
        self.loop.close()


class PinfoldRequests(Requests):
    name = "pinfold.aio"

    def serve(self) -> None:
        async def main() -> None:
            async with aio.Endpoint() as endpoint:
                ended = asyncio.get_running_loop().create_future()
                left = self.count

                def reverse(active: Any) -> bytes:
                    nonlocal left
                    if not WORD.unpack_from(active.data)[0]:
                        left -= 1
                        if not left:
                            ended.set_result(None)
                    return active.data[::-1]

                endpoint.handle(1, reverse)
                peer = await endpoint.connect(self.address)
                await endpoint.send(peer, b"ready")
                forever = asyncio.ensure_future(endpoint.recv())
                await ended
                forever.cancel()
                endpoint.plain.drain(5)

        asyncio.run(main())

    async def connect(self) -> None:
        self.endpoint = aio.Endpoint(self.address)
        self.peer = await self.endpoint.accept()
        await self.endpoint.recv()

    def ask(self, data: bytes) -> Any:
        return self.endpoint.ask(self.peer, 1, data)

    def close(self) -> None:
        self.endpoint.close()
        super().close()


class StreamRequests(Requests):
    """Frames with a number each, over one connection."""

    name = "asyncio Unix stream"
    FRAME = struct.Struct("<I64s")

    def __init__(self) -> None:
        super().__init__()
        self.ours, self.theirs = socket.socketpair()

    def serve(self) -> None:
        async def main() -> None:
            reader, writer = await asyncio.open_unix_connection(sock=self.theirs)
            left = self.count
            while left:
                frame = await reader.readexactly(self.FRAME.size)
                number, data = self.FRAME.unpack(frame)
                left -= not WORD.unpack_from(data)[0]
                writer.write(self.FRAME.pack(number, data[::-1]))
            await writer.drain()
            writer.close()

        asyncio.run(main())

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(sock=self.ours)
        self.waiting: Any = {}
        self.number = 0
        self.task = self.loop.create_task(self.read())

    async def read(self) -> None:
        while True:
            number, data = self.FRAME.unpack(await self.reader.readexactly(self.FRAME.size))
            self.waiting.pop(number).set_result(data)

    def ask(self, data: bytes) -> Any:
        self.number = (self.number + 1) % (1 << 32)
        future = self.waiting[self.number] = self.loop.create_future()
        self.writer.write(self.FRAME.pack(self.number, data))
        return future

    def close(self) -> None:
        self.task.cancel()
        self.writer.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        super().close()
