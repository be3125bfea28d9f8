"""Memory of arenas and messages: as arrays, given away without a copy, kept while it is used."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import subprocess
import sys
import time
import unittest

import pinfold
from common import LIMIT_S, Child, Pair, Running, fresh_name, needs_numpy, numpy
from pinfold.memory import owner, whole_buffer

SIZE = 3_000_000


class Arrays(unittest.TestCase):
    def test_a_buffer_is_memory(self):
        arena = pinfold.endpoint.Arena()
        buffer = arena.alloc(1000, align=4096)
        self.assertEqual(
            (len(buffer), buffer.nbytes, buffer.readonly, buffer.given), (1000,) * 2 + (False,) * 2
        )
        self.assertEqual(buffer.address % 4096, 0)
        view = memoryview(buffer)
        view[:] = bytes(range(250)) * 4
        self.assertEqual(bytes(buffer), bytes(range(250)) * 4)
        self.assertEqual(buffer.tobytes()[:3], b"\0\1\2")
        self.assertEqual(ctypes.string_at(buffer.address, 3), b"\0\1\2")
        self.assertEqual(arena.buffers, 1)
        del buffer
        self.assertEqual(arena.buffers, 1)  # the view keeps it
        view.release()
        self.assertEqual(arena.buffers, 0)

    def test_what_makes_no_sense_is_refused(self):
        arena = pinfold.endpoint.Arena(bytes_budget=1 << 20)
        with self.assertRaises(ValueError):
            arena.alloc(10, align=3)
        with self.assertRaises((pinfold.LimitReached, pinfold.NoMemory)):
            arena.alloc(1 << 30)
        with self.assertRaises(TypeError):
            pinfold.Memory()
        with self.assertRaises(TypeError):
            pinfold.Buffer(b"x")

    def test_without_numpy_there_are_memoryviews(self):
        program = """
import sys
sys.modules["numpy"] = None
import pinfold
from common import Pair, Running
square = pinfold.empty((3, 4), "i")
assert (square.shape, square.format, square.nbytes) == ((3, 4), "i", 48)
square[2, 3] = 7
assert pinfold.zeros(5)[4] == 0.0
assert pinfold.empty(0).nbytes == 0
with Pair() as pair:
    pair.other.handoff(pair.to_one, square)
    view = pair.one.recv_view()
    assert view.receipt.path == "handoff", view.receipt
    assert memoryview(view).cast("i", (3, 4))[2, 3] == 7
    try:
        view.array()
    except ImportError as error:
        assert "NumPy" in str(error)
    else:
        raise AssertionError
