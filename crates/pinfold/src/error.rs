//! The errors, each with its own name and the facts needed to act on it.

use std::{io, time::Duration};

use pinfold_sys::failed::Failed;

use crate::policy::route::{Path, Receipt, Refusal};

mod gone;
mod not_handled;
mod outstanding;
mod remedy;
mod ungreeted;
mod untaken;

pub(crate) use remedy::ELSEWHERE;
pub use {
    gone::Gone, not_handled::NotHandled, outstanding::Outstanding, ungreeted::Ungreeted,
    untaken::Untaken,
};

use self::outstanding::listed;

/// The result of a Pinfold operation.
///
/// ```
/// use pinfold::{Endpoint, Result};
///
/// # fn main() -> pinfold::Result<()> {
/// /// Sends a message to whoever listens at an address; `?` passes each failure on.
/// fn tell(address: &str, text: &str) -> Result<()> {
///     let endpoint = Endpoint::new()?;
///     let peer = endpoint.connect(address)?;
///     endpoint.send(peer, 0, text.as_bytes())?;
///     Ok(())
/// }
///
/// assert!(tell("local:doc-of-nobody", "hello").is_err()); // Nobody listens there.
/// # Ok(())
/// # }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed.
///
/// A full ring, an exhausted budget or spent credit is never an error: the operation waits.
///
/// ```
/// use pinfold::{Endpoint, Error};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-error-{}", std::process::id());
/// let endpoint = Endpoint::new()?;
/// match endpoint.connect(&name) {
///     Err(Error::NameGone { name: gone }) => assert_eq!(gone, name), // It may come.
///     other => panic!("nobody listens there: {other:?}"),
/// }
/// // Errors have words that say what to do.
/// let error = Endpoint::listen("somewhere").unwrap_err();
/// assert!(error.to_string().contains("write local:NAME"), "{error}");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another endpoint listens under this name.
    #[error("{}", name_in_use(name))]
    NameInUse {
        /// The address asked for.
        name: String,
    },
    /// The name of this endpoint was taken from it: its file was removed, and another endpoint
    /// listens under the name. It is reported once, to [`accept`](crate::Endpoint::accept) and to
    /// receives that only a new peer could end. The name is this endpoint's again when the other
    /// has ended.
    #[error(
        "the name {name} is lost: its file was removed, as by a cleaner of temporary files, and another \
         endpoint has taken the name; stop that one, and this one has it again"
    )]
    NameLost {
        /// The address that was listened at.
        name: String,
    },
    /// No endpoint listens under this name.
    #[error("{}", name_gone(name))]
    NameGone {
        /// The address asked for.
        name: String,
    },
    /// The address cannot be understood.
    #[error(
        "{address:?} is not an address: {why}; write local:NAME, local:USER/NAME or tcp:HOST:PORT"
    )]
    BadAddress {
        /// The address.
        address: String,
        /// The mistake in it.
        why: &'static str,
    },
    /// The access rule of the listening side does not admit this user, or a directory or socket
    /// is not safe to use.
    #[error("access to {name} refused: {why}")]
    NotAllowed {
        /// The address or directory.
        name: String,
        /// The rule that refused, and the remedy.
        why: String,
    },
    /// The peer speaks no common version of the protocol.
    #[error(
        "{peer} speaks protocol versions {theirs_min} to {theirs_max}, this library {ours_min} to {ours_max}; update the older side"
    )]
    VersionMismatch {
        /// The peer.
        peer: String,
        /// The oldest version this library speaks.
        ours_min: u32,
        /// The newest version this library speaks.
        ours_max: u32,
        /// The oldest version the peer speaks.
        theirs_min: u32,
        /// The newest version the peer speaks.
        theirs_max: u32,
    },
    /// The publishers and subscribers of a [topic](crate::topic) differ in what samples are.
    #[error(
        "topic {topic} has samples of {theirs}, and here of {ours}; give both one type and schema"
    )]
    OtherType {
        /// The topic.
        topic: String,
        /// The samples of this program.
        ours: String,
        /// The samples of the others.
        theirs: String,
    },
    /// A configured or system limit stands in the way.
    #[error("{what} is limited to {limit}; {remedy}")]
    LimitReached {
        /// The thing that is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// A way to raise it or do without.
        remedy: &'static str,
    },
    /// The system has not enough memory left to back the buffer.
    #[error(
        "no memory for {wanted} more bytes of an arena: {whose} has {left} left; drop buffers, or raise its limit"
    )]
    NoMemory {
        /// Bytes that would have to be committed.
        wanted: u64,
        /// Bytes that can still be committed, some of its limit left aside.
        left: u64,
        /// The holder of the limit.
        whose: String,
    },
    /// The message was longer than the buffer. The buffer holds its first `capacity` bytes.
    #[error(
        "the message is {len} bytes long, the buffer {capacity}; the buffer holds its beginning, the rest is dropped"
    )]
    Truncated {
        /// The true length, bytes.
        len: u64,
        /// The length of the buffer, bytes.
        capacity: u64,
        /// The peer that sent it.
        peer: crate::PeerId,
        /// Its tag.
        tag: u64,
        /// The receipt of the bytes that did fit.
        receipt: Receipt,
    },
    /// The peer of the operation is gone.
    #[error("{peer} is gone: {how}")]
    PeerGone {
        /// Its name, with the process id.
        peer: String,
        /// The way it went.
        how: Gone,
    },
    /// No connected peer can satisfy a receive from any source, and none can connect.
    #[error("no peer is left that could send: {last} is gone: {how}")]
    NobodyLeft {
        /// The last peer that went.
        last: String,
        /// The way it went.
        how: Gone,
    },
    /// The identifier names no peer of this endpoint.
    #[error("no such peer at this endpoint: {peer:?}")]
    UnknownPeer {
        /// The identifier.
        peer: crate::PeerId,
    },
    /// A path that was required cannot be taken.
    #[error("path {path} was required but cannot be taken: {why}")]
    PathRefused {
        /// The path.
        path: Path,
        /// The reason.
        why: Refusal,
    },
    /// A region can be used neither as mapped memory nor through the kernel.
    #[error(
        "the region cannot be reached: not mapped ({mapped}), and not by the kernel ({cma}); allow one of the two"
    )]
    OutOfReach {
        /// The reason why [`Path::Mapped`] cannot be taken.
        mapped: Refusal,
        /// The reason why [`Path::Cma`] cannot be taken.
        cma: Refusal,
    },
    /// The memory of the other side could not be read or written in mid-transfer.
    #[error("the transfer with {peer} failed: {source}")]
    Transfer {
        /// The other side.
        peer: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The bytes named lie outside the memory.
    #[error("{len} bytes at {offset} lie outside the {size} bytes there are")]
    OutOfBounds {
        /// The first byte named.
        offset: u64,
        /// The number of bytes named.
        len: u64,
        /// The size of the memory, bytes.
        size: u64,
    },
    /// No region of the peer's endpoint has this key, or no longer.
    #[error("the peer has no region with this key; ask its owner for the key of one that stands")]
    BadKey,
    /// The region was revoked by its owner.
    #[error("the region was revoked by its owner; the operation may have had its effect or not")]
    Revoked,
    /// There is no memory at an address of a peer, or none that may be used so.
    #[error("the peer has no memory for {len} bytes at {address:#x}, or none that may be used so")]
    NotMapped {
        /// The first byte named.
        address: u64,
        /// The number of bytes named. Some of them may have been read or written.
        len: u64,
    },
    /// Memory is exposed no more, but peers have not left it.
    #[error(
        "{visitors} peers or copies are still at memory that is exposed no more, after {patience:?}: leave it as it is until they have ended"
    )]
    StillVisited {
        /// The number of peers and copies.
        visitors: usize,
        /// The time that was waited.
        patience: Duration,
    },
    /// The word of an atomic operation does not lie at a multiple of its size.
    #[error("an atomic operation on {size} bytes at {offset}: choose a multiple of {size}")]
    Misaligned {
        /// Its offset.
        offset: u64,
        /// Its size, bytes.
        size: u64,
    },
    /// Memory that can only be read was to be written.
    #[error("this memory can only be read; its owner gives memory to write out of a SharedArena")]
    ReadOnly,
    /// Memory that a peer gave is its own again, because this side has ended the connection, or the
    /// peer has cut it.
    #[error(
        "the memory that was given is no longer held: the connection with its owner was ended here, or cut; copy what is needed before that"
    )]
    Withdrawn,
    /// Not all posted operations had been delivered when the time was up.
    #[error(
        "not delivered within {patience:?}: {}; have them receive, give them more time, or close all the same",
        listed(left)
    )]
    Undelivered {
        /// The time that was waited.
        patience: Duration,
        /// The rest, by peer.
        left: Vec<Outstanding>,
    },
    /// An active message was not handled, or a request not answered.
    #[error("handler {id} of {peer} did not do it: {why}")]
    NotHandled {
        /// The peer with the handler.
        peer: String,
        /// The handler's number.
        id: u32,
        /// The reason.
        why: NotHandled,
    },
    /// A request was answered a second time.
    #[error("this request has been answered, or will be by its Replier")]
    AlreadyAnswered,
    /// The operation was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The other side did not answer a call within the endpoint's connect time-out.
    #[error("{}", no_answer(name, *patience))]
    NoAnswer {
        /// The address called.
        name: String,
        /// The time-out.
        patience: Duration,
    },
    /// A key is needed to speak with other hosts.
    #[error(
        "{address} is beyond this host, and this endpoint has no key; give both sides the same with Builder::key_file, or use a loopback address"
    )]
    KeyNeeded {
        /// The address to listen at, to connect to, or of a caller.
        address: String,
    },
    /// The key cannot be used.
    #[error("{0}")]
    UnusableKey(String),
    /// An endpoint on another host, or this one, did not let the two become peers.
    #[error("{why}")]
    Greeting {
        /// The address called, or the caller's.
        peer: String,
        /// The failure, the other side and the remedy.
        why: String,
        /// The reason, for programs.
        reason: Ungreeted,
    },
    /// No peer can connect to an endpoint without a name.
    #[error(
        "this endpoint does not listen, so nobody can connect to it; give it a name with Builder::listen"
    )]
    NotListening,
    /// A send with a deadline ([`Endpoint::send_timeout`](crate::Endpoint::send_timeout)) had not
    /// gone when its time was up. Nothing was sent, unless `why` says that this is unsure.
    #[error("{peer} did not take the message within {patience:?}: {why}")]
    NotTaken {
        /// The receiver.
        peer: String,
        /// The time that was waited.
        patience: Duration,
        /// The reason.
        why: Untaken,
    },
    /// The time given ran out.
    #[error("nothing happened within {0:?}")]
    Timeout(Duration),
    /// The endpoint or arena was made by the process this one was forked from.
    #[error(
        "this endpoint or arena belongs to the process this one was forked from; make a new one here"
    )]
    Forked,
    /// The endpoint was closed.
    #[error("the endpoint is closed")]
    Closed,
    /// A system call failed.
    #[error("{call} on {on}: {source}{}", and(remedy::of(call, on, source)))]
    Os {
        /// The call.
        call: &'static str,
        /// The object it was applied to.
        on: String,
        /// The kernel's error.
        source: io::Error,
    },
}

