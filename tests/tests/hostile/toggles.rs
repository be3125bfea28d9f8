#![allow(unsafe_code)]
//! A peer whose memory is there when it is looked at and gone when it is copied: it holds up the
//! process that copies it, once.
// Invariant: the pages are the role's own, and stay mapped for good; reads of them find zero.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsRawFd, FromRawFd},
    path::PathBuf,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use pinfold::{Endpoint, OwnedBuf, Path, PeerId, Source};
use pinfold_tests::{
    Args, Stage,
    role::{self, hear, say},
    stage::all_end_well,
};

use super::{
    HOSTILE,
    freezes::{provided, serve},
};

const LEN: usize = 16 << 20;
/// Bytes of a message that is too short for the sender to help.
const SHORT: usize = 48 << 10;
/// Tries with each of several connections.
const TRIES: u32 = 4;
const CONNECTIONS: u32 = 5;
/// The time for which it holds up a thread that waits for its memory.
const HELD: Duration = Duration::from_millis(150);
/// A wait may look like a shorter one beside others that compute.
const FREEZES_MAX: u32 = 2;

#[test]
fn who_holds_a_copy_up_is_copied_from_no_more() {
    for way in ["again", "long"] {
        let stage = Stage::new(60);
        let mut besieged = stage.role("besieged").spawn();
        besieged.expect("ready");
        let mut toggler = stage.role("toggler").with("way", way).spawn();
        let heard = toggler.hear();
        if heard != "attacking" {
            besieged.kill();
            besieged.end();
            return pinfold_tests::skip::skip(&heard);
        }
        let attack = format!("memory that comes and goes: {way}");
        let mut friend = stage.role("friend").with("attack", attack).spawn();
        let froze: u32 = toggler.expect("froze").parse().unwrap();
        println!("{way}: {froze} copies were held up");
        assert!(froze <= FREEZES_MAX, "{way}: {froze} copies were held up");
        friend.expect("through");
        besieged.expect("through");
        let by_kernel = besieged.expect("by kernel");
        assert!(froze == 0 || by_kernel == "0", "it copied again: {by_kernel} bytes");
        friend.say("end");
        toggler.say("end");
        all_end_well(&mut [friend, besieged, toggler]);
    }
}

/// Serves a friend, and receives all other messages.
pub fn besieged(args: &Args) {
    let (endpoint, _) = role::listen(args.builder(), "victim");
    let post = |buf| endpoint.recv_owned(Source::Any, HOSTILE, buf);
    let mut receive = Some(post(vec![1; LEN]));
    // The last message but the one that ends it: the bytes that were copied here.
    let (mut by_kernel, mut is_over) = (0, false);
    let mut reap = |patience| {
        let Some(request) = &mut receive else { return true };
        let Some((received, buf)) = request.wait_timeout(patience) else { return is_over };
        // A receiver that insists on the kernel has an error in the end, and so has this side.
        is_over = received.as_ref().is_ok_and(|received| received.len == 1);
        if !is_over {
            by_kernel = received.map_or(0, |received| received.receipt.copied_kernel);
        }
        receive = (!is_over).then(|| post(buf));
        is_over
    };
    serve(&endpoint, || {
        reap(Duration::ZERO);
    });
    while !reap(Duration::from_millis(50)) {}
    say(format_args!("by kernel {by_kernel}"));
}

pub fn toggler(args: &Args) {
    let memory = match Memory::new() {
        Ok(memory) => memory,
        Err(why) => return say(format_args!("memory that is to be provided: {why}")),
    };
    let served = memory.clone();
    thread::spawn(move || served.serve());
    let first = role::connect(Endpoint::builder(), "victim");
    say("attacking");
    // It comes again as another peer of the same process, while it still is the first.
    for number in 0..CONNECTIONS {
        let other = (number > 0).then(|| role::connect(Endpoint::builder(), "victim"));
        let (endpoint, victim) = other.as_ref().unwrap_or(&first);
        for _ in 0..TRIES {
            match args.text("way") {
                "long" => memory.attack_long(endpoint, *victim),
                _ => memory.attack_again(endpoint, *victim),
            }
        }
    }
    let (endpoint, victim) = &first;
    endpoint.send(*victim, HOSTILE, b"!").unwrap();
    say(format_args!("froze {}", memory.froze.load(Ordering::Relaxed)));
    hear();
}

