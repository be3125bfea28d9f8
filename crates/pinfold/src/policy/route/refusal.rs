//! Why a path was not taken.

use std::fmt;

use rustix::io::Errno;

/// The `errno` noted for memory of the other side that is not there.
pub(crate) const MISSING: Errno = Errno::AGAIN;

/// Why a path was not taken for a message.
///
/// ```
/// use pinfold::{Endpoint, Error, Path, PathSet, Refusal};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-refusal-{}", std::process::id());
/// let paths = PathSet::all().without(Path::Cma);
/// let endpoint = Endpoint::builder().listen(&name).paths(paths).build()?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// match endpoint.send_by(Path::Cma, itself, 1, &[0; 100]) {
///     Err(Error::PathRefused { why, .. }) => assert_eq!(why, Refusal::SwitchedOff),
///     other => panic!("the path is switched off: {other:?}"),
/// }
/// assert_eq!(endpoint.peer(itself).unwrap().cma_refused, Some(Refusal::SwitchedOff));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The message does not fit: the path has an upper limit on size.
    TooLong,
    /// The cost model expects another path to be faster for this size on this machine now.
    Slower,
    /// This endpoint was built without the path.
    SwitchedOff,
    /// The peer's endpoint was built without the path.
    SwitchedOffByPeer,
    /// The kernel denied the path, in the trial of the pair or for a message later, with this
    /// `errno`. `EPERM` is a security policy (ptrace scope, a user namespace, a seccomp filter, a
    /// process that is not dumpable any more), `ENOSYS` a kernel or filter without the call,
    /// `ESRCH` another process-id namespace, `EFAULT` memory that one process may use and the
    /// kernel does not show to another. `EAGAIN` is no denial: some of this message's memory was
    /// not there, so that the copying side might have waited for another process.
    Denied(i32),
    /// The receiver has no credit left for messages it has not asked for.
    NoCredit,
    /// The receiver asked for the message by another path.
    Declined,
    /// The message does not lie in an arena, in one part; nor, as far as the receiver has told,
    /// does it go to an arena that peers may write.
    NotShareable,
    /// The sender keeps the memory of its message.
    Kept,
    /// The memory could not be handed to the peer, or the peer could not map it: limits on
    /// descriptors, mappings or memory, at either side.
    NotMapped,
    /// The peer's threads still use the memory of too many regions that were taken back.
    NotLeft,
    /// The trial read or wrote the wrong memory: the process id means another process there.
    WrongProcess,
    /// One of the two could not stop the other by a signal, as far as is known, so it must not hold
    /// it up by memory that the kernel would wait for either: it is in another process-id or user
    /// namespace, has a seccomp filter or another security label, or fewer rights. The side that
    /// could copies for both, if it may.
    Confined,
    /// Memory of the peer that had been there was not there again and again, or a copy had to wait
    /// for it. The peer itself copies from then on.
    Fickle,
    /// The sender did not call the library while the message was to go through the ring; the
    /// receiver took the rest out of its memory.
    Stalled,
    /// The peer is on another host: there is no memory that both can reach.
    OtherHost,
    /// The peer was called by host and port and is on this host, but in another network, process-id
    /// or IPC namespace: in another container, mostly.
    OtherNamespace,
    /// The peer was called by host and port and is on this host, but cannot be reached by its local
    /// socket: `EACCES` for another user without the right, `ENOENT` where the socket cannot be
    /// seen, as in another mount namespace, `ETIMEDOUT` for a peer that did not answer; 0 at the
    /// side that was called, which does not know more.
    OutOfReach(i32),
    /// The connection is encrypted, so this process has to read the message.
    Encrypted,
}

impl Refusal {
    /// Returns whether the machine, not the cost model or the caller, ruled the path out.
    pub const fn is_denial(self) -> bool {
        use Refusal::{Confined, Denied, Fickle, WrongProcess};
        matches!(self, Denied(_) | WrongProcess | Confined | Fickle)
    }

    /// The same as the other side of the pair sees it.
    pub(crate) const fn mirrored(self) -> Refusal {
        match self {
            Refusal::SwitchedOff => Refusal::SwitchedOffByPeer,
            Refusal::SwitchedOffByPeer => Refusal::SwitchedOff,
            same => same,
        }
    }

    /// The refusal as a number, not 0: the same in every process of this version.
    pub(crate) const fn code(self) -> u16 {
        Code::of(self).0
    }

