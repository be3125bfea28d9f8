"""Active messages: handlers in Python, what they raise, who they keep."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import unittest
import weakref

import pinfold
import pinfold.aio
from common import LIMIT_S, Child, Pair, Running, fresh_name

ECHO, NOTE, FAIL, LATER, SILENT = range(1, 6)


class Raised:
    """What handlers raise, while this is entered."""

    def __enter__(self) -> list:
        self.before, errors = sys.unraisablehook, []
        sys.unraisablehook = lambda report: errors.append((report.exc_value, report.object))
        return errors

    def __exit__(self, *_) -> None:
        sys.unraisablehook = self.before


class Handlers(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.__exit__)
        self.one, self.other = self.pair.one, self.pair.other
        self.to_one, self.to_other = self.pair.to_one, self.pair.to_other
        self.stop = threading.Event()
        self.driver = None

    def drive(self) -> None:
        """Has a thread make progress for `one` until the end of the test."""

        def run() -> None:
            while not self.stop.is_set():
                try:
                    self.one.recv(tag=77, timeout=0.01)
                except pinfold.Timeout:
                    pass

        self.driver = Running(run)

        def end() -> None:
            self.stop.set()
            self.driver.result()

        self.addCleanup(end)

    def test_a_request_is_answered(self):
        seen = []

        def echo(active):
            seen.append((active.peer, active.id, active.is_request, active.receipt.bytes))
            return active.data[::-1]

        self.one.handle(ECHO, echo)
        self.drive()
        for size in (0, 1, 48, 49, 5000, 1_000_000):
            data = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
            answer = self.other.ask(self.to_one, ECHO, data, LIMIT_S)
            self.assertEqual(bytes(answer), data[::-1])
            self.assertEqual((answer.peer, answer.tag), (self.to_one, ECHO))
            self.assertEqual(seen.pop(), (self.to_other, ECHO, True, size))
        self.assertEqual(bytes(self.other.ask(self.to_one, ECHO, timeout=LIMIT_S)), b"")

    def test_calls_are_handled_in_order_on_the_callers_thread(self):
        seen, threads = [], set()

        def note(active):
            self.assertFalse(active.is_request)
            seen.append(int.from_bytes(active.data, "little"))
            threads.add(threading.get_ident())
            active.reply(b"nobody waits")
            return b"nobody waits"

        self.one.handle(NOTE, note)
        for number in range(300):
            self.other.call(self.to_one, NOTE, number.to_bytes(8, "little"), LIMIT_S)
            self.one.progress()
        self.other.post_call(self.to_one, NOTE, (300).to_bytes(60, "little")).wait(LIMIT_S)
        self.other.send(self.to_one, b"last", 5)
        self.assertEqual(bytes(self.one.recv(tag=5, timeout=LIMIT_S)), b"last")
        self.one.progress()
        self.assertEqual(seen, list(range(301)))
        self.assertEqual(threads, {threading.get_ident()})

    def test_handlers_of_the_beginning_miss_nothing(self):
        name, seen = fresh_name(), []
        handlers = {NOTE: lambda active: seen.append(active.data)}
        with pinfold.Endpoint(name, handlers=handlers) as one, pinfold.Endpoint() as other:
            accepting = Running(one.accept, LIMIT_S)
            other.call(other.connect(name), NOTE, b"at once")
            accepting.result()
            one.progress()
            self.assertEqual(seen, [b"at once"])
        for wrong in ({NOTE: 7}, {"one": print}, {-1: print}, {1 << 32: print}, [print]):
            with self.assertRaises((TypeError, OverflowError)):
                pinfold.Endpoint(handlers=wrong)

    def test_the_own_thread_of_an_endpoint_runs_them(self):
        name, threads = fresh_name(), set()

        def echo(active):
            threads.add(threading.get_ident())
            return active.data

        one = pinfold.Endpoint(name, dedicated_progress=True, handlers={ECHO: echo})
        with one, pinfold.Endpoint() as other:
            peer = other.connect(name)
            for number in range(200):
                answer = other.ask(peer, ECHO, bytes([number]), LIMIT_S)
                self.assertEqual(bytes(answer), bytes([number]))
        self.assertEqual(len(threads), 1)
        self.assertNotIn(threading.get_ident(), threads)

    def test_what_a_handler_raises_is_reported_and_the_asker_told(self):
        def fail(active):
            raise RuntimeError(f"on purpose, of {active.data.decode()}")

        def silent(active):
            pass

        def wrong(active):
            return "text is no memory"

        for number, function in ((FAIL, fail), (SILENT, silent), (ECHO, wrong)):
            self.one.handle(number, function)
        with Raised() as errors:
            self.other.call(self.to_one, FAIL, b"a call")
            self.one.progress()
            asked = [self.other.post_ask(self.to_one, id, b"it") for id in (FAIL, SILENT, ECHO, 99)]
            for _ in range(20):
                self.one.progress()
            for request in asked:
                with self.assertRaises(pinfold.NotHandled):
                    request.wait(LIMIT_S)
        self.assertEqual(
            [(type(error), function) for error, function in errors],
            [(RuntimeError, fail), (RuntimeError, fail), (TypeError, wrong)],
        )
        self.assertIn("of a call", str(errors[0][0]))
        self.assertIn("no memory to send", str(errors[2][0]))
        # Errors keep their frames, and these what was in them: the asker was told all the same.
        self.assertIsNotNone(errors[1][0].__traceback__)
        # The endpoint goes on.
        self.one.handle(ECHO, lambda active: b"fine")
        request = self.other.post_ask(self.to_one, ECHO)
        self.one.progress()
        self.assertEqual(bytes(request.wait(LIMIT_S)), b"fine")

    def test_an_answer_may_come_later_from_any_thread(self):
        kept = []
        self.one.handle(LATER, kept.append)
        asked = [self.other.post_ask(self.to_one, LATER, bytes([n])) for n in range(3)]
        self.one.progress()
        self.assertEqual([active.data for active in kept], [b"\0", b"\1", b"\2"])
        self.assertIsNone(asked[0].try_wait())
        Running(kept[1].reply, bytearray(b"second")).result()
        self.assertEqual(bytes(asked[1].wait(LIMIT_S)), b"second")
        with self.assertRaises(pinfold.AlreadyAnswered):
            kept[1].reply(b"again")
        with self.assertRaises(TypeError):
            kept[0].reply("text")
        kept[0].reply(b"first")
        self.assertEqual(bytes(asked[0].wait(LIMIT_S)), b"first")
        kept.pop().give_up()
        with self.assertRaises(pinfold.NotHandled):
            asked[2].wait(LIMIT_S)
        forgotten = self.other.post_ask(self.to_one, LATER)
        self.one.progress()
        kept.clear()
        with self.assertRaises(pinfold.NotHandled):
            forgotten.wait(LIMIT_S)

    def test_a_handler_uses_its_endpoint(self):
        """It sends, asks the other side back, replaces and removes handlers, and closes."""
        order = []

        def outer(active):
            order.append("outer")
            self.one.send(active.peer, b"sent within", 9)
            inner = self.one.ask(active.peer, ECHO, b"inner", LIMIT_S)
            order.append(bytes(inner))
            self.one.handle(LATER, lambda active: b"another")
            return inner

        self.one.handle(LATER, outer)
        self.other.handle(ECHO, lambda active: active.data.upper())
        self.drive()
        self.assertEqual(bytes(self.other.ask(self.to_one, LATER, b"", LIMIT_S)), b"INNER")
        self.assertEqual(order, ["outer", b"INNER"])
        self.assertEqual(bytes(self.other.recv(tag=9, timeout=LIMIT_S)), b"sent within")
        self.assertEqual(bytes(self.other.ask(self.to_one, LATER, b"", LIMIT_S)), b"another")
        self.assertTrue(self.one.unhandle(LATER))
        self.assertFalse(self.one.unhandle(LATER))
        with self.assertRaises(pinfold.NotHandled):
            self.other.ask(self.to_one, LATER, b"", LIMIT_S)

    def test_a_handler_may_close_its_endpoint(self):
        self.one.handle(NOTE, lambda active: self.one.close())
        self.other.call(self.to_one, NOTE)
        with self.assertRaises(pinfold.Closed):
            self.one.recv(timeout=LIMIT_S)
        with self.assertRaises(pinfold.PeerGone):
            self.other.recv(self.to_one, timeout=LIMIT_S)

    def test_what_makes_no_sense_is_refused(self):
        for wrong, error in (
            (lambda: self.one.handle(1, None), TypeError),
            (lambda: self.one.handle(-1, print), OverflowError),
            (lambda: self.one.handle("x", print), TypeError),
            (lambda: self.other.call(self.to_one, 1, "text"), TypeError),
            (lambda: self.other.call(self.to_one, 1 << 32, b""), OverflowError),
            (lambda: self.other.ask(self.to_one, 1, 3), TypeError),
            (lambda: self.other.call(12345, 1, b""), pinfold.UnknownPeer),
            (lambda: self.other.ask(12345, 1, b""), pinfold.UnknownPeer),
            (lambda: self.other.ask(self.to_one, 1, b"", -1), ValueError),
        ):
            with self.assertRaises(error):
                wrong()
        with self.assertRaises(pinfold.Timeout):
            self.other.ask(self.to_one, 1, b"", 0.02)
        self.one.close()
        with self.assertRaises(pinfold.Closed):
            self.one.handle(1, print)

    def test_a_peer_that_dies_answers_by_an_error(self):
        program = """
