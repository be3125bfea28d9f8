"""Memory that peers read, write and change by atomic operations."""

from __future__ import annotations

import array
import gc
import itertools
import os
import random
import sys
import threading
import unittest

import pinfold
from common import LIMIT_S, Child, Pair, Running, descriptors, fresh_name, mappings
from common import needs_numpy, numpy

OWNER = """
import os, sys, threading, pinfold, numpy
endpoint = pinfold.Endpoint(dedicated_progress=True, label="owner")
peer = endpoint.connect(sys.argv[1])
kind = sys.argv[2]
if kind == "region":
    memory = endpoint.region(1 << 20, writable=True)
    memory.write(bytes(range(256)) * 4096)
else:
    array = pinfold.empty(1 << 20, "u1") if kind == "arena" else numpy.empty(1 << 20, "u1")
    array[:] = numpy.frombuffer(bytes(range(256)) * 4096, "u1")
    memory = endpoint.register(array, writable=True)
endpoint.send(peer, memory.key, 1)
for line in sys.stdin:
    if line == "revoke\\n":
        memory.revoke()
    elif line == "word\\n":
        print(memory.fetch_add(8, 0), flush=True)
        continue
    print("done", flush=True)
"""
"""A program that owns 1 MiB, of the kind that its second argument says, and does as it is told."""


class Owned(unittest.TestCase):
    """What the owner does, and what makes no sense."""

    def setUp(self) -> None:
        self.endpoint = pinfold.Endpoint()
        self.addCleanup(self.endpoint.close)

    def test_a_region_is_memory_of_zeros(self):
        region = self.endpoint.region(1001)
        self.assertEqual((len(region), region.nbytes, region.writable), (1001, 1001, False))
        self.assertEqual(region.read(), bytes(1001))
        region.write(b"abc", 998)
        self.assertEqual((region.read(998), region.read(997, 2)), (b"abc", b"\0a"))
        room = bytearray(4)
        region.read_into(room, 997)
        self.assertEqual(room, b"\0abc")
        self.assertEqual(len(region.key), 24)
        self.assertIn("1001 bytes", repr(region))

    def test_its_owner_changes_words_as_a_plain_oracle_does(self):
        region = self.endpoint.region(64, writable=True)
        registered = self.endpoint.register(bytearray(64), writable=True)
        draw = random.Random(5)
        for memory, (word, bits, is_signed) in itertools.product(
            (region, registered),
            (("u32", 32, False), ("u64", 64, False), ("i32", 32, True), ("i64", 64, True)),
        ):
            low = -(1 << (bits - 1)) if is_signed else 0
            high = low + (1 << bits) - 1
            at, there = 16, 0
            memory.swap(at, 0, word)
            for _ in range(200):
                name, value = draw.choice(list(ORACLE)), draw.choice((low, high, 1, 0))
                value = draw.choice((value, draw.randint(low, high)))
                was = getattr(memory, name)(at, value, word)
                self.assertEqual(was, there, (name, word))
                there = (ORACLE[name](there, value) - low) % (1 << bits) + low
            self.assertEqual(memory.compare_swap(at, there, low, word), there)
            if low != high:
                self.assertEqual(memory.compare_swap(at, high, 7, word), low)
            self.assertEqual(memory.fetch_or(at, 0, word), low)

    def test_what_makes_no_sense_is_refused(self):
        region = self.endpoint.region(64, writable=True)
        for wrong, error in (
            (lambda: self.endpoint.region(0), ValueError),
            (lambda: self.endpoint.region(-1), OverflowError),
            (lambda: self.endpoint.region(1 << 60), pinfold.Error),
            (lambda: region.read(60, 5), pinfold.OutOfBounds),
            (lambda: region.read(sys.maxsize, sys.maxsize), pinfold.OutOfBounds),
            (lambda: region.read(-1), OverflowError),
            (lambda: region.write(b"12345", 60), IndexError),
            (lambda: region.write("text"), TypeError),
            (lambda: region.read_into(b"12345"), BufferError),
            (lambda: region.fetch_add(64, 1), pinfold.OutOfBounds),
            (lambda: region.fetch_add(4, 1), pinfold.Misaligned),
            (lambda: region.fetch_add(4, 1, "u16"), ValueError),
            (lambda: region.fetch_add(0, -1), OverflowError),
            (lambda: region.fetch_add(0, 1 << 32, "u32"), OverflowError),
            (lambda: region.fetch_add(0, "one"), TypeError),
            (lambda: self.endpoint.register("text"), TypeError),
            (lambda: self.endpoint.register(b"fixed", writable=True), BufferError),
            (lambda: self.endpoint.register(memoryview(b"abcd")[::2]), BufferError),
            (lambda: self.endpoint.open_region(7, bytes(24)), pinfold.UnknownPeer),
            (lambda: self.endpoint.open_region(7, bytes(23)), pinfold.BadKey),
            (lambda: self.endpoint.open_space(7, "key"), TypeError),
        ):
            with self.assertRaises(error):
                wrong()
        self.assertEqual(region.read(), bytes(64))
        read_only = self.endpoint.register(bytes(16))
        with self.assertRaises(pinfold.ReadOnly):
            read_only.fetch_add(0, 1)
        for kind in (pinfold.Region, pinfold.Registered, pinfold.Remote, pinfold.Active):
            with self.assertRaises(TypeError):
                kind()

    def test_memory_that_is_registered_stays(self):
        room = bytearray(100)
        registered = self.endpoint.register(room, writable=True)
        with self.assertRaises(BufferError):
            room.extend(b"more")
        self.assertEqual(registered.fetch_add(8, 3), 0)
        self.assertEqual(room[8], 3)
        registered.revoke()
        registered.revoke()
        room.extend(b"more")
        self.assertIsNone(registered.key)
        self.assertIn("revoked", repr(registered))
        with self.assertRaises(pinfold.Revoked):
            registered.fetch_add(8, 1)

    def test_a_region_is_its_owners_when_the_endpoint_is_closed(self):
        region, registered = self.endpoint.region(64), self.endpoint.register(bytearray(8))
        region.write(b"still")
        self.endpoint.close()
        self.assertEqual(region.read(0, 5), b"still")
        registered.revoke()
        for call in (lambda: self.endpoint.region(64), lambda: self.endpoint.register(b"x")):
            with self.assertRaises(pinfold.Closed):
                call()