    /// The refusal with this number, if it is one.
    pub(crate) const fn from_code(code: u16) -> Option<Refusal> {
        Code(code).refusal()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::TooLong => f.write_str("the message is too long for it"),
            Refusal::Slower => f.write_str("another path is faster for this size"),
            Refusal::SwitchedOff => f.write_str("switched off at this endpoint"),
            Refusal::SwitchedOffByPeer => f.write_str("switched off at the peer's endpoint"),
            Refusal::NoCredit => f.write_str("the receiver has no credit left for it"),
            Refusal::Declined => f.write_str("the receiver asked for it by another path"),
            Refusal::Denied(errno) if *errno == MISSING.raw_os_error() => f.write_str(
                "some of the message's memory is not there yet, and whoever copies it might wait for it",
            ),
            Refusal::Denied(errno) => {
                let why = std::io::Error::from_raw_os_error(*errno);
                write!(f, "denied by the kernel for this pair of processes: {why}")
            }
            Refusal::NotShareable => f.write_str("the message does not lie in an arena"),
            Refusal::Kept => f.write_str("the sender keeps the message's memory"),
            Refusal::NotLeft => {
                f.write_str("its user is still at memory of regions that were taken back")
            }
            Refusal::NotMapped => f.write_str("the peer has not mapped the message's arena"),
            Refusal::WrongProcess => {
                f.write_str("the peer's process id names another process in this namespace")
            }
            Refusal::Confined => f.write_str(
                "one of the two processes could not stop the other by a signal (another namespace, a filter, fewer \
                 rights), and is not to hold it up by its memory",
            ),
            Refusal::Fickle => f.write_str(
                "memory of the peer came and went, or had to be waited for; the peer copies it itself",
            ),
            Refusal::Stalled => f.write_str("the sender did not go on with it"),
            Refusal::OtherHost => f.write_str("the peer is on another host"),
            Refusal::OtherNamespace => f.write_str(
                "the peer is on this host, but in another network, process-id or IPC namespace",
            ),
            Refusal::Encrypted => {
                f.write_str("the connection is encrypted, which this process does as it copies")
            }
            Refusal::OutOfReach(0) => {
                f.write_str("the peer is on this host, but did not come by the local socket")
            }
            Refusal::OutOfReach(errno) => {
                let why = std::io::Error::from_raw_os_error(*errno);
                write!(
                    f,
                    "the peer is on this host, but not to be reached by its local socket: {why}"
                )
            }
        }
    }
}

/// A refusal, or none, in two bytes: receipts are made for every message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(u16);

/// Codes from here on hold an `errno` in their low bits.
const DENIED: u16 = 0x1000;
/// The same of [`Refusal::OutOfReach`].
const OUT_OF_REACH: u16 = 0x2000;

impl Code {
    pub(super) const NONE: Code = Code(0);

    pub(super) const fn of(why: Refusal) -> Code {
        Code(match why {
            Refusal::TooLong => 1,
            Refusal::Slower => 2,
            Refusal::SwitchedOff => 3,
            Refusal::SwitchedOffByPeer => 4,
            Refusal::NoCredit => 5,
            Refusal::Declined => 6,
            Refusal::WrongProcess => 7,
            Refusal::NotShareable => 8,
            Refusal::Kept => 9,
            Refusal::NotMapped => 10,
            Refusal::NotLeft => 11,
            Refusal::OtherHost => 12,
            Refusal::OtherNamespace => 13,
            Refusal::Encrypted => 14,
            Refusal::Confined => 15,
            Refusal::Fickle => 16,
            Refusal::Stalled => 17,
            // Linux has none beyond 4095 (include/linux/err.h).
            Refusal::Denied(errno) => DENIED | (errno & 0xfff) as u16,
            Refusal::OutOfReach(errno) => OUT_OF_REACH | (errno & 0xfff) as u16,
        })
    }

    pub(super) const fn refusal(self) -> Option<Refusal> {
        Some(match self.0 {
            1 => Refusal::TooLong,
            2 => Refusal::Slower,
            3 => Refusal::SwitchedOff,
            4 => Refusal::SwitchedOffByPeer,
            5 => Refusal::NoCredit,
            6 => Refusal::Declined,
            7 => Refusal::WrongProcess,
            8 => Refusal::NotShareable,
            9 => Refusal::Kept,
            10 => Refusal::NotMapped,
            11 => Refusal::NotLeft,
            12 => Refusal::OtherHost,
            13 => Refusal::OtherNamespace,
            14 => Refusal::Encrypted,
            15 => Refusal::Confined,
            16 => Refusal::Fickle,
            17 => Refusal::Stalled,
            code if code & 0xf000 == OUT_OF_REACH => {
                Refusal::OutOfReach((code - OUT_OF_REACH) as i32)
            }
            code if code & 0xf000 == DENIED => Refusal::Denied((code - DENIED) as i32),
            _ => return None,
        })
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_survives() {
        assert_eq!(Code::NONE.refusal(), None);
        for why in [
            Refusal::TooLong,
            Refusal::Slower,
            Refusal::SwitchedOff,
            Refusal::SwitchedOffByPeer,
            Refusal::NoCredit,
            Refusal::Declined,
            Refusal::WrongProcess,
            Refusal::NotShareable,
            Refusal::Kept,
            Refusal::NotMapped,
            Refusal::NotLeft,
            Refusal::OtherHost,
            Refusal::OtherNamespace,
            Refusal::Encrypted,
            Refusal::Confined,
            Refusal::Fickle,
            Refusal::Stalled,
            Refusal::OutOfReach(0),
            Refusal::OutOfReach(4095),
            Refusal::Denied(0),
            Refusal::Denied(1),
            Refusal::Denied(4095),
        ] {
            assert_eq!(Code::of(why).refusal(), Some(why));
        }
        assert_eq!(Code(0x3000).refusal(), None);
    }
}
