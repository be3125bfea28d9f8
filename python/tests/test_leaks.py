"""Nothing leaks: descriptors, mappings, references, memory, over many operations and deaths."""

from __future__ import annotations

import gc
import os
import sys
import time
import unittest

import pinfold
from common import LIMIT_S, Child, Pair, descriptors, fresh_name, mappings, needs_numpy, numpy

MANY = 100_000


def resident_kib() -> int:
    """Memory of this process, KiB."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class Leaks(unittest.TestCase):
    def test_a_hundred_thousand_operations(self):
        """Every kind of call, each in its turn, in one process; a tenth of them by memory given."""
        # Memory that was given and is back is taken back when this limit is near.
        with Pair(given_bytes_max=1 << 20) as pair:
            one, other, to_one = pair.one, pair.other, pair.to_one
            arena = pinfold.Arena()
            data, room = bytes(range(256)), bytearray(256)

            def turn(number: int) -> None:
                kind = number % 10
                if kind < 5:
                    other.send(to_one, data, kind)
                    assert one.recv(None, kind).nbytes == 256
                elif kind < 7:
                    other.send(to_one, data, kind)
                    one.recv_into(room, None, kind)
                elif kind == 7:
                    wanted = one.post_recv(tag=kind)
                    other.send(to_one, data, kind)
                    assert memoryview(wanted.wait()).nbytes == 256
                    one.post_recv(tag=99)  # dropped at once
                elif kind == 8:
                    other.handoff(to_one, arena.alloc(5000), kind)
                    memoryview(one.recv_view(None, kind))
                else:
                    try:
                        one.recv_into(room, None, 98, 0)
                    except pinfold.Timeout:
                        pass

            for number in range(5000):
                turn(number)
            gc.collect()
            counts = (sys.getrefcount(data), sys.getrefcount(room))
            before = (descriptors(), mappings(), len(gc.get_objects()), resident_kib())
            for number in range(MANY):
                turn(number)
            gc.collect()
            after = (descriptors(), mappings(), len(gc.get_objects()), resident_kib())
            self.assertEqual((sys.getrefcount(data), sys.getrefcount(room)), counts)
            self.assertEqual(room, data)
            self.assertLessEqual(after[0], before[0])
            self.assertLessEqual(after[1], before[1] + 4)
            self.assertLessEqual(after[2], before[2] + 50)
            # An object of 50 bytes an operation would be 5 MB.
            self.assertLess(after[3] - before[3], 4000)
            for _ in range(20):
                one.progress()
                other.progress()
            self.assertEqual(arena.buffers, 0)

    def test_a_hundred_thousand_operations_on_memory_and_handlers(self):
        """Remote memory, atomic operations, calls and requests, each in its turn; some that fail,
        and a hundredth on memory that is made and opened for it."""
        with Pair() as pair:
            one, other, to_one = pair.one, pair.other, pair.to_one
            data, room, own = bytes(range(256)), bytearray(256), bytearray(4096)

            def ended(request):
                while True:
                    one.progress()
                    result = request.try_wait()
                    if result is not None:
                        return result

            kept, called = [], [0]

            def handler(active):
                called[0] += 1
                if active.data:
                    raise KeyError("on purpose")
                return data

            one.handle(1, handler)
            one.handle(2, kept.append)
            region = one.region(4096, writable=True)
            registered = one.register(own, writable=True)
            remotes = [
                ended(other.post_open_region(to_one, memory.key)) for memory in (region, registered)
            ]

            def turn(number: int) -> None:
                kind, remote = number % 10, remotes[number // 10 % 2]
                if kind < 3:
                    remote.write(number % 1000, data)
                    assert remote.read(number % 1000, 256) == data
                elif kind == 3:
                    remote.read_into(0, room)
                    remote.post_write(0, data).wait()
                elif kind == 4:
                    remotes[0].fetch_add(4000, 1)
                    region.fetch_add(4000, 1, "u32")
                elif kind == 5:
                    registered.fetch_add(4000, 1)
                    try:
                        remote.write(4000, data)
                    except pinfold.OutOfBounds:
                        pass
                elif kind == 6:
                    assert bytes(ended(other.post_ask(to_one, 1))) == data
                elif kind == 7:
                    try:
                        ended(other.post_ask(to_one, 1, b"fail"))
                    except pinfold.NotHandled:
                        pass
                elif kind == 8:
                    other.call(to_one, 2, data)
                    other.post_ask(to_one, 2, data)  # dropped at once
                    while len(kept) < 2:
                        one.progress()
                    kept.clear()
                elif number % 1000 == 9:
                    fresh = one.region(100)
                    ended(other.post_open_region(to_one, fresh.key)).read(0, 100)
                    exposed = one.register(bytearray(100))
                    ended(other.post_open_space(to_one, exposed.key))
                    exposed.revoke()

            errors = [0]

            def count(report) -> None:
                errors[0] += 1

            before_hook, sys.unraisablehook = sys.unraisablehook, count
            self.addCleanup(setattr, sys, "unraisablehook", before_hook)
            for number in range(5000):
                turn(number)
            gc.collect()
            counts = [sys.getrefcount(it) for it in (data, room, own, handler)]
            before = (descriptors(), mappings(), len(gc.get_objects()), resident_kib())
            errors[0] = called[0] = 0
            for number in range(MANY):
                turn(number)
            gc.collect()
            after = (descriptors(), mappings(), len(gc.get_objects()), resident_kib())
            self.assertEqual([sys.getrefcount(it) for it in (data, room, own, handler)], counts)
            self.assertEqual((called[0], errors[0]), (MANY // 5, MANY // 10))
            self.assertEqual(own[:256], data)
            self.assertLessEqual(after[0], before[0])
            self.assertLessEqual(after[1], before[1] + 4)
            self.assertLessEqual(after[2], before[2] + 50)
            self.assertLess(after[3] - before[3], 4000)

    def test_endpoints_come_and_go(self):
        def turn() -> None:
            with Pair() as pair:
                pair.other.handoff(pair.to_one, pinfold.Arena().alloc(100_000))
                pair.one.recv_view(timeout=LIMIT_S)

        for _ in range(20):
            turn()
        gc.collect()
        before = (descriptors(), mappings())
        for _ in range(200):
            turn()
        gc.collect()
        self.assertLessEqual(descriptors(), before[0] + 1)
        self.assertLessEqual(mappings(), before[1] + 8)

    @needs_numpy
    def test_arrays_of_dead_peers(self):
        """A peer is killed at another point of its work each time: what it gave stays good, and all
        of it is gone when the last array is."""
        program = """
