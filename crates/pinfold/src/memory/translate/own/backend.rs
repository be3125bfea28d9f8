//! The pinning of this process's own memory, for the pin-down cache.
//!
//! **Invariant.** Memory that was pinned to be kept was, when the pinning ended, private memory,
//! watched since before it was pinned, with no change of watched memory told or under way since the
//! events that are applied, and not in quarantine. So each later change of it that is told at all
//! is told by an event that is not applied yet, or will be told before the changing thread goes on.
//! And its pages are those noted with it, so that a look finds every other change.

use std::{io, ops::Range, sync::Arc};

use parking_lot::{Mutex, RwLock};
use pinfold_sys::mem::{
    frames::{self, Frame, Frames},
    maps::Maps,
    pin::{self, Counts, Locked, Pin, Reason, Registered, Slot},
    userfault::{Reader, SharedStamp, Stamp, Watch},
};
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::{
    account_of,
    keep::{Steps, keep},
    kept_by,
    quarantine::Quarantine,
    standing::{Facility, Lack, PinnedBy, Why},
    watchlist::Watchlist,
};
use crate::memory::translate::{
    SpaceId,
    pincache::{AccountId, Area, Handle, PinCost, Pinner, Refused},
};

/// One of the means of pinning.
#[derive(Clone, Debug)]
pub(super) enum By {
    Ring(Arc<Registered>),
    Lock(Arc<Locked>),
}

/// The best of the means that works here, and the reasons why the better ones do not: of the ring,
/// and of the lock.
pub(super) fn choose(slots: u32) -> (Option<By>, Option<Why>, Option<Why>) {
    // The stack of the caller will do: it is mapped.
    let sample = 0u8;
    let sample = (&raw const sample).addr();
    let pins = |pin: &dyn Pin| pin.pin(sample..sample + 1).and_then(|slot| pin.unpin(slot));
    let ring = Registered::new(slots).and_then(|ring| pins(&ring).map(|()| ring));
    let no_ring = match ring {
        Ok(ring) => return (Some(By::Ring(Arc::new(ring))), None, None),
        Err(error) => Why::pinning(Facility::Ring, &error),
    };
    match Locked::new().and_then(|lock| pins(&lock).map(|()| lock)) {
        Ok(lock) => (Some(By::Lock(Arc::new(lock))), Some(no_ring), None),
        Err(error) => (None, Some(no_ring), Some(Why::pinning(Facility::Lock, &error))),
    }
}

impl By {
    fn pin(&self) -> &dyn Pin {
        match self {
            By::Ring(ring) => &**ring,
            By::Lock(lock) => &**lock,
        }
    }

    /// The same means once more, for another account. Locks are the process's.
    pub(super) fn another(by: PinnedBy, slots: u32) -> Result<By, Why> {
        let why = |what| move |error| Why::pinning(what, &error);
        Ok(match by {
            PinnedBy::Lock => By::Lock(Arc::new(Locked::new().map_err(why(Facility::Lock))?)),
            _ => By::Ring(Arc::new(Registered::new(slots).map_err(why(Facility::Ring))?)),
        })
    }

    pub(super) fn cost(&self) -> PinCost {
        let cost = self.pin().cost();
        PinCost {
            pin_ns: cost.pin_ns as u32,
            pin_page_ns: cost.page_ns as u32,
            unpin_ns: cost.unpin_ns as u32,
        }
    }

    pub(super) fn name(&self) -> PinnedBy {
        match self {
            By::Ring(_) => PinnedBy::Ring,
            By::Lock(_) => PinnedBy::Lock,
        }
    }
}

/// The sources that tell of changes.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) reader: Reader,
    /// The stamp up to which events are applied: memory that they concern is neither kept nor
    /// found any more, and quarantines are noted.
    pub(super) applied: SharedStamp,
    pub(super) quarantine: Mutex<Quarantine>,
    pub(super) maps: Maps,
    /// The memory that is watched as far as the applied events say, and more.
    pub(super) watchlist: Mutex<Watchlist>,
    /// Shows which pages are where. `None`: no hit looks.
    frames: Option<Frames>,
    /// The pages of kept memory, by handle.
    noted: RwLock<FxHashMap<u64, Noted>>,
    /// Separate ranges that may be watched without being kept.
    ranges_max: usize,
    /// If false, a hit is believed in spite of any later change: for tests.
    pub(super) checks: bool,
}

/// An area that is kept.
#[derive(Debug)]
struct Noted {
    start: u64,
    frames: Box<[Frame]>,
}

