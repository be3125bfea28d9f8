//! Signals that are meant for the program, while all of the library's threads are there.
#![allow(unsafe_code)]
// Invariant: sets of signals and the words about one live through the calls that are given them.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{FromRawFd, OwnedFd},
    ptr,
};

use pinfold::{
    Endpoint, Progress,
    copy::engine::{CopyEngine, EngineConfig},
    translate::{own::OwnMemory, pincache::Budget},
};
use pinfold_tests::{Args, Stage};

/// Signals of either kind.
const SIGNALS: usize = 200;

#[test]
fn signals_go_to_the_program_by_signalfd_and_by_sigwait() {
    let stage = Stage::new(60);
    for way in ["signalfd", "sigwait"] {
        // The runner of the test there has a thread of its own, which inherits this.
        mask(libc::SIG_BLOCK);
        let mut player = stage.role("signalled").with("way", way).spawn();
        mask(libc::SIG_UNBLOCK);
        player.end_well();
    }
}

/// SIGUSR1 alone.
fn usr1() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is made by the first call.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR1);
        set.assume_init()
    }
}

/// Changes how the calling thread treats SIGUSR1.
fn mask(how: i32) {
    // SAFETY: the set lives through the call.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &usr1(), ptr::null_mut()) }, 0);
}

/// A program that waits for SIGUSR1, which would end it where no thread blocks it.
pub fn signalled(args: &Args) {
    // The program blocks it last of all: the signals that the library's threads block are their own
    // affair.
    mask(libc::SIG_UNBLOCK);
    let dedicated = || Endpoint::builder().progress(Progress::Dedicated);
    let address = format!("local:signals-{}", std::process::id());
    let one = dedicated().listen(&address).build().unwrap();
    let two = dedicated().build().unwrap();
    let to_one = two.connect(&address).unwrap();
    let to_two = one.accept().unwrap();
    let engine = CopyEngine::new(EngineConfig { threads: 2, ..EngineConfig::default() });
    let (_, _, copy) = engine.copy(vec![7; 4 << 20], vec![0; 4 << 20]).unwrap().wait().unwrap();
    assert_eq!(copy[1], 7);
    let _watched = OwnMemory::new(Budget::of_bytes(1 << 20)).unwrap();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads >= 4, "{threads}");

    mask(libc::SIG_BLOCK);
    let set = usr1();
    let take: &dyn Fn() =
        if args.text("way") == "signalfd" { &signalfd(&set) } else { &|| sigwait(&set) };
    for n in 0..SIGNALS {
        // SAFETY: to this process.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) }, 0);
        take();
        let sent = n.to_ne_bytes();
        let send = two.send_owned(to_one, n as u64, sent.to_vec());
        assert_eq!(&*one.recv(to_two, n as u64).unwrap(), &sent);
        send.wait().0.unwrap();
    }
}

fn signalfd(set: &libc::sigset_t) -> impl Fn() + use<> {
    // SAFETY: the set lives through the call, and the descriptor is new.
    let fd = unsafe {
        let fd = libc::signalfd(-1, set, libc::SFD_CLOEXEC);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    };
    move || {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        let mut poll = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(rustix::event::poll(&mut poll, Some(&patience)).unwrap(), 1);
        assert_eq!(rustix::io::read(&fd, &mut info).unwrap(), info.len());
        assert_eq!(info[..4], libc::SIGUSR1.to_ne_bytes());
    }
}

fn sigwait(set: &libc::sigset_t) {
    let patience = libc::timespec { tv_sec: 30, tv_nsec: 0 };
    // SAFETY: both live through the call, and nothing is to be told of the signal.
    let signal = unsafe { libc::sigtimedwait(set, ptr::null_mut(), &patience) };
    assert_eq!(signal, libc::SIGUSR1, "{}", io::Error::last_os_error());
}
