"""Messages in memory of all kinds: with time limits, errors, threads, signals, deaths, forks."""

from __future__ import annotations

import array
import gc
import os
import signal
import threading
import time
import unittest
import weakref

import pinfold
from common import LIMIT_S, Child, Pair, Running, fresh_name, needs_numpy, numpy


class Messages(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.__exit__)
        self.one, self.other = self.pair.one, self.pair.other
        self.to_one, self.to_other = self.pair.to_one, self.pair.to_other

    def crosses(self, data, expected=None):
        """Sends from `other` to `one`; returns the receipt and the message."""
        sending = Running(self.other.send, self.to_one, data, 5, LIMIT_S)
        message = self.one.recv(self.to_other, 5, LIMIT_S)
        self.assertEqual(bytes(message), bytes(data) if expected is None else expected)
        return sending.result(), message

    def test_a_message_arrives_with_its_facts(self):
        for size in (0, 1, 56, 57, 4096, 4097, 100_000, 3_000_001):
            data = os.urandom(size)
            receipt, message = self.crosses(data)
            self.assertEqual((message.peer, message.tag), (self.to_other, 5))
            self.assertEqual((len(message), message.nbytes), (size, size))
            self.assertEqual(receipt.bytes, size)
            self.assertEqual(message.receipt.bytes, size)
            self.assertEqual(receipt.path == "inline", size <= 56, receipt)
            self.assertIn(receipt.path, str(receipt))

    def test_a_receipt_says_why_not_otherwise(self):
        receipt, _ = self.crosses(bytes(1000))
        self.assertEqual(receipt.path, "eager")
        self.assertEqual(receipt.copied, 1000)
        self.assertIn("inline", receipt.why)
        self.assertTrue(all(isinstance(why, str) and why for why in receipt.why.values()))

    def test_memory_of_all_kinds_is_sent(self):
        self.crosses(bytearray(b"x" * 70))
        self.crosses(memoryview(b"abcdef")[2:4])
        self.crosses(memoryview(b"abcdef")[::2], b"ace")
        self.crosses(memoryview(b"abcdef")[::-1], b"fedcba")
        numbers = array.array("d", range(1000))
        self.crosses(numbers, numbers.tobytes())

    def test_what_has_no_memory_is_refused(self):
        for nothing in ("text", 3, None, [1, 2]):
            with self.assertRaisesRegex(TypeError, "no memory to send"):
                self.other.send(self.to_one, nothing)

    @needs_numpy
    def test_arrays_that_do_not_lie_in_a_row_are_gathered(self):
        square = numpy.arange(10_000, dtype=numpy.int32).reshape(100, 100)
        for part in (square[::2, 5:50:3], square.T, square[::-1], numpy.asfortranarray(square)):
            self.crosses(part, part.tobytes())
        self.crosses(numpy.float64(2.5), numpy.float64(2.5).tobytes())

    @needs_numpy
    def test_references_are_not_sent(self):
        with self.assertRaisesRegex(TypeError, "references"):
            self.other.send(self.to_one, numpy.array([{}, []], dtype=object))

    def test_a_message_comes_into_memory_of_ours(self):
        for size in (0, 8, 5000, 2_000_000):
            data, room = os.urandom(size), bytearray(size + 3)
            sending = Running(self.other.send, self.to_one, data, 9)
            received = self.one.recv_into(room, None, 9, LIMIT_S)
            sending.result()
            self.assertEqual(
                (received.length, received.tag, received.peer), (size, 9, self.to_other)
            )
            self.assertEqual(room[:size], data)
            self.assertEqual(room[size:], bytes(3))

    def test_a_long_message_is_truncated_and_says_so(self):
        sending = Running(self.other.send, self.to_one, b"0123456789", 4)
        room = bytearray(4)
        with self.assertRaises(pinfold.Truncated) as raised:
            self.one.recv_into(room, tag=4, timeout=LIMIT_S)
        sending.result()
        error = raised.exception
        self.assertEqual(
            (error.length, error.capacity, error.tag, error.peer), (10, 4, 4, self.to_other)
        )
        self.assertEqual(error.receipt.bytes, 4)
        self.assertEqual(room, b"0123")
        self.assertIn("10 bytes", str(error))

    def test_memory_that_cannot_be_filled_is_refused(self):
        for bad in (b"bytes", memoryview(b"bytes")):
            with self.assertRaisesRegex(BufferError, "can only be read"):
                self.one.recv_into(bad, timeout=0)
        with self.assertRaisesRegex(BufferError, "in a row"):
            self.one.recv_into(memoryview(bytearray(9))[::2], timeout=0)
        with self.assertRaises(TypeError):
            self.one.recv_into("text", timeout=0)

    @needs_numpy
    def test_a_read_only_array_is_refused(self):
        room = numpy.zeros(9)
        room.flags.writeable = False
        with self.assertRaisesRegex(BufferError, "can only be read"):
            self.one.recv_into(room, timeout=0)

    def test_tags_and_peers_are_matched(self):
        for tag in (1, 2, 3):
            self.other.send(self.to_one, str(tag).encode(), tag)
        self.assertEqual(bytes(self.one.recv(tag=3)), b"3")
        self.assertEqual(bytes(self.one.recv(self.to_other)), b"1")
        found = self.one.probe()
        self.assertEqual((found.tag, found.length, found.receipt), (2, 1, None))
        self.assertEqual(bytes(self.one.recv()), b"2")
        self.assertIsNone(self.one.probe())

    def test_time_limits(self):
        for limit in (0, 0.01, 0.12):
            with self.assertRaises(pinfold.Timeout) as raised:
                self.one.recv(timeout=limit)
            self.assertIsInstance(raised.exception, TimeoutError)
            with self.assertRaises(pinfold.Timeout):
                self.one.recv_into(bytearray(3), timeout=limit)
            with self.assertRaises(pinfold.Timeout):
                self.one.recv_view(timeout=limit)
            with self.assertRaises(pinfold.Timeout):
                self.one.accept(timeout=limit)
        for nonsense in (-1, float("nan")):
            with self.assertRaises(ValueError):
                self.one.recv(timeout=nonsense)
        # Receives that timed out have taken nothing.
        self.other.send(self.to_one, b"later")
        self.assertEqual(bytes(self.one.recv(timeout=float("inf"))), b"later")

    def test_a_send_that_nobody_takes_is_taken_back(self):
        long = bytearray(40_000_000)
        with self.assertRaises(pinfold.NotTaken) as raised:
            self.other.send(self.to_one, long, 7, timeout=0.1)
        # `one` makes no progress, so it cannot confirm.
        self.assertTrue(raised.exception.unsure)
        self.other.send(self.to_one, b"after", 8)
        self.assertEqual(bytes(self.one.recv(tag=8, timeout=LIMIT_S)), b"after")
        for _ in range(10):
            self.one.progress()
            self.other.progress()
        with self.assertRaises(pinfold.Timeout):
            self.one.recv(timeout=0.05)
        long.append(1)  # the memory is ours again

    def test_a_peer_that_answers_confirms_that_a_send_is_taken_back(self):
        with Pair(dedicated_progress=True) as pair:
            with self.assertRaises(pinfold.NotTaken) as raised:
                pair.other.send(pair.to_one, bytes(40_000_000), 7, timeout=0.1)
            self.assertFalse(raised.exception.unsure)
            with self.assertRaises(pinfold.NotTaken):
                pair.other.send(pair.to_one, bytes(40_000_000), 7, timeout=0)
            with self.assertRaises(pinfold.Timeout):
                pair.one.recv(timeout=0.05)

    def test_requests(self):
        wanted = self.one.post_recv(tag=3)
        self.assertIsNone(wanted.try_wait())
        room = bytearray(5)
        into = self.one.post_recv_into(room, tag=4)
        sent = [
            self.other.post_send(self.to_one, text, tag)
            for text, tag in ((b"three", 3), (b"four!", 4))
        ]
        self.assertEqual(bytes(wanted.wait(LIMIT_S)), b"three")
        self.assertEqual(into.wait(LIMIT_S).length, 5)
        self.assertEqual(room, b"four!")
        self.assertEqual([request.wait(LIMIT_S).bytes for request in sent], [5, 5])
        with self.assertRaisesRegex(ValueError, "has ended"):
            wanted.wait()

    def test_a_request_is_cancelled(self):
        wanted = self.one.post_recv(tag=3)
        self.assertTrue(wanted.cancel())
        with self.assertRaises(pinfold.Cancelled):
            wanted.wait(LIMIT_S)

    def test_a_request_that_is_dropped_loses_no_message(self):
        wanted = self.one.post_recv(tag=3)
        self.other.send(self.to_one, b"kept", 3)
        self.one.progress()
        del wanted
        self.assertEqual(bytes(self.one.recv(tag=3, timeout=LIMIT_S)), b"kept")

    def test_memory_is_exported_as_long_as_it_is_used(self):
        room = bytearray(5)
        wanted = self.one.post_recv_into(room, tag=4)
        with self.assertRaises(BufferError):
            room.extend(b"more")
        del wanted
        self.one.progress()
        room.extend(b"more")

    def test_a_message_outlives_its_endpoint(self):
        for size in (3, 300, 3_000_000):
            data = os.urandom(size)
            with Pair() as pair:
                sending = Running(pair.other.send, pair.to_one, data)
                message = pair.one.recv(timeout=LIMIT_S)
                sending.result()
            seen = memoryview(message)
            del message, pair
            gc.collect()
            self.assertEqual(seen, data)
            self.assertTrue(seen.readonly)

    def test_many_threads_use_one_endpoint(self):
        each, threads = 200, 4

        def send(tag):
            for number in range(each):
                self.other.send(self.to_one, number.to_bytes(4, "little") * (1 + number * 20), tag)

        def receive(tag):
            for number in range(each):
                message = self.one.recv(tag=tag, timeout=LIMIT_S)
                assert bytes(message) == number.to_bytes(4, "little") * (1 + number * 20)
            return tag

        receiving = [Running(receive, tag) for tag in range(threads)]
        sending = [Running(send, tag) for tag in range(threads)]
        self.assertEqual([it.result() for it in receiving], list(range(threads)))
        for it in sending:
            it.result()

    def test_the_lock_is_released_while_waiting(self):
        waiting = Running(self.one.recv, None, 77, LIMIT_S)
        counted = 0
        while counted < 100_000:
            counted += 1
        self.assertTrue(waiting.running)
        self.other.send(self.to_one, b"at last", 77)
        self.assertEqual(bytes(waiting.result()), b"at last")

    def test_closing_ends_the_waits_of_other_threads(self):
        waits = [Running(self.one.recv), Running(self.one.accept), Running(self.one.recv_view)]
        time.sleep(0.05)
        self.one.close()
        for wait in waits:
            with self.assertRaises(pinfold.Closed):
                wait.result()
        with self.assertRaises(pinfold.Closed):
            self.one.recv()
        self.assertTrue(self.one.closed)
        self.one.close()

    def test_a_handler_of_a_signal_ends_a_wait(self):
        class Stop(Exception):
            pass

        def stop(*_):
            raise Stop

        before = signal.signal(signal.SIGUSR1, stop)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        calls = [
            lambda: self.one.recv(),
            lambda: self.one.recv_into(bytearray(9)),
            lambda: self.one.recv_view(),
            lambda: self.one.accept(),
            lambda: self.other.send(self.to_one, bytes(40_000_000)),
        ]
        for call in calls:
            timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
            timer.start()
            with self.assertRaises(Stop):
                call()
            timer.join()
        self.other.send(self.to_one, b"goes on", 1)
        self.assertEqual(bytes(self.one.recv(tag=1, timeout=LIMIT_S)), b"goes on")


