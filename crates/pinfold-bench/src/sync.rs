//! The page of words by which the two processes keep step without the kernel: both map it.
//!
//! Each word has one writer. Barriers, acknowledgements and the probe of the cache-line hop go
//! through it, the same for every subject, so that none is timed with another's machinery.

use std::{
    os::fd::OwnedFd,
    rc::Rc,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use pinfold_sys::cpu::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    control::Control,
    fail::{Fail, Result},
    shared::Shared,
    stats,
    terms::Side,
};

/// Bytes of the page.
pub(crate) const BYTES: usize = 4096;

/// Time that the other process may stay silent before the run ends. One batch of any subject takes
/// far less.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a word that the other process will write, and notices when it is gone.
#[derive(Clone)]
pub(crate) struct Watch {
    control: Rc<OwnedFd>,
    looks_per_check: u32,
}

/// One wait with looks that are system calls, and so dear enough to count each.
pub(crate) struct Patience<'a> {
    watch: &'a Watch,
    looks: u32,
    start: Option<Instant>,
}

impl Patience<'_> {
    /// The last look was in vain. Now and then, checks the other process.
    ///
    /// # Errors
    /// As [`Watch::until`].
    #[inline]
    pub(crate) fn again(&mut self) -> Result<()> {
        self.looks += 16;
        if self.looks < self.watch.looks_per_check {
            return Ok(());
        }
        self.looks = 0;
        self.watch.check(*self.start.get_or_insert_with(Instant::now))
    }
}

impl Watch {
    /// A watch over the process at the other end of `control`. If both processes share a core
    /// (`one_core`), it yields the core often.
    pub(crate) fn new(control: &Control, one_core: bool) -> Watch {
        let looks_per_check = if one_core { 1 << 6 } else { 1 << 14 };
        Watch { control: control.fd(), looks_per_check }
    }

    /// Returns when `ready` says so.
    ///
    /// The first looks follow each other at once; later ones with pauses; now and then the core
    /// is offered to others, and the other process checked.
    ///
    /// # Errors
    /// [`Fail::Gone`] when the other process ended or has something to say, which in the middle
    /// of a batch can only be that it failed; [`Fail::Stuck`] after a minute.
    #[inline]
    pub(crate) fn until(&self, mut ready: impl FnMut() -> bool) -> Result<()> {
        for _ in 0..1024 {
            if ready() {
                return Ok(());
            }
        }
        self.until_slowly(&mut ready)
    }

    #[cold]
    fn until_slowly(&self, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        loop {
            for _ in 0..self.looks_per_check {
                if ready() {
                    return Ok(());
                }
                clock::relax();
            }
            self.check(start)?;
        }
    }

