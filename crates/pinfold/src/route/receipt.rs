//! What a completed operation says about how it was done.

use std::fmt;

use super::Path;

/// Why a path was not taken for a message.
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
    /// The kernel denied it when the pair tried it: the `errno` of the trial.
    /// `EPERM` is a security policy (ptrace scope, a user namespace, a seccomp filter),
    /// `ENOSYS` a kernel or filter without the call, `ESRCH` another process-id namespace.
    Denied(i32),
    /// The receiver has no credit left for messages it has not asked for.
    NoCredit,
    /// The receiver asked for the message by another path.
    Declined,
    /// The trial read or wrote the wrong memory: the process id means another process there.
    WrongProcess,
}

impl Refusal {
    /// Whether the machine, not the cost model or the caller, ruled the path out.
    pub const fn is_denial(self) -> bool {
        matches!(self, Refusal::Denied(_) | Refusal::WrongProcess)
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
            Refusal::Denied(errno) => {
                let why = std::io::Error::from_raw_os_error(*errno);
                write!(f, "denied by the kernel for this pair of processes: {why}")
            }
            Refusal::WrongProcess => {
                f.write_str("the peer's process id names another process in this namespace")
            }
        }
    }
}

/// How one operation was done: the path, what was copied and by whom, and why each other path
/// was refused.
///
/// Bytes are counted on the side that holds the receipt: an eager message of *n* bytes is
/// *n* `copied_user` at the sender (into the ring) and *n* again at the receiver (out of it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The path that was taken.
    pub path: Path,
    /// Bytes of the message that this side sent or took in.
    pub bytes: u64,
    /// Bytes copied by this process at user level.
    pub copied_user: u64,
    /// Bytes copied by the kernel in calls of this process.
    pub copied_kernel: u64,
    refusals: [Option<Refusal>; Path::ALL.len()],
}

impl Receipt {
    /// A receipt for `bytes` over `path`, nothing copied yet.
    pub const fn new(path: Path, bytes: u64) -> Receipt {
        Receipt { path, bytes, copied_user: 0, copied_kernel: 0, refusals: [None; Path::ALL.len()] }
    }

    /// Why `path` was not taken; `None` for the path that was, and where nobody considered it.
    pub const fn refused(&self, path: Path) -> Option<Refusal> {
        self.refusals[path as usize]
    }

    /// Notes why `path` was not taken.
    pub(crate) const fn refuse(&mut self, path: Path, why: Refusal) {
        self.refusals[path as usize] = Some(why);
    }

    /// Notes that `path` was taken in the end, and why not the one that had been chosen.
    pub(crate) const fn took(&mut self, path: Path, why_not: Refusal) {
        if self.path as usize != path as usize {
            self.refuse(self.path, why_not);
            self.refusals[path as usize] = None;
            self.path = path;
        }
    }

    /// Every refused path and why.
    pub fn refusals(&self) -> impl Iterator<Item = (Path, Refusal)> + '_ {
        Path::ALL.into_iter().filter_map(|path| Some((path, self.refused(path)?)))
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes by {}, {} copied here, {} copied by the kernel",
            self.bytes, self.path, self.copied_user, self.copied_kernel
        )?;
        for (path, why) in self.refusals() {
            write!(f, "; not {path}: {why}")?;
        }
        Ok(())
    }
}
