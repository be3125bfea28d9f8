//! The cause of a denied call, as far as the answer and the facts of the system tell it.

use super::{
    super::{
        child::{Denial, FORK, PIPE},
        facts::Facts,
        report::{Reason, Remedy, Status},
        trial::Rlimits,
    },
    remedy,
};

/// The facts known of a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// System calls that a filter would have to allow.
    pub(super) names: &'static [&'static str],
    /// The first kernel that has all of it.
    pub(super) since: (u32, u32),
}

/// The facts known of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) facts: &'a Facts,
    /// True if this process's calls are filtered.
    pub(super) filtered: Option<bool>,
    pub(super) user: Option<&'a str>,
    /// Soft and hard limits by name.
    pub(super) rlimits: &'a [Rlimits],
}

/// The reason why something does not work, and its remedies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub(super) status: Status,
    pub(super) errno: Option<String>,
    pub(super) reason: Option<Reason>,
    pub(super) why: String,
    pub(super) remedies: Vec<Remedy>,
}

impl Context<'_> {
    /// Soft and hard limit; `None` is no limit, or not known.
    pub(super) fn rlimit(&self, name: &str) -> (Option<u64>, Option<u64>) {
        let found = self.rlimits.iter().find(|(known, ..)| *known == name);
        found.map_or((None, None), |&(_, soft, hard)| (soft, hard))
    }

    /// The remedies that raise the limit `which`.
    pub(super) fn raise(&self, which: remedy::Rlimit) -> Vec<Remedy> {
        let (soft, hard) = self.rlimit(which.name);
        remedy::rlimit(self.facts, which, soft, hard, self.user)
    }

    /// Returns whether the kernel is at least this new; `None` if that is not known.
    fn is_kernel_since(&self, (major, minor): (u32, u32)) -> Option<bool> {
        let release = self.facts.kernel.as_ref()?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?) >= (major, minor))
    }
}

/// Finds the cause of a denial of `call`.
pub(super) fn explain(denial: &Denial, call: Call, context: &Context<'_>) -> Cause {
    let first = call.names.first().copied().unwrap_or("it");
    let cause = |status, reason, why: String, remedies| Cause {
        status,
        errno: denial.errno().map(errno_name),
        reason,
        why,
        remedies,
    };
    // The call that was denied is to be allowed, with those that go with it.
    let failed = match denial {
        Denial::Errno { call, .. } | Denial::Killed { call, .. } => call.as_str(),
        _ => "",
    };
    let is_one = !failed.is_empty() && !failed.contains(' ') && !call.names.contains(&failed);
    let allowed: Vec<&str> =
        is_one.then_some(failed).into_iter().chain(call.names.iter().copied()).collect();
    let seccomp = || remedy::seccomp(context.facts, &allowed);
    let (on, errno) = match denial {
        Denial::Killed { call: at, signal: libc::SIGSYS } => {
            let why = match at.as_str() {
                "" => "a seccomp filter kills a process for one of its system calls".to_owned(),
                at => format!("a seccomp filter kills whoever calls {at}"),
            };
            return cause(Status::Killed, Some(Reason::SeccompKills), why, seccomp());
        }
        Denial::Killed { signal: libc::SIGXFSZ, .. } => return fsize(context, Status::Killed),
        Denial::Killed { signal: libc::SIGBUS, .. } => {
            let why = "there is no memory left for what is shared (SIGBUS)".to_owned();
            return cause(Status::Killed, Some(Reason::Cgroup), why, Vec::new());
        }
        Denial::Killed { signal, .. } => {
            let why = format!("the process that tried it was killed by signal {signal}");
            return cause(Status::Unknown, None, why, Vec::new());
        }
        Denial::Wrong(what) => {
            return cause(Status::Denied, Some(Reason::Other), what.clone(), Vec::new());
        }
        Denial::Untried(why) => return cause(Status::Unknown, None, why.clone(), Vec::new()),
        Denial::Errno { call, errno } if [FORK, PIPE].contains(&call.as_str()) => {
            let why = format!("there is no process to try it with: {call}: {}", said(*errno));
            let short = *errno == libc::EMFILE;
            let remedies = if short { context.raise(remedy::NOFILE) } else { Vec::new() };
            return cause(Status::Unknown, short.then_some(Reason::Rlimit), why, remedies);
        }
        Denial::Errno { call, errno } => (call, *errno),
    };
    let denied = |reason, why, remedies| cause(Status::Denied, Some(reason), why, remedies);
    let (filtered, new) = (context.filtered == Some(true), context.is_kernel_since(call.since));
    let (major, minor) = call.since;
    let by_filter = || format!("a seccomp filter answers {} to {on}", errno_name(errno));
    let too_old = || {
        let release = context.facts.kernel.as_deref().unwrap_or("older");
        let why = format!("the kernel is {release}, and {on} in this way takes {major}.{minor}");
        denied(
            Reason::KernelTooOld,
            why,
            vec![remedy::note(format!("use Linux {major}.{minor} or newer"))],
        )
    };
    match errno {
        libc::EMFILE => {
            let why = format!("{on}: this process has no descriptors left");
            denied(Reason::Rlimit, why, context.raise(remedy::NOFILE))
        }
        libc::ENFILE => {
            let why = format!("{on}: the system has no descriptors left");
            let max = context.facts.settings.file_max.unwrap_or(1 << 20).saturating_mul(2);
            denied(Reason::Sysctl, why, remedy::sysctl(context.facts, "fs.file-max", max))
        }
        libc::EFBIG => fsize(context, Status::Denied),
        libc::ENOMEM if context.rlimit("as").0.is_some() => {
            let why = format!("{on}: the limit on this process's address space leaves no room");
            denied(Reason::Rlimit, why, context.raise(remedy::ADDRESSES))
        }
        libc::ENOMEM => {
            denied(Reason::Other, format!("{on}: the kernel has no memory for it"), Vec::new())
        }
        libc::EINVAL
        | libc::ENOSYS
        | libc::ENOPROTOOPT
        | libc::ENODEV
        | libc::EOPNOTSUPP
        | libc::ENOENT
            if new == Some(false) =>
        {
            too_old()
        }
        _ if filtered => denied(Reason::Seccomp, by_filter(), seccomp()),
        libc::ENOSYS | libc::EINVAL | libc::ENOPROTOOPT | libc::ENODEV => {
            let why = format!("this kernel was built without {first} ({})", errno_name(errno));
            denied(Reason::KernelConfig, why, Vec::new())
        }
        libc::EPERM | libc::EACCES => {
            let why = format!("{on}: {}; a security module or a sandbox denies it", said(errno));
            denied(Reason::Lsm, why, Vec::new())
        }
        _ => denied(Reason::Other, format!("{on}: {}", said(errno)), Vec::new()),
    }
}