    /// A wait for a loop of its own around system calls that do not wait.
    #[inline]
    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience { watch: self, looks: 0, start: None }
    }

    /// One look at the other process, in a wait that began at `start`.
    #[cold]
    pub(crate) fn check(&self, start: Instant) -> Result<()> {
        let mut fds = [PollFd::new(&*self.control, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if matches!(poll(&mut fds, Some(&now)), Ok(1..)) {
            return Err(Fail::Gone);
        }
        if start.elapsed() > PATIENCE {
            return Err(Fail::Stuck(PATIENCE));
        }
        rustix::thread::sched_yield();
        Ok(())
    }
}

/// The page, as one process sees it.
pub(crate) struct Sync {
    shared: Rc<Shared>,
    pub(crate) side: Side,
    pub(crate) watch: Watch,
    barriers: u64,
    acks: u64,
    grants: u64,
    /// The bounced word at the end of the last probe.
    bounced: u64,
}

// One line per writer and purpose.
const ARRIVED: [usize; 2] = [0, 2];
const BOUNCED: usize = 4;
const ACKED: usize = 6;
const TOUCHED: usize = 8;
const GRANTED: usize = 10;

/// Round trips in one group of the probe: a microsecond or three.
const HOP_ROUND_TRIPS: u64 = 8;
/// Groups in the probe; their median counts, so that interrupts do not.
const HOP_GROUPS: usize = 27;
/// Groups after which a probe may end early, on a machine so busy that it took too long already.
const HOP_GROUPS_MIN: usize = 3;
/// A hop time that is too long.
const HOP_LONG: Duration = Duration::from_millis(1);

/// The two lowest bits of the bounced word: there it goes; there it comes back; over.
const PING: u64 = 1;
const PONG: u64 = 0;
const OVER: u64 = 2;

impl Sync {
    /// Over a page of [`BYTES`].
    pub(crate) fn new(shared: Shared, side: Side, watch: Watch) -> Sync {
        Sync { shared: Rc::new(shared), side, watch, barriers: 0, acks: 0, grants: 0, bounced: 0 }
    }

    fn word(&self, line: usize) -> &AtomicU64 {
        &self.shared.lines()[line].0[0]
    }

    /// Returns after both processes have got here.
    pub(crate) fn barrier(&mut self) -> Result<()> {
        self.barriers += 1;
        let (own, other) = match self.side {
            Side::First => (ARRIVED[0], ARRIVED[1]),
            Side::Second => (ARRIVED[1], ARRIVED[0]),
        };
        // Release and acquire: either side's writes before the barrier are visible to the other
        // after it.
        self.word(own).store(self.barriers, Ordering::Release);
        let other = self.word(other);
        self.watch.until(|| other.load(Ordering::Acquire) >= self.barriers)
    }

    /// Second: says that a burst has arrived.
    pub(crate) fn ack(&mut self) {
        self.acks += 1;
        self.word(ACKED).store(self.acks, Ordering::Release);
    }

    /// First: waits until the other process has said that the next burst has arrived.
    #[inline]
    pub(crate) fn wait_for_ack(&mut self) -> Result<()> {
        self.acks += 1;
        let word = self.word(ACKED);
        self.watch.until(|| word.load(Ordering::Acquire) >= self.acks)
    }

    /// First: decides whether there is one more sample. May be said before the other process asks.
    #[inline]
    pub(crate) fn grant(&mut self, more: bool) {
        self.grants += 1;
        self.word(GRANTED).store(self.grants << 1 | u64::from(more), Ordering::Release);
    }

    /// Second: waits for the next decision.
    #[inline]
    pub(crate) fn granted(&mut self) -> Result<bool> {
        self.grants += 1;
        let word = self.word(GRANTED);
        self.watch.until(|| word.load(Ordering::Acquire) >> 1 >= self.grants)?;
        // A later decision is there already: then the decision for this one was to go on.
        let decided = word.load(Ordering::Acquire);
        Ok(decided >> 1 > self.grants || decided & 1 == 1)
    }

    /// Second: publishes the ticks it spent writing and reading messages so far.
    #[inline]
    pub(crate) fn publish_touch(&self, ticks: u64) {
        self.word(TOUCHED).store(ticks, Ordering::Release);
    }

    /// First: the value that the other process published last.
    #[inline]
    pub(crate) fn read_touch(&self) -> u64 {
        self.word(TOUCHED).load(Ordering::Acquire)
    }

    /// Both: bounces one cache line between the cores for some tens of microseconds. The first
    /// process gets the time of one hop in nanoseconds, the second 0.
    pub(crate) fn hop_ns(&mut self) -> Result<f64> {
        self.barrier()?;
        match self.side {
            Side::First => self.bounce(),
            Side::Second => self.bounce_back().map(|()| 0.0),
        }
    }

    fn bounce(&mut self) -> Result<f64> {
        let mut groups = Vec::with_capacity(HOP_GROUPS);
        let began = Instant::now();
        let word = self.word(BOUNCED);
        let mut value = self.bounced;
        while groups.len() < HOP_GROUPS {
            let start = clock::ticks();
            for _ in 0..HOP_ROUND_TRIPS {
                value += 4;
                word.store(value | PING, Ordering::Release);
                self.watch.until(|| word.load(Ordering::Acquire) == value | PONG)?;
            }
            groups.push(clock::ticks() - start);
            if groups.len() >= HOP_GROUPS_MIN && began.elapsed() > HOP_LONG {
                break;
            }
        }
        value += 4;
        word.store(value | OVER, Ordering::Release);
        self.bounced = value;
        groups.sort_unstable();
        let ticks = groups[groups.len() / 2];
        Ok(stats::ps(ticks) as f64 / 1000.0 / (2 * HOP_ROUND_TRIPS) as f64)
    }

    fn bounce_back(&mut self) -> Result<()> {
        let word = self.word(BOUNCED);
        let mut seen = self.bounced;
        loop {
            self.watch.until(|| word.load(Ordering::Acquire) != seen)?;
            seen = word.load(Ordering::Acquire);
            if seen & 3 == OVER {
                self.bounced = seen;
                return Ok(());
            }
            seen &= !3;
            word.store(seen | PONG, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_keep_step() {
        let (first, second) = Control::pair().unwrap();
        let (_, file) = Shared::create("pinfold-test", BYTES).unwrap();
        let again = file.try_clone().unwrap();
        let go = |control, file: OwnedFd, side| {
            let control = Control::new(control);
            let shared = Shared::open(&file, BYTES).unwrap();
            let mut sync = Sync::new(shared, side, Watch::new(&control, true));
            let mut hops = Vec::new();
            for _ in 0..3 {
                hops.push(sync.hop_ns().unwrap());
                match side {
                    Side::First => {
                        for more in [true, true, false] {
                            sync.grant(more);
                        }
                        sync.wait_for_ack().unwrap();
                    }
                    Side::Second => {
                        let decisions = [(); 3].map(|()| sync.granted().unwrap());
                        assert_eq!(decisions, [true, true, false]);
                        sync.publish_touch(7);
                        sync.ack();
                    }
                }
                sync.barrier().unwrap();
            }
            (hops, sync.read_touch())
        };
        std::thread::scope(|scope| {
            let second = scope.spawn(|| go(second, again, Side::Second));
            let (hops, touch) = go(first, file, Side::First);
            assert!(hops.iter().all(|&hop| hop > 0.0) && touch == 7);
            assert_eq!(second.join().unwrap().0, [0.0; 3]);
        });
    }

    #[test]
    fn a_wait_ends_when_the_other_side_is_gone() {
        let (first, second) = Control::pair().unwrap();
        let control = Control::new(first);
        let watch = Watch::new(&control, true);
        assert!(matches!(watch.until(|| true), Ok(())));
        drop(second);
        assert!(matches!(watch.until(|| false), Err(Fail::Gone)));
        let mut patience = watch.patience();
        assert!((0..1 << 20).find_map(|_| patience.again().err()).is_some());
    }
}
