#![allow(unsafe_code)]
//! Receives into memory of different kinds, and the faults and pages that they took.
// Invariant: as in `stage`.

use std::{
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    ptr, thread,
};

use pinfold::{Endpoint, Path, PathSet, Received};
use pinfold_tests::{
    Args,
    filter::{CMA, deny, deny_if, kill},
    host, pair,
    role::{self, say},
    stamp,
};

use super::stage::{Area, Ends, PAGE, faults_so_far, is_possible, rss};

const MIB: usize = 1 << 20;

fn faults_of(ends: &Ends, area: Area, message: &[u8], wants: bool) -> (i64, Received) {
    let mut before = 0;
    let received = ends.receive(area.bytes(), message, || {
        // The endpoint's thread does it in its own time.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while wants && area.pages().0 < area.len / PAGE && std::time::Instant::now() < end {
            thread::yield_now();
        }
        before = faults_so_far();
    });
    assert_eq!(received.len, message.len() as u64);
    assert!(area.bytes() == message);
    (faults_so_far() - before, received)
}

pub fn faults(args: &Args) {
    say("ready");
    if !is_possible() {
        return;
    }
    let ends = Ends::meet(args);
    let message = stamp::bytes(MIB, 4);
    let wants = !args.has("prepares");
    // Work that is done once in a process, and once in each lane, has been done then.
    for _ in 0..3 {
        faults_of(&ends, Area::fresh(MIB), &message, wants);
    }
    let (mut least, pages) = (i64::MAX, (MIB / PAGE) as i64);
    for _ in 0..5 {
        let (faults, received) = faults_of(&ends, Area::fresh(MIB), &message, wants);
        let made = if wants { MIB as u64 } else { 0 };
        assert_eq!(received.receipt.prefaulted(), made, "{}", received.receipt);
        assert!(wants || faults >= pages, "{faults}");
        least = least.min(faults);
    }
    assert!(!wants || least < pages / 4, "{least} faults");
}

pub fn room(args: &Args) {
    say("ready");
    if !is_possible() {
        return;
    }
    let ends = Ends::meet(args);
    let area = || Area::fresh(1 << 30);
    // The library knows nothing of the messages yet.
    let (before, memory) = (rss(), area());
    let received = ends.receive(memory.bytes(), b"short", || {
        assert_eq!(memory.pages().0, 4 * MIB / PAGE);
        let more = rss() - before;
        assert!((4 * MIB..6 * MIB).contains(&more), "{more}");
    });
    assert_eq!(received.receipt.prefaulted(), 4 << 20);
    // It then knows that messages are short.
    let memory = area();
    let received = ends.receive(memory.bytes(), &stamp::bytes(9 * MIB, 1), || {
        assert_eq!(memory.pages().0, 0);
    });
    assert_eq!(received.receipt.prefaulted(), 0);
    // It then knows that one was long.
    let memory = area();
    ends.receive(memory.bytes(), b"short", || assert_eq!(memory.pages().0, 9 * MIB / PAGE));
    // In all, over the receives that are posted and withdrawn: the pages of those that came, and
    // some.
    let areas: Vec<Area> = (0..30).map(|_| area()).collect();
    ends.a.scope(|scope| {
        for area in &areas {
            _ = scope.recv_into(ends.from_b, 2, area.bytes()).unwrap();
        }
        (0..5).for_each(|_| ends.idle());
        let made: usize = areas.iter().map(|area| area.pages().0 * PAGE).sum();
        assert!((50 * MIB..=64 * MIB).contains(&made), "{made}");
    });
}

pub fn again(args: &Args) {
    say("ready");
    let ends = Ends::meet(args);
    let area = Area::fresh(MIB);
    area.bytes().fill(1);
    for round in 0..100 {
        let message = stamp::bytes(MIB, round);
        let received = ends.receive(area.bytes(), &message, || {});
        assert_eq!(received.receipt.prefaulted(), 0);
        assert!(area.bytes() == message);
    }
    // The second of two halves is new each time.
    let areas: Vec<Area> = (0..5).map(|_| Area::fresh(MIB)).collect();
    for area in areas.iter().filter(|_| is_possible()) {
        area.part(0, MIB / 2).bytes().fill(1);
        let received = ends.receive(area.bytes(), b"short", || {});
        assert_eq!(received.receipt.prefaulted(), 512 << 10);
        assert!(area.bytes()[5..MIB / 2].iter().all(|byte| *byte == 1));
        assert!(area.bytes()[MIB / 2..].iter().all(|byte| *byte == 0));
    }
}

