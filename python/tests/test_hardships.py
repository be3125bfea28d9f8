"""Machines that take things away: calls that are denied, little /dev/shm, a user without rights."""

from __future__ import annotations

import itertools
import os
import unittest

import pinfold
from common import LIMIT_S, Child, descriptors, fresh_name, mappings, needs_numpy

HARDSHIPS = """
import ctypes, errno, os, struct, sys
import numpy, pickle, pinfold, pinfold.objects
libc = ctypes.CDLL(None, use_errno=True)

def done(status):
    if status != 0:
        raise OSError(ctypes.get_errno(), "the hardship cannot be made")

def deny(*calls):
    # A filter of system calls, by their numbers on x86-64.
    def step(code, k, jt=0, jf=0):
        return struct.pack("HBBI", code, jt, jf, k)
    steps = [step(0x20, 0)]
    for call in calls:
        steps += [step(0x15, call, 0, 1), step(0x06, 0x00050000 | errno.EPERM)]
    steps.append(step(0x06, 0x7FFF0000))
    program = ctypes.create_string_buffer(b"".join(steps))
    head = struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(program))
    done(libc.prctl(38, 1, 0, 0, 0))
    done(libc.prctl(22, 2, ctypes.c_char_p(head), 0, 0))

def hardship(name):
    if name == "little shm":
        done(libc.unshare(0x00020000))
        done(libc.mount(b"none", b"/", None, 0x44000, None))
        done(libc.mount(b"shm", b"/dev/shm", b"tmpfs", 0, b"size=64m"))
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 64 << 20
    elif name == "nobody":
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            open("/etc/shadow")
        except PermissionError:
            pass
        else:
            raise AssertionError("nobody can read it")
    elif name == "cma":
        deny(310, 311)
    elif name == "container":
        deny(310, 311, 323, 324, 425, 426, 427, 434)

def content(length, seed):
    return (numpy.arange(length, dtype="u4") * 2654435761 + seed).astype("u1").tobytes()

LENGTHS = (0, 8, 56, 57, 5000, 65_537, 300_000, (4 << 20) + 1)
for one in sys.argv[2].split():
    hardship(one.replace("_", " "))
"""
"""The beginning of both programs: what their second argument names is taken away."""

ASKER = HARDSHIPS + """
with pinfold.Endpoint() as endpoint:
    peer = endpoint.connect("local:" + sys.argv[1], timeout=60)
    for length in LENGTHS:
        endpoint.send(peer, content(length, length), 1, 60)
    arena = pinfold.Arena()
    # More than /dev/shm has, at a time.
    given = [arena.empty(24 << 20, "u1") for _ in range(4)]
    for number, array in enumerate(given):
        array[:] = number
        endpoint.handoff(peer, array, 2, 60)
    endpoint.send_object(peer, {"own": numpy.arange(100_000), "arena": arena.zeros(50_000)}, 3, 60)
    remotes = [endpoint.open_region(peer, endpoint.recv(peer, 4, 60), 60) for _ in range(2)]
    for remote in remotes:
        remote.write(1001, content(200_000, 5))
        assert remote.read(1001, 200_000) == content(200_000, 5)
        # Where a word of other memory cannot be changed the error says so.
        try:
            for by in range(10):
                assert remote.fetch_add(8, by) == sum(range(by))
        except pinfold.PathRefused as error:
            assert "kernel" in str(error) or "process" in str(error), error
    assert bytes(endpoint.ask(peer, 7, b"abc", 60)) == b"cba"
    endpoint.send(peer, b"", 5, 60)
    endpoint.recv(peer, 6, 60)
    print("fine", sorted({remote.path for remote in remotes}), flush=True)
"""

ANSWERER = HARDSHIPS + """
handlers = {7: lambda active: active.data[::-1]}
with pinfold.Endpoint(sys.argv[1], dedicated_progress=True, handlers=handlers) as endpoint:
    print("ready", flush=True)
    peer, paths = endpoint.accept(60), set()
    for length in LENGTHS:
        message = endpoint.recv(peer, 1, 60)
        assert bytes(message) == content(length, length)
        paths.add(message.receipt.path)
    views = [endpoint.recv_view(peer, 2, 60) for _ in range(4)]
    for number, view in enumerate(views):
        assert view.receipt.path == "handoff" and (view.array() == number).all()
    value = endpoint.recv_object(peer, 3, 60)
    assert (value["own"] == numpy.arange(100_000)).all() and not value["arena"].any()
    region = endpoint.region(1 << 20, writable=True)
    array = numpy.zeros(1 << 20, "u1")
    registered = endpoint.register(array, writable=True)
    endpoint.send(peer, region.key, 4, 60)
    endpoint.send(peer, registered.key, 4, 60)
    endpoint.recv(peer, 5, 60)
    assert region.read(1001, 200_000) == content(200_000, 5)
    assert array[1001:201_001].tobytes() == content(200_000, 5)
    endpoint.send(peer, b"", 6, 60)
    endpoint.drain(60)
    print("fine", sorted(paths), flush=True)
"""


