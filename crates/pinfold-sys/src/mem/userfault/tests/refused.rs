//! Userfaultfds where they are denied.
use std::{collections::BTreeMap, thread};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::*;

/// The older of the two calls that open files, where there is one.
#[cfg(target_arch = "x86_64")]
const OPEN: i64 = libc::SYS_open;
#[cfg(not(target_arch = "x86_64"))]
const OPEN: i64 = libc::SYS_openat;

/// Does `work` in a thread for which these calls answer `errno`.
fn denied(calls: &[libc::c_long], errno: i32, work: impl FnOnce() + Send + 'static) {
    let calls: BTreeMap<i64, Vec<_>> = calls.iter().map(|&call| (call, Vec::new())).collect();
    thread::spawn(move || {
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let no = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, no, arch).unwrap();
        let program: BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        work();
    })
    .join()
    .unwrap();
}

#[test]
fn a_filter_is_named() {
    if watch().is_none() {
        return;
    }
    for (errno, reason) in [(libc::EPERM, Reason::Denied), (libc::ENOSYS, Reason::Absent)] {
        denied(&[libc::SYS_userfaultfd, OPEN, libc::SYS_openat], errno, move || {
            for error in
                [Watch::new().unwrap_err(), Mover::new().unwrap_err(), probe().unwrap_err()]
            {
                assert_eq!((error.reason(), error.errno().raw_os_error()), (reason, errno));
                assert!(
                    error.to_string().contains("userfaultfd(2)")
                        && error.to_string().contains("seccomp")
                );
            }
        });
    }
}

#[test]
fn what_there_is_agrees_with_what_works() {
    let Ok(support) = probe() else { return println!("{:?}", probe()) };
    println!("{support:?}");
    assert_eq!(support.watch, Watch::new().is_ok());
    assert_eq!(support.moves, Mover::new().is_ok());
    assert!(!support.forks || rustix::process::geteuid().is_root());
    assert_eq!(support.watch_any, Watch::new().is_ok_and(|watch| watch.takes_any()));
}