pub fn others(args: &Args) {
    say("ready");
    // Each time between other endpoints, which know nothing of the messages.
    let ends = || Ends::meet(args);
    // A hole stays a hole, however it is mapped.
    let file = tempfile::tempfile().unwrap();
    file.set_len(MIB as u64).unwrap();
    for kind in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        let area = Area::map(MIB, kind, Some(&file));
        let received = ends().receive(area.bytes(), b"to a file", || {
            assert_eq!((area.pages().0, file.metadata().unwrap().blocks()), (0, 0));
        });
        assert_eq!(received.receipt.prefaulted(), 0);
        assert_eq!(&area.bytes()[..9], b"to a file");
        file.set_len(0).unwrap();
        file.set_len(MIB as u64).unwrap();
    }
    let shared = Area::map(MIB, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None);
    ends().receive(shared.bytes(), b"shared", || assert_eq!(shared.pages().0, 0));
    // Memory that can be written when the message comes.
    let area = Area::fresh(MIB);
    area.protect(libc::PROT_READ);
    let received = ends().receive(area.bytes(), b"late", || {
        assert_eq!(area.pages().0, 0);
        area.protect(libc::PROT_READ | libc::PROT_WRITE);
    });
    assert_eq!((received.len, received.receipt.prefaulted()), (4, 0));
    // Pages are faulted in as far as to a guard.
    let area = Area::fresh(MIB);
    area.part(MIB / 2, PAGE).protect(libc::PROT_NONE);
    let received = ends().receive(area.bytes(), b"guard", || {});
    let made = if is_possible() { 512 << 10 } else { 0 };
    assert_eq!(
        (received.receipt.prefaulted(), area.pages().0 * PAGE),
        (made as u64, made.max(PAGE))
    );
}

/// Has a userfaultfd take memory. `None`: there are none here.
fn guard(area: Area) -> Option<OwnedFd> {
    const API: libc::c_ulong = 0xc018_aa3f;
    const REGISTER: libc::c_ulong = 0xc020_aa00;
    // Only a privileged process may watch the kernel's own faults; others are told of faults of
    // user mode, and the kernel has an error.
    let fd = [0, 1].into_iter().find_map(|user_mode_only| {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | user_mode_only;
        // SAFETY: no memory is involved; the descriptor is new.
        unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, flags);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
        }
    })?;
    let (mut api, mut register) = ([0xaa_u64, 0, 0], [area.at as u64, area.len as u64, 1, 0]);
    // SAFETY: as many words as the calls read and write.
    unsafe {
        assert_eq!(libc::ioctl(fd.as_raw_fd(), API, api.as_mut_ptr()), 0);
        assert_eq!(libc::ioctl(fd.as_raw_fd(), REGISTER, register.as_mut_ptr()), 0);
    }
    Some(fd)
}

pub fn guarded(args: &Args) {
    say("ready");
    let ends = Ends::meet(args);
    let area = Area::fresh(MIB);
    let Some(fd) = guard(area.part(MIB / 2, MIB / 2)) else {
        return role::skip("memory that a userfaultfd has: there are none");
    };
    ends.a.scope(|scope| {
        // Withdrawn in the end: no message would fill its pages.
        let _receive = scope.recv_into(ends.from_b, 1, area.bytes()).unwrap();
        ends.idle();
        // The thread that drives the endpoint goes on.
        for round in 0..300u32 {
            ends.b.send(ends.to_a, 2, &round.to_ne_bytes()).unwrap();
            assert_eq!(ends.a.recv(ends.from_b, 2).unwrap()[..], round.to_ne_bytes());
        }
        let made = if is_possible() { MIB / 2 } else { 0 };
        assert_eq!(area.part(0, MIB / 2).pages().0 * PAGE, made);
        assert_eq!(area.part(MIB / 2, MIB / 2).pages().0, 0);
    });
    let mut message = [0u8; 32];
    // SAFETY: room for a message.
    let read = unsafe { libc::read(fd.as_raw_fd(), message.as_mut_ptr().cast(), message.len()) };
    assert_eq!(
        (read, io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::EAGAIN)),
        "no fault"
    );
}

