//! Every call that the doctor or the library makes, taken away: by each answer, and by death.

use serde_json::Value;

use super::{
    ENOSYS, EPERM,
    harness::{Found, is_open, under},
};

/// The calls that can be taken away from a program that is still to be started.
const CALLS: [&str; 35] = [
    "accept4",
    "bind",
    "chmod",
    "connect",
    "epoll_create1",
    "epoll_ctl",
    "epoll_wait",
    "eventfd2",
    "fallocate",
    "fcntl",
    "fstatfs",
    "ftruncate",
    "getsockname",
    "getsockopt",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "listen",
    "madvise",
    "membarrier",
    "memfd_create",
    "mkdir",
    "pidfd_open",
    "process_vm_readv",
    "process_vm_writev",
    "recvmsg",
    "sched_setaffinity",
    "sendmsg",
    "setsockopt",
    "socket",
    "socketpair",
    "statfs",
    "unlink",
    "unlinkat",
    "userfaultfd",
];

/// No other call is blamed on a machine where `call` is taken away.
fn blames(found: &Found, call: &str) {
    let mut all: Vec<&Value> = found.report["facilities"].as_object().unwrap().values().collect();
    all.extend(found.report["problems"].as_array().unwrap());
    for one in all {
        let reason = one["reason"].as_str().unwrap_or_default();
        if !reason.starts_with("seccomp") {
            continue;
        }
        // The call that kills a process is known where it is tried alone.
        let why = one["why"].as_str().unwrap();
        let is_unnamed = why.contains("for one of its system calls");
        assert!(why.contains(call) || is_unnamed, "{call}: {one:#}");
        let remedies = one["remedies"].to_string();
        assert!(remedies.contains(call) || is_unnamed, "{call}: {one:#}");
    }
}

#[test]
fn each_call_denied_names_itself() {
    if !is_open() {
        return;
    }
    for call in CALLS {
        for (errno, _) in [EPERM, ENOSYS] {
            let found = under(&format!("deny {errno} {call}"));
            blames(&found, call);
        }
    }
}

#[test]
fn each_call_that_kills_names_itself() {
    if !is_open() {
        return;
    }
    // Without fcntl no program is started.
    for call in CALLS.into_iter().filter(|call| *call != "fcntl") {
        blames(&under(&format!("kill {call}")), call);
    }
}

/// Calls that only the doctor makes tell nothing about the library.
#[test]
fn what_endpoints_do_not_call_is_not_missed() {
    if !is_open() {
        return;
    }
    for plan in ["deny 1 socketpair", "kill socketpair", "deny 1 statfs", "kill statfs"] {
        let found = under(plan);
        assert_eq!((found.exit, found.denied()), (0, vec![]), "{plan}: {:#}", found.report);
    }
}

/// An endpoint that may not accept waits in vain, and reports nothing: the doctor does.
#[test]
fn a_call_that_the_library_waits_for_is_named() {
    if !is_open() {
        return;
    }
    let found = under("deny 1 accept4");
    assert_eq!(found.exit, 3);
    found.is_denied("unix_sockets", "denied", "seccomp", Some("EPERM"));
    let fatal = found.problem("cannot exchange messages");
    assert!(fatal["why"].as_str().unwrap().contains("accept4"), "{fatal:#}");
    assert!(fatal["remedies"].to_string().contains("accept4"), "{fatal:#}");
}

/// If the call is denied, the device answers; if that is hidden, too, nothing does.
#[test]
fn a_userfaultfd_comes_by_the_device_as_well() {
    if !is_open() {
        return;
    }
    let open = under("deny 1");
    if open.facility("userfaultfd")["status"] != "works" {
        return pinfold_tests::skip::skip("there is no userfaultfd");
    }
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    for (errno, name) in [EPERM, ENOSYS] {
        let found = under(&format!("deny {errno} userfaultfd"));
        assert_eq!(found.exit, 0);
        if device.is_ok() {
            assert_eq!(found.facility("userfaultfd")["status"], "works");
        } else {
            found.is_denied("userfaultfd", "denied", "seccomp", Some(name));
        }
        // Only root may hide it, or open it.
        if rustix::process::geteuid().is_root() {
            let found = under(&format!("hide /dev;deny {errno} userfaultfd"));
            found.is_denied("userfaultfd", "denied", "seccomp", Some(name));
        }
    }
}

/// The doctor finds huge pages exactly where an arena of this process has them.
#[test]
fn huge_pages_are_those_that_an_arena_has() {
    if !is_open() {
        return;
    }
    let has_them = || {
        let arena = pinfold::Arena::builder().build().unwrap();
        let _buffer = arena.alloc(8 << 20).unwrap();
        arena.stats().bytes_huge > 0
    };
    let before = has_them();
    let found = under("deny 1");
    if has_them() != before {
        return pinfold_tests::skip::skip("huge pages come and go at the moment");
    }
    let facility = found.facility("huge_shared_pages");
    assert_eq!(facility["status"] == "works", before, "{facility:#}");
    // Without them there is a reason.
    assert_eq!(facility["why"].is_null(), before, "{facility:#}");
}

/// `MADV_COLLAPSE`: an arena does without, and the filter is named.
#[test]
fn huge_pages_that_a_filter_denies() {
    if !is_open() {
        return;
    }
    if under("deny 1").facility("huge_shared_pages")["status"] != "works" {
        return pinfold_tests::skip::skip("there are no huge pages");
    }
    let found = under("deny-if 1 madvise 2 4294967295 25");
    assert_eq!((found.exit, found.denied()), (0, vec![]));
    found.is_denied("huge_shared_pages", "denied", "seccomp", Some("EPERM"));
}

/// A filter that denies the query for a barrier denies the barrier.
#[test]
fn a_barrier_that_nobody_may_ask_for() {
    if !is_open() {
        return;
    }
    let found = under("deny-if 1 membarrier 0 4294967295 0");
    assert_eq!((found.exit, found.denied()), (1, vec!["membarrier_global", "membarrier_private"]));
    found.problem("memory fence");
}
