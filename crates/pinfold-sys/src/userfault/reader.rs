//! A thread that reads a [`Watch`], so that nobody who unmaps waits for long.
#![allow(unsafe_code)]
// Invariant: the reader thread takes no lock and no memory after its start, and runs no signal
// handler, so it never waits for anybody who unmaps. `seq` is odd from before it reads until what it
// read is in the ring. The one unsafe call sets the signal mask of the calling thread.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread::{self, JoinHandle},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::{
    abi::Message,
    error::Error,
    event::Event,
    nearby::Nearby,
    ring::Ring,
    watch::{BATCH, Watch},
};

/// Up to where the events of a [`Reader`] were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// A stamp from before everything, which never holds.
    pub const NEVER: Stamp = Stamp(1);
}

/// A [`Stamp`] that threads share. Who sees one sees all that was done before it was put there.
#[derive(Debug)]
pub struct SharedStamp(AtomicU64);

impl SharedStamp {
    /// [`Stamp::NEVER`].
    #[allow(clippy::new_without_default)]
    pub const fn new() -> SharedStamp {
        SharedStamp(AtomicU64::new(Stamp::NEVER.0))
    }

    /// The stamp.
    #[inline]
    pub fn get(&self) -> Stamp {
        // Pairs with `put`.
        Stamp(self.0.load(Ordering::Acquire))
    }

    /// Puts another there.
    pub fn put(&self, stamp: Stamp) {
        self.0.store(stamp.0, Ordering::Release);
    }
}

/// Reads a [`Watch`] from a thread of its own and keeps what it hears, up to 1,024 events, until
/// somebody takes it. Whoever takes it may unmap, allocate and hold locks meanwhile.
///
/// How a cache of facts about addresses uses it, so that no fact is ever stale:
/// 1. `if !reader.is_unchanged(stamp) { stamp = reader.take(|event| forget) }`;
/// 2. look up;
/// 3. `reader.holds(stamp)`, else drop what was found.
///
/// In 3, [`is_unchanged`](Reader::is_unchanged) is enough for a caller that acts after the unmapping
/// call returned. It is not for one that was given the same addresses anew by the kernel before that.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    watch: Watch,
    ring: Ring,
    seq: AtomicU64,
    nearby: Nearby,
}

impl Reader {
    /// Starts the thread. Some 50 µs.
    ///
    /// # Errors
    /// `EAGAIN` at a limit on threads, `EMFILE` on descriptors.
    pub fn new(watch: Watch) -> io::Result<Reader> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (ring, seq, nearby) = (Ring::new(), AtomicU64::new(2), Nearby::new());
        let shared = Arc::new(Shared { watch, ring, seq, nearby });
        let (theirs, their_stop) = (Arc::clone(&shared), Arc::clone(&stop));
        let thread = thread::Builder::new().name("pinfold-watch".into()).stack_size(128 << 10);
        let run = move || {
            theirs.nearby.begin();
            theirs.run(&their_stop);
            theirs.nearby.end();
        };
        let thread = unsignalled(|| thread.spawn(run))?;
        Ok(Reader { shared, stop, thread: Some(thread) })
    }

    /// What it reads. Do not call [`Watch::events`] of it: what that takes is missing here.
    pub fn watch(&self) -> &Watch {
        &self.shared.watch
    }

    /// Binds the reader to the processor of the calling thread, for whoever unmaps there to be kept
    /// waiting no longer than two switches of threads take. A few nanoseconds if it is there; if not, it comes,
    /// some 2 µs, at most once in 1 ms. It does not come to a realtime thread.
    #[inline]
    pub fn come_here(&self) {
        self.shared.nearby.come();
    }

    /// Its thread, once that runs.
    #[cfg(test)]
    pub(super) fn thread_id(&self) -> rustix::thread::Pid {
        loop {
            if let Some(thread) = self.shared.nearby.thread() {
                return thread;
            }
            thread::yield_now();
        }
    }

    /// Takes all events that came, in their order, and says up to where. One load if there are none.
    /// At most one caller at a time; others wait.
    pub fn take(&self, mut each: impl FnMut(Event)) -> Stamp {
        // Before the events: what comes in between is taken twice rather than never.
        let seq = self.shared.seq.load(Ordering::SeqCst);
        self.shared.ring.take(|event| {
            self.shared.watch.follow(&event);
            each(event);
        });
        Stamp(seq)
    }

    /// Whether nothing was heard of since `stamp`. One load.
    #[inline]
    pub fn is_unchanged(&self, stamp: Stamp) -> bool {
        stamp.0 & 1 == 0 && self.shared.seq.load(Ordering::SeqCst) == stamp.0
    }

    /// Whether nothing has happened to watched memory since `stamp`, heard of or not. One
    /// [`Watch::is_quiet`] and two loads.
    ///
    /// Where it says no, somebody may be about to finish an unmap: let others run, then
    /// [`take`](Reader::take) again.
    ///
    /// # Errors
    /// [`Reason::Child`](super::Reason::Child).
    pub fn holds(&self, stamp: Stamp) -> Result<bool, Error> {
        if !self.is_unchanged(stamp) || !self.shared.watch.is_quiet()? {
            return Ok(false);
        }
        // Quiet may mean that the event has just been read, for which `seq` was made odd before.
        fence(Ordering::SeqCst);
        Ok(self.is_unchanged(stamp))
    }
}

impl Shared {
    fn run(&self, stop: &OwnedFd) {
        let mut room = [Message::default(); BATCH];
        loop {
            let mut waits =
                [PollFd::new(&self.watch, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            let _ = poll(&mut waits, None);
            let (news, stopped) = (!waits[0].revents().is_empty(), !waits[1].revents().is_empty());
            if news && !self.read(&mut room) {
                // Nothing can be read any more.
                return;
            }
            if stopped && !news {
                return;
            }
        }
    }

    fn read(&self, room: &mut [Message; BATCH]) -> bool {
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::SeqCst);
        let read = self.watch.read(room);
        let count = read.as_ref().map_or(0, |&count| count);
        room[..count].iter().for_each(|message| self.ring.put(message));
        let next = if count == 0 { seq } else { seq + 2 };
        self.seq.store(next, Ordering::SeqCst);
        read.is_ok()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.shared.watch.here("drop").is_err() {
            // The thread was not copied to this child: there is nobody to stop or to wait for.
            std::mem::forget(thread);
            return;
        }
        self.take(|_| {});
        // As long as the thread still reads, so that nobody waits.
        self.shared.watch.unwatch_all();
        if rustix::io::write(self.stop.as_fd(), &1u64.to_ne_bytes()).is_ok() {
            let _ = thread.join();
        }
    }
}

/// Does `work` with all signals blocked, which threads made by it inherit: a handler that unmaps
/// must not run where unmaps are heard of.
fn unsignalled<T>(work: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets live through the calls, and `all` is filled before it is read.
    let masked = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) == 0
    };
    let done = work();
    if masked {
        // SAFETY: `before` was filled by the call above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    done
}