import os, sys, pinfold, numpy
arena = pinfold.Arena()
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
sys.stdin.readline()
step, last = 0, int(sys.argv[2])
def point():
    global step
    if step == last:
        os.kill(os.getpid(), 9)
    step += 1
point()
endpoint.send(peer, b"begin")
point()
array = arena.empty(100_000)
array[:] = 7
point()
request = endpoint.post_send(peer, numpy.full(500_000, 7.0), 1)
point()
endpoint.handoff(peer, array, 2)
point()
endpoint.send_object(peer, [arena.zeros(10_000), numpy.zeros(10_000)], 3)
request.wait()
point()
endpoint.recv(peer)
"""
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint:

            def turn(last: int) -> int:
                with Child(program, name, str(last)) as child:
                    peer = endpoint.accept(LIMIT_S)
                    child.say("go")
                    got = 0
                    try:
                        endpoint.recv(peer, 0, LIMIT_S)
                        got += 1
                        room = numpy.zeros(500_000)
                        endpoint.recv_into(room, peer, 1, LIMIT_S)
                        got += 1
                        array = endpoint.recv_view(peer, 2, LIMIT_S).array("f8")
                        got += 1
                        endpoint.recv_object(peer, 3, LIMIT_S)
                        got += 1
                        endpoint.recv(peer, 4, LIMIT_S)
                    except pinfold.PeerGone:
                        pass
                    if got >= 2:
                        self.assertTrue((room == 7).all())
                    if got >= 3:
                        self.assertTrue((array == 7).all())
                    status, _, err = child.finish()
                    self.assertEqual(status, -9, err)
                    return got

            turn(5)
            gc.collect()
            before = (descriptors(), mappings())
            got = [turn(last) for last in range(6)]
            gc.collect()
            time.sleep(0.05)
            endpoint.progress()
            # In between it depends on who is faster.
            self.assertEqual((got[0], got[5]), (0, 4))
            self.assertLessEqual(descriptors(), before[0])
            self.assertLessEqual(mappings(), before[1] + 8)


if __name__ == "__main__":
    unittest.main()