impl Guard {
    /// Starts to watch, or returns the reason why it cannot. Without looks, only changes that the
    /// kernel tells of are found.
    pub(super) fn new(checks: bool, looks: bool, ranges_max: u32) -> Result<Guard, Why> {
        let frames = looks.then(|| Frames::open().map_err(|error| Why::looking(&error)));
        let frames = frames.transpose()?;
        let watch = Watch::new().map_err(|error| Why::watching(&error))?;
        let lacks = |what, error: &io::Error| {
            let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
            Why::Lacks(what, Lack::Errno(errno))
        };
        let maps = Maps::open().map_err(|error| lacks(Facility::Proc, &error))?;
        let reader = Reader::new(watch).map_err(|error| lacks(Facility::Watch, &error))?;
        let applied = SharedStamp::new();
        let (quarantine, watchlist) = Default::default();
        let ranges_max = ranges_max as usize;
        let noted = RwLock::default();
        Ok(Guard {
            reader,
            applied,
            quarantine,
            maps,
            watchlist,
            frames,
            noted,
            ranges_max,
            checks,
        })
    }

    /// Returns whether these bytes of the memory kept by that handle are mapped there now. The
    /// handle is held.
    pub(super) fn shows(&self, handle: Handle, start: u64, len: u64) -> bool {
        let Some(frames) = &self.frames else { return true };
        let page = rustix::param::page_size() as u64;
        let noted = self.noted.read();
        let Some(area) = noted.get(&handle.0) else { return false };
        let first = (start - area.start) / page;
        let last = (start - area.start + len - 1) / page;
        let these = area.frames.get(first as usize..=last as usize);
        these.is_some_and(|these| frames.are((area.start + first * page) as usize, these))
    }

    /// Notes that memory kept by that handle has changed without an event: so it is not watched
    /// either.
    pub(super) fn doubt(&self, handle: Handle) {
        let page = rustix::param::page_size() as u64;
        let noted = self.noted.read();
        if let Some(area) = noted.get(&handle.0) {
            self.watchlist.lock().cut(area.start, area.start + area.frames.len() as u64 * page);
        }
    }

    /// Returns whether all of an area is watched private memory, as far as the applied events say.
    fn knows(&self, area: Area) -> bool {
        self.checks && self.watchlist.lock().has(area.start, area.end)
    }

    /// Notes that an area is watched private memory, if nothing was told since.
    fn know(&self, area: Area, stamp: Stamp) {
        let mut list = self.watchlist.lock();
        // An event that is told from here on is cut from the list after this.
        if self.reader.is_unchanged(stamp) {
            list.add(area.start, area.end);
        }
    }
}

/// Pins, and watches memory that is to be kept.
pub(super) struct Backend {
    pins: Pins,
    cost: PinCost,
    guard: Option<Arc<Guard>>,
    /// For each page, the number of kept areas that have it.
    kept: Counts,
    page_bytes: u64,
}

/// The pins, by handle.
#[derive(Default)]
struct Pins {
    /// The means of each account.
    by: FxHashMap<AccountId, By>,
    slots: FxHashMap<u64, Slot>,
    next: u64,
}

impl Pins {
    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        let by = self.by.get(&account_of(area.space)).ok_or(Refused::Absent)?;
        let slot = by.pin().pin(addresses(area)).map_err(|error| refused(&error))?;
        let handle = match by {
            // Slots name their ring.
            By::Ring(_) => slot.id().bits(),
            By::Lock(_) => {
                self.next += 1;
                self.next
            }
        };
        self.slots.insert(handle, slot);
        Ok(Handle(handle))
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        if let Some(slot) = self.slots.remove(&handle.0)
            && let Some(by) = self.by.get(&account_of(area.space))
        {
            let done = by.pin().unpin(slot);
            debug_assert!(done.is_ok(), "{done:?}");
        }
    }
}

/// An area is being pinned to be kept.
struct Keeping<'a> {
    guard: &'a Guard,
    /// The area, until it is known to be watched private memory.
    unknown: Option<Area>,
    /// Its pages, and the faults of this process until they were seen.
    seen: (Box<[Frame]>, u64),
    pins: &'a mut Pins,
    kept: &'a mut Counts,
    page_bytes: u64,
}

impl Keeping<'_> {
    fn pages(&self, area: Area) -> Range<usize> {
        (area.start / self.page_bytes) as usize..(area.end / self.page_bytes) as usize
    }
}

