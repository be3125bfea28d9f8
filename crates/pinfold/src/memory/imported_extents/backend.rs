//! The back end of the pin-down cache for files of peers: to pin is to map.
//!
//! A space is a file, and an area the whole of it. Accounting: [`Backend::bytes`] is the sum over
//! all mappings, those closed while in use included, in whole pages; the cache counts the same
//! bytes as pinned.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pinfold_sys::fork::ForkMark;
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::{files::Files, held::Held};
use crate::{
    Error, PeerId,
    memory::{
        arena::Mapping,
        translate::pincache::{Area, Handle, PinCost, Pinner, Refused},
    },
};

/// The assumed cost of mapping and unmapping a file until that was measured, and of the first touch
/// of a page at any time: of the right order of magnitude, not measured.
const COST: PinCost = PinCost { pin_ns: 2500, pin_page_ns: 40, unpin_ns: 3500 };
/// Each new measurement counts for one in so many.
const COST_SHARE: i64 = 8;

/// A mapping that is there.
struct Slot {
    held: Arc<Held>,
    peer: PeerId,
}

/// Files, and their mappings.
pub(super) struct Backend {
    pub(super) files: Files,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    bytes: u64,
    /// Of each peer, how many are mapped; none is left out.
    counts: FxHashMap<PeerId, u32>,
    mark: Arc<ForkMark>,
    page_bytes: u64,
    cost: PinCost,
}

impl Backend {
    pub(super) fn new(files: Files, mark: Arc<ForkMark>) -> Backend {
        Backend {
            files,
            slots: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            counts: FxHashMap::default(),
            mark,
            page_bytes: rustix::param::page_size() as u64,
            cost: COST,
        }
    }

    /// Address space in use.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of a peer's files that are mapped, those that it took back among them.
    pub(super) fn count(&self, peer: PeerId) -> u32 {
        self.counts.get(&peer).copied().unwrap_or_default()
    }

    /// The mapping in that slot.
    pub(super) fn held(&self, slot: u32) -> Option<&Arc<Held>> {
        self.slots.get(slot as usize)?.as_ref().map(|slot| &slot.held)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    pub(super) fn refused(&self, error: &Error, area: Area) -> Refused {
        tracing::debug!(%error, "a peer's arena cannot be mapped");
        let Error::Os { source, .. } = error else { return Refused::Denied };
        match Errno::from_io_error(source) {
            // With less mapped there may be room, but not for more than all of it takes: it is not
            // for one file to have all others unmapped in vain.
            Some(Errno::NOMEM) if area.len() <= self.bytes => Refused::NoMemory,
            Some(errno) => Refused::Other(errno.raw_os_error()),
            None => Refused::Denied,
        }
    }
}

impl Pinner for Backend {
    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Maps a file. [`Refused::NotMapped`] if none is known there, its descriptor was closed, or
    /// the area is not all of it; [`Refused::NoMemory`] where address space or mappings are
    /// exhausted, and the file takes no more than all mappings together.
    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        let started = Instant::now();
        let file = self.files.get(area.space).ok_or(Refused::NotMapped)?;
        let fd = file.fd().ok_or(Refused::NotMapped)?;
        let end = file.bytes.checked_next_multiple_of(self.page_bytes);
        if area.start != 0 || Some(area.end) != end {
            return Err(Refused::NotMapped);
        }
        let mapping = match file.writable {
            true => Mapping::map_writable(fd, file.bytes, &self.mark),
            false => Mapping::map_readonly(fd, file.bytes, &self.mark),
        };
        let mapping = mapping.map_err(|error| self.refused(&error, area))?;
        let (peer, tie) = (file.peer, file.tie.clone());
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        let held = Arc::new(Held::new(slot, mapping, tie));
        self.slots[slot as usize] = Some(Slot { held, peer });
        self.files.mapped(area.space, slot);
        self.bytes += area.len();
        *self.counts.entry(peer).or_default() += 1;
        average(&mut self.cost.pin_ns, started.elapsed());
        Ok(Handle(u64::from(slot)))
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        let started = Instant::now();
        let slot = handle.0 as u32;
        let Some(Slot { held, peer }) = self.slots.get_mut(slot as usize).and_then(Option::take)
        else {
            return;
        };
        debug_assert!(held.loans() == 0 && !held.is_copied(), "unmapped while in use");
        drop(held);
        self.free.push(slot);
        self.bytes -= area.len();
        if let Some(count) = self.counts.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&peer);
            }
        }
        self.files.unmapped(area.space, slot);
        average(&mut self.cost.unpin_ns, started.elapsed());
    }

    /// Mean times of mapping and unmapping of late; for a page, the assumed cost of its first
    /// touch, which is not measured.
    fn cost(&self) -> PinCost {
        self.cost
    }
}

/// Moves a mean towards a measurement.
pub(super) fn average(mean_ns: &mut u32, took: Duration) {
    let took = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
    let mean = i64::from(*mean_ns);
    let mean = mean + (took.saturating_sub(mean)) / COST_SHARE;
    *mean_ns = mean.clamp(0, i64::from(u32::MAX)) as u32;
}