/// The cause that files may not become as long as shared memory has to be.
fn fsize(context: &Context<'_>, status: Status) -> Cause {
    Cause {
        status,
        errno: Some("EFBIG".into()),
        reason: Some(Reason::Rlimit),
        why: "the limit on the size of files, which also counts for shared memory, is too low"
            .into(),
        remedies: context.raise(remedy::FILE_SIZE),
    }
}

/// The system's text for an error.
pub(super) fn said(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

/// The name that programmers know an error by.
pub(super) fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::ESRCH => "ESRCH",
        libc::EIO => "EIO",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EFAULT => "EFAULT",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::ENODEV => "ENODEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EINVAL => "EINVAL",
        libc::ENFILE => "ENFILE",
        libc::EMFILE => "EMFILE",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::ENOSYS => "ENOSYS",
        libc::ELOOP => "ELOOP",
        libc::EDQUOT => "EDQUOT",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
        libc::EAFNOSUPPORT => "EAFNOSUPPORT",
        libc::ENOPROTOOPT => "ENOPROTOOPT",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call { names: &["process_vm_readv"], since: (3, 2) };
    const NEW: Call = Call { names: &["getsockopt"], since: (6, 5) };

    fn errno(errno: i32) -> Denial {
        Denial::Errno { call: "process_vm_readv".into(), errno }
    }

    fn reason(denial: &Denial, call: Call, filtered: Option<bool>) -> (Status, Option<Reason>) {
        let facts = Facts { kernel: Some("5.10.0-28-amd64".into()), ..Facts::default() };
        let context = Context { facts: &facts, filtered, user: None, rlimits: &[] };
        let cause = explain(denial, call, &context);
        assert!(!cause.why.is_empty());
        (cause.status, cause.reason)
    }

    #[test]
    fn each_answer_has_its_cause() {
        use Reason::*;
        let denied = |denial, call, filtered| {
            let (status, reason) = reason(&errno(denial), call, filtered);
            assert_eq!(status, Status::Denied);
            reason.unwrap()
        };
        assert_eq!(denied(libc::EPERM, CALL, Some(true)), Seccomp);
        assert_eq!(denied(libc::EPERM, CALL, Some(false)), Lsm);
        assert_eq!(denied(libc::ENOSYS, CALL, Some(true)), Seccomp);
        assert_eq!(denied(libc::ENOSYS, CALL, Some(false)), KernelConfig);
        assert_eq!(denied(libc::ENOPROTOOPT, NEW, Some(true)), KernelTooOld);
        assert_eq!(denied(libc::EMFILE, CALL, Some(true)), Rlimit);
        assert_eq!(denied(libc::ENFILE, CALL, None), Sysctl);
        assert_eq!(denied(libc::ENOMEM, CALL, None), Other);
        assert_eq!(denied(libc::EXDEV, CALL, Some(true)), Seccomp);
        assert_eq!(denied(libc::EXDEV, CALL, None), Other);
    }

    #[test]
    fn deaths_have_causes() {
        let killed = |signal| {
            reason(&Denial::Killed { call: "process_vm_readv".into(), signal }, CALL, None)
        };
        assert_eq!(killed(libc::SIGSYS), (Status::Killed, Some(Reason::SeccompKills)));
        assert_eq!(killed(libc::SIGXFSZ), (Status::Killed, Some(Reason::Rlimit)));
        assert_eq!(killed(libc::SIGKILL), (Status::Unknown, None));
        let fork = Denial::Errno { call: FORK.into(), errno: libc::EAGAIN };
        assert_eq!(reason(&fork, CALL, None), (Status::Unknown, None));
    }

    #[test]
    fn a_tight_address_space_is_named() {
        let facts = Facts::default();
        let rlimits = [("as", Some(1 << 20), None)];
        let context = Context { facts: &facts, filtered: None, user: None, rlimits: &rlimits };
        let cause = explain(&errno(libc::ENOMEM), CALL, &context);
        assert_eq!(cause.reason, Some(Reason::Rlimit));
        assert_eq!(cause.remedies[0].run.as_deref(), Some("ulimit -Sv unlimited"));
    }
}
