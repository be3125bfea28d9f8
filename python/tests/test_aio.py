"""Endpoints for asyncio: awaited, cancelled, closed."""

from __future__ import annotations

import asyncio
import os
import unittest

import pinfold
import pinfold.aio
from common import LIMIT_S, fresh_name, needs_numpy, numpy


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        name = fresh_name()
        self.one, self.other = pinfold.aio.Endpoint(name), pinfold.aio.Endpoint()
        self.to_other, self.to_one = await asyncio.gather(
            self.one.accept(LIMIT_S), self.other.connect(name)
        )

    async def asyncTearDown(self) -> None:
        self.one.close()
        self.other.close()

    async def test_messages_of_all_sizes_cross(self):
        for size in (0, 8, 5000, 3_000_000):
            data = os.urandom(size)
            receipt, message = await asyncio.gather(
                self.other.send(self.to_one, data, 5), self.one.recv(None, 5, LIMIT_S)
            )
            self.assertEqual((receipt.bytes, bytes(message)), (size, data))

    async def test_waiting_lets_the_loop_run(self):
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        receiving = asyncio.create_task(self.one.recv())
        await asyncio.sleep(0.05)
        self.assertGreater(turns, 10)
        await self.other.send(self.to_one, b"now")
        self.assertEqual(bytes(await receiving), b"now")
        counting.cancel()

    async def test_an_idle_wait_costs_no_turns(self):
        looks = 0
        progress = self.one._readable

        def counted():
            nonlocal looks
            looks += 1
            progress()

        self.one._readable = counted
        receiving = asyncio.create_task(self.one.recv())
        await asyncio.sleep(1.0)
        self.assertLess(looks, 200)
        receiving.cancel()

    async def test_into_memory_and_views(self):
        room = bytearray(9)
        received, _ = await asyncio.gather(
            self.one.recv_into(room, timeout=LIMIT_S), self.other.send(self.to_one, b"123456789")
        )
        self.assertEqual((received.length, room), (9, b"123456789"))
        buffer = pinfold.Arena().alloc(100_000)
        giving = asyncio.create_task(self.other.handoff(self.to_one, buffer))
        view = await self.one.recv_view(timeout=LIMIT_S)
        self.assertEqual((view.receipt.path, view.receipt.copied), ("handoff", 0))
        del view
        self.assertEqual((await giving).path, "handoff")

    async def test_time_limits(self):
        for call in (self.one.recv, self.one.recv_view, self.one.accept):
            with self.assertRaises(pinfold.Timeout):
                await call(timeout=0.02)
        with self.assertRaises(pinfold.Timeout):
            await self.one.recv_into(bytearray(5), timeout=0.02)
        with self.assertRaises(pinfold.NotTaken):
            await self.other.send(self.to_one, bytes(40_000_000), timeout=0.1)
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.one.recv(), 0.02)
        await self.other.send(self.to_one, b"after", 8)
        self.assertEqual(bytes(await self.one.recv(None, 8, LIMIT_S)), b"after")

    async def test_cancelling_loses_no_message(self):
        """At whichever turn the cancellation falls."""
        for turns in range(12):
            receiving = asyncio.create_task(self.one.recv(None, 7))
            await asyncio.sleep(0.001)
            await self.other.send(self.to_one, turns.to_bytes(4, "little"), 7)
            for _ in range(turns):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                message = await receiving
            except asyncio.CancelledError:
                message = await self.one.recv(None, 7, LIMIT_S)
            self.assertEqual(int.from_bytes(bytes(message), "little"), turns)

    async def test_cancelling_gives_memory_back(self):
        room = bytearray(100)
        receiving = asyncio.create_task(self.one.recv_into(room))
        await asyncio.sleep(0.01)
        receiving.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await receiving
        room.extend(b"mine again")

    async def test_many_receives_wait_at_a_time(self):
        receiving = [asyncio.create_task(self.one.recv(None, tag, LIMIT_S)) for tag in range(50)]
        await asyncio.sleep(0)
        for tag in reversed(range(50)):
            await self.other.send(self.to_one, str(tag).encode(), tag)
        got = [bytes(await it) for it in receiving]
        self.assertEqual(got, [str(tag).encode() for tag in range(50)])

    async def test_a_call_of_the_plain_endpoint_holds_nothing_up_for_good(self):
        receiving = asyncio.create_task(self.one.recv(None, 1, LIMIT_S))
        await asyncio.sleep(0.01)
        self.one.plain.progress()
        self.other.plain.send(self.to_one, b"seen", 1)
        self.assertEqual(bytes(await receiving), b"seen")

    async def test_closing_ends_waits(self):
        receiving = asyncio.create_task(self.one.recv())
        await asyncio.sleep(0.01)
        self.one.close()
        with self.assertRaises(pinfold.Closed):
            await receiving

    async def test_a_peer_that_goes_ends_waits(self):
        receiving = asyncio.create_task(self.one.recv(self.to_other))
        await asyncio.sleep(0.01)
        self.other.close()
        with self.assertRaises(pinfold.PeerGone):
            await asyncio.wait_for(receiving, LIMIT_S)

    @needs_numpy
    async def test_objects(self):
        value = {"given": pinfold.zeros(50_000), "sent": numpy.arange(50_000), "small": [1, 2]}
        received, _ = await asyncio.gather(
            self.one.recv_object(timeout=LIMIT_S), self.other.send_object(self.to_one, value)
        )
        self.assertTrue((received["sent"] == value["sent"]).all())
        self.assertEqual((received["given"].sum(), received["small"]), (0, [1, 2]))

    def test_a_thousand_requests_are_outstanding_at_a_time(self):
        async def main() -> None:
            async with pinfold.aio.Endpoint(name := fresh_name()) as one:
                async with pinfold.aio.Endpoint() as other:
                    _, peer = await asyncio.gather(one.accept(), other.connect(name))
                    kept = []
                    one.handle(1, lambda active: active.data[::-1])
                    one.handle(2, kept.append)
                    serving = asyncio.ensure_future(one.recv(tag=9))
                    data = [number.to_bytes(8, "little") for number in range(1000)]
                    answers = await asyncio.gather(*(other.ask(peer, 1, it) for it in data))
                    self.assertEqual([bytes(it) for it in answers], [it[::-1] for it in data])

                    # Those that are cancelled, or late, disturb no others.
                    asked = [other.ask(peer, 2, it) for it in data]
                    late = other.ask(peer, 2, b"late", 0.01)
                    with self.assertRaises(pinfold.Timeout):
                        await late
                    for task in asked[::2]:
                        task.cancel()
                    while len(kept) <= len(data):
                        await asyncio.sleep(0.001)
                    for active in kept:
                        active.reply(active.data)
                    answers = await asyncio.gather(*asked, return_exceptions=True)
                    self.assertTrue(
                        all(isinstance(it, asyncio.CancelledError) for it in answers[::2])
                    )
                    self.assertEqual([bytes(it) for it in answers[1::2]], data[1::2])

                    # And the end of the endpoint ends them.
                    asked = [other.ask(peer, 2, it) for it in data[:10]]
                    await asyncio.sleep(0.01)
                    other.close()
                    ended = await asyncio.gather(*asked, return_exceptions=True)
                    self.assertTrue(all(isinstance(it, pinfold.Closed) for it in ended), ended)
                    serving.cancel()

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
