"""Types of the extension module. The classes of the package say what each call does."""

from typing import Any, Dict, List, Optional, Tuple

__version__: str

def begin_exit() -> None:
    """The interpreter exits: no thread but this one comes back from a wait any more."""

class Receipt:
    """How one operation was done."""

    @property
    def path(self) -> str:
        """The path: "inline", "eager", "cma", "mapped" or "handoff"."""

    @property
    def bytes(self) -> int:
        """Bytes of the message that this side sent or took in."""

    @property
    def copied_user(self) -> int:
        """Bytes copied by this process at user level."""

    @property
    def copied_kernel(self) -> int:
        """Bytes copied by the kernel in calls of this process."""

    @property
    def copied(self) -> int:
        """The sum of both."""

    @property
    def why(self) -> Dict[str, str]:
        """By the name of each path that was considered and not taken, the reason."""

class Received:
    """The facts of a message."""

    @property
    def peer(self) -> int:
        """The number of the peer that sent it."""

    @property
    def tag(self) -> int:
        """Its tag."""

    @property
    def length(self) -> int:
        """Its length, bytes."""

    @property
    def receipt(self) -> Optional[Receipt]:
        """How it came; None: it was not received yet."""

class Request:
    """An operation under way. Its result is handed out once. One that is dropped is taken back."""

    def try_wait(self) -> Any:
        """The result if there is one after a turn of progress, else None. Never waits."""

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the result, at most `timeout` seconds: then it is taken back."""

    def cancel(self) -> bool:
        """Asks for its end. True: it will end by that, with Cancelled."""

    def drop(self) -> None:
        """Gives it up."""

class Block:
    """Memory of the library's."""

    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def readonly(self) -> bool: ...
    @property
    def given(self) -> bool: ...
    @property
    def shared(self) -> bool: ...
    @property
    def peer(self) -> int: ...
    @property
    def tag(self) -> int: ...
    @property
    def receipt(self) -> Receipt: ...

class Exporter:
    """A block's memory by the buffer protocol."""

    def __new__(cls, block: Block) -> Any: ...
    @property
    def _block(self) -> Block: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Arena:
    """A heap whose buffers peers can map."""

    def __new__(
        cls,
        *,
        bytes_max: int = 0,
        bytes_budget: int = 0,
        writable: bool = False,
        huge_pages: bool = True,
    ) -> Any: ...
    def block(self, nbytes: int, align: int = 64) -> Block: ...
    @property
    def writable(self) -> bool:
        """True if peers can write its buffers."""

    def trim(self) -> int:
        """Gives memory that no buffer uses back to the system. Returns the number of bytes."""

    @property
    def buffers(self) -> int:
        """The number of buffers in use."""

class Endpoint:
    """One party to the exchange of messages."""

    def __new__(
        cls, name: Optional[str] = None, *, listen: Optional[str] = None, **settings: Any
    ) -> Any: ...
    @property
    def closed(self) -> bool: ...
    @property
    def listens_at(self) -> Optional[str]: ...
    def close(self, *, force: bool = False) -> None: ...
    def drain(self, timeout: Optional[float] = None) -> None: ...
    def progress(self) -> bool: ...
    def arm(self) -> bool: ...
    def fileno(self) -> int: ...
    def connect(self, at: str, timeout: Optional[float] = 30.0) -> int: ...
    def post_connect(self, at: str, timeout: Optional[float] = 30.0) -> Request: ...
    def accept(self, timeout: Optional[float] = None) -> int: ...
    def post_accept(self) -> Request: ...
    def disconnect(self, peer: int) -> None: ...
    def peer_facts(self) -> List[Tuple[int, str, int, int, List[str]]]: ...
    def send(
        self, peer: int, data: Any, tag: int = 0, timeout: Optional[float] = None
    ) -> Receipt: ...
    def post_send(self, peer: int, data: Any, tag: int = 0) -> Request: ...
    def recv(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any: ...
    def post_recv(self, peer: Optional[int] = None, tag: Optional[int] = None) -> Request: ...
    def recv_view(
        self,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Any: ...
    def post_recv_view(self, peer: Optional[int] = None, tag: Optional[int] = None) -> Request: ...
    def recv_into(
        self,
        buffer: Any,
        peer: Optional[int] = None,
        tag: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Received: ...
    def post_recv_into(
        self, buffer: Any, peer: Optional[int] = None, tag: Optional[int] = None
    ) -> Request: ...
    def probe(
        self, peer: Optional[int] = None, tag: Optional[int] = None
    ) -> Optional[Received]: ...
    def give(
        self, peer: int, block: Block, tag: int = 0, timeout: Optional[float] = None
    ) -> None: ...
    def post_give(self, peer: int, block: Block, tag: int = 0) -> Request: ...