ORACLE = {
    "fetch_add": lambda was, by: was + by,
    "fetch_and": lambda was, bits: was & bits,
    "fetch_or": lambda was, bits: was | bits,
    "fetch_xor": lambda was, bits: was ^ bits,
    "fetch_min": min,
    "fetch_max": max,
    "swap": lambda was, value: value,
}


class Used(unittest.TestCase):
    """What a peer in another process does."""

    def open(self, child, name, kind, by_address=False):
        endpoint = pinfold.Endpoint(name)
        self.addCleanup(endpoint.close)
        process = child(name, kind)
        self.addCleanup(process.__exit__)
        peer = endpoint.accept(LIMIT_S)
        key = endpoint.recv(peer, 1, LIMIT_S)
        opening = endpoint.open_space if by_address else endpoint.open_region
        remote = opening(peer, key, LIMIT_S)
        return endpoint, process, peer, key, remote

    def owner(self, kind, by_address=False):
        return self.open(lambda *args: Child(OWNER, *args), fresh_name(), kind, by_address)

    @needs_numpy
    def test_memory_of_each_kind_is_read_written_and_changed(self):
        content = bytes(range(256)) * 4096
        for kind, by_address in itertools.product(("region", "arena", "heap"), (False, True)):
            with self.subTest(kind, by_address=by_address):
                _, process, peer, _, remote = self.owner(kind, by_address)
                base = remote.address if by_address else 0
                self.assertEqual((remote.nbytes, remote.peer), (1 << 20, peer))
                self.assertTrue(remote.writable)
                if kind == "region":
                    self.assertEqual((remote.path, remote.why_not_mapped), ("mapped", None))
                self.assertEqual(remote.read(base, 1 << 20), content)
                self.assertEqual(remote.read(base + 77, 3), b"MNO")
                self.assertEqual(remote.read(base, 0), b"")
                room = bytearray(5000)
                receipt = remote.read_into(base + 1000, room)
                self.assertEqual(room, content[1000:6000])
                self.assertEqual(receipt.bytes, 5000)
                data = os.urandom(300_000)
                self.assertEqual(remote.write(base + 100_000, data).bytes, 300_000)
                self.assertEqual(remote.post_write(base + 90_001, b"odd").wait().bytes, 3)
                remote.flush()
                self.assertEqual(remote.read(base + 100_000, 300_000), data)
                remote.post_read_into(base + 90_000, room).wait()
                self.assertEqual(room[:5], b"\x90odd\x94")
                remote.write(base + 8, (40).to_bytes(8, "little"))
                self.assertEqual(remote.fetch_add(base + 8, 2), 40)
                self.assertEqual(remote.post_fetch_add(base + 8, 1).wait(), 42)
                self.assertEqual(remote.post_compare_swap(base + 8, 43, 50).wait(), 43)
                self.assertEqual(remote.fetch_min(base + 8, -5, "i64"), 50)
                self.assertEqual(remote.swap(base + 8, 9, "i64"), -5)
                process.say("word")
                self.assertEqual(process.line(), "9")

    @needs_numpy
    def test_bounds_rights_and_keys_hold(self):
        for kind in ("region", "heap"):
            endpoint, process, peer, key, remote = self.owner(kind)
            for wrong in (
                lambda: remote.read((1 << 20) - 2, 3),
                lambda: remote.read(0, (1 << 20) + 1),
                lambda: remote.write(1 << 20, b"x"),
                lambda: remote.write((1 << 64) - 1, b"xy"),
                lambda: remote.read_into(1 << 40, bytearray(1)),
                lambda: remote.fetch_add(1 << 20, 1),
                lambda: remote.post_write(1 << 20, b"x").wait(),
            ):
                with self.assertRaises(pinfold.OutOfBounds):
                    wrong()
            for wrong, error in (
                (lambda: remote.fetch_add(4, 1), pinfold.Misaligned),
                (lambda: remote.fetch_add(2, 1, "i32"), pinfold.Misaligned),
                (lambda: remote.write(-1, b""), OverflowError),
                (lambda: remote.write(0, 7), TypeError),
                (lambda: remote.read_into(0, b"fixed"), BufferError),
            ):
                with self.assertRaises(error):
                    wrong()
            forged = bytes(key)[:-1] + bytes([bytes(key)[-1] ^ 1])
            with self.assertRaises(pinfold.BadKey):
                endpoint.open_region(peer, forged, LIMIT_S)
            self.assertEqual(remote.read(0, 4), b"\0\1\2\3")

    @needs_numpy
    def test_rights_to_read_are_no_rights_to_write(self):
        with Pair() as pair:
            region = pair.one.region(100)
            registered = pair.one.register(numpy.zeros(100, "u1"))
            for memory in (region, registered):
                opening = pair.other.post_open_region(pair.to_one, memory.key)
                remote = self.ended(pair, opening)
                self.assertFalse(remote.writable)
                self.assertEqual(remote.read(0, 100), bytes(100))
                for wrong in (lambda: remote.write(0, b"x"), lambda: remote.fetch_add(0, 1)):
                    with self.assertRaises(pinfold.ReadOnly):
                        wrong()

    @staticmethod
    def ended(pair, request):
        """The result of a request whose other side is in this thread, too."""
        for _ in range(100_000):
            pair.one.progress()
            result = request.try_wait()
            if result is not None:
                return result
        raise AssertionError("the request does not end")

    @needs_numpy
    def test_revoked_memory_is_used_no_more(self):
        for kind in ("region", "arena", "heap"):
            with self.subTest(kind):
                endpoint, process, peer, key, remote = self.owner(kind)
                remote.write(0, b"before")
                process.say("revoke")
                self.assertEqual(process.line(), "done")
                for wrong in (
                    lambda: remote.write(0, b"after"),
                    lambda: remote.read(0, 5),
                    lambda: remote.fetch_add(0, 1),
                    lambda: remote.flush(),
                ):
                    with self.assertRaises(pinfold.Revoked):
                        wrong()
                with self.assertRaises(pinfold.BadKey):
                    endpoint.open_region(peer, key, LIMIT_S)

    def test_a_region_that_was_revoked_is_exposed_by_another_key(self):
        with Pair() as pair:
            region = pair.one.region(16, writable=True)
            first = region.key
            remote = self.ended(pair, pair.other.post_open_region(pair.to_one, first))
            remote.write(0, b"kept")
            region.revoke()
            self.assertIsNone(region.key)
            self.assertEqual(region.read(0, 4), b"kept")
            self.assertEqual(region.expose(), region.key)
            self.assertNotEqual(region.key, first)
            with self.assertRaises(pinfold.Revoked):
                remote.read(0, 4)
            remote = self.ended(pair, pair.other.post_open_region(pair.to_one, region.key))
            self.assertEqual(remote.read(0, 4), b"kept")

    @needs_numpy
    def test_a_dead_owner_is_an_error(self):
        for kind, by_address in itertools.product(("region", "arena", "heap"), (False, True)):
            with self.subTest(kind, by_address=by_address):
                endpoint, process, peer, key, remote = self.owner(kind, by_address)
                base = remote.address if by_address else 0
                remote.write(base, b"before")
                process.kill()
                with self.assertRaises(pinfold.PeerGone):
                    endpoint.recv(peer, 99, LIMIT_S)
                for wrong in (
                    lambda: remote.write(base, b"after"),
                    lambda: remote.read(base, 100_000),
                    lambda: remote.fetch_add(base, 1),
                    lambda: remote.post_fetch_add(base, 1).wait(),
                ):
                    with self.assertRaises((pinfold.PeerGone, pinfold.Withdrawn)):
                        wrong()
                with self.assertRaises((pinfold.PeerGone, pinfold.UnknownPeer)):
                    endpoint.open_region(peer, key, LIMIT_S)

    def test_a_closed_endpoint_has_no_peers_memory(self):
        with Pair() as pair:
            region = pair.one.region(16, writable=True)
            remote = self.ended(pair, pair.other.post_open_region(pair.to_one, region.key))
            pair.other.close()
            for wrong in (lambda: remote.read(0, 4), lambda: remote.write(0, b"x")):
                with self.assertRaises(pinfold.Closed):
                    wrong()
            self.assertEqual(remote.nbytes, 16)

    def test_everything_goes_in_any_order(self):
        def turn(order) -> None:
            pair = Pair()
            things = {"pair": pair, "region": pair.one.region(4096, writable=True)}
            things["room"] = bytearray(4096)
            things["registered"] = pair.one.register(things["room"], writable=True)
            for name in ("region", "registered"):
                opening = pair.other.post_open_region(pair.to_one, things[name].key)
                things[name + " there"] = self.ended(pair, opening)
                things[name + " there"].write(5, b"x")
            things["opening"] = pair.other.post_open_region(pair.to_one, things["region"].key)
            del pair, opening
            for name in order:
                if name == "pair":
                    things["pair"].one.close()
                    things["pair"].other.close()
                del things[name]
                gc.collect()

        names = ["pair", "region", "room", "registered", "region there", "registered there"]
        names.append("opening")
        draw = random.Random(7)
        turn(names)
        gc.collect()
        before = (descriptors(), mappings())
        for _ in range(60):
            draw.shuffle(names)
            turn(names)
        gc.collect()
        self.assertLessEqual(descriptors(), before[0])
        self.assertLessEqual(mappings(), before[1] + 8)

    def test_words_of_many_are_of_one_order(self):
        """Two processes and two threads of this one add to the same word."""
        program = """
import sys, pinfold
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
remote = endpoint.open_region(peer, endpoint.recv(peer))
for _ in range(5000):
    remote.fetch_add(8, 1)
    remote.fetch_add(16, 1, "u32")
endpoint.send(peer, b"done", 2)
endpoint.recv(peer)
"""
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint:
            region = endpoint.region(24, writable=True)

            def add() -> None:
                for _ in range(5000):
                    region.fetch_add(8, 1)
                    region.fetch_add(16, 1, "u32")

            with Child(program, name), Child(program, name):
                peers = [endpoint.accept(LIMIT_S) for _ in range(2)]
                for peer in peers:
                    endpoint.send(peer, region.key)
                threads = [Running(add) for _ in range(2)]
                for peer in peers:
                    endpoint.recv(peer, 2, LIMIT_S)
                for thread in threads:
                    thread.result()
            words = array.array("Q", region.read())
            self.assertEqual(words.tolist(), [0, 20_000, 20_000])

    def test_threads_use_and_revoke_at_the_same_time(self):
        """Each read has succeeded before the end, or failed as revoked; nothing else happens."""
        with Pair(dedicated_progress=True) as pair:
            for _ in range(20):
                region = pair.one.region(8192, writable=True)
                remote = pair.other.open_region(pair.to_one, region.key, LIMIT_S)
                began = threading.Barrier(3)

                def use() -> str:
                    began.wait(LIMIT_S)
                    while True:
                        try:
                            remote.write(0, bytes(8192))
                            region.fetch_add(0, 0)
                        except pinfold.Revoked:
                            return "revoked"

                users = [Running(use) for _ in range(2)]
                began.wait(LIMIT_S)
                region.revoke()
                self.assertEqual([user.result() for user in users], ["revoked"] * 2)
                self.assertEqual(region.read(), bytes(8192))


if __name__ == "__main__":
    unittest.main()