class Endpoints(unittest.TestCase):
    def test_a_peer_has_facts(self):
        with Pair(label="tester") as pair:
            (peer,) = pair.one.peers()
            self.assertEqual(peer.number, pair.to_other)
            self.assertEqual((peer.pid, peer.uid), (os.getpid(), os.getuid()))
            self.assertIn("tester", peer.name)
            self.assertIn("inline", peer.paths)
            pair.one.disconnect(peer.number)
            with self.assertRaises(pinfold.UnknownPeer) as raised:
                pair.one.disconnect(12345)
            self.assertIsInstance(raised.exception, LookupError)

    def test_errors_have_classes_and_sentences(self):
        with self.assertRaisesRegex(pinfold.NameGone, "start the listening side") as raised:
            pinfold.Endpoint().connect(fresh_name(), timeout=0)
        self.assertIsInstance(raised.exception, pinfold.Error)
        self.assertIsInstance(raised.exception, ConnectionRefusedError)
        with self.assertRaises(pinfold.BadAddress):
            pinfold.Endpoint("tcp:nonsense")
        name = fresh_name()
        with pinfold.Endpoint(name) as first:
            self.assertFalse(first.closed)
            with self.assertRaises(pinfold.NameInUse):
                pinfold.Endpoint(name)
        with self.assertRaises(pinfold.NotListening):
            pinfold.Endpoint().accept()
        with self.assertRaises(pinfold.UnknownPeer):
            pinfold.Endpoint().send(77, b"")
        with self.assertRaises(pinfold.KeyNeeded):
            pinfold.Endpoint(listen="tcp:0.0.0.0:0")

    def test_settings(self):
        with self.assertRaisesRegex(TypeError, "no setting"):
            pinfold.Endpoint(speed=3)
        with self.assertRaisesRegex(ValueError, "no path"):
            pinfold.Endpoint(paths=["teleport"])
        with self.assertRaises(TypeError):
            pinfold.Endpoint(strict="yes")
        with Pair(paths=["inline", "eager"], dedicated_progress=True, label=None) as pair:
            sending = Running(pair.other.send, pair.to_one, bytes(500_000))
            message = pair.one.recv(timeout=LIMIT_S)
            sending.result()
            self.assertEqual(message.receipt.path, "eager")

    def test_a_connection_waits_for_its_listener(self):
        name = fresh_name()
        connecting = Running(pinfold.Endpoint().connect, name, LIMIT_S)
        time.sleep(0.05)
        with pinfold.Endpoint(name) as late:
            late.accept(LIMIT_S)
            self.assertIsInstance(connecting.result(), int)

    def test_by_tcp(self):
        with pinfold.Endpoint(listen="tcp:127.0.0.1:0", local_shortcut=False) as one:
            at = one.listens_at
            accepting = Running(one.accept, LIMIT_S)
            with pinfold.Endpoint(local_shortcut=False) as other:
                to_one = other.connect(at)
                to_other = accepting.result()
                data = os.urandom(1_000_000)
                sending = Running(other.send, to_one, data)
                self.assertEqual(bytes(one.recv(to_other, timeout=LIMIT_S)), data)
                self.assertEqual(sending.result().path, "eager")

    def test_drain_waits_for_what_was_sent(self):
        with Pair() as pair:
            request = pair.other.post_send(pair.to_one, bytes(20_000_000), 3)
            with self.assertRaises(pinfold.Undelivered):
                pair.other.drain(timeout=0.05)
            receiving = Running(pair.one.recv, None, 3, LIMIT_S)
            pair.other.drain(timeout=LIMIT_S)
            receiving.result()
            request.wait(LIMIT_S)

    def test_an_endpoint_is_collected(self):
        endpoint = pinfold.Endpoint(fresh_name())
        gone = weakref.ref(endpoint)
        del endpoint
        gc.collect()
        self.assertIsNone(gone())


