//! Facilities that pin memory and send without copying.

use super::*;

fn found(tried: Tried<()>, set: impl FnOnce(&mut Trials, &mut Facts)) -> [Facility; 2] {
    let (mut trials, mut facts) = well();
    trials.calls.send_zc = tried.clone();
    trials.calls.io_uring = tried.map(|()| 0x3fff);
    set(&mut trials, &mut facts);
    let report = report(&trials, &facts);
    ["io_uring", "send_zc"]
        .map(|name| report.facilities.iter().find(|one| one.name == name).unwrap().clone())
}

#[test]
fn the_limit_on_locked_memory_is_named() {
    let limits = |trials: &mut Trials, _: &mut Facts| {
        trials.rlimits = Ok(vec![("memlock", Some(65536), Some(1 << 23))]);
    };
    for call in ["io_uring_register", "io_uring_enter"] {
        for one in found(errno(call, libc::ENOMEM), limits) {
            assert_eq!((one.status, one.reason), (Status::Denied, Some(Reason::Rlimit)));
            assert!(one.why.as_ref().unwrap().contains("65536 bytes may be locked"), "{one:?}");
            assert_eq!(one.remedies[0].run.as_deref(), Some("ulimit -Sl 8192"), "{one:?}");
        }
    }
    // Without such a limit there is another cause.
    for one in found(errno("io_uring_register", libc::ENOMEM), |_, _| {}) {
        assert_eq!(one.reason, Some(Reason::Other));
    }
}

#[test]
fn a_little_locked_memory_is_low() {
    let limit = |capabilities| {
        let (mut trials, mut facts) = well();
        trials.rlimits = Ok(vec![("memlock", Some(65536), Some(65536))]);
        facts.user.capabilities = Some(capabilities);
        let report = report(&trials, &facts);
        assert_eq!(report.verdict.exit, 0);
        let limit = report.limits.iter().find(|one| one.name == "locked_memory").unwrap().clone();
        shown(&report);
        limit
    };
    let low = limit(0);
    assert_eq!((low.status, low.used), (Room::Low, None));
    assert!(low.remedies[0].run.as_ref().unwrap().contains("memlock unlimited"), "{low:?}");
    // A process that may lock all memory is not counted.
    assert_eq!(limit(!0).status, Room::Ok);
}

/// Endpoints do not ask by themselves where a filter may kill for it.
#[test]
fn a_filter_is_a_reason_not_to_ask() {
    for one in found(YES, |trials, _| trials.seccomp_mode = Ok(2)) {
        assert_eq!(one.status, Status::Works);
        assert!(one.detail.as_ref().unwrap().contains("Builder::io_uring"), "{one:?}");
    }
    for one in found(YES, |_, _| {}) {
        assert!(!one.detail.as_ref().unwrap().contains("Builder::io_uring"), "{one:?}");
    }
}

#[test]
fn kernels_that_cannot_pin_are_too_old() {
    let old = |_: &mut Trials, facts: &mut Facts| facts.kernel = Some("5.10.0".into());
    for one in found(errno("io_uring_register", libc::EINVAL), old) {
        assert_eq!(one.reason, Some(Reason::KernelTooOld), "{one:?}");
    }
}

#[test]
fn a_userfaultfd_that_cannot_watch_is_no_use() {
    let (mut trials, mut facts) = well();
    facts.kernel = Some("5.10.0".into());
    trials.calls.userfaultfd = errno("UFFDIO_API", libc::EOPNOTSUPP);
    let old = report(&trials, &facts);
    let one = old.facilities.iter().find(|one| one.name == "userfaultfd").unwrap();
    assert_eq!((one.status, one.reason), (Status::Denied, Some(Reason::KernelTooOld)), "{one:?}");
    assert!(one.why.as_ref().unwrap().contains("5.18"), "{one:?}");
    facts.kernel = Some("6.6.0".into());
    trials.calls.userfaultfd = Ok(Faults { shared: true, any: false, moves: false });
    let report = report(&trials, &facts);
    let one = report.facilities.iter().find(|one| one.name == "userfaultfd").unwrap();
    assert_eq!(one.status, Status::Works);
    let detail = one.detail.as_ref().unwrap();
    assert!(detail.contains("private and shared") && detail.contains("no pages"), "{detail}");
}

/// The call that was denied is the first to allow.
#[test]
fn remedies_name_the_call_that_failed() {
    let (mut trials, facts) = well();
    trials.seccomp_mode = Ok(2);
    trials.calls.memfd = errno("ftruncate", libc::EPERM);
    let report = report(&trials, &facts);
    let one = report.facilities.iter().find(|one| one.name == "memfd").unwrap();
    assert!(one.why.as_ref().unwrap().ends_with("to ftruncate"), "{one:?}");
    assert!(one.remedies[0].note.as_ref().unwrap().contains("ftruncate memfd_create"), "{one:?}");
}

/// The report says the cost of hidden page numbers, which are no problem.
#[test]
fn what_is_not_kept_registered_is_said() {
    let (mut trials, facts) = well();
    trials.calls.page_numbers = errno("open", libc::EPERM);
    for seccomp in [0, 2] {
        trials.seccomp_mode = Ok(seccomp);
        let report = report(&trials, &facts);
        assert_eq!(report.verdict.exit, 0);
        let one = report.facilities.iter().find(|one| one.name == "page_numbers").unwrap();
        assert_eq!((one.status, one.reason), (Status::Denied, Some(Reason::Permissions)));
        assert!(one.why.as_ref().unwrap().contains("18 for 1 MiB"), "{one:?}");
        assert!(one.remedies[0].note.as_ref().unwrap().contains("CAP_SYS_ADMIN"), "{one:?}");
        shown(&report);
    }
}
