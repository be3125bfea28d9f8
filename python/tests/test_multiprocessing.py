"""Queues, pipes and pools, by fork and by spawn."""

from __future__ import annotations

import os
import queue
import signal
import time
import unittest

import pinfold
import pinfold.multiprocessing as mp
from common import LIMIT_S, needs_numpy, numpy

METHODS = ("fork", "forkserver", "spawn")


def produce(channel, seed, count):
    for number in range(count):
        channel.put((seed, number, numpy.full(50_000, seed * 100 + number)))


def consume(channel, results):
    while True:
        item = channel.get(timeout=LIMIT_S)
        if item is None:
            return
        seed, number, array = item
        results.put((seed, number, bool((array == seed * 100 + number).all())))


def double(end):
    with end:
        while True:
            value = end.recv()
            if value is None:
                return
            end.send(value * 2)


def put_given(channel):
    array = pinfold.empty(100_000)
    array[:] = numpy.arange(100_000)
    channel.put(array)


def put_and_die(channel):
    channel.put(numpy.zeros(100_000))
    channel.close()
    channel.join_thread()
    os.kill(os.getpid(), signal.SIGKILL)


def total(array):
    return float(array.sum())


def negative(array):
    return -array


def fails(array):
    raise ValueError(f"an array of {array.size}")


class Queues(unittest.TestCase):
    @needs_numpy
    def test_many_put_and_many_get(self):
        for method in METHODS:
            with self.subTest(method):
                context = mp.get_context(method)
                channel, results = context.Queue(4), context.Queue()
                producers = [
                    context.Process(target=produce, args=(channel, seed, 6)) for seed in (1, 2)
                ]
                consumers = [
                    context.Process(target=consume, args=(channel, results)) for _ in range(2)
                ]
                for process in producers + consumers:
                    process.start()
                got = sorted(results.get(timeout=LIMIT_S) for _ in range(12))
                self.assertEqual(
                    got, [(seed, number, True) for seed in (1, 2) for number in range(6)]
                )
                for _ in consumers:
                    channel.put(None)
                for process in producers + consumers:
                    process.join(LIMIT_S)
                    self.assertEqual(process.exitcode, 0)

    @needs_numpy
    def test_an_array_of_an_arena_is_not_copied(self):
        context = mp.get_context("fork")
        channel = context.Queue()
        process = context.Process(target=put_given, args=(channel,))
        process.start()
        array = channel.get(timeout=LIMIT_S)
        memory = pinfold.memory.owner(array)[0]
        self.assertEqual((memory.receipt.path, memory.receipt.copied), ("handoff", 0))
        process.join(LIMIT_S)
        self.assertEqual(process.exitcode, 0)
        self.assertTrue((array == numpy.arange(100_000)).all())

    @needs_numpy
    def test_what_is_put_may_be_changed_after(self):
        channel = mp.Queue()
        array = numpy.zeros(100_000)
        channel.put(array)
        array[:] = 1
        self.assertEqual(channel.get(timeout=LIMIT_S).sum(), 0)

    def test_the_interface_is_the_standard_library_s(self):
        channel = mp.Queue(2)
        with self.assertRaises(queue.Empty):
            channel.get_nowait()
        with self.assertRaises(queue.Empty):
            channel.get(timeout=0.01)
        channel.put(1)
        channel.put_nowait({"two": 2})
        with self.assertRaises(queue.Full):
            channel.put_nowait(3)
        self.assertTrue(channel.full())
        self.assertEqual(channel.qsize(), 2)
        self.assertEqual(
            [channel.get(timeout=LIMIT_S), channel.get(timeout=LIMIT_S)], [1, {"two": 2}]
        )
        self.assertTrue(channel.empty())
        channel.close()
        channel.join_thread()

    @needs_numpy
    def test_what_a_killed_process_put_is_an_error(self):
        context = mp.get_context("fork")
        channel = context.Queue()
        process = context.Process(target=put_and_die, args=(channel,))
        process.start()
        process.join(LIMIT_S)
        self.assertEqual(process.exitcode, -signal.SIGKILL)
        with self.assertRaises(pinfold.PeerGone):
            channel.get(timeout=LIMIT_S)


class Pipes(unittest.TestCase):
    @needs_numpy
    def test_objects_go_both_ways(self):
        for method in METHODS:
            with self.subTest(method):
                context = mp.get_context(method)
                ours, theirs = context.Pipe()
                process = context.Process(target=double, args=(theirs,))
                process.start()
                theirs.close()
                for value in (21, "ab", numpy.arange(100_000)):
                    ours.send(value)
                    self.assertTrue(ours.poll(LIMIT_S))
                    self.assertTrue(numpy.array_equal(ours.recv(), value * 2))
                ours.send(None)
                process.join(LIMIT_S)
                self.assertEqual(process.exitcode, 0)
                with self.assertRaises(EOFError):
                    ours.recv()

    def test_one_way(self):
        receiver, sender = mp.Pipe(duplex=False)
        self.assertEqual(
            (receiver.readable, receiver.writable, sender.writable), (True, False, True)
        )
        self.assertFalse(receiver.poll())
        sender.send([1])
        self.assertEqual(receiver.recv(), [1])
        sender.send_bytes(b"raw")
        self.assertEqual(receiver.recv_bytes(), b"raw")
        self.assertGreaterEqual(receiver.fileno(), 0)
        sender.close()
        self.assertTrue(sender.closed)


class Pools(unittest.TestCase):
    @needs_numpy
    def test_arguments_and_results_are_arrays(self):
        arrays = [numpy.full(50_000, number, dtype=float) for number in range(8)]
        for method in METHODS:
            with self.subTest(method), mp.get_context(method).Pool(2) as pool:
                self.assertEqual(
                    pool.map(total, arrays), [50_000.0 * number for number in range(8)]
                )
                for number, array in enumerate(pool.imap(negative, arrays)):
                    self.assertTrue((array == -number).all())
                waiting = pool.apply_async(negative, (arrays[3],))
                self.assertEqual(waiting.get(LIMIT_S)[0], -3)
                with self.assertRaisesRegex(ValueError, "an array of 50000"):
                    pool.apply(fails, (arrays[0],))

    @needs_numpy
    def test_workers_that_end_hand_over_their_results(self):
        with mp.get_context("fork").Pool(2, maxtasksperchild=1) as pool:
            results = pool.map(negative, [numpy.full(50_000, n) for n in range(6)], chunksize=1)
            self.assertEqual([int(array[0]) for array in results], [0, -1, -2, -3, -4, -5])
            pool.close()
            pool.join()


class Loaders(unittest.TestCase):
    @needs_numpy
    def test_the_example_of_a_loader(self):
        import subprocess
        import sys

        from common import PYTHON

        program = PYTHON / "examples" / "loader.py"
        ran = subprocess.run(
            [sys.executable, str(program), "--batches", "24", "--workers", "3"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S * 2,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("24 batches, all as they should be; 24 came without a copy", ran.stdout)


if __name__ == "__main__":
    unittest.main()
