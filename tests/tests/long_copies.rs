#![allow(unsafe_code)]
//! Copies of long messages that are held up in the middle, by a page that a userfaultfd is to
//! provide. Other threads of the endpoint go on meanwhile, and no buffer is given back before the
//! copy has ended, no matter what ends the operation.
// Invariant: the pages stay mapped for good, and none but the library touches them before they are
// provided.

use std::{
    io, ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use pinfold::{
    Arena, Counters, Endpoint, Error, Gone, OwnedBuf, OwnedBufMut, Path, PathSet, PeerId,
    SharedArena,
};
use pinfold_tests::{pair, role::PATIENCE, skip::skip, stamp};

const LEN: usize = 1 << 20;
const LONG: u64 = 1;
const PING: u64 = 2;
const ROUNDS: u64 = 1000;
/// Time in which an operation that may end would.
const A_WHILE: Duration = Duration::from_millis(100);

// Numbers of `linux/userfaultfd.h`.
const USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_UNREGISTER: libc::c_ulong = 0x8010_aa01;
const MODE_MISSING: u64 = 1;

/// Memory whose pages are missing, so that a thread that touches one waits.
struct Held {
    pages: *mut u8,
    dropped: Arc<AtomicBool>,
}

// SAFETY: plain memory that is mapped for good.
unsafe impl Send for Held {}

// SAFETY: as above; nobody else has it.
unsafe impl OwnedBuf for Held {
    fn bytes(&self) -> (*const u8, usize) {
        (self.pages, LEN)
    }
}

// SAFETY: as above.
unsafe impl OwnedBufMut for Held {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.pages, LEN)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

/// The side that provides the pages.
#[derive(Clone)]
struct Holder {
    at: u64,
    fd: libc::c_int,
    dropped: Arc<AtomicBool>,
}

impl Holder {
    /// Returns when a thread waits for a page.
    fn await_touch(&self) {
        let mut awaited = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        let patience_ms = PATIENCE.as_millis() as libc::c_int;
        // SAFETY: one structure.
        assert_eq!(unsafe { libc::poll(&raw mut awaited, 1, patience_ms) }, 1, "nothing is copied");
        let mut event = [0u64; 4];
        // SAFETY: the buffer is as long as an event.
        let read = unsafe { libc::read(self.fd, event.as_mut_ptr().cast(), 32) };
        assert_eq!(read, 32, "{}", io::Error::last_os_error());
    }

    /// Provides all pages; threads that wait go on.
    fn release(&self) {
        let mut range = [self.at, LEN as u64];
        // SAFETY: the structure is that of the number.
        let done = unsafe { libc::ioctl(self.fd, UFFDIO_UNREGISTER, range.as_mut_ptr()) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }

    fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

/// Memory that holds up a thread. `None`: there is none here.
fn held() -> Option<(Held, Holder)> {
    let done = |name: &str, done: i64| {
        let error = io::Error::last_os_error();
        if done < 0 {
            skip(&format!("a copy that is held up: {name}: {error}"));
        }
        (done >= 0).then_some(done as libc::c_int)
    };
    // SAFETY: new memory, at a place that the kernel chooses.
    let pages = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(pages, libc::MAP_FAILED);
    let flags = libc::O_CLOEXEC | USER_MODE_ONLY;
    // SAFETY: the call takes one integer; the descriptor stays open.
    let fd = done("userfaultfd", unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
    let mut api = [UFFD_API, 0, 0];
    // SAFETY: the structures are those that the numbers stand for.
    done("UFFDIO_API", unsafe { libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()) }.into())?;
    let at = pages.expose_provenance() as u64;
    let mut range = [at, LEN as u64, MODE_MISSING, 0];
    // SAFETY: as above.
    let registered = unsafe { libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()) };
    done("UFFDIO_REGISTER", registered.into())?;
    let dropped = Arc::new(AtomicBool::new(false));
    let holder = Holder { at, fd, dropped: Arc::clone(&dropped) };
    Some((Held { pages: pages.cast(), dropped }, holder))
}

impl Held {
    fn to_vec(&self) -> Vec<u8> {
        // SAFETY: mapped, and in nobody's use by now.
        unsafe { std::slice::from_raw_parts(self.pages, LEN) }.to_vec()
    }
}

/// An endpoint with a peer for long messages and one for short ones.
struct Three {
    one: Endpoint,
    to_long: PeerId,
    long: Endpoint,
    from_long: PeerId,
    to_short: PeerId,
    short: Endpoint,
    from_short: PeerId,
}

impl Three {
    fn meet(name: &str) -> Three {
        let paths = PathSet::only(&[Path::Inline, Path::Eager, Path::Mapped]);
        let builder = || Endpoint::builder().paths(paths);
        let (one, to_long, long, from_long) = pair(name, builder(), builder());
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let address = format!("local:{name}-short-{}-{number}", std::process::id());
        let short = Endpoint::builder().listen(&address).build().unwrap();
        let (from_short, to_short) = thread::scope(|s| {
            let calls = s.spawn(|| one.connect(&address).unwrap());
            (short.accept().unwrap(), calls.join().unwrap())
        });
        Three { one, to_long, long, from_long, to_short, short, from_short }
    }

    /// Runs `work` while a thread makes progress at the endpoint, and another at the peer for long
    /// messages.
    fn driven<T>(&self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            for endpoint in [&self.one, &self.long] {
                let over = &over;
                s.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if endpoint.progress().is_err() {
                            break;
                        }
                        thread::yield_now();
                    }
                });
            }
            let done = work();
            over.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Short messages go back and forth, and all of them arrive.
    fn ping_pong(&self) {
        let before = self.one.counters();
        thread::scope(|s| {
            s.spawn(|| {
                for round in 0..ROUNDS {
                    let ping = self.short.recv(self.from_short, PING).unwrap();
                    assert_eq!(ping[..], round.to_ne_bytes());
                    self.short.send(self.from_short, PING, &ping).unwrap();
                }
            });
            for round in 0..ROUNDS {
                self.one.send(self.to_short, PING, &round.to_ne_bytes()).unwrap();
                let pong = self.one.recv(self.to_short, PING).unwrap();
                assert_eq!(pong[..], round.to_ne_bytes());
            }
        });
        let after = self.one.counters();
        let sent = |counters: &Counters| counters.sent.iter().map(|it| it.messages).sum::<u64>();
        assert_eq!(sent(&after) - sent(&before), ROUNDS);
    }
}