pub fn gone(args: &Args) {
    say("ready");
    let ends = Ends::meet(args);
    let [gone, another, last] = [(); 3].map(|()| Area::fresh(MIB));
    ends.a.scope(|scope| {
        for area in [gone, another, last] {
            _ = scope.recv_into(ends.from_b, 1, area.bytes()).unwrap();
        }
        for area in [gone, another] {
            let at = ptr::with_exposed_provenance_mut(area.at);
            // SAFETY: only the kernel reaches it, and nothing is sent there.
            assert_eq!(unsafe { libc::munmap(at, area.len) }, 0);
        }
        host::occupy(another.at);
        host::scribble(another.at, 0x1234_5678);
        ends.idle();
        assert_eq!(host::peek(another.at), 0x1234_5678);
        assert_eq!(gone.pages().0, 0);
        let made = if is_possible() { MIB } else { 0 };
        assert_eq!(last.pages().0 * PAGE, made);
        assert!(last.bytes().iter().all(|byte| *byte == 0));
    });
}

pub fn forked(args: &Args) {
    say("ready");
    let ends = Ends::meet(args);
    let area = Area::fresh(MIB);
    area.bytes().fill(5);
    // SAFETY: the child makes two calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: waits until it is killed.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pause();
            libc::_exit(0);
        }
    }
    assert_eq!(area.pages(), (MIB / PAGE, 0));
    let own = if is_possible() { MIB / PAGE } else { 0 };
    let received = ends.receive(area.bytes(), b"short", || {
        assert_eq!(area.pages(), (MIB / PAGE, own));
        assert!(area.bytes().iter().all(|byte| *byte == 5));
    });
    assert_eq!(received.receipt.prefaulted(), (own * PAGE) as u64);
    // SAFETY: the child that was made above.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, ptr::null_mut(), 0);
    }
}

pub fn begun(_: &Args) {
    say("ready");
    if !is_possible() {
        return;
    }
    let only = || Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager]));
    let (a, from_b, b, to_a) = pair("begun", only(), only());
    let message = stamp::bytes(8 * MIB, 2);
    let (area, fresh) = (Area::fresh(8 * MIB), Area::fresh(MIB));
    area.bytes().fill(0);
    let mut during = 0;
    a.scope(|ours| {
        let receive = ours.recv_into(from_b, 1, area.bytes()).unwrap();
        b.scope(|theirs| {
            // The part that the lane holds comes, and then no more: its sender does nothing.
            let mut sent = theirs.send(to_a, 1, &message).unwrap();
            while a.progress().unwrap() {}
            let _second = ours.recv_into(from_b, 2, fresh.bytes()).unwrap();
            (0..1000).for_each(|_| _ = a.progress().unwrap());
            during = fresh.pages().0;
            let mut receive = Some(receive);
            loop {
                b.progress().unwrap();
                a.progress().unwrap();
                match receive.take().unwrap().try_wait() {
                    Ok((received, _)) => {
                        assert_eq!(received.unwrap().len, 8 << 20);
                        break;
                    }
                    Err(again) => receive = Some(again),
                }
            }
            loop {
                b.progress().unwrap();
                match sent.try_wait() {
                    Ok(done) => {
                        done.unwrap();
                        break;
                    }
                    Err(again) => sent = again,
                }
            }
            (0..1000).for_each(|_| _ = a.progress().unwrap());
            assert_eq!(fresh.pages().0, MIB / PAGE);
        });
    });
    assert_eq!(during, 0, "in the middle of a message");
    assert!(area.bytes() == message);
}

pub fn filtered(args: &Args) {
    say("ready");
    if !is_possible() {
        return;
    }
    match args.text("denied") {
        "cma" => deny(&CMA, libc::EPERM),
        "userfaultfd" => kill(&[libc::SYS_userfaultfd]),
        // The error of a kernel that does not have it.
        "populate" => deny_if(libc::SYS_madvise, 2, u64::from(u32::MAX), 23, libc::EINVAL),
        // Without that call there are no lanes.
        "madvise" => {}
        other => unreachable!("{other}"),
    }
    let ends = Ends::meet(args);
    if args.text("denied") == "madvise" {
        deny(&[libc::SYS_madvise], libc::EPERM);
    }
    for round in 0..3 {
        let message = stamp::bytes(MIB, round);
        let area = Area::fresh(MIB);
        let received = ends.receive(area.bytes(), &message, || {});
        assert!(area.bytes() == message);
        assert_eq!(
            received.receipt.prefaulted(),
            args.number::<u64>("made"),
            "{}",
            received.receipt
        );
    }
}