@needs_numpy
class Hardships(unittest.TestCase):
    def both(self, hardships: str) -> list:
        """Runs both programs under hardships: the paths of long messages and of remote memory."""
        name = fresh_name()
        with Child(ANSWERER, name, hardships) as answerer:
            first = answerer.line()
            if first != "ready":
                status, _, err = answerer.finish()
                if "cannot be made" in err:
                    self.skipTest(f"{hardships}: {err.strip().splitlines()[-1]}")
                self.fail(err)
            with Child(ASKER, name, hardships) as asker:
                told = []
                for child in (asker, answerer):
                    status, out, err = child.finish()
                    self.assertEqual((status, out[:4]), (0, "fine"), err)
                    told.append(out)
        return told

    @unittest.skipIf(os.uname().machine != "x86_64", "the filter is for x86-64")
    def test_the_kernels_copies_are_denied(self):
        _, before = self.both("")
        if "cma" not in before:
            self.skipTest("the kernel copies nothing here anyway")
        _, paths = self.both("cma")
        self.assertNotIn("cma", paths)

    @unittest.skipIf(os.uname().machine != "x86_64", "the filter is for x86-64")
    def test_the_calls_of_a_container_are_denied(self):
        _, paths = self.both("container")
        self.assertNotIn("cma", paths)

    @unittest.skipIf(os.geteuid() != 0, "only root can mount")
    def test_little_shared_memory(self):
        self.both("little_shm")

    @unittest.skipIf(os.geteuid() != 0, "only root can become nobody")
    def test_nobody(self):
        self.both("nobody")

    @unittest.skipIf(os.geteuid() != 0, "only root can become nobody")
    @unittest.skipIf(os.uname().machine != "x86_64", "the filter is for x86-64")
    def test_all_of_these_at_once(self):
        self.both("little_shm nobody container")


class Killed(unittest.TestCase):
    def test_an_owner_is_killed_at_any_time(self):
        """Between all steps of regions and requests: what had ended had its effect, the rest are
        errors, and nothing is left."""
        program = """
import os, sys, pinfold
step, last = 0, int(sys.argv[2])
def point():
    global step
    if step == last:
        os.kill(os.getpid(), 9)
    step += 1
def handler(active):
    point()
    active.reply(active.data)
    point()
endpoint = pinfold.Endpoint(handlers={1: handler})
peer = endpoint.connect(sys.argv[1])
point()
region = endpoint.region(1 << 16, writable=True)
registered = endpoint.register(bytearray(1 << 16), writable=True)
point()
endpoint.send(peer, region.key)
endpoint.send(peer, registered.key)
point()
endpoint.recv(peer, 2)
point()
region.revoke()
point()
endpoint.send(peer, b"revoked", 3)
point()
registered.revoke()
endpoint.recv(peer)
"""
        name = fresh_name()
        with pinfold.Endpoint(name) as endpoint:

            def turn(last: int) -> int:
                got = 0
                with Child(program, name, str(last)) as child:
                    peer = endpoint.accept(LIMIT_S)
                    try:
                        keys = [endpoint.recv(peer, 0, LIMIT_S) for _ in range(2)]
                        remotes = [endpoint.open_region(peer, key, LIMIT_S) for key in keys]
                        got = 1
                        for remote in remotes:
                            remote.write(3, b"abc")
                            self.assertEqual(remote.read(2, 5), b"\0abc\0")
                        got = 2
                        self.assertEqual(bytes(endpoint.ask(peer, 1, b"it", LIMIT_S)), b"it")
                        got = 3
                        endpoint.send(peer, b"", 2)
                        endpoint.recv(peer, 3, LIMIT_S)
                        got = 4
                        with self.assertRaises(pinfold.Error):
                            remotes[0].read(0, 1)
                    except (pinfold.PeerGone, pinfold.Withdrawn, pinfold.UnknownPeer):
                        pass
                    if got < 4:
                        self.assertEqual(child.finish()[0], -9)
                return got

            turn(8)
            before = (descriptors(), mappings())
            got = [turn(last) for last in itertools.chain(range(8), (99,))]
            self.assertEqual((got[0], got[-1]), (0, 4))
            self.assertEqual(sorted(got), got)
            endpoint.progress()
            self.assertLessEqual(descriptors(), before[0])
            self.assertLessEqual(mappings(), before[1] + 8)


if __name__ == "__main__":
    unittest.main()
