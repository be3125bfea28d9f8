"""Objects: pickled, with large arrays beside the pickle."""

from __future__ import annotations

import gc
import pickle
import unittest

import pinfold
from common import LIMIT_S, Child, Pair, Running, fresh_name, needs_numpy, numpy
from pinfold import objects


class Objects(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = Pair()
        self.addCleanup(self.pair.__exit__)
        self.one, self.other, self.to_one = self.pair.one, self.pair.other, self.pair.to_one

    def crosses(self, value, **how):
        sending = Running(lambda: self.other.send_object(self.to_one, value, 5, LIMIT_S, **how))
        received, views = objects.receive(self.one, None, 5, LIMIT_S)
        sending.result()
        return received, views

    def test_objects_arrive(self):
        for value in (
            None,
            7,
            "text",
            {"a": [1, 2.5, (3,)]},
            b"x" * 100_000,
            bytearray(b"y" * 100_000),
        ):
            self.assertEqual(self.crosses(value)[0], value)

    def test_buffers_of_no_array_lie_apart(self):
        data = bytearray(b"z" * 100_000)
        received, views = self.crosses(pickle.PickleBuffer(data))
        self.assertEqual((bytes(received), len(views)), (data, 1))

    @needs_numpy
    def test_arrays_of_arenas_move_without_a_copy(self):
        value = {
            "pixels": pinfold.empty((600, 800), "f4"),
            "more": [pinfold.empty(50_000, "i8", "F"), pinfold.empty(9, "u1")],
            "name": "frame",
        }
        value["pixels"][:] = numpy.random.default_rng(5).random((600, 800))
        value["more"][0][:] = numpy.arange(50_000)
        received, views = self.crosses(value)
        self.assertEqual([(v.receipt.path, v.receipt.copied) for v in views], [("handoff", 0)] * 2)
        self.assertTrue((received["pixels"] == value["pixels"]).all())
        self.assertTrue((received["more"][0] == value["more"][0]).all())
        self.assertEqual(received["name"], "frame")
        self.assertFalse(received["pixels"].flags.writeable)
        self.assertEqual(received["pixels"].__array_interface__["data"][0], views[0].address)

    @needs_numpy
    def test_a_writable_arena_makes_writable_arrays(self):
        arena = pinfold.Arena(writable=True)
        mine = arena.zeros(100_000)
        received, _ = self.crosses(mine)
        received[5] = 3.0
        self.assertEqual(mine[5], 3.0)

    @needs_numpy
    def test_arrays_of_ordinary_memory_are_sent_from_where_they_lie(self):
        value = [numpy.arange(300_000.0).reshape(300, 1000).T, numpy.arange(100_000)[::2]]
        received, views = self.crosses(value)
        for mine, theirs in zip(value, received):
            self.assertTrue((mine == theirs).all())
        self.assertTrue(views)
        for view in views:
            # One copy at most on this side, where a pickle would be copied out of as well.
            self.assertLessEqual(view.receipt.copied, view.nbytes)

    @needs_numpy
    def test_nothing_is_given_if_that_is_not_wanted(self):
        mine = pinfold.zeros(100_000)
        received, views = self.crosses(mine, give=False)
        self.assertNotEqual(views[0].receipt.path, "handoff")
        mine[:] = 1
        self.assertEqual(received.sum(), 0)

    @needs_numpy
    def test_objects_of_many_threads_do_not_mix(self):
        def send(seed):
            for number in range(20):
                arrays = [numpy.full(20_000, seed * 1000 + number)]
                arrays += [arrays[0] + 1, arrays[0] + 2]
                self.other.send_object(self.to_one, (seed, number, arrays), 5, LIMIT_S)

        def receive():
            seen = []
            for _ in range(20):
                seed, number, arrays = self.one.recv_object(tag=5, timeout=LIMIT_S)
                for place, array in enumerate(arrays):
                    assert (array == seed * 1000 + number + place).all()
                seen.append((seed, number))
            return seen

        sending = [Running(send, seed) for seed in range(3)]
        receiving = [Running(receive) for _ in range(3)]
        seen = sorted(sum((it.result() for it in receiving), []))
        self.assertEqual(seen, [(seed, number) for seed in range(3) for number in range(20)])
        for it in sending:
            it.result()

    def test_messages_that_are_no_objects_are_refused(self):
        forged = [
            b"",
            b"hello",
            bytes(16),
            objects.HEAD.pack(b"PFO1", 2**32 - 1, 2**63),
            objects.HEAD.pack(b"PFO1", 5, 2**63),
            objects.HEAD.pack(b"PFO1", 0, 7),
        ]
        for message in forged:
            self.other.send(self.to_one, message)
            with self.assertRaisesRegex(ValueError, "no object"):
                self.one.recv_object(timeout=LIMIT_S)

    def test_an_array_of_another_length_is_refused(self):
        first = objects.tags(1)
        self.other.send(self.to_one, objects.HEAD.pack(b"PFO1", 1, first) + objects.LENGTH.pack(9))
        self.other.send(self.to_one, b"eight!!!", first)
        with self.assertRaisesRegex(ValueError, "another length"):
            self.one.recv_object(timeout=LIMIT_S)

    DIES = """
import os, sys, pinfold
from pinfold import objects
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
first = objects.tags(1)
endpoint.send(peer, objects.HEAD.pack(b"PFO1", 1, first) + objects.LENGTH.pack(99))
endpoint.drain(5)
print("half", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), 9)
"""

    def test_a_sender_that_is_killed_in_mid_object_is_an_error(self):
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint, Child(self.DIES, name) as child:
            receiving = Running(endpoint.recv_object, None, None, LIMIT_S)
            self.assertEqual(child.line(), "half")
            child.say("die")
            with self.assertRaises(pinfold.PeerDied):
                receiving.result()

    @needs_numpy
    def test_all_memory_comes_back(self):
        arena = pinfold.Arena()
        for _ in range(50):
            self.other.send_object(self.to_one, [arena.zeros(20_000), arena.zeros(30_000)])
            received = self.one.recv_object(timeout=LIMIT_S)
            self.assertEqual(received[1].sum(), 0)
            del received
        gc.collect()
        for _ in range(3):
            self.one.progress()
            self.other.progress()
        self.assertEqual(arena.buffers, 0)


if __name__ == "__main__":
    unittest.main()
