"""Zero-copy messages between Linux processes, from and into the memory they already use.

    import pinfold

    with pinfold.Endpoint("greeter") as greeter:     # in one process
        print(bytes(greeter.recv()))

    with pinfold.Endpoint() as endpoint:             # in another
        endpoint.send(endpoint.connect("greeter"), b"how now")

`Endpoint` sends and receives, `Arena` and `empty` make arrays that are given away without a copy,
`Endpoint.region` and `register` have memory that peers read and write, `Endpoint.handle` has
callables that they call. `pinfold.aio` has the same for asyncio, and `pinfold.multiprocessing`
queues, pipes and pools.
`python -m pinfold.bench` compares with what the standard library has. docs/python.md says more.
"""

from ._native import Active, Received, Receipt, Region, Registered, Remote, Request, __version__
from .arena import Arena, empty, zeros
from .endpoint import Endpoint, Peer
from .errors import (
    AlreadyAnswered,
    BadAddress,
    BadKey,
    Cancelled,
    Closed,
    Error,
    Forked,
    GreetingFailed,
    KeyNeeded,
    LimitReached,
    Misaligned,
    NameGone,
    NameInUse,
    NameLost,
    NoAnswer,
    NobodyLeft,
    NoMemory,
    NotAllowed,
    NotHandled,
    NotListening,
    NotMapped,
    NotTaken,
    OutOfBounds,
    OutOfReach,
    PathRefused,
    PeerDied,
    PeerGone,
    ReadOnly,
    Revoked,
    StillVisited,
    SystemFailed,
    Timeout,
    TransferFailed,
    Truncated,
    Undelivered,
    UnknownPeer,
    UnusableKey,
    VersionMismatch,
    Withdrawn,
)
from .memory import Buffer, Memory, Message, View

__all__ = [
    "Active",
    "AlreadyAnswered",
    "Arena",
    "BadAddress",
    "BadKey",
    "Buffer",
    "Cancelled",
    "Closed",
    "Endpoint",
    "Error",
    "Forked",
    "GreetingFailed",
    "KeyNeeded",
    "LimitReached",
    "Memory",
    "Message",
    "Misaligned",
    "NameGone",
    "NameInUse",
    "NameLost",
    "NoAnswer",
    "NoMemory",
    "NobodyLeft",
    "NotAllowed",
    "NotHandled",
    "NotListening",
    "NotMapped",
    "NotTaken",
    "OutOfBounds",
    "OutOfReach",
    "PathRefused",
    "Peer",
    "PeerDied",
    "PeerGone",
    "ReadOnly",
    "Receipt",
    "Received",
    "Region",
    "Registered",
    "Remote",
    "Request",
    "Revoked",
    "StillVisited",
    "SystemFailed",
    "Timeout",
    "TransferFailed",
    "Truncated",
    "Undelivered",
    "UnknownPeer",
    "UnusableKey",
    "VersionMismatch",
    "View",
    "Withdrawn",
    "__version__",
    "empty",
    "zeros",
]
