"""A pool of workers with the interface of multiprocessing's."""

from __future__ import annotations

from multiprocessing import pool
from typing import Any

from .channels import SimpleQueue


class Pool(pool.Pool):
    """As `multiprocessing.Pool`; large arrays in arguments and results move by Pinfold."""

    _ctx: Any

    def _setup_queues(self) -> None:
        context: Any = self._ctx
        self._inqueue = SimpleQueue(ctx=context)
        self._outqueue = SimpleQueue(ctx=context)
        self._quick_put = self._inqueue._writer.send
        self._quick_get = self._outqueue._reader.recv