DIES = """
import os, sys, pinfold
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
endpoint.send(peer, b"hello")
print("sent", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""


class Deaths(unittest.TestCase):
    def test_a_peer_that_is_killed_is_an_error(self):
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint, Child(DIES, name) as child:
            peer = endpoint.recv(timeout=LIMIT_S).peer
            child.line()
            waiting = Running(endpoint.recv, peer, None, LIMIT_S)
            sending = Running(endpoint.send, peer, bytes(40_000_000), 1)
            time.sleep(0.05)
            child.say("die")
            for call in (waiting, sending):
                with self.assertRaises(pinfold.PeerGone) as raised:
                    call.result()
                self.assertIsInstance(raised.exception, ConnectionError)
            self.assertIsInstance(raised.exception, pinfold.PeerDied)
            with self.assertRaises(pinfold.PeerGone):
                endpoint.send(peer, b"too late")

    def test_a_peer_that_closes_is_an_error(self):
        with Pair() as pair:
            waiting = Running(pair.one.recv, pair.to_other, None, LIMIT_S)
            pair.other.close()
            with self.assertRaises(pinfold.PeerGone) as raised:
                waiting.result()
            self.assertNotIsInstance(raised.exception, pinfold.PeerDied)


class Forks(unittest.TestCase):
    def test_a_child_has_no_part_in_it_and_can_make_its_own(self):
        with Pair() as pair:
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    refused = 0
                    for call in (pair.one.recv, pair.one.progress, pair.one.arm):
                        try:
                            call()
                        except pinfold.Forked:
                            refused += 1
                    pair.one.close()
                    pair.other.close()
                    with Pair() as own:
                        own.other.send(own.to_one, b"own")
                        heard = bytes(own.one.recv(timeout=LIMIT_S))
                    status = 0 if (refused, heard) == (3, b"own") else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            # The parent's goes on.
            pair.other.send(pair.to_one, b"still")
            self.assertEqual(bytes(pair.one.recv(timeout=LIMIT_S)), b"still")


CTRL_C = """
import sys, pinfold
print("ready", flush=True)
try:
    pinfold.Endpoint(sys.argv[1]).recv()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

