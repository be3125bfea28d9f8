"""Types of the extension module. The classes of the package say what each call does."""

from typing import Any, Callable, Dict, List, Optional, Tuple

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

class Queue:
    """A queue of the ends of sends, calls and requests."""

    def __new__(cls) -> Any: ...
    def add(self, request: Request, number: int) -> bool:
        """Lets the result of a request come here. False: it is of another kind, and stays one."""

    def ask(
        self, endpoint: Endpoint, number: int, peer: int, id: int, data: Any = None
    ) -> None:
        """Asks a handler of a peer, and lets the answer come here."""

    def settle(self, futures: Dict[int, Any]) -> int:
        """Gives the futures of what has ended its ends, and takes them out. Never waits. Returns
        how many operations ended."""

    def cancel(self, number: int) -> bool:
        """Asks for the end of one operation. True: it will end by that, with Cancelled."""

    def arm(self) -> bool:
        """Prepares for waiting on the descriptor. False: something is there."""

    def fileno(self) -> int:
        """Its descriptor, readable when there is something to take after `arm`."""

    @property
    def outstanding(self) -> int:
        """Operations that have not ended, or whose ends were not taken."""

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

class Region:
    """Memory that peers with its key use. Made by `Endpoint.region`."""

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""

    @property
    def writable(self) -> bool:
        """True if peers may write it."""

    @property
    def key(self) -> Optional[bytes]:
        """The key, 24 bytes, that peers need. None: it was revoked."""

    def read(self, at: int = 0, nbytes: Optional[int] = None) -> bytes:
        """A copy of `nbytes` bytes at `at`; all to the end without `nbytes`."""

    def read_into(self, buffer: Any, at: int = 0) -> None:
        """Copies the bytes at `at` into the memory of `buffer`, as many as that has."""

    def write(self, data: Any, at: int = 0) -> None:
        """Copies the memory of `data` in at `at`."""

    def revoke(self) -> None:
        """Ends all use by peers. The contents stay, and the owner may use them."""

    def expose(self) -> bytes:
        """Lets peers use it again after it was revoked, by another key, which is returned."""

    def __len__(self) -> int: ...
    def fetch_add(self, at: int, by: int, word: str = "u64") -> int:
        """Adds `by` to the word at a place, wrapping, and returns what it was. `word` is "u32",
        "u64", "i32" or "i64"; places are multiples of its size."""

    def fetch_and(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise and with `bits`; returns what it was."""

    def fetch_or(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise or with `bits`; returns what it was."""

    def fetch_xor(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise exclusive or with `bits`; returns what it was."""

    def fetch_min(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word the lesser of itself and `value`; returns what it was."""

    def fetch_max(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word the greater of itself and `value`; returns what it was."""

    def swap(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word `value`; returns what it was."""

    def compare_swap(self, at: int, expected: int, value: int, word: str = "u64") -> int:
        """Makes the word `value` if it is `expected`; returns what it was."""

class Registered:
    """Memory of an object's that peers with its key use. Made by `Endpoint.register`."""

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""

    @property
    def address(self) -> int:
        """The address of its first byte in this process."""

    @property
    def writable(self) -> bool:
        """True if peers may write it."""

    @property
    def key(self) -> Optional[bytes]:
        """The key, 24 bytes, that peers need. None: it was revoked."""

    def revoke(self) -> None:
        """Ends the use by peers, and waits for those that are using it, 10 s at most."""

    def __len__(self) -> int: ...
    def fetch_add(self, at: int, by: int, word: str = "u64") -> int:
        """Adds `by` to the word at a place, wrapping, and returns what it was. `word` is "u32",
        "u64", "i32" or "i64"; places are multiples of its size."""

    def fetch_and(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise and with `bits`; returns what it was."""

    def fetch_or(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise or with `bits`; returns what it was."""

    def fetch_xor(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise exclusive or with `bits`; returns what it was."""

    def fetch_min(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word the lesser of itself and `value`; returns what it was."""

    def fetch_max(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word the greater of itself and `value`; returns what it was."""

    def swap(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word `value`; returns what it was."""

    def compare_swap(self, at: int, expected: int, value: int, word: str = "u64") -> int:
        """Makes the word `value` if it is `expected`; returns what it was."""

class Remote:
    """Memory of a peer. Made by `Endpoint.open_region` and `Endpoint.open_space`."""

    @property
    def nbytes(self) -> int:
        """Its length in bytes."""

    @property
    def address(self) -> int:
        """The address of its first byte in the peer's process."""

    @property
    def peer(self) -> int:
        """The number of the peer that owns it."""

    @property
    def writable(self) -> bool:
        """True if this side may write it."""

    @property
    def path(self) -> str:
        """The path of its operations: "mapped", "cma" or "eager"."""

    @property
    def why_not_mapped(self) -> Optional[str]:
        """The reason why it is not mapped; None if it is, or may be in part."""

    def read(self, at: int, nbytes: int) -> bytes:
        """The bytes at a place, `nbytes` of them."""

    def read_into(self, at: int, buffer: Any) -> Receipt:
        """Reads the bytes at a place into the memory of `buffer`, as many as that has."""

    def post_read_into(self, at: int, buffer: Any) -> Request:
        """As `read_into`, as a request."""

    def write(self, at: int, data: Any) -> Receipt:
        """Writes the memory of `data` at a place."""

    def post_write(self, at: int, data: Any) -> Request:
        """As `write`, as a request. One that is dropped goes on."""

    def post_fetch_add(self, at: int, by: int, word: str = "u64") -> Request:
        """As `fetch_add`, as a request."""

    def post_compare_swap(self, at: int, expected: int, value: int, word: str = "u64") -> Request:
        """As `compare_swap`, as a request."""

    def flush(self) -> None:
        """Returns when everything written so far is in the peer's memory for all to see."""

    def __len__(self) -> int: ...
    def fetch_add(self, at: int, by: int, word: str = "u64") -> int:
        """Adds `by` to the word at a place, wrapping, and returns what it was. `word` is "u32",
        "u64", "i32" or "i64"; places are multiples of its size."""

    def fetch_and(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise and with `bits`; returns what it was."""

    def fetch_or(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise or with `bits`; returns what it was."""

    def fetch_xor(self, at: int, bits: int, word: str = "u64") -> int:
        """Makes the word its bitwise exclusive or with `bits`; returns what it was."""

    def fetch_min(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word the lesser of itself and `value`; returns what it was."""

    def fetch_max(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word the greater of itself and `value`; returns what it was."""

    def swap(self, at: int, value: int, word: str = "u64") -> int:
        """Makes the word `value`; returns what it was."""

    def compare_swap(self, at: int, expected: int, value: int, word: str = "u64") -> int:
        """Makes the word `value` if it is `expected`; returns what it was."""

class Active:
    """An active message, as its handler is called with it."""

    @property
    def peer(self) -> int:
        """The number of the peer that sent it."""

    @property
    def id(self) -> int:
        """The number of its handler."""

    @property
    def data(self) -> bytes:
        """Its bytes."""

    @property
    def receipt(self) -> Receipt:
        """How it came."""

    @property
    def is_request(self) -> bool:
        """True if its sender waits for an answer."""

    def reply(self, data: Any) -> None:
        """Answers a request; does nothing for a call. Never waits."""

    def give_up(self) -> None:
        """Gives a request no answer: the one that asked gets NotHandled."""

class Endpoint:
    """One party to the exchange of messages."""

    def __new__(
        cls,
        name: Optional[str] = None,
        *,
        listen: Optional[str] = None,
        handlers: Optional[Dict[int, Callable[[Active], Any]]] = None,
        **settings: Any,
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
    def region(self, nbytes: int, *, writable: bool = False) -> Region: ...
    def register(self, buffer: Any, *, writable: bool = False) -> Registered: ...
    def open_region(self, peer: int, key: Any, timeout: Optional[float] = None) -> Remote: ...
    def post_open_region(self, peer: int, key: Any) -> Request: ...
    def open_space(self, peer: int, key: Any, timeout: Optional[float] = None) -> Remote: ...
    def post_open_space(self, peer: int, key: Any) -> Request: ...
    def handle(self, id: int, function: Callable[[Active], Any]) -> None: ...
    def unhandle(self, id: int) -> bool: ...
    def call(
        self, peer: int, id: int, data: Any = None, timeout: Optional[float] = None
    ) -> Receipt: ...
    def post_call(self, peer: int, id: int, data: Any = None) -> Request: ...
    def ask(self, peer: int, id: int, data: Any = None, timeout: Optional[float] = None) -> Any: ...
    def post_ask(self, peer: int, id: int, data: Any = None) -> Request: ...
