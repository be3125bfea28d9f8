"""Arrow data: record batches and tables, over views, without a copy at the receiver."""

from __future__ import annotations

import asyncio
import gc
import unittest

import pinfold
import pinfold.aio
from common import LIMIT_S, Child, Pair, Running, fresh_name

try:
    import pyarrow
except ImportError:
    pyarrow = None


class Without(unittest.TestCase):
    def test_without_pyarrow_the_error_names_it(self):
        program = """
import sys
sys.modules["pyarrow"] = None
import pinfold, pinfold.arrow
for call in (lambda: pinfold.arrow.pack([]), lambda: pinfold.arrow.unpack(b"")):
    try:
        call()
    except ImportError as error:
        assert "pyarrow" in str(error)
    else:
        raise AssertionError
print("fine")
"""
        with Child(program) as child:
            self.assertEqual(child.finish()[:2], (0, "fine\n"))


@unittest.skipIf(pyarrow is None, "pyarrow is not installed")
class Arrow(unittest.TestCase):
    def batch(self, rows: int = 1000):
        """One of many kinds: with nulls, strings, lists, a dictionary, a slice."""
        return pyarrow.record_batch(
            {
                "number": pyarrow.array(range(rows), "int64"),
                "half": pyarrow.array([None if n % 7 == 0 else n / 2 for n in range(rows)]),
                "text": pyarrow.array([f"row {n}" for n in range(rows)]),
                "list": pyarrow.array([list(range(n % 4)) for n in range(rows)]),
                "kind": pyarrow.array([f"kind {n % 3}" for n in range(rows)]).dictionary_encode(),
                "part": pyarrow.array(range(2 * rows)).slice(rows // 2, rows),
            }
        )

    @staticmethod
    def addresses(array) -> list:
        return [buffer.address for buffer in array.buffers() if buffer is not None]

    def test_a_buffer_over_a_view_is_no_copy(self):
        with Pair() as pair:
            buffer = pinfold.Arena().alloc(64)
            memoryview(buffer)[:] = bytes(range(64))
            pair.other.handoff(pair.to_one, buffer)
            view = pair.one.recv_view(timeout=LIMIT_S)
            seen = pyarrow.py_buffer(view)
            self.assertEqual((seen.address, seen.size), (view.address, 64))
            self.assertFalse(seen.is_mutable)
            floats = pyarrow.Array.from_buffers(pyarrow.uint8(), 64, [None, seen])
            del view, seen
            gc.collect()
            self.assertEqual(floats.to_pylist(), list(range(64)))

    def test_batches_and_tables_arrive_where_they_were_written(self):
        with Pair() as pair:
            batch = self.batch()
            for data in (batch, pyarrow.Table.from_batches([batch, batch]), batch.slice(10, 0)):
                pair.other.send_arrow(pair.to_one, data, 4)
                view = pair.one.recv_view(pair.to_other, 4, LIMIT_S)
                self.assertEqual((view.receipt.path, view.receipt.copied), ("handoff", 0))
                begin, end = view.address, view.address + view.nbytes
                received = pinfold.arrow.unpack(view)
                del view
                gc.collect()
                received.validate(full=True)
                self.assertIs(type(received), type(data))
                self.assertTrue(received.equals(data))
                self.assertEqual(received.schema, data.schema)
                for column in received.columns:
                    chunks = getattr(column, "chunks", [column])
                    for address in sum(map(self.addresses, chunks), []):
                        self.assertTrue(begin <= address < end or received.num_rows == 0)

    def test_anything_with_the_capsule_interface_is_taken(self):
        class OfArray:
            def __init__(self, batch):
                self.batch = batch

            def __arrow_c_array__(self, requested_schema=None):
                return self.batch.__arrow_c_array__(requested_schema)

        class OfStream:
            def __init__(self, table):
                self.table = table

            def __arrow_c_stream__(self, requested_schema=None):
                return self.table.__arrow_c_stream__(requested_schema)

        batch = self.batch(50)
        table = pyarrow.Table.from_batches([batch, batch])
        with Pair() as pair:
            pair.other.send_arrow(pair.to_one, OfArray(batch))
            self.assertTrue(pair.one.recv_arrow(timeout=LIMIT_S).equals(batch))
            pair.other.send_arrow(pair.to_one, OfStream(table))
            received = pair.one.recv_arrow(timeout=LIMIT_S)
            self.assertTrue(received.equals(table))
            # And out by it.
            again = pyarrow.record_batch(OfArray(received.to_batches()[0]))
            self.assertTrue(again.equals(batch))

    def test_arrow_data_in_objects_is_not_pickled(self):
        numbers = pyarrow.array(range(100_000), "int64")
        with Pair() as pair:
            sending = Running(pair.other.send_object, pair.to_one, {"numbers": numbers})
            received = pair.one.recv_object(timeout=LIMIT_S)["numbers"]
            sending.result()
            self.assertTrue(received.equals(numbers))

    def test_what_is_no_arrow_data_is_refused(self):
        with Pair() as pair:
            for wrong in ([1, 2], b"bytes", None, 7):
                with self.assertRaises(TypeError):
                    pair.other.send_arrow(pair.to_one, wrong)
            for wrong in (b"", b"short", bytes(200), b"PFA1\x07" + bytes(100)):
                pair.other.send(pair.to_one, wrong)
                with self.assertRaises(ValueError):
                    pair.one.recv_arrow(timeout=LIMIT_S)
            packed = bytearray(pinfold.arrow.pack(self.batch(10)))
            for length in (64, 70, 100, len(packed) // 2):
                pair.other.send(pair.to_one, packed[:length])
                with self.assertRaises((pyarrow.ArrowException, StopIteration, EOFError, OSError)):
                    pair.one.recv_arrow(timeout=LIMIT_S)

    def test_offsets_that_lead_outside_are_refused(self):
        batch = pyarrow.record_batch({"word": pyarrow.array(["one", "two"])})
        message = bytearray(pinfold.arrow.pack(batch))
        # The last offset of the two strings, before their text.
        end = message.rindex((6).to_bytes(4, "little"), 0, message.index(b"onetwo"))
        message[end : end + 4] = (1 << 30).to_bytes(4, "little")
        with self.assertRaises(pyarrow.ArrowInvalid):
            pinfold.arrow.unpack(message)

    def test_a_batch_outlives_its_sender_and_its_endpoint(self):
        program = """
import sys, pyarrow, pinfold
endpoint = pinfold.Endpoint()
peer = endpoint.connect(sys.argv[1])
endpoint.send_arrow(peer, pyarrow.record_batch({"n": list(range(100_000))}))
endpoint.recv(peer)
"""
        name = fresh_name()
        endpoint = pinfold.Endpoint(name)
        with Child(program, name) as child:
            peer = endpoint.accept(LIMIT_S)
            batch = endpoint.recv_arrow(timeout=LIMIT_S)
            child.kill()
        with self.assertRaises(pinfold.PeerGone):
            endpoint.recv(peer, timeout=LIMIT_S)
        endpoint.close()
        self.assertEqual(pyarrow.compute.sum(batch["n"]).as_py(), sum(range(100_000)))

    def test_memory_comes_back_when_the_last_array_is_gone(self):
        arena = pinfold.Arena()
        with Pair() as pair:
            pair.other.handoff(pair.to_one, pinfold.arrow.pack(self.batch(), arena))
            column = pair.one.recv_arrow(timeout=LIMIT_S)["number"]
            gc.collect()
            self.assertEqual(arena.buffers, 1)
            del column
            gc.collect()
            for _ in range(20):
                pair.one.progress()
                pair.other.progress()
            self.assertEqual(arena.buffers, 0)

    def test_asyncio_has_the_same(self):
        async def main() -> None:
            name = fresh_name()
            async with pinfold.aio.Endpoint(name) as one, pinfold.aio.Endpoint() as other:
                _, peer = await asyncio.gather(one.accept(), other.connect(name))
                await other.send_arrow(peer, self.batch(), 6)
                self.assertTrue((await one.recv_arrow(tag=6, timeout=LIMIT_S)).equals(self.batch()))

        asyncio.run(main())


if pyarrow is not None:
    import pyarrow.compute  # noqa: E402 - of pyarrow, which may be absent

if __name__ == "__main__":
    unittest.main()