fn and(remedy: Option<String>) -> String {
    remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default()
}

fn name_in_use(name: &str) -> String {
    if name.starts_with("tcp:") {
        return format!(
            "the port of {name} is in use, by another endpoint or another program; choose another \
             port (0: any that is free), or see who has it: ss -ltnp"
        );
    }
    format!("the name {name} is in use by another endpoint; choose another name, or stop its owner")
}

fn no_answer(name: &str, patience: Duration) -> String {
    let host = if name.starts_with("tcp:") { "its host can be reached, and that " } else { "" };
    format!(
        "{name} did not answer within {patience:?}; see that {host}its process runs and uses its \
         endpoint, or raise Builder::connect_timeout"
    )
}

fn name_gone(name: &str) -> String {
    let what = if name.starts_with("tcp:") { "host and the port" } else { "name and the user" };
    format!("no endpoint listens at {name}; start the listening side first, or check the {what}")
}

/// Checks that `len` bytes at `offset` lie inside `size` bytes.
///
/// # Errors
/// [`Error::OutOfBounds`].
#[inline]
pub(crate) fn inside(offset: u64, len: u64, size: u64) -> Result<()> {
    if offset > size || len > size - offset {
        return Err(Error::OutOfBounds { offset, len, size });
    }
    Ok(())
}

impl Error {
    /// Wraps the failure of `call` on `on`.
    pub(crate) fn os(
        call: &'static str,
        on: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Error {
        Error::Os { call, on: on.into(), source: source.into() }
    }

    /// As [`Error::os`], of the call that failed among several.
    pub(crate) fn failed(on: impl Into<String>) -> impl FnOnce(Failed) -> Error {
        move |failed| Error::os(failed.call, on, failed.errno)
    }

    /// The remedy for a system call that failed, where it is known; the end of the message.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Error::Os { call, on, source } => remedy::of(call, on, source),
            _ => None,
        }
    }

    /// True if the peer of the operation is gone.
    pub fn is_peer_gone(&self) -> bool {
        matches!(self, Error::PeerGone { .. } | Error::NobodyLeft { .. })
    }
}