EXITS = """
import sys, threading, time, pinfold
from common import Pair
pair = Pair()
for call in (pair.one.recv, pair.one.accept, pair.other.recv_view):
    threading.Thread(target=call, daemon=True).start()
sent = pair.other.post_send(pair.to_one, bytes(9_000_000))
wanted = pair.one.post_recv_into(bytearray(99), tag=8)
long = (pair.to_one, bytes(40_000_000), 6)
threading.Thread(target=pair.other.send, args=long, daemon=True).start()
view = memoryview(pinfold.empty(100, "B"))
time.sleep(0.1)
print("leaving", flush=True)
"""


class Exits(unittest.TestCase):
    def test_ctrl_c_ends_a_wait(self):
        with Child(CTRL_C, fresh_name()) as child:
            self.assertEqual(child.line(), "ready")
            time.sleep(0.2)
            child.process.send_signal(signal.SIGINT)
            status, out, err = child.finish()
            self.assertEqual((status, out), (0, "interrupted\n"), err)

    def test_the_interpreter_exits_with_operations_under_way(self):
        for _ in range(10):
            with Child(EXITS) as child:
                status, out, err = child.finish()
                self.assertEqual((status, out, err), (0, "leaving\n", ""))


if __name__ == "__main__":
    unittest.main()