print("fine")
"""
        with Child(program) as child:
            self.assertEqual(child.finish()[:2], (0, "fine\n"))

    @needs_numpy
    def test_arrays_of_an_arena(self):
        arena = pinfold.Arena()
        for shape, dtype, order in (
            ((3, 4), "f4", "C"),
            (7, "i8", "C"),
            ((2, 3, 5), "c16", "F"),
            ((0, 3), "u1", "C"),
        ):
            made = arena.empty(shape, dtype, order)
            self.assertEqual(made.dtype, numpy.dtype(dtype))
            self.assertEqual(made.shape, (shape,) if isinstance(shape, int) else shape)
            self.assertTrue(made.flags[order + "_CONTIGUOUS"] and made.flags.writeable)
            self.assertIsInstance(whole_buffer(made), pinfold.Buffer)
        self.assertEqual(pinfold.empty(3).dtype, numpy.float64)
        self.assertEqual(pinfold.zeros((2, 2)).sum(), 0)
        source = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
        copied = arena.copy(source)
        self.assertTrue((copied == source).all() and copied.flags.f_contiguous)
        with self.assertRaisesRegex(TypeError, "objects"):
            arena.empty(3, object)

    @needs_numpy
    def test_the_owner_of_an_array_is_found(self):
        made = pinfold.empty((4, 6), "i4")
        buffer = whole_buffer(made)
        for whole in (
            made,
            made.T,
            made.reshape(24),
            made.view("u1"),
            memoryview(made),
            buffer,
            memoryview(buffer),
        ):
            self.assertIs(whole_buffer(whole), buffer)
        for part in (
            made[1:],
            made[:, 0],
            made[::-1],
            memoryview(made)[1:],
            memoryview(buffer)[:-1],
        ):
            self.assertIsNone(whole_buffer(part))
        self.assertIsNone(whole_buffer(numpy.zeros(3)))
        self.assertIsNone(whole_buffer(b"abc"))
        self.assertIs(owner(made[1:])[0], buffer)

    @needs_numpy
    def test_interfaces_share_memory(self):
        made = pinfold.zeros(100, "u1")
        buffer = whole_buffer(made)

        class Interface:
            __array_interface__ = buffer.__array_interface__
            keeps = buffer

        by_interface = numpy.asarray(Interface())
        by_dlpack = numpy.from_dlpack(buffer)
        made[7] = 9
        self.assertEqual((by_interface[7], by_dlpack[7], buffer.array()[7]), (9, 9, 9))
        self.assertEqual(buffer.__dlpack_device__(), (1, 0))
        self.assertEqual(buffer.array("u4", (5, 5)).shape, (5, 5))
        with self.assertRaises(ValueError):
            buffer.array("u4", (7, 7))

    @needs_numpy
    def test_an_object_with_dlpack_alone_is_sent_and_filled(self):
        class Tensor:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        class Elsewhere(Tensor):
            def __dlpack_device__(self):
                return (2, 0)

        data, room = numpy.arange(1000.0), numpy.zeros(1000)
        with Pair() as pair:
            sending = Running(pair.other.send, pair.to_one, Tensor(data))
            self.assertEqual(bytes(pair.one.recv(timeout=LIMIT_S)), data.tobytes())
            sending.result()
            if int(numpy.__version__.split(".")[0]) >= 2:  # before, NumPy's tensors were read-only
                sending = Running(pair.other.send, pair.to_one, data)
                pair.one.recv_into(Tensor(room), timeout=LIMIT_S)
                sending.result()
                self.assertTrue((room == data).all())
            with self.assertRaisesRegex(ValueError, "device"):
                pair.other.send(pair.to_one, Elsewhere(data))


class Handoffs(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.__exit__)
        self.one, self.other, self.to_one = self.pair.one, self.pair.other, self.pair.to_one

    def view(self, **settings):
        return self.one.recv_view(timeout=LIMIT_S, **settings)

    @needs_numpy
    def test_nothing_is_copied(self):
        for count in (1, 1000, SIZE):
            made = pinfold.empty(count, "f8")
            made[:] = numpy.arange(count)
            request = self.other.post_handoff(self.to_one, made, 5)
            view = self.view()
            self.assertEqual((view.receipt.path, view.receipt.copied), ("handoff", 0), view.receipt)
            self.assertEqual((view.tag, view.nbytes), (5, count * 8))
            seen = view.array("f8")
            self.assertFalse(seen.flags.writeable)
            self.assertFalse(made.flags.writeable)
            self.assertTrue((seen == made).all())
            self.assertIsNone(request.try_wait())  # still looked at
            del seen, view
            gc.collect()
            receipt = request.wait(LIMIT_S)
            self.assertEqual((receipt.path, receipt.copied), ("handoff", 0))

    @needs_numpy
    def test_an_array_that_was_given_is_read_only(self):
        for arena, stays_writable in (
            (pinfold.Arena(), False),
            (pinfold.Arena(writable=True), True),
        ):
            made = arena.zeros(1000)
            self.other.handoff(self.to_one, made)
            self.assertEqual(made.flags.writeable, stays_writable)
            self.assertEqual(self.view().readonly, not stays_writable)

    def test_the_receiver_sees_what_is_written_later(self):
        arena = pinfold.Arena(writable=True)
        buffer = arena.alloc(100_000)
        mine = memoryview(buffer)
        mine[:3] = b"old"
        self.other.handoff(self.to_one, buffer)
        view = self.view()
        theirs = memoryview(view)
        self.assertEqual(bytes(theirs[:3]), b"old")
        mine[:3] = b"new"
        self.assertEqual(bytes(theirs[:3]), b"new")
        theirs[:3] = b"yes"  # the arena is writable
        self.assertEqual(bytes(mine[:3]), b"yes")
        self.assertEqual((view.receipt.path, view.receipt.copied), ("handoff", 0))

    def test_a_view_is_read_only(self):
        self.other.handoff(self.to_one, pinfold.Arena().alloc(5000))
        view = self.view()
        self.assertTrue(view.readonly)
        with self.assertRaises(TypeError):
            memoryview(view)[0] = 1
        with self.assertRaises(BufferError):
            self.one.recv_into(view)

    def test_a_message_that_was_not_given_is_a_view_too(self):
        data = os.urandom(100_000)
        sending = Running(self.other.send, self.to_one, data)
        view = self.view()
        sending.result()
        self.assertEqual(bytes(view), data)
        self.assertNotEqual(view.receipt.path, "handoff")

    def test_given_memory_is_copied_by_other_receives(self):
        buffer = pinfold.Arena().alloc(9)
        memoryview(buffer)[:] = b"123456789"
        self.other.handoff(self.to_one, buffer)
        self.assertEqual(bytes(self.one.recv(timeout=LIMIT_S)), b"123456789")

    def test_only_all_of_a_buffer_can_be_given(self):
        arena = pinfold.Arena()
        for wrong in (memoryview(arena.alloc(10))[1:], bytes(10), bytearray(10)):
            with self.assertRaisesRegex(ValueError, "arena"):
                self.other.handoff(self.to_one, wrong)

    def test_a_buffer_is_given_to_several(self):
        buffer = pinfold.Arena().alloc(5000)
        memoryview(buffer)[:4] = b"both"
        self.assertFalse(buffer.given)
        for tag in (1, 2):
            self.other.handoff(self.to_one, buffer, tag)
        self.assertTrue(buffer.given)
        for tag in (1, 2):
            self.assertEqual(bytes(memoryview(self.view(tag=tag))[:4]), b"both")

    def test_memory_is_not_used_again_while_it_is_seen(self):
        """Whichever of sender's array and receiver's view lives longer keeps the contents."""
        arena = pinfold.Arena()
        order = random.Random(5)
        held = []
        for number in range(300):
            buffer = arena.alloc(20_000)
            memoryview(buffer)[:8] = number.to_bytes(8, "little")
            mine = memoryview(buffer)
            self.other.handoff(self.to_one, buffer)
            del buffer
            theirs = memoryview(self.view())
            keep = [(number, mine), (number, theirs)]
            order.shuffle(keep)
            held += keep[: order.randrange(3)]
            del mine, theirs, keep
            order.shuffle(held)
            del held[20:]
            for expected, memory in held:
                self.assertEqual(int.from_bytes(memory[:8], "little"), expected)
        del held, memory
        gc.collect()
        for _ in range(20):  # a turn takes some of the memory that is back
            self.one.progress()
            self.other.progress()
        self.assertEqual(arena.buffers, 0)

    def test_the_limit_of_given_memory_holds(self):
        with Pair(given_bytes_max=1 << 20) as pair:
            arena = pinfold.Arena()
            pair.other.handoff(pair.to_one, arena.alloc(900_000))
            late = arena.alloc(900_000)
            with self.assertRaises(pinfold.LimitReached):
                pair.other.handoff(pair.to_one, late, timeout=0.1)
            self.assertFalse(late.given)
            giving = Running(pair.other.handoff, pair.to_one, arena.alloc(900_000))
            for _ in range(2):
                del_me = pair.one.recv_view(timeout=LIMIT_S)
                del del_me
                pair.one.progress()
            giving.result()


class Lifetimes(unittest.TestCase):
    def given(self, pair):
        buffer = pair.other.arena().alloc(SIZE)
        memoryview(buffer)[:] = b"\x5a" * SIZE
        pair.other.handoff(pair.to_one, buffer)
        return memoryview(pair.one.recv_view(timeout=LIMIT_S))

    def test_a_view_outlives_both_endpoints(self):
        pair = Pair()
        seen = self.given(pair)
        pair.one.close()
        pair.other.close()
        del pair
        gc.collect()
        # Buffers that would use the memory again if it had gone back.
        other = [pinfold.Arena().alloc(SIZE) for _ in range(3)]
        for buffer in other:
            memoryview(buffer)[:] = bytes(SIZE)
        self.assertEqual(bytes(seen), b"\x5a" * SIZE)

    def test_a_view_keeps_its_endpoint_connected_until_it_is_gone(self):
        with Pair() as pair:
            seen = self.given(pair)
            pair.one.close()
            with self.assertRaises(pinfold.Closed):
                pair.one.recv()
            self.assertEqual(len(pair.other.peers()), 1)
            seen.release()
            del seen
            gc.collect()
            with self.assertRaises(pinfold.PeerGone):
                pair.other.recv(pair.to_one, timeout=LIMIT_S)

    def test_force_closes_at_once(self):
        with Pair() as pair:
            seen = self.given(pair)
            pair.one.close(force=True)
            with self.assertRaises(pinfold.PeerGone):
                pair.other.recv(pair.to_one, timeout=LIMIT_S)
            bytes(seen)  # its contents mean nothing now, but it is there

    GIVES = """
