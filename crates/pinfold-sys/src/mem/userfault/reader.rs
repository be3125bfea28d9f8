//! A [`Watch`] that is always read, so that no thread that unmaps waits for long.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering, fence},
};

#[cfg(test)]
use super::duty::Who;
use super::{duty::Rule, error::Error, event::Event, threads::Threads, watch::Watch};

/// The place up to which the events of a [`Reader`] were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// A stamp from before everything, which never holds.
    pub const NEVER: Stamp = Stamp(1);
}

/// A [`Stamp`] that threads share. A thread that sees one sees all that was done before it was put
/// there.
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

/// Reads a [`Watch`] from threads of its own, two that take turns, and keeps the events, up to
/// 1,024, until a thread takes them. That thread may unmap, allocate and hold locks meanwhile.
///
/// Steps of a cache of facts about addresses, by which no fact is ever stale:
/// 1. `if !reader.is_unchanged(stamp) { stamp = reader.take(|event| forget) }`;
/// 2. look up;
/// 3. `reader.holds(stamp)`, else drop the fact that was found.
///
/// In 3, [`is_unchanged`](Reader::is_unchanged) is enough for a caller that acts after the
/// unmapping call returned. It is not for one that was given the same addresses anew by the kernel
/// before that.
#[derive(Debug)]
pub struct Reader {
    threads: Threads,
}

impl Reader {
    /// Starts its threads. Some 100 µs.
    ///
    /// # Errors
    /// `EAGAIN` at a limit on threads, `EMFILE` on descriptors.
    pub fn new(watch: Watch) -> io::Result<Reader> {
        Reader::by(watch, Rule::USUAL)
    }

    /// A reader with threads that take turns by this rule.
    pub(super) fn by(watch: Watch, rule: Rule) -> io::Result<Reader> {
        Ok(Reader { threads: Threads::start(watch, rule)? })
    }

    /// The watch that it reads. Do not call [`Watch::events`] of it: events taken there are missing
    /// here.
    pub fn watch(&self) -> &Watch {
        &self.threads.shared().watch
    }

    /// Binds its threads to the processor of the calling thread, so that a thread that unmaps there
    /// is kept waiting no longer than two switches of threads take. A few nanoseconds if they are
    /// there; if not, they come, some 3 µs, at most once in 1 ms. They do not come to a realtime
    /// thread.
    #[inline]
    pub fn come_here(&self) {
        self.threads.shared().nearby.come();
    }

    /// The number of one of the two threads, once that runs.
    #[cfg(test)]
    pub(super) fn thread_id(&self, who: Who) -> rustix::thread::Pid {
        loop {
            if let Some(thread) = self.threads.shared().nearby.thread(who) {
                return thread;
            }
            std::thread::yield_now();
        }
    }

    /// Takes all events that came, in their order, and returns the stamp up to which. One load if
    /// there are none. At most one caller at a time; others wait.
    pub fn take(&self, mut each: impl FnMut(Event)) -> Stamp {
        // Before the events: one that comes in between is taken twice rather than never.
        let shared = self.threads.shared();
        let seq = shared.seq.load(Ordering::SeqCst);
        shared.ring.take(|event| {
            shared.watch.follow(&event);
            each(event);
        });
        Stamp(seq)
    }

    /// Returns whether nothing was heard of since `stamp`. One load.
    #[inline]
    pub fn is_unchanged(&self, stamp: Stamp) -> bool {
        stamp.0 & 1 == 0 && self.threads.shared().seq.load(Ordering::SeqCst) == stamp.0
    }

    /// Returns whether nothing has happened to watched memory since `stamp`, heard of or not. One
    /// [`Watch::is_quiet`] and two loads.
    ///
    /// If it says no, another thread may be about to finish an unmap: let others run, then
    /// [`take`](Reader::take) again.
    ///
    /// # Errors
    /// [`Reason::Child`](super::Reason::Child).
    pub fn holds(&self, stamp: Stamp) -> Result<bool, Error> {
        if !self.is_unchanged(stamp) || !self.watch().is_quiet()? {
            return Ok(false);
        }
        // Quiet may mean that the event has just been read, for which `seq` was made odd before.
        fence(Ordering::SeqCst);
        Ok(self.is_unchanged(stamp))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.watch().here("drop").is_err() {
            // The threads were not copied to this child: there is nobody to stop or to wait for.
            self.threads.forget();
            return;
        }
        self.take(|_| {});
        // As long as a thread still reads, so that nobody waits.
        self.watch().unwatch_all();
    }
}
