//! Failed changes to a network: the call, its object, the reason, and the remedy.

use std::{fmt, fs, io};

use rustix::io::Errno;

use super::sysfs;

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// This thread lacks the privilege over the namespace.
    Denied,
    /// This user may make no user namespace, or none that is of use.
    UserDenied,
    /// A user namespace may not mount this: parts of it are hidden, as containers do.
    Masked,
    /// Only a process with one thread can do this.
    Threads,
    /// The kernel was built without, or a filter hides it.
    Absent,
    /// There is one of that name or address already.
    Taken,
    /// There is no such link, address or neighbour.
    Gone,
    /// A name is too long or empty, or a number is out of range.
    Malformed,
    /// A limit on namespaces, descriptors, threads or memory is used up.
    Exhausted,
    /// Something else; the errno says it.
    Other,
}

/// A refusal: the call, its object, and the kernel's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    call: &'static str,
    on: String,
    errno: Errno,
    reason: Reason,
    /// The settings of this system that may have caused it, as they are.
    settings: Vec<String>,
}

/// Settings by which a system denies namespaces to users: the name, the value that forbids them,
/// and the file.
const SETTINGS: [(&str, &str, &str); 5] = [
    ("user.max_user_namespaces", "0", "/proc/sys/user/max_user_namespaces"),
    ("user.max_net_namespaces", "0", "/proc/sys/user/max_net_namespaces"),
    ("kernel.unprivileged_userns_clone", "0", "/proc/sys/kernel/unprivileged_userns_clone"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    ),
    (
        "kernel.apparmor_restrict_unprivileged_unconfined",
        "1",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_unconfined",
    ),
];

impl Error {
    pub(super) fn new(call: &'static str, on: impl Into<String>, errno: Errno) -> Error {
        let reason = Reason::of(call, errno);
        let ask = matches!(reason, Reason::Denied | Reason::UserDenied | Reason::Exhausted);
        let settings = if ask { forbidding() } else { Vec::new() };
        Error { call, on: on.into(), errno, reason, settings }
    }

    /// The error of a call of the standard library.
    pub(super) fn io(call: &'static str, on: impl Into<String>, error: &io::Error) -> Error {
        Error::new(call, on, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The reason.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The errno that the kernel answered.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The call that failed.
    pub fn call(&self) -> &'static str {
        self.call
    }

    /// True if nothing of this kind can be done here: for want of a privilege, by a setting, or
    /// because the kernel lacks it. A test that meets this skips.
    pub fn is_not_possible_here(&self) -> bool {
        use Reason::{Absent, Denied, Masked, UserDenied};
        matches!(self.reason, Denied | UserDenied | Masked | Absent) || !self.settings.is_empty()
    }
}

/// The settings that forbid namespaces to users, as `name = value`.
fn forbidding() -> Vec<String> {
    let forbids = |(name, value, file): &(&str, &str, &str)| {
        let found = fs::read_to_string(file).ok()?;
        (found.trim() == *value).then(|| format!("{name} = {value}"))
    };
    SETTINGS.iter().filter_map(forbids).collect()
}

impl Reason {
    fn of(call: &str, errno: Errno) -> Reason {
        let user = call.contains("USER") || call.contains("_map");
        match errno {
            Errno::PERM | Errno::ACCESS if user => Reason::UserDenied,
            Errno::INVAL if user => Reason::Threads,
            // A process that may not mount at all has been told no before.
            Errno::PERM if call == sysfs::MOUNT => Reason::Masked,
            Errno::PERM | Errno::ACCESS => Reason::Denied,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT => {
                Reason::Absent
            }
            // The kernel says so of a queueing discipline or a filter that it does not know.
            Errno::NOENT if call.contains("TFILTER") || call.contains("QDISC") => Reason::Absent,
            Errno::EXIST => Reason::Taken,
            Errno::NODEV | Errno::NXIO | Errno::NOENT | Errno::ADDRNOTAVAIL => Reason::Gone,
            Errno::INVAL | Errno::RANGE => Reason::Malformed,
            Errno::NOSPC
            | Errno::USERS
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::NOBUFS
            | Errno::AGAIN => Reason::Exhausted,
            _ => Reason::Other,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Reason::Denied => {
                "takes CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root, or begin the process with \
                 netns::user::become_root_inside"
            }
            Reason::UserDenied => {
                "this user may make no user namespaces, or a seccomp filter (in a container: its \
                 profile) forbids it: allow them, or run as root"
            }
            Reason::Masked => {
                "who is root in a user namespace alone may mount that only where all of the present one \
                 can be seen, of which containers hide parts: run as root"
            }
            Reason::Threads => {
                "only a process with one thread can (or the kernel lacks CONFIG_USER_NS): begin the \
                 process with it, before threads are made"
            }
            Reason::Absent => "not in this kernel, or hidden by a seccomp filter",
            Reason::Taken => "there is one already: take another name or address",
            Reason::Gone => "there is none: it was deleted, or never made",
            Reason::Malformed => {
                "names are 1 to 15 bytes, an MTU is at least 68 and at most what the link can, a \
                 prefix at most 32 (IPv6: 128), a percentage at most 100"
            }
            Reason::Exhausted => "out of namespaces, descriptors, threads or memory",
            Reason::Other => "not expected",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network namespace: {}", self.call)?;
        if !self.on.is_empty() {
            write!(f, " of {}", self.on)?;
        }
        write!(f, ": {}; {}", io::Error::from(self.errno), self.reason.advice())?;
        if !self.settings.is_empty() {
            write!(f, "; this system forbids it: {}", self.settings.join(", "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from(error.errno).kind(), error)
    }
}
