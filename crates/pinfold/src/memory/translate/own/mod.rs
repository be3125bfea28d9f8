//! This process's own memory as transfers see it: areas of any alignment, pinned by the means of
//! this machine, kept pinned while nothing changes, and never stale.
//!
//! - [`OwnMemory`] hands out pinned memory ([`OwnHold`]), and takes it back.
//! - [`Standing`] names the means of pinning here, and for each better one [`Why`] it is not there.
//!
//! **Invariant.** The memory that a hit finds is mapped there now, for each caller that is ordered
//! after the return of any call that changed it; for every caller if it asked by
//! [`begin_exact`](OwnMemory::begin_exact). The reasons:
//! 1. Memory that is kept was watched before it was pinned, and nothing had happened to it when
//!    that ended (`keep.rs` has the steps, `backend.rs` does them).
//! 2. A call that changes watched memory, and of which the kernel tells, does not return before its
//!    event was read, and before it was read a number changes that each hit looks at. A hit whose
//!    stamp is not that number first has all events applied: each takes its range out of the cache,
//!    and a discard puts it into quarantine (`quarantine.rs`).
//! 3. Of some calls the kernel does not tell: guards (`MADV_GUARD_INSTALL`, Linux 6.13), `shmat(2)`
//!    with `SHM_REMAP`, and changes of memory that was put there by it; and no query about the
//!    mapping shows afterwards that they were made. But pinned memory keeps its page, and the page
//!    its number. So each hit looks whether the pages of its bytes have the numbers that were noted
//!    when they were pinned ([`frames`](pinfold_sys::mem::frames)): one system call, about 0.9 µs
//!    and 20 ns a page. Where the kernel does not show numbers, as to processes without
//!    `CAP_SYS_ADMIN`, nothing is kept.
//! 4. Memory that is not kept is pinned when its transfer begins.
//!
//! Only memory that an io_uring has pinned is kept. Memory that `mlock` has locked cannot be
//! discarded (`madvise(2)` says `EINVAL`), and a program must not notice that its transfers have
//! ended: a lock lasts as long as its transfer.
//!
//! Memory that files or other processes share is not kept, since it changes without an event: see
//! [`userfault`](pinfold_sys::mem::userfault) for the changes that are not told.
//!
//! Locks are taken in this order: `applying`, the books of the cache, the notes of pages, the
//! quarantine. No thread waits for the event reader while it holds a lock that the event reader
//! takes: the reader takes none.

mod applying;
mod backend;
mod hold;
mod keep;
mod looking;
pub(crate) mod process;
mod quarantine;
mod standing;
// The tests need system calls that Miri does not have.
#[cfg(all(test, not(miri)))]
mod tests;
mod validation;
mod watchlist;

use std::{
    fmt,
    marker::PhantomData,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use pinfold_sys::{
    fork::ForkMark,
    mem::{maps, pin},
};

use self::backend::{Backend, By, Guard};
pub use self::{
    hold::OwnHold,
    standing::{Facility, Lack, PinnedBy, Standing, Why},
    validation::{Blind, Heard, Validation, Watched},
};
use super::{
    Rights, SpaceId,
    pincache::{
        AccountGauges, AccountId, Budget, BudgetError, Hold, NoPin, PinCost, PinCounters, Refused,
    },
    stack::{Stack, Translation},
};

/// The bits of a space below its account's number: 0 for the memory that the account keeps, and
/// another number for each transfer whose memory is not kept.
const SERIAL_BITS: u32 = 40;
const SERIALS: u64 = (1 << SERIAL_BITS) - 1;
const ACCOUNTS_MAX: u64 = 1 << (u64::BITS - SERIAL_BITS);

/// The account of a memory that has no others.
const SOLE: AccountId = AccountId(0);

/// The space of the memory that an account keeps.
const fn kept_by(account: AccountId) -> SpaceId {
    SpaceId(account.0 << SERIAL_BITS)
}

/// The account that a space is of.
const fn account_of(space: SpaceId) -> AccountId {
    AccountId(space.0 >> SERIAL_BITS)
}

/// The space of kept memory of a memory that has no accounts.
#[cfg(all(test, not(miri)))]
const HERE: SpaceId = kept_by(SOLE);

/// Of the mappings that the system allows, one part of so many may come from areas here. Each takes
/// two at most, since watching or locking part of a mapping splits it at each end.
const MAPPINGS_SHARE: u32 = 6;

/// Attempts to pin an area to be kept.
const TRIES: usize = 4;

/// Attempts to have all events applied; between the later ones others may run.
const ROUNDS: usize = 64;

/// The counters of an [`OwnMemory`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCounters {
    /// The cache's. Memory pinned for one transfer counts there as a miss, a pin and an
    /// invalidation.
    pub pins: PinCounters,
    /// Events that were applied.
    pub events: u64,
    /// Transfers whose memory was not kept.
    pub unkept: u64,
}

