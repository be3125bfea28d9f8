//! A back end that pins nothing, and checks that it never has to pin too much.

use std::{cell::Cell, collections::BTreeMap};

use super::*;

#[derive(Debug)]
pub(super) struct Fake {
    pub(super) budget: Budget,
    /// The pinned areas, by handle.
    pub(super) pinned: BTreeMap<u64, Area>,
    next: u64,
    /// It has memory for so many bytes.
    pub(super) memory: Cell<u64>,
    /// There is no memory in this range of any space.
    pub(super) hole: Cell<(u64, u64)>,
    pub(super) refusals: Cell<u64>,
    pages_ever: u64,
}

impl Fake {
    pub(super) fn new(budget: Budget) -> Fake {
        Fake {
            budget,
            pinned: BTreeMap::new(),
            next: 1,
            memory: Cell::new(u64::MAX),
            hole: Cell::new((0, 0)),
            refusals: Cell::new(0),
            pages_ever: 0,
        }
    }

    /// The refusal of an area if this much was pinned, if any.
    pub(super) fn says(area: Area, pinned: u64, memory: u64, hole: (u64, u64)) -> Option<Refused> {
        if area.start < hole.1 && hole.0 < area.end {
            Some(Refused::NotMapped)
        } else if pinned + area.len() > memory {
            Some(Refused::NoMemory)
        } else {
            None
        }
    }

    pub(super) fn slots_of(area: Area) -> u32 {
        area.len().div_ceil(8 * PAGE) as u32
    }

    pub(super) fn pinned_pages_ever(&self) -> u64 {
        self.pages_ever
    }

    pub(super) fn sum(&self) -> Pinned {
        self.pinned.values().fold(Pinned::default(), |sum, area| Pinned {
            bytes: sum.bytes + area.len(),
            entries: sum.entries + 1,
            slots: sum.slots + Fake::slots_of(*area),
        })
    }
}

impl Pinner for Fake {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        assert_eq!((area.start % PAGE, area.end % PAGE), (0, 0));
        if let Some(refused) =
            Fake::says(area, self.sum().bytes, self.memory.get(), self.hole.get())
        {
            self.refusals.set(self.refusals.get() + 1);
            return Err(refused);
        }
        self.pages_ever += area.len() / PAGE;
        self.pinned.insert(self.next, area);
        let sum = self.sum();
        assert!(
            sum.bytes <= self.budget.bytes_max
                && sum.entries <= self.budget.entries_max
                && sum.slots <= self.budget.slots_max,
            "{sum:?} is more than {:?}",
            self.budget
        );
        self.next += 1;
        Ok(Handle(self.next - 1))
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        assert_eq!(self.pinned.remove(&handle.0), Some(area), "{handle:?} is not pinned");
    }

    fn slots(&self, area: Area) -> u32 {
        Fake::slots_of(area)
    }
}