import os, sys, time, pinfold
arena = pinfold.Arena()
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
for number in range(int(sys.argv[2])):
    buffer = arena.alloc(100_000)
    memoryview(buffer)[:] = bytes([number]) * 100_000
    endpoint.handoff(peer, buffer, number)
print("given", flush=True)
sys.stdin.readline()
"""

    def test_a_view_outlives_a_sender_that_is_killed(self):
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint, Child(self.GIVES, name, "4") as child:
            before = [memoryview(endpoint.recv_view(tag=tag, timeout=LIMIT_S)) for tag in (0, 1)]
            self.assertEqual(child.line(), "given")
            child.kill()
            time.sleep(0.05)
            endpoint.progress()
            # Received after the death.
            after = [memoryview(endpoint.recv_view(tag=tag, timeout=LIMIT_S)) for tag in (2, 3)]
            for number, view in enumerate(before + after):
                self.assertEqual(bytes(view), bytes([number]) * 100_000)

    def test_a_receiver_that_is_killed_gives_back(self):
        program = """
import sys, pinfold
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
views = [endpoint.recv_view() for _ in range(5)]
print("has", flush=True)
sys.stdin.readline()
"""
        name, arena = fresh_name(), pinfold.Arena()
        with pinfold.Endpoint(name) as endpoint, Child(program, name) as child:
            peer = endpoint.accept(LIMIT_S)
            for _ in range(5):
                endpoint.handoff(peer, arena.alloc(100_000))
            self.assertEqual(child.line(), "has")
            self.assertEqual(arena.buffers, 5)
            child.kill()
            with self.assertRaises(pinfold.PeerDied):
                endpoint.recv(peer, timeout=LIMIT_S)
            self.assertEqual(arena.buffers, 0)

    def test_memory_is_absent_in_a_child(self):
        """New exports of it fail there. Arrays made before must not be touched."""
        buffer = pinfold.Arena().alloc(100)
        with Pair() as pair:
            view = pair.one
            pair.other.handoff(pair.to_one, pinfold.Arena().alloc(100))
            view = pair.one.recv_view(timeout=LIMIT_S)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    refused = 0
                    for memory in (buffer, view):
                        try:
                            memoryview(memory)
                        except pinfold.Forked:
                            refused += 1
                    fresh = pinfold.empty(10, "B")
                    memoryview(fresh).cast("B")[:] = bytes(10)
                    status = 0 if refused == 2 else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_the_interpreter_exits_with_everything_alive(self):
        program = """
import pinfold, sys
from common import Pair
pair = Pair()
cycle = []
for number in range(5):
    buffer = pair.other.arena().alloc(50_000)
    pair.other.handoff(pair.to_one, buffer)
    view = pair.one.recv_view()
    cycle += [cycle, buffer, view, memoryview(view), pair]
    pair.other.handoff(pair.to_one, pinfold.Arena().alloc(50_000), 9)
cycle.append(pair.one.post_recv(tag=3))
print("leaving", flush=True)
"""
        with Child(program) as child:
            self.assertEqual(child.finish(), (0, "leaving\n", ""))


class Versions(unittest.TestCase):
    def test_the_wheel_is_for_the_stable_interface(self):
        self.assertTrue(pinfold._native.__file__.endswith(".abi3.so"), pinfold._native.__file__)
        self.assertEqual(subprocess.call([sys.executable, "-c", "import pinfold"]), 0)


if __name__ == "__main__":
    unittest.main()
