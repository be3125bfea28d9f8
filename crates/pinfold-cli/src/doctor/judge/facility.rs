//! The facilities of the report, one for each trial, in the report's words.

use super::{
    super::{
        child::{Denial, Tried},
        report::{Facility, Reason, Remedy, Status, Use},
        trial::{Trials, calls::Huge},
    },
    denial::{self, Call, Cause, Context},
    reach::{self, Which},
    remedy,
};

const MEMFD: Call = Call { names: &["memfd_create"], since: (3, 17) };
const NOEXEC: Call = Call { names: &["memfd_create"], since: (6, 3) };
const SEALS: Call = Call { names: &["fcntl", "fstatfs"], since: (3, 17) };
const MAPPING: Call = Call { names: &["mmap", "madvise"], since: (3, 17) };
const FUTURE: Call = Call { names: &["fcntl"], since: (5, 1) };
const ADVICE: Call = Call { names: &["madvise"], since: (3, 5) };
const POPULATE: Call = Call { names: &["madvise"], since: (5, 14) };
const BARRIER: Call = Call { names: &["membarrier"], since: (4, 16) };
const PIDFD: Call = Call { names: &["pidfd_open"], since: (5, 3) };
const PEER_PIDFD: Call = Call { names: &["getsockopt"], since: (6, 5) };
const SOCKETS: Call = Call {
    names: &[
        "socket",
        "socketpair",
        "getsockopt",
        "bind",
        "listen",
        "accept4",
        "connect",
        "sendmsg",
        "recvmsg",
    ],
    since: (3, 17),
};
const CREDENTIALS: Call = Call { names: &["getsockopt"], since: (3, 17) };
const PASSING: Call = Call { names: &["sendmsg", "recvmsg"], since: (3, 17) };
const EVENTS: Call =
    Call { names: &["epoll_create1", "epoll_ctl", "epoll_wait", "eventfd2"], since: (3, 17) };
const COLLAPSE: Call = Call { names: &["madvise"], since: (6, 1) };
const FAULTS: Call = Call { names: &["userfaultfd", "ioctl"], since: (5, 18) };
const RINGS: Call =
    Call { names: &["io_uring_setup", "io_uring_enter", "io_uring_register"], since: (5, 19) };

const INET: Call = Call {
    names: &["socket", "bind", "listen", "getsockname", "connect", "accept4"],
    since: (3, 17),
};
const ZEROCOPY: Call = Call { names: &["setsockopt", "recvmsg"], since: (4, 14) };
const SEND_ZC: Call =
    Call { names: &["io_uring_setup", "io_uring_enter", "io_uring_register"], since: (6, 2) };

const NUMBERS: Call = Call { names: &["openat", "pread64"], since: (4, 2) };

/// The meaning of page numbers that are zeros.
const NOT_SHOWN: &str = "/proc/self/pagemap does not say which page is where";
/// ...and costs.
const NOT_KEPT: &str = "nothing else tells of all changes of memory (guards, shmat over it), so none stays \
                        registered between sends, and each holds its pages anew: 2 µs for 64 KiB, 18 for 1 MiB";

/// The rules for peers that connect over it.
const KEY_RULES: &str = "over the loopback without a key; beyond this host both sides need one key file, of 32 \
                         to 4096 bytes, which nobody but its owner can read";

/// Every facility, in the order of the report.
pub(super) fn all(trials: &Trials, context: &Context<'_>) -> Vec<Facility> {
    let calls = &trials.calls;
    let dumpable = trials.dumpable.as_ref().ok().copied();
    let reached = |which| reach::cause(&trials.reach, which, dumpable, context);
    let plain = |name, used, tried: &Tried<()>, call| {
        made(name, used, None, cause_of(tried, call, context))
    };
    vec![
        plain("memfd", Use::Required, &calls.memfd, MEMFD),
        plain("memfd_seals", Use::Required, &calls.memfd_seals, SEALS),
        plain("shared_mapping", Use::Required, &calls.mapping, MAPPING),
        plain("unix_sockets", Use::Required, &calls.unix_sockets, SOCKETS),
        plain("peer_credentials", Use::Required, &calls.peer_credentials, CREDENTIALS),
        plain("descriptor_passing", Use::Required, &calls.descriptors, PASSING),
        plain("events", Use::Required, &calls.events, EVENTS),
        made("process_vm_readv", Use::Faster, None, reached(Which::Read)),
        made("process_vm_writev", Use::Faster, None, reached(Which::Write)),
        plain("membarrier_global", Use::Faster, &calls.barrier_global, BARRIER),
        plain("membarrier_private", Use::Faster, &calls.barrier_private, BARRIER),
        plain("populate_write", Use::Safer, &calls.populate_write, POPULATE),
        plain("madvise_remove", Use::Safer, &calls.remove, ADVICE),
        plain("pidfd_open", Use::Safer, &calls.pidfd_open, PIDFD),
        plain("peer_pidfd", Use::Safer, &calls.peer_pidfd, PEER_PIDFD),
        noexec(trials, context),
        plain("future_write_seal", Use::Arenas, &calls.future_write_seal, FUTURE),
        huge(trials, context),
        userfaultfd(trials, context),
        io_uring(trials, context),
        made("tcp", Use::Hosts, Some(KEY_RULES.into()), cause_of(&calls.tcp, INET, context)),
        plain("msg_zerocopy", Use::Hosts, &calls.msg_zerocopy, ZEROCOPY),
        page_numbers(trials, context),
        made(
            "send_zc",
            Use::Hosts,
            Some(unless_filtered(context, "over a loopback the kernel copies all the same")),
            ring_cause(&calls.send_zc, SEND_ZC, context),
        ),
    ]
}