impl Steps for Keeping<'_> {
    type Stamp = Stamp;
    type Pinned = (Handle, Area);

    fn stamp(&self) -> Stamp {
        self.guard.applied.get()
    }

    fn watch(&mut self, area: Area) -> Result<(), Why> {
        if self.guard.knows(area) {
            let pages = self.pages(area);
            let _ = self.kept.add(pages);
            return Ok(());
        }
        self.unknown = Some(area);
        let watch = self.guard.reader.watch();
        // All of it: memory counted by an area that is not found any more may not be watched now.
        watch.watch(addresses(area)).map_err(|error| Why::not_watched(&error))?;
        let pages = self.pages(area);
        let _ = self.kept.add(pages);
        Ok(())
    }

    fn unwatch(&mut self, area: Area) {
        let page = self.page_bytes as usize;
        let pages = self.pages(area);
        for pages in self.kept.remove(pages) {
            let (start, end) = ((pages.start * page) as u64, (pages.end * page) as u64);
            let mut list = self.guard.watchlist.lock();
            if list.has(start, end) && list.len() < self.guard.ranges_max {
                // Perhaps it comes again.
                continue;
            }
            list.cut(start, end);
            drop(list);
            // Where this fails there is no memory to split a mapping: it stays watched, which only
            // slows a thread that unmaps it.
            let _ = self.guard.reader.watch().unwatch(pages.start * page..pages.end * page);
        }
    }

    fn may_be_discarded(&self, area: Area) -> bool {
        self.guard.checks && self.guard.quarantine.lock().concerns(area.start, area.end)
    }

    fn look(&mut self, area: Area) -> Result<(), Why> {
        if let Some(frames) = &self.guard.frames {
            let faults = frames::faults();
            let seen = frames.read(addresses(area)).map_err(|error| Why::looking(&error))?;
            self.seen = (seen, faults);
        }
        Ok(())
    }

    fn pin(&mut self, area: Area) -> Result<(Handle, Area), Refused> {
        self.pins.pin(area).map(|handle| (handle, area))
    }

    fn unpin(&mut self, (handle, area): (Handle, Area)) {
        self.pins.unpin(handle, area);
    }

    fn is_private(&self, area: Area) -> bool {
        if self.unknown.is_none() {
            return true;
        }
        self.guard.maps.is_private_anonymous(addresses(area)).unwrap_or(false)
    }

    fn holds(&self, stamp: Stamp) -> Result<bool, Why> {
        if !self.guard.checks {
            return Ok(true);
        }
        let holds = self.guard.reader.holds(stamp).map_err(|error| Why::not_watched(&error))?;
        if let (true, Some(area)) = (holds, self.unknown) {
            self.guard.know(area, stamp);
        }
        Ok(holds)
    }

    fn stayed(&self, area: Area) -> bool {
        let (seen, faults) = &self.seen;
        self.guard.frames.as_ref().is_none_or(|frames| {
            // Counted last: a page put there from then on is not one that was seen.
            frames.are(area.start as usize, seen) && frames::faults() == *faults
        })
    }
}

impl Backend {
    pub(super) fn new(cost: PinCost, guard: Option<Arc<Guard>>) -> Backend {
        let page_bytes = rustix::param::page_size() as u64;
        let (pins, kept) = Default::default();
        Backend { pins, cost, guard, kept, page_bytes }
    }

    /// Pins the areas of an account by these means.
    pub(super) fn open(&mut self, account: AccountId, by: By) {
        self.pins.by.insert(account, by);
    }

    /// Lets go of an account's means. None of its areas is pinned.
    pub(super) fn close(&mut self, account: AccountId) {
        self.pins.by.remove(&account);
    }

    /// For an area that is kept, and where anything is.
    fn keeping(&mut self, area: Area) -> Option<Keeping<'_>> {
        let is_kept = area.space == kept_by(account_of(area.space));
        let guard = self.guard.as_ref().filter(|_| is_kept)?;
        let (pins, kept) = (&mut self.pins, &mut self.kept);
        let seen = Default::default();
        Some(Keeping { guard, unknown: None, seen, pins, kept, page_bytes: self.page_bytes })
    }
}

impl Pinner for Backend {
    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        match self.keeping(area) {
            Some(mut steps) => {
                let (handle, _) = keep(&mut steps, area)?;
                let (frames, _) = steps.seen;
                steps.guard.noted.write().insert(handle.0, Noted { start: area.start, frames });
                Ok(handle)
            }
            None => self.pins.pin(area),
        }
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        self.pins.unpin(handle, area);
        if let Some(mut steps) = self.keeping(area) {
            steps.guard.noted.write().remove(&handle.0);
            steps.unwatch(area);
        }
    }

    fn account(&self, space: SpaceId) -> AccountId {
        account_of(space)
    }

    fn cost(&self) -> PinCost {
        self.cost
    }
}

fn addresses(area: Area) -> Range<usize> {
    area.start as usize..area.end as usize
}

fn refused(error: &pin::Error) -> Refused {
    match error.reason() {
        Reason::Memlock(_) | Reason::Exhausted => Refused::NoMemory,
        Reason::Full => Refused::NoSlots,
        Reason::Unmapped => Refused::NotMapped,
        Reason::Kind | Reason::Denied => Refused::Denied,
        Reason::Absent => Refused::Absent,
        Reason::Child => Refused::Child,
        _ => Refused::Other(error.errno().raw_os_error()),
    }
}
