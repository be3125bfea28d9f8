//! Messages that the receiver fetches out of the sender's memory: the code that `cma` and `mapping`
//! share.
//!
//! The sender writes the message's place into a line that both map; the receiver fetches the bytes
//! and says so in another line. At most [`WINDOW`] messages are outstanding.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering, fence},
};

use rustix::thread::futex;

use super::{Subject, Waiting};
use crate::{
    fail::Result, pair::Pair, payload::Messages, shared::Shared, sync::Watch, terms::Side,
};

/// Messages whose bytes are on offer at the same time, at most.
const WINDOW: u64 = 64;
const BYTES: usize = 4 * 4096;

// Lines of one direction: the offers, the count of those taken, and a bell for each of the two
// sides that wait.
const TAKEN: usize = WINDOW as usize;
const OFFER_BELL: usize = TAKEN + 1;
const TAKEN_BELL: usize = TAKEN + 2;
const LINES: usize = TAKEN + 4;

const _: () = assert!(2 * LINES * crate::shared::LINE <= BYTES);

/// The way in which bytes are fetched.
pub(crate) trait Fetch {
    /// The place of a message of this side, as a number that the other side's [`Fetch::fetch`]
    /// understands.
    fn locate(&self, message: &[u8]) -> u64;

    /// Fetches all of `into` from `at`.
    fn fetch(&mut self, at: u64, into: &mut [u8]) -> Result<()>;
}

/// One side of it.
pub(crate) struct Offers<F> {
    fetch: F,
    shared: Shared,
    watch: Watch,
    waiting: Waiting,
    /// First lines of the outgoing and of the incoming direction.
    out: usize,
    into: usize,
    offered: u64,
    taken: u64,
}

impl<F: Fetch> Offers<F> {
    /// Sets this side up; `fetch` is ready.
    pub(super) fn set_up(pair: &mut Pair, fetch: F) -> Result<Offers<F>> {
        let (shared, out, into) = match pair.side() {
            Side::First => {
                let (shared, file) = Shared::create("pinfold-perf-offers", BYTES)?;
                pair.tell_with(&(), &[file.as_fd()])?;
                (shared, 0, LINES)
            }
            Side::Second => {
                let ((), [file]) = pair.hear_with()?;
                (Shared::open(&file, BYTES)?, LINES, 0)
            }
        };
        let (watch, waiting) = (pair.watch(), Waiting::Spin);
        Ok(Offers { fetch, shared, watch, waiting, out, into, offered: 0, taken: 0 })
    }

    #[inline]
    fn word(&self, line: usize, word: usize) -> &AtomicU64 {
        &self.shared.lines()[line].0[word]
    }

    /// Puts a message on offer if there is room in the window.
    #[inline]
    fn offer(&mut self, message: &[u8]) -> bool {
        let taken = self.word(self.out + TAKEN, 0).load(Ordering::Acquire);
        if self.offered - taken >= WINDOW {
            return false;
        }
        let line = self.out + (self.offered % WINDOW) as usize;
        self.offered += 1;
        self.word(line, 1).store(self.fetch.locate(message), Ordering::Relaxed);
        // Releases the place: pairs with the acquire in `recv`.
        self.word(line, 0).store(self.offered, Ordering::Release);
        self.ring(self.out + OFFER_BELL);
        true
    }

    /// Waits until the other side has taken all but `left` of the offers.
    #[inline]
    fn wait_taken(&self, left: u64) -> Result<()> {
        let word = self.word(self.out + TAKEN, 0);
        self.wait(self.out + TAKEN_BELL, || self.offered - word.load(Ordering::Acquire) <= left)
    }

    #[inline]
    fn wait(&self, bell: usize, ready: impl Fn() -> bool) -> Result<()> {
        if self.waiting == Waiting::Spin {
            self.watch.until(ready)
        } else {
            self.sleep(bell, ready)
        }
    }

    /// Looks a while, then sleeps until the bell rings.
    fn sleep(&self, bell: usize, ready: impl Fn() -> bool) -> Result<()> {
        if (0..256).any(|_| ready()) {
            return Ok(());
        }
        let sleeping = self.word(bell, 1);
        let bell = self.shared.word32(bell);
        let start = std::time::Instant::now();
        let limit = futex::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        loop {
            let heard = bell.load(Ordering::Acquire);
            sleeping.store(1, Ordering::Relaxed);
            // Either the other side sees the flag, or this side sees the other's progress: both
            // fence between their store and their load.
            fence(Ordering::SeqCst);
            if ready() {
                sleeping.store(0, Ordering::Relaxed);
                return Ok(());
            }
            if futex::wait(bell, futex::Flags::empty(), heard, Some(&limit)).is_err() {
                self.watch.check(start)?;
            }
        }
    }

    /// Wakes the other side if it sleeps.
    #[inline]
    fn ring(&self, bell: usize) {
        if self.waiting == Waiting::Spin {
            return;
        }
        fence(Ordering::SeqCst);
        if self.word(bell, 1).load(Ordering::Relaxed) == 1 {
            self.word(bell, 1).store(0, Ordering::Relaxed);
            let bell = self.shared.word32(bell);
            bell.fetch_add(1, Ordering::Release);
            let _ = futex::wake(bell, futex::Flags::empty(), 1);
        }
    }
}

impl<F: Fetch> Subject for Offers<F> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        while !self.offer(message) {
            self.wait_taken(WINDOW - 1)?;
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let line = self.into + (self.taken % WINDOW) as usize;
        let next = self.taken + 1;
        let offer = self.word(line, 0);
        self.wait(self.into + OFFER_BELL, || offer.load(Ordering::Acquire) == next)?;
        let at = self.word(line, 1).load(Ordering::Relaxed);
        self.fetch.fetch(at, into)?;
        self.taken = next;
        self.word(self.into + TAKEN, 0).store(next, Ordering::Release);
        self.ring(self.into + TAKEN_BELL);
        Ok(())
    }

    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        (0..count).try_for_each(|number| self.send(messages.get(number)))?;
        self.wait_taken(0)
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        let mut sent = 0;
        for received in 0..count {
            while sent < count && self.offer(out.get(sent)) {
                sent += 1;
            }
            self.recv(into.get_mut(received))?;
        }
        for number in sent..count {
            self.send(out.get(number))?;
        }
        self.wait_taken(0)
    }

    fn set_waiting(&mut self, waiting: Waiting) -> Result<()> {
        self.waiting = waiting;
        Ok(())
    }
}