#[test]
fn a_receive_that_is_held_up_holds_up_nobody_else() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-in");
    let arena = Arena::new().unwrap();
    let mut message = arena.alloc(LEN).unwrap();
    stamp::fill(&mut message, 1);
    let request = three.one.recv_owned(three.to_long, LONG, memory);
    three.driven(|| {
        let sent = three.long.send_owned(three.from_long, LONG, message);
        holder.await_touch();
        three.ping_pong();
        assert!(!holder.is_dropped());
        holder.release();
        let (received, memory) = request.wait();
        let receipt = received.unwrap().receipt;
        assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LEN as u64));
        stamp::check(&memory.to_vec(), 1);
        assert_eq!(sent.wait().0.unwrap().path, Path::Mapped);
    });
}

#[test]
fn a_thread_that_waits_takes_over_from_one_that_is_held_up() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-leader");
    let arena = Arena::new().unwrap();
    let mut message = arena.alloc(LEN).unwrap();
    stamp::fill(&mut message, 1);
    thread::scope(|s| {
        let waits = s.spawn(|| {
            // It sleeps for all, and copies once it is woken.
            let (received, memory) = three.one.recv_owned(three.to_long, LONG, memory).wait();
            assert_eq!(received.unwrap().receipt.path, Path::Mapped);
            stamp::check(&memory.to_vec(), 1);
        });
        let follows = s.spawn(|| three.one.recv(three.to_short, PING).unwrap());
        thread::sleep(A_WHILE);
        let sends = s.spawn(|| three.long.send_owned(three.from_long, LONG, message).wait().0);
        holder.await_touch();
        three.short.send(three.from_short, PING, b"wake up").unwrap();
        assert_eq!(follows.join().unwrap()[..], *b"wake up");
        assert!(!waits.is_finished());
        holder.release();
        waits.join().unwrap();
        assert_eq!(sends.join().unwrap().unwrap().path, Path::Mapped);
    });
}

