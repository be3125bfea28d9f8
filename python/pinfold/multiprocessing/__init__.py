"""Queues, pipes and pools with the interface of `multiprocessing`, for fork, forkserver and spawn.

    from pinfold.multiprocessing import Queue

A large array in an object is copied at most once, by its sender, and not at all if it lies in an
arena. The receiver looks at it where it lies: it is read-only there, unless it was given out of a
writable arena. Small objects go through the standard library's pipes as ever.

An object is fetched from the process that put it: that process waits at its exit until all has been
fetched, and what one that was killed had put is lost (PeerGone).
"""

from __future__ import annotations

import multiprocessing
from typing import Any, Callable, Iterable, Optional, Tuple

from . import channels, pool
from .channels import Connection, Queue, SimpleQueue


class Context:
    """The same of one start method, as `multiprocessing.get_context` has it; other attributes are
    those of the standard library's context."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def Queue(self, maxsize: int = 0) -> Queue:
        """A queue for at most `maxsize` objects; 0: without a limit."""
        return Queue(maxsize, ctx=self._plain)

    def SimpleQueue(self) -> SimpleQueue:
        """A queue without a limit, with `put`, `get` and `empty` alone."""
        return SimpleQueue(ctx=self._plain)

    def Pipe(self, duplex: bool = True) -> Tuple[Connection, Connection]:
        """Both ends of a pipe."""
        return channels.pipe(duplex, self._plain)

    def Pool(
        self,
        processes: Optional[int] = None,
        initializer: Optional[Callable[..., Any]] = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: Optional[int] = None,
    ) -> pool.Pool:
        """A pool of `processes` workers; None: as many as there are processors."""
        return pool.Pool(
            processes, initializer, initargs, maxtasksperchild, context=self._plain.get_context()
        )


def get_context(method: Optional[str] = None) -> Context:
    """The context of a start method: "fork", "forkserver" or "spawn"; None: the usual one."""
    return Context(multiprocessing.get_context(method))


def Pipe(duplex: bool = True) -> Tuple[Connection, Connection]:
    """Both ends of a pipe: if not `duplex`, the first receives and the second sends."""
    return get_context().Pipe(duplex)


def Pool(
    processes: Optional[int] = None,
    initializer: Optional[Callable[..., Any]] = None,
    initargs: Iterable[Any] = (),
    maxtasksperchild: Optional[int] = None,
) -> pool.Pool:
    """A pool of `processes` workers; None: as many as there are processors."""
    return get_context().Pool(processes, initializer, initargs, maxtasksperchild)


__all__ = ["Connection", "Context", "Pipe", "Pool", "Queue", "SimpleQueue", "get_context"]