/// This process's own memory, pinned for transfers; for many threads.
///
/// In a child of `fork(2)` every call returns [`Refused::Child`], and none of the parent's memory
/// is touched.
pub struct OwnMemory<V = Watched> {
    mark: Option<ForkMark>,
    guard: Option<Arc<Guard>>,
    /// The means of [`SOLE`], where it is the only account.
    by: Option<By>,
    /// The means of the account that is opened next, if they are there already.
    spare: Mutex<Option<By>>,
    cache: Option<Stack<Backend>>,
    /// Held while events are taken and applied.
    applying: Mutex<()>,
    standing: Standing,
    /// Slots of an account at most.
    slots: u32,
    last_account: AtomicU64,
    /// Pins for one transfer.
    unkept: AtomicU64,
    events: AtomicU64,
    made: Instant,
    validation: PhantomData<V>,
}

/// A part of the memory's budget with means of its own: pinned areas are kept apart by account.
#[derive(Debug)]
pub(crate) struct Account {
    id: AccountId,
    by: By,
    gauges: Arc<AccountGauges>,
}

impl OwnMemory {
    /// Chooses the means of pinning: an io_uring's buffers, else `mlock`, else nothing; and starts
    /// to watch, if that is possible. Some 100 µs, and a thread. `budget` holds at any instant,
    /// memory that is not kept included; it is cut to the slots of this machine, and to a third of
    /// its mappings. A huge page counts there by the bytes of it that were asked for, though the
    /// kernel charges all of it.
    ///
    /// # Errors
    /// The budget is impossible. Means that this machine lacks are no error: see
    /// [`OwnMemory::standing`].
    pub fn new(budget: Budget) -> Result<OwnMemory, BudgetError> {
        OwnMemory::with_validation(budget)
    }
}

impl<V: Validation> OwnMemory<V> {
    /// As [`OwnMemory::new`].
    ///
    /// # Errors
    /// As for [`OwnMemory::new`].
    #[doc(hidden)]
    pub fn with_validation(budget: Budget) -> Result<OwnMemory<V>, BudgetError> {
        let mut memory = OwnMemory::with_accounts(budget)?;
        memory.by = memory.spare.get_mut().take();
        if let (Some(cache), Some(by)) = (&memory.cache, memory.by.clone()) {
            cache.pins().with_pinner(|it| it.pinner.open(SOLE, by));
        }
        Ok(memory)
    }

    /// The same, without an account: each is to be [opened](OwnMemory::open).
    ///
    /// # Errors
    /// As for [`OwnMemory::new`].
    pub(crate) fn with_accounts(budget: Budget) -> Result<OwnMemory<V>, BudgetError> {
        let areas_max = budget.entries_max.min(maps::count_max() / MAPPINGS_SHARE);
        let slots = areas_max.min(budget.slots_max).clamp(1, pin::Registered::SLOTS_MAX);
        let (by, no_ring, no_lock) = backend::choose(slots);
        let entries_max = if budget.entries_max == 0 { 0 } else { slots };
        let slots_max = budget.slots_max.min(slots);
        let budget = Budget { entries_max, slots_max, ..budget };
        let (guard, not_kept) = match &by {
            Some(By::Ring(_)) => match Guard::new(V::CHECKS, V::LOOKS, slots) {
                Ok(guard) => (Some(Arc::new(guard)), None),
                Err(why) => (None, Some(why)),
            },
            Some(By::Lock(_)) => (None, Some(Why::Locking)),
            None => (None, no_lock),
        };
        let cache = |by: &By| Stack::new(Backend::new(by.cost(), guard.clone()), budget);
        let cache = by.as_ref().map(cache).transpose()?;
        let name = by.as_ref().map_or(PinnedBy::Nothing, By::name);
        let standing = Standing { by: name, no_ring, no_lock, not_kept };
        Ok(OwnMemory {
            mark: ForkMark::new().ok(),
            guard,
            by: None,
            spare: Mutex::new(by),
            cache,
            applying: Mutex::default(),
            standing,
            slots,
            last_account: AtomicU64::new(SOLE.0),
            unkept: AtomicU64::new(0),
            events: AtomicU64::new(0),
            made: Instant::now(),
            validation: PhantomData,
        })
    }

