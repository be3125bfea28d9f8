"""Exceptions. The text of each is the library's sentence: the failure, its object, the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from ._native import Receipt


class Error(Exception):
    """Any failure of Pinfold. Arguments that make no sense are TypeError or ValueError instead."""


class Timeout(Error, TimeoutError):
    """The time given ran out, or nothing was there and the call was not to wait."""


class NotTaken(Timeout):
    """A send was not taken in time. Nothing was sent, unless `unsure`: then the peer knows of the
    message and did not answer when it was to be taken back, so it may receive it yet."""

    unsure: bool = False


class NoAnswer(Timeout):
    """The other side did not answer a call within the connect time-out."""


class PeerGone(Error, ConnectionError):
    """The peer closed its endpoint, disconnected, or cannot be reached any more."""


class PeerDied(PeerGone):
    """The peer's process ended without closing its endpoint."""


class NobodyLeft(PeerGone):
    """No peer is left that could send."""


class UnknownPeer(Error, LookupError):
    """The number names no peer of this endpoint."""


class Truncated(Error):
    """The message was longer than the memory, which holds its beginning.

    Attributes: `length` and `capacity` in bytes, `peer`, `tag`, `receipt`.
    """

    length: int
    capacity: int
    peer: int
    tag: int
    receipt: Optional["Receipt"]


class Cancelled(Error):
    """The operation was cancelled by `Request.cancel`."""


class Closed(Error):
    """The endpoint is closed."""


class Forked(Error):
    """The endpoint, arena or memory belongs to the process that this one was forked from."""


class Withdrawn(Error):
    """Memory that a peer gave is its own again."""


class ReadOnly(Error):
    """The memory can only be read."""


class OutOfBounds(Error, IndexError):
    """An operation reached beyond the memory; nothing was changed."""


class Misaligned(Error, ValueError):
    """The word of an atomic operation does not lie at a multiple of its size."""


class BadKey(Error, ValueError):
    """The key fits no memory of that peer: it was revoked, or is no key."""


class Revoked(Error):
    """The memory was revoked by its owner."""


class NotMapped(Error):
    """There is no memory at some of the addresses, or it may not be written."""


class StillVisited(Error):
    """A peer has not left the memory within the time that its revocation waits."""


class OutOfReach(Error):
    """Memory of a peer can neither be mapped nor reached by the kernel."""


class NotHandled(Error):
    """The peer has no such handler, or that did not answer: it raised, say."""


class AlreadyAnswered(Error):
    """The request was answered before."""


class NameInUse(Error):
    """Another endpoint listens under this name."""


class NameLost(Error):
    """The name of this endpoint was taken from it."""


class NameGone(Error, ConnectionRefusedError):
    """No endpoint listens at this address."""


class BadAddress(Error, ValueError):
    """The address cannot be understood."""


class NotAllowed(Error, PermissionError):
    """The access rule of the listening side, or a directory's rights, refused."""


class NotListening(Error):
    """Nobody can connect to this endpoint, since it has no name."""


class VersionMismatch(Error):
    """The two sides have no version of the protocol in common."""


class GreetingFailed(Error):
    """The two sides did not agree to become peers: the keys differ, say."""


class KeyNeeded(Error):
    """A key is needed to speak with other hosts."""


class UnusableKey(Error, ValueError):
    """The key cannot be used."""


class PathRefused(Error):
    """A path was required and cannot be taken."""


class TransferFailed(Error):
    """Memory of the other side could not be read or written in mid-transfer."""


class Undelivered(Error):
    """Not everything had been delivered when the time was up."""


class LimitReached(Error):
    """A limit of the system or of the settings stands in the way."""


class NoMemory(Error, MemoryError):
    """There is no memory left for an arena."""


class SystemFailed(Error, OSError):
    """A system call failed; `errno` says how."""