import os, sys, pinfold
endpoint = pinfold.Endpoint(handlers={4: lambda active: os.kill(os.getpid(), 9)})
endpoint.connect(sys.argv[1])
endpoint.recv()
"""
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint, Child(program, name) as child:
            peer = endpoint.accept(LIMIT_S)
            with self.assertRaises(pinfold.PeerGone):
                endpoint.ask(peer, LATER, b"", LIMIT_S)
            self.assertEqual(child.finish()[0], -9)

    def test_a_handler_that_a_dead_peer_asked_is_no_harm(self):
        program = """
import os, sys, pinfold
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
request = endpoint.post_ask(peer, 4, b"who")
endpoint.call(peer, 2, b"sent")
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""
        name, kept, noted = fresh_name(), [], []
        handlers = {LATER: kept.append, NOTE: noted.append}
        with pinfold.Endpoint(name, handlers=handlers) as endpoint, Child(program, name) as child:
            peer = endpoint.accept(LIMIT_S)
            while not noted:
                endpoint.progress()
            child.say("die")
            with self.assertRaises(pinfold.PeerGone):
                endpoint.recv(peer, timeout=LIMIT_S)
            with self.assertRaises(pinfold.PeerGone):
                kept[0].reply(b"too late")

    def test_ctrl_c_within_a_handler_ends_the_wait(self):
        program = """
import os, signal, sys, threading, pinfold
from common import Pair, Running
with Pair() as pair:
    pair.one.handle(1, lambda active: os.kill(os.getpid(), signal.SIGINT))
    pair.other.call(pair.to_one, 1)
    try:
        pair.one.recv(timeout=30)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
        with Child(program) as child:
            status, out, err = child.finish()
        self.assertEqual((status, out), (0, "interrupted\n"), err)

    def test_the_collector_frees_endpoints_that_their_handlers_know(self):
        class Server:
            def __init__(self, name):
                self.endpoint = pinfold.Endpoint(name, handlers={NOTE: self.note})
                self.endpoint.handle(ECHO, self.note)

            def note(self, active):
                return b"fine"

        for is_closed in (True, False):
            server = Server(fresh_name())
            if is_closed:
                server.endpoint.close()
            gone = weakref.ref(server)
            del server
            gc.collect()
            self.assertIsNone(gone())
        function = lambda active: None  # noqa: E731 - to be counted
        count = sys.getrefcount(function)
        for _ in range(1000):
            self.one.handle(NOTE, function)
        self.assertEqual(sys.getrefcount(function), count + 1)
        self.one.unhandle(NOTE)
        self.assertEqual(sys.getrefcount(function), count)

    def test_handlers_and_other_calls_at_the_same_time(self):
        """Threads call, and hold the interpreter's lock meanwhile, as handlers run on others."""
        served = []
        self.one.handle(ECHO, lambda active: served.append(1) or active.data)
        self.drive()

        def ask(first) -> None:
            for number in range(first, first + 500):
                data = number.to_bytes(4, "little")
                self.assertEqual(bytes(self.other.ask(self.to_one, ECHO, data, LIMIT_S)), data)

        def send() -> None:
            for number in range(500):
                self.one.send(self.to_other, bytes(100), 3)
                self.other.recv(tag=3, timeout=LIMIT_S)

        threads = [Running(ask, 1000 * n) for n in range(3)] + [Running(send)]
        for thread in threads:
            thread.result()
        self.assertEqual(len(served), 1500)