    /// Opens an account, which may have so many bytes of the budget, with an io_uring of its own:
    /// the kernel finds pinned memory by the ring that has it.
    ///
    /// # Errors
    /// There is no ring for it.
    pub(crate) fn open(&self, bytes_max: u64) -> Result<Account, Why> {
        let exhausted = Why::Lacks(Facility::Ring, Lack::Exhausted);
        let cache = self.cache.as_ref().filter(|_| !self.is_child()).ok_or(Why::Child)?;
        let spare = self.spare.lock().take();
        let by = spare.map_or_else(|| By::another(self.standing.by, self.slots), Ok)?;
        let id = AccountId(self.last_account.fetch_add(1, Ordering::Relaxed) + 1);
        if id.0 >= ACCOUNTS_MAX {
            return Err(exhausted);
        }
        let gauges = cache.pins().open_account(id, bytes_max);
        cache.pins().with_pinner(|it| it.pinner.open(id, by.clone()));
        Ok(Account { id, by, gauges })
    }

    /// Closes an account: nothing of it is pinned any more, and the ends of its transfers are
    /// nothing. In a child of `fork(2)` nothing happens.
    pub(crate) fn close(&self, account: &Account) {
        if let Some(cache) = self.cache.as_ref().filter(|_| !self.is_child()) {
            cache.pins().close_account(account.id);
            cache.pins().with_pinner(|it| it.pinner.close(account.id));
        }
    }

    /// The means that work here, and why better ones do not.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Pins the `len` bytes from `start` on for a transfer that begins; if they are pinned already,
    /// it looks whether the same pages are there, by one system call for 2 MiB, and takes no lock
    /// that waits for a thread that pins. Memory that is not writable cannot be pinned by an
    /// io_uring.
    ///
    /// # Errors
    /// There is no room now, or never will be, or the memory cannot be pinned: go another way.
    #[inline]
    pub fn begin(&self, start: u64, len: u64) -> Result<OwnHold, NoPin> {
        self.translate(SOLE, start, len)
    }

    /// As [`begin`](OwnMemory::begin), for an account.
    #[inline]
    fn translate(&self, account: AccountId, start: u64, len: u64) -> Result<OwnHold, NoPin> {
        match self.hit(account, start, len) {
            Some(hold) => Ok(hold),
            None => self.miss(account, start, len),
        }
    }

    /// As [`begin`](OwnMemory::begin), for a caller that was given the addresses anew by a call of
    /// its own while the call of another thread that unmapped them has not returned. One short
    /// system call more, about 0.15 µs.
    ///
    /// # Errors
    /// As for [`begin`](OwnMemory::begin).
    pub fn begin_exact(&self, start: u64, len: u64) -> Result<OwnHold, NoPin> {
        for round in 0..ROUNDS {
            let stamp = self.guard.as_ref().map(|guard| guard.applied.get());
            let hold = self.begin(start, len)?;
            if hold.not_kept.is_some() || stamp.is_some_and(|stamp| self.holds(stamp)) {
                return Ok(hold);
            }
            self.end(hold);
            pause(round);
        }
        self.begin_unkept(SOLE, start, len, Why::Restless)
    }

    /// Ends a transfer. Memory that is kept stays pinned; other memory is unpinned. In a child of
    /// `fork(2)` nothing happens.
    #[inline]
    pub fn end(&self, hold: OwnHold) {
        self.end_told(hold);
    }

    /// As [`end`](OwnMemory::end). Returns whether the memory stays pinned.
    #[inline]
    fn end_told(&self, hold: OwnHold) -> bool {
        let cache = self.cache.as_ref().filter(|_| !self.is_child());
        cache.is_some_and(|cache| cache.end(hold.hold))
    }