fn cause_of<T>(tried: &Tried<T>, call: Call, context: &Context<'_>) -> Option<Cause> {
    tried.as_ref().err().map(|denial| denial::explain(denial, call, context))
}

fn made(name: &'static str, used: Use, detail: Option<String>, cause: Option<Cause>) -> Facility {
    let Some(Cause { status, errno, reason, why, remedies }) = cause else {
        let (status, remedies) = (Status::Works, Vec::new());
        return Facility {
            name,
            status,
            used,
            detail,
            errno: None,
            reason: None,
            why: None,
            remedies,
        };
    };
    Facility { name, status, used, detail, errno, reason, why: Some(why), remedies }
}

/// Replaces the text of a plain cause by the setting that explains it.
fn by_setting(cause: &mut Cause, why: String, remedies: Vec<Remedy>) {
    *cause = Cause { reason: Some(Reason::Sysctl), why, remedies, ..cause.clone() };
}

fn noexec(trials: &Trials, context: &Context<'_>) -> Facility {
    let detail = match context.facts.settings.memfd_noexec {
        Some(1) => Some("vm.memfd_noexec=1: memory is not executable unless asked for".into()),
        Some(2) => Some("vm.memfd_noexec=2: executable memory is refused; Pinfold's is not".into()),
        _ => None,
    };
    let cause = cause_of(&trials.calls.noexec_seal, NOEXEC, context);
    made("memfd_noexec_seal", Use::Safer, detail, cause)
}

fn huge(trials: &Trials, context: &Context<'_>) -> Facility {
    let name = "huge_shared_pages";
    let tried = &trials.calls.huge_shmem;
    let Ok(held) = tried else {
        return made(name, Use::Arenas, None, cause_of(tried, MAPPING, context));
    };
    let setting = context.facts.settings.shmem_enabled.as_deref();
    if held.bytes_huge == 0 {
        return made(name, Use::Arenas, None, Some(no_huge(held, context)));
    }
    let part = format!("{} of {} MiB of an arena", held.bytes_huge >> 20, held.bytes >> 20);
    // Of all choices only `deny` matters to the way that arenas ask.
    let detail = setting.map_or(part.clone(), |set| format!("{part}; shmem_enabled is {set}"));
    made(name, Use::Arenas, Some(detail), None)
}

/// The cause that an arena has no huge pages.
fn no_huge(held: &Huge, context: &Context<'_>) -> Cause {
    let Context { facts, .. } = context;
    let settings = &facts.settings;
    let errno = held.refused.as_ref().and_then(Denial::errno);
    let cause = |reason, why: &str, remedies| Cause {
        status: Status::Denied,
        errno: errno.map(denial::errno_name),
        reason: Some(reason),
        why: format!("an arena has no huge pages: {why}"),
        remedies,
    };
    let file = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
    match (&held.refused, errno) {
        // `deny` is the one choice that binds also a process that asks by MADV_COLLAPSE.
        _ if settings.shmem_enabled.as_deref() == Some("deny") => cause(
            Reason::Sysctl,
            "shmem_enabled is deny",
            remedy::tell_kernel(facts, file, "advise"),
        ),
        _ if settings.thp_enabled == Some(false) => cause(
            Reason::Other,
            "they are switched off for this process (PR_SET_THP_DISABLE), by itself or by what \
             started it",
            Vec::new(),
        ),
        (None, _) | (_, Some(libc::ENOMEM | libc::EAGAIN | libc::EBUSY)) => cause(
            Reason::Other,
            "no 2 MiB were free in one piece",
            remedy::sysctl(facts, "vm.compact_memory", 1),
        ),
        (Some(denial), _) => denial::explain(denial, COLLAPSE, context),
    }
}