class Awaited(unittest.TestCase):
    def test_handlers_and_requests_of_asyncio(self):
        async def main() -> None:
            name = fresh_name()
            async with pinfold.aio.Endpoint(name) as one, pinfold.aio.Endpoint() as other:
                _, peer = await asyncio.gather(one.accept(), other.connect(name))
                noted = []

                async def slow(active):
                    await asyncio.sleep(0.01)
                    return active.data + b"!"

                async def fail(active):
                    raise RuntimeError("on purpose")

                one.handle(ECHO, lambda active: active.data)
                one.handle(LATER, slow)
                one.handle(FAIL, fail)
                one.handle(NOTE, lambda active: noted.append(active.data))
                serving = asyncio.ensure_future(one.recv(timeout=LIMIT_S))
                asked = [other.ask(peer, id, b"hi", LIMIT_S) for id in (ECHO, LATER)]
                answers = await asyncio.gather(*asked, other.call(peer, NOTE, b"note"))
                self.assertEqual([bytes(answer) for answer in answers[:2]], [b"hi", b"hi!"])
                told = []
                loop = asyncio.get_running_loop()
                loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
                with self.assertRaises(pinfold.NotHandled):
                    await other.ask(peer, FAIL, b"", LIMIT_S)
                gc.collect()
                self.assertEqual([str(error) for error in told], ["on purpose"])
                region = one.plain.region(8, writable=True)
                remote = await other.open_region(peer, region.key, LIMIT_S)
                remote.write(0, b"by hand!")
                self.assertEqual(region.read(), b"by hand!")
                await other.send(peer, b"end")
                await serving
                self.assertEqual(noted, [b"note"])

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
