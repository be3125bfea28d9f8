//! Every system call that `send`, `recv` and `top` make, denied alone: they do without a call that
//! is not indispensable, and fail by the name of one that is,
//! with its remedy.
#![allow(unsafe_code)]
// Invariant: the code between fork and exec only sets a filter on this very process.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use pinfold_tests::filter::deny_where;

use crate::{
    BOX,
    harness::{Ended, PROGRAM, Place, Running, pattern},
};

/// Time that the other side may go on when one has failed: it may be waiting for it.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// Pairs at a time.
const AT_ONCE: usize = 3;

macro_rules! calls {
    ($($call:ident)*) => { &[$((stringify!($call).split_at(4).1, libc::$call)),*] };
}

type Calls = &'static [(&'static str, libc::c_long)];

/// Calls without which something fails, and says so. (Without `openat`, `newfstatat` and others no
/// program is loaded, and without `poll` none of Rust's begins.)
const INDISPENSABLE: Calls = calls!(
    SYS_accept4 SYS_bind SYS_clone3 SYS_connect SYS_epoll_create1 SYS_epoll_ctl SYS_eventfd2
    SYS_flock SYS_ftruncate SYS_getsockopt SYS_listen SYS_memfd_create
    SYS_recvmsg SYS_sendmsg SYS_socket SYS_fcntl SYS_getdents64 SYS_mkdirat SYS_pread64 SYS_pwrite64 SYS_socketpair
);

/// Calls without which all goes on.
const OPTIONAL: Calls = calls!(
    SYS_chmod SYS_clock_gettime SYS_clock_nanosleep SYS_epoll_pwait SYS_epoll_wait SYS_fadvise64
    SYS_fallocate SYS_fchmod SYS_fchmodat SYS_fstatfs SYS_fsync SYS_getgroups
    SYS_getpeername SYS_getrandom SYS_getsockname SYS_io_uring_enter SYS_io_uring_register
    SYS_io_uring_setup SYS_ioctl SYS_link SYS_linkat SYS_lseek SYS_madvise SYS_membarrier
    SYS_mincore SYS_mlock SYS_munlock SYS_nanosleep SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2
    SYS_ppoll SYS_prctl SYS_prlimit64 SYS_process_vm_readv SYS_process_vm_writev SYS_readlink
    SYS_recvfrom SYS_rename SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_yield SYS_sendto
    SYS_set_robust_list SYS_setsockopt SYS_shutdown SYS_statx SYS_sysinfo
    SYS_umask SYS_uname SYS_unlinkat SYS_userfaultfd SYS_utimensat
);

/// Uses of a call, as in [`deny_where`], that are denied; all if there are none.
fn uses(call: libc::c_long) -> &'static [(u8, u64, u64)] {
    match call {
        // From the beginning of a file. The loader of programs reads from behind it.
        libc::SYS_pread64 => &[(3, u64::MAX, 0)],
        _ => &[],
    }
}

/// A command that goes without a call.
fn without(call: libc::c_long, errno: i32, words: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(words).stdin(Stdio::null());
    // SAFETY: the child has one thread, and glibc leaves it its allocator.
    unsafe {
        command.pre_exec(move || {
            deny_where(call, uses(call), errno);
            Ok(())
        })
    };
    command
}

/// Waits for both; kills one that goes on after the other has failed.
fn end([mut one, mut two]: [Running; 2]) -> [(bool, Ended); 2] {
    let mut failed_at = None;
    let mut killed = [false; 2];
    loop {
        let states = [&mut one, &mut two].map(|it| it.child.try_wait().unwrap());
        if states.iter().all(Option::is_some) {
            break;
        }
        if states.iter().flatten().any(|status| !status.success()) {
            failed_at.get_or_insert_with(Instant::now);
        }
        if failed_at.is_some_and(|at| at.elapsed() > AFTERWARDS) {
            for (at, running) in [&mut one, &mut two].into_iter().enumerate() {
                if states[at].is_none() {
                    killed[at] = true;
                    running.child.kill().unwrap();
                }
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
    let [first, second] = killed;
    [(first, one.end()), (second, two.end())]
}

/// Plays a transfer: returns whether it went well, and the faults in how it went.
fn play((name, call): (&str, libc::c_long), errno: i32, is_needed: bool) -> (bool, Vec<String>) {
    let place = Place::new();
    let tree = place.dir("tree");
    fs::write(tree.join("file"), pattern(2 << 20, 1)).unwrap();
    fs::write(tree.join("other"), "x").unwrap();
    place.dir("out");
    let recv = place.run_in(&mut without(call, errno, &["recv", BOX, "out"]));
    let send = place.run_in(&mut without(call, errno, &["send", "tree", BOX]));
    let ended = end([recv, send]);
    let top = place.run_in(&mut without(call, errno, &["top", "--once"])).end();
    let mut wrong = Vec::new();
    // The call, and what to do, in the words of one side.
    let mut names_it = false;
    for (killed, side) in ended.iter().chain([&(false, top)]) {
        match side.status.code() {
            Some(0) => {}
            Some(1..=6) => {
                names_it |= side.stderr.contains(name) && side.stderr.contains("seccomp");
            }
            _ if *killed => {}
            _ => wrong.push(format!("it did not end as it should: {side:#?}")),
        }
    }
    let all_went = ended.iter().all(|(_, side)| side.status.success());
    if all_went && place.files("tree") != place.files("out/tree") {
        wrong.push("what came is not what was sent".to_owned());
    }
    if !all_went && place.files("out").iter().any(|(path, bytes)| !is_whole(path, bytes)) {
        wrong.push(format!("a part of a file is left: {ended:#?}"));
    }
    if !all_went && !is_needed {
        wrong.push(format!("it is not indispensable: {ended:#?}"));
    }
    if !all_went && is_needed && !names_it {
        wrong.push(format!("nobody names it and its remedy: {ended:#?}"));
    }
    let wrong = wrong.into_iter().map(|what| format!("{name} ({errno}): {what}")).collect();
    (all_went, wrong)
}

fn is_whole(path: &std::path::Path, bytes: &[u8]) -> bool {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("file") => bytes == pattern(2 << 20, 1),
        Some("other") => bytes == b"x",
        _ => false,
    }
}

#[test]
fn each_call_denied_alone() {
    let all = INDISPENSABLE.iter().map(|call| (*call, true));
    let all: Vec<_> = all.chain(OPTIONAL.iter().map(|call| (*call, false))).collect();
    let next = AtomicUsize::new(0);
    let found: Vec<String> = thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            while let Some((call, is_needed)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let played =
                    [libc::EPERM, libc::ENOSYS].map(|errno| play(*call, errno, *is_needed));
                if *is_needed && played.iter().all(|(went, _)| *went) {
                    found.push(format!("{} is not indispensable", call.0));
                }
                found.extend(played.into_iter().flat_map(|(_, wrong)| wrong));
            }
            found
        };
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(found.is_empty(), "{} wrong:\n{}", found.len(), found.join("\n\n"));
}