/// Pages that are there or not, at the peer's will.
#[derive(Clone)]
struct Memory {
    at: *mut u8,
    events: Arc<File>,
    froze: Arc<AtomicU32>,
}

// SAFETY: plain memory that is mapped for good.
unsafe impl Send for Memory {}

// SAFETY: as above. Several operations have it at once; it is only read.
unsafe impl OwnedBuf for Memory {
    fn bytes(&self) -> (*const u8, usize) {
        (self.at, LEN)
    }
}

impl Memory {
    fn new() -> Result<Memory, String> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let (all, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping.
        let at = unsafe { mmap_anonymous(ptr::null_mut(), LEN, all, flags) };
        let at: *mut u8 = at.map_err(|why| why.to_string())?.cast();
        let fd = provided(at, LEN, THREAD_ID)?;
        // SAFETY: a new descriptor, which no other code has.
        let events = Arc::new(unsafe { File::from_raw_fd(fd) });
        Ok(Memory { at, events, froze: Arc::default() })
    }

    /// Has all pages be there.
    fn fill(&self) {
        self.provide(0, LEN);
    }

    /// Provides the pages from `from` to `to`, as far as the first of them that was there.
    fn provide(&self, from: usize, to: usize) {
        let start = self.at.expose_provenance() + from;
        let mut range = [start as u64, (to - from) as u64, 0, 0];
        // SAFETY: the structure is the one that the number stands for.
        unsafe { libc::ioctl(self.events.as_raw_fd(), UFFDIO_ZEROPAGE, range.as_mut_ptr()) };
    }

    /// Takes away all but the first `len` bytes.
    fn hide(&self, len: usize) {
        // SAFETY: of the mapping; no code counts on its contents.
        let done =
            unsafe { libc::madvise(self.at.add(len).cast(), LEN - len, libc::MADV_DONTNEED) };
        assert_eq!(done, 0);
    }

    /// Hides the memory once one message out of it has come, and before another.
    fn attack_again(&self, endpoint: &Endpoint, victim: PeerId) {
        self.fill();
        // SAFETY: mapped for good, and never written.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, SHORT) };
        // The memory is looked at by then.
        for is_there in [true, true, false] {
            if !is_there {
                self.hide(0);
            }
            let _ = endpoint.send_by(Path::Cma, victim, HOSTILE, bytes);
        }
    }

    /// Hides the end while the beginning is copied, at which the peer takes no part.
    fn attack_long(&self, endpoint: &Endpoint, victim: PeerId) {
        self.fill();
        let request = endpoint.send_owned(victim, HOSTILE, self.clone());
        thread::sleep(Duration::from_micros(700));
        self.hide(LEN / 2);
        let _ = request.wait();
        self.hide(0);
    }

    /// Provides pages: late those that others wait for, and at once those that this process itself
    /// waits for.
    fn serve(self) {
        let mut event = [0; 32];
        while let Ok(32) = (&*self.events).read(&mut event) {
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| event[at + i]));
            let (from, thread) = (word(16) as usize - self.at.expose_provenance(), word(24) as u32);
            if !PathBuf::from(format!("/proc/self/task/{thread}")).exists() {
                self.froze.fetch_add(1, Ordering::Relaxed);
                thread::sleep(HELD);
            }
            self.provide(from & !4095, LEN);
        }
    }
}

/// `UFFD_FEATURE_THREAD_ID` of `linux/userfaultfd.h`.
const THREAD_ID: u64 = 1 << 8;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