#[test]
fn a_send_that_is_held_up_holds_up_nobody_else() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-out");
    let arena = SharedArena::builder().build_shared().unwrap();
    let room = arena.alloc(LEN).unwrap();
    let request = three.long.recv_owned(three.from_long, LONG, room);
    three.driven(|| {
        let sent = three.one.send_owned(three.to_long, LONG, memory);
        holder.await_touch();
        three.ping_pong();
        holder.release();
        let receipt = sent.wait().0.unwrap();
        assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LEN as u64));
        let (received, room) = request.wait();
        assert_eq!(received.unwrap().len, LEN as u64);
        assert!(room.to_vec() == vec![0; LEN]);
    });
}

/// Ways to end a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Disconnect,
    PeerCloses,
    Close,
    Drop,
}

#[test]
fn a_receive_ends_no_sooner_than_its_copy() {
    for end in [End::Disconnect, End::PeerCloses, End::Close, End::Drop] {
        let Some((memory, holder)) = held() else { return };
        let three = Three::meet("held-end");
        let arena = Arena::new().unwrap();
        let message = arena.alloc(LEN).unwrap();
        let mut request = Some(three.one.recv_owned(three.to_long, LONG, memory));
        three.driven(|| {
            let sent = three.long.send_owned(three.from_long, LONG, message);
            holder.await_touch();
            match end {
                End::Disconnect => three.one.disconnect(three.to_long),
                End::PeerCloses => three.long.close(),
                End::Close => three.one.close(),
                End::Drop => drop(request.take()),
            }
            let early = request.as_mut().and_then(|request| request.wait_timeout(A_WHILE));
            assert!(early.is_none(), "{end:?}");
            thread::sleep(A_WHILE);
            assert!(!holder.is_dropped(), "{end:?}");
            if end == End::Disconnect {
                three.ping_pong();
            }
            holder.release();
            match (end, request.take().map(|request| request.wait().0)) {
                (End::Drop, None) => {
                    assert_eq!(sent.wait().0.unwrap().path, Path::Mapped);
                    pinfold_tests::progress_until(&[&three.one], "kept", || holder.is_dropped());
                    return;
                }
                (End::Disconnect, Some(Err(Error::PeerGone { how: Gone::Disconnected, .. }))) => {}
                (End::PeerCloses, Some(Err(Error::PeerGone { .. }))) => {}
                (End::Close, Some(Err(Error::Closed))) => {}
                (_, other) => panic!("{end:?}: {other:?}"),
            }
            assert!(holder.is_dropped());
            assert!(sent.wait().0.is_err(), "{end:?}");
        });
    }
}

/// The peer gives its memory to others as soon as it hears that this side is gone.
#[test]
fn a_peer_that_is_written_to_hears_of_the_end_no_sooner_than_the_copy_ends() {
    let Some((memory, holder)) = held() else { return };
    let three = Three::meet("held-farewell");
    let arena = SharedArena::builder().build_shared().unwrap();
    let room = arena.alloc(LEN).unwrap();
    let mut request = three.long.recv_owned(three.from_long, LONG, room);
    three.driven(|| {
        let mut sent = three.one.send_owned(three.to_long, LONG, memory);
        holder.await_touch();
        three.one.disconnect(three.to_long);
        assert!(request.wait_timeout(A_WHILE).is_none(), "its memory is written to");
        assert!(sent.wait_timeout(A_WHILE).is_none() && !holder.is_dropped());
        assert_eq!(three.long.peers().len(), 1);
        three.ping_pong();
        holder.release();
        let gone = |result: &Error| matches!(result, Error::PeerGone { .. });
        assert!(gone(&sent.wait().0.unwrap_err()));
        assert!(gone(&request.wait().0.unwrap_err()));
        assert!(three.one.peers().iter().all(|peer| peer.id != three.to_long));
    });
}