fn userfaultfd(trials: &Trials, context: &Context<'_>) -> Facility {
    let tried = &trials.calls.userfaultfd;
    let detail = tried.as_ref().ok().map(|found| {
        let watched = match (found.any, found.shared) {
            (true, _) => "watches any memory",
            (false, true) => "watches private and shared memory",
            (false, false) => "watches private memory",
        };
        let moves = if found.moves { "moves pages" } else { "moves no pages (Linux 6.8 does)" };
        format!("{watched}; {moves}")
    });
    let mut cause = cause_of(tried, FAULTS, context);
    if let Some(cause) = &mut cause
        && context.filtered != Some(true)
        && cause.errno.as_deref() == Some("EPERM")
        && context.facts.settings.unprivileged_userfaultfd == Some(0)
    {
        let remedies = remedy::sysctl(context.facts, "vm.unprivileged_userfaultfd", 1);
        by_setting(cause, "vm.unprivileged_userfaultfd is 0".into(), remedies);
    }
    made("userfaultfd", Use::Memory, detail, cause)
}

fn io_uring(trials: &Trials, context: &Context<'_>) -> Facility {
    let tried = &trials.calls.io_uring;
    let detail = tried
        .as_ref()
        .ok()
        .map(|features| unless_filtered(context, &format!("pins memory; features {features:#x}")));
    made("io_uring", Use::Hosts, detail, ring_cause(tried, RINGS, context))
}

/// Page numbers, by which memory can be kept registered between sends.
fn page_numbers(trials: &Trials, context: &Context<'_>) -> Facility {
    let tried = &trials.calls.page_numbers;
    let mut cause = cause_of(tried, NUMBERS, context);
    if let (Some(cause), Some(libc::EPERM)) =
        (&mut cause, tried.as_ref().err().and_then(Denial::errno))
    {
        cause.reason = Some(Reason::Permissions);
        cause.why = format!("{NOT_SHOWN}: {NOT_KEPT}");
        let note = "the kernel shows them to who has CAP_SYS_ADMIN of the first user namespace as it starts to send; \
                    nothing else is slower without";
        cause.remedies = vec![Remedy { run: None, note: Some(note.into()) }];
    }
    let detail = "memory can stay registered between sends; each looks whether its pages are there: 1 µs for 64 KiB, 7 for 1 MiB";
    made("page_numbers", Use::Hosts, Some(detail.into()), cause)
}

/// `detail`; if calls are filtered, it adds that endpoints do not ask for rings by themselves: some
/// filters kill a process that does.
fn unless_filtered(context: &Context<'_>, detail: &str) -> String {
    match context.filtered {
        Some(true) => format!(
            "{detail}; calls are filtered, so an endpoint uses it only where Builder::io_uring says \
             so"
        ),
        _ => detail.to_owned(),
    }
}

/// The cause that there is no io_uring, or none with the operations of `call`.
fn ring_cause<T>(tried: &Tried<T>, call: Call, context: &Context<'_>) -> Option<Cause> {
    let settings = &context.facts.settings;
    let mut cause = cause_of(tried, call, context);
    let errno = tried.as_ref().err().and_then(Denial::errno);
    if let (Some(cause), Some(libc::ENOMEM | libc::ENOBUFS), (Some(limit), _)) =
        (&mut cause, errno, context.rlimit("memlock"))
    {
        cause.reason = Some(Reason::Rlimit);
        cause.why = format!("at most {limit} bytes may be locked, by all rings of this user");
        cause.remedies = context.raise(remedy::LOCKED);
    }
    let disabled = settings.io_uring_disabled.filter(|&value| value > 0);
    if let (Some(cause), Some(value)) = (&mut cause, disabled)
        && cause.errno.as_deref() == Some("EPERM")
    {
        let but = match (value, settings.io_uring_group) {
            (1, Some(group)) if group >= 0 => format!(" but to group {group} and root"),
            (1, _) => " but to root".into(),
            _ => String::new(),
        };
        let why = format!("kernel.io_uring_disabled={value} denies it to all{but}");
        by_setting(cause, why, remedy::sysctl(context.facts, "kernel.io_uring_disabled", 0));
    }
    cause
}