    /// Writes the pinned memory to a file from byte `offset` on; returns how many bytes. Out of the
    /// pinned pages where an io_uring has them, else out of the memory mapped there. Waits.
    ///
    /// # Errors
    /// The file's error, or [`pin::Reason::Child`].
    pub fn write_out(
        &self,
        hold: &OwnHold,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, pin::Error> {
        let bytes = hold.start as usize..(hold.start + hold.len) as usize;
        match (&self.by, hold.slot()) {
            (Some(By::Ring(ring)), Some(slot)) => ring.write_out(slot, bytes, fd, offset),
            (Some(By::Lock(lock)), _) => lock.write_out(bytes, fd, offset),
            _ => pin::write_mapped(bytes, fd, offset),
        }
    }

    /// The counters. Looks at every slot of the cache.
    pub fn counters(&self) -> OwnCounters {
        let pins = match &self.cache {
            Some(cache) if !self.is_child() => cache.pins().counters(),
            _ => PinCounters::default(),
        };
        OwnCounters {
            pins,
            events: self.events.load(Ordering::Relaxed),
            unkept: self.unkept.load(Ordering::Relaxed),
        }
    }

    /// The budget of pinned memory, cut to the means of this machine. `None` where nothing pins.
    pub fn budget(&self) -> Option<Budget> {
        self.cache.as_ref().filter(|_| !self.is_child()).map(|cache| cache.pins().budget())
    }

    /// The cost of pinning. `None` where nothing pins.
    pub fn cost(&self) -> Option<PinCost> {
        self.cache.as_ref().filter(|_| !self.is_child()).map(|cache| cache.pins().cost())
    }

    #[inline]
    fn is_child(&self) -> bool {
        // Without a mark nothing is ever begun.
        self.mark.as_ref().is_none_or(ForkMark::is_child)
    }

    /// The hold of memory that is pinned already, and known to be mapped there still.
    #[inline]
    fn hit(&self, account: AccountId, start: u64, len: u64) -> Option<OwnHold> {
        let cache = self.cache.as_ref().filter(|_| self.may_hit())?;
        let known = cache.translate_known(kept_by(account), start, len, Rights::Read)?;
        self.shown(known, start, len)
    }

    /// Returns whether the areas of the cache are known to be those mapped.
    #[inline]
    fn may_hit(&self) -> bool {
        self.guard.as_ref().is_some_and(|guard| !self.is_child() && self.is_applied(guard))
    }

    /// The hold, if its memory is mapped there now. Otherwise it is taken back, and so are all
    /// areas with any of these bytes.
    #[inline]
    fn shown(&self, known: Translation, start: u64, len: u64) -> Option<OwnHold> {
        let Translation { hold, level } = known;
        let guard = self.guard.as_ref().filter(|_| V::LOOKS);
        if guard.is_none_or(|guard| guard.shows(hold.handle(), start, len)) {
            let by = self.standing.by;
            return Some(OwnHold { hold, start, len, by, not_kept: None, level });
        }
        self.disown(hold, start, len);
        None
    }

    #[cold]
    #[inline(never)]
    fn disown(&self, hold: Hold, start: u64, len: u64) {
        let Some(cache) = &self.cache else { return };
        if let Some(guard) = &self.guard {
            guard.doubt(hold.handle());
        }
        cache.pins().invalidate_everywhere(start, len);
        cache.end(hold);
    }

    #[cold]
    #[inline(never)]
    fn miss(&self, account: AccountId, start: u64, len: u64) -> Result<OwnHold, NoPin> {
        if self.is_child() {
            return Err(NoPin::Refused(Refused::Child));
        }
        let Some(cache) = &self.cache else { return Err(NoPin::Refused(Refused::Absent)) };
        // Whole pages of it have to fit.
        let most = (pin::Registered::BYTES_MAX - 2 * rustix::param::page_size()) as u64;
        if self.standing.by == PinnedBy::Ring && len > most {
            return Err(NoPin::TooLarge);
        }
        let Some(guard) = self.guard.as_deref() else {
            // Nothing is kept where no changes are told.
            let why = self.standing.not_kept.unwrap_or(Why::Kind);
            return self.begin_unkept(account, start, len, why);
        };
        // A thread that pins here probably unmaps here.
        guard.reader.come_here();
        for round in 0..TRIES {
            if V::CHECKS {
                if !self.apply(guard) {
                    break;
                }
                if self.may_be_discarded(guard, start, len) {
                    return self.begin_unkept(account, start, len, Why::Discarding);
                }
            }
            let refused = match cache.translate_unknown(kept_by(account), start, len) {
                // The area may have been there already, and a hit did not find it.
                Ok(found) => match self.shown(found, start, len) {
                    Some(hold) => return Ok(hold),
                    None => continue,
                },
                Err(refused) => refused,
            };
            let NoPin::Refused(Refused::NotKept(number)) = refused else { return Err(refused) };
            match Why::of_number(number) {
                // Once more, with the events told meanwhile applied.
                Some(Why::Restless | Why::Discarding) => pause(round * ROUNDS / TRIES),
                why => return self.begin_unkept(account, start, len, why.unwrap_or(Why::Kind)),
            }
        }
        self.begin_unkept(account, start, len, Why::Restless)
    }

    /// Pins for this transfer alone.
    fn begin_unkept(
        &self,
        account: AccountId,
        start: u64,
        len: u64,
        why: Why,
    ) -> Result<OwnHold, NoPin> {
        let Some(cache) = &self.cache else { return Err(NoPin::Refused(Refused::Absent)) };
        let serial = 1 + self.unkept.fetch_add(1, Ordering::Relaxed) % SERIALS;
        let space = SpaceId(kept_by(account).0 | serial);
        let Translation { hold, level } = cache.translate_unknown(space, start, len)?;
        // No hit finds it, and its end unpins it.
        let _ = cache.pins().close(space);
        let by = self.standing.by;
        Ok(OwnHold { hold, start, len, by, not_kept: Some(why), level })
    }
}

impl<V> fmt::Debug for OwnMemory<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnMemory").field("standing", &self.standing).finish_non_exhaustive()
    }
}

/// Waits a moment in the first rounds; later ones let other threads run.
fn pause(round: usize) {
    if round < ROUNDS / 8 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
