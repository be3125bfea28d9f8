#![allow(unsafe_code)]
//! Arenas of peers, as far as they are mapped here.
//!
//! **Invariant.** A mapping that was lent out ([`Maps::lend`]) stays, in place, until the loan has
//! been given back ([`Maps::give_back`]) or the endpoint is gone.
//!
//! Peers send what they want to be read from, unasked. What is mapped is bounded: by a budget of
//! address space over all peers, and in number. Where that is not enough, what was not used for
//! longest goes; a message out of it then comes by another path, and its sender sends it again.

use std::{
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use pinfold_sys::fork::ForkMark;
use rustc_hash::FxHashMap;

use crate::{
    PeerId,
    arena::Mapping,
    link::{
        parcel::Extent,
        shm::{budget::Budget, lane::Tie},
    },
    wire::waiting::Shelf,
};

/// Mappings of one endpoint. A process may have 65,530 (`vm.max_map_count`).
const MAPS_MAX: usize = 4096;
/// Mappings of one peer.
const MAPS_A_PEER: usize = 1024;

/// A mapping, and whether what lies in it is still given.
pub(crate) struct Held {
    /// The peer's number for it.
    id: u64,
    pub mapping: Arc<Mapping>,
    pub tie: Tie,
    /// Whether the peer is gone, as far as this side has noticed.
    pub orphaned: AtomicBool,
    /// Loans out of it. This and `used` are written within the engine only.
    loans: AtomicU32,
    /// When it was last looked up, counted in look-ups.
    used: AtomicU64,
}

impl Held {
    fn loans(&self) -> u32 {
        self.loans.load(Ordering::Relaxed)
    }

    #[inline]
    fn add_loan(&self) {
        self.loans.store(self.loans() + 1, Ordering::Relaxed);
    }

    /// How many are left.
    #[inline]
    fn end_loan(&self) -> u32 {
        let left = self.loans().saturating_sub(1);
        self.loans.store(left, Ordering::Relaxed);
        left
    }
}

/// A part of a peer's memory that is looked at here. No more than a note: it is given back by hand.
#[derive(Debug)]
pub(crate) struct Loan {
    held: NonNull<Held>,
    pub offset: u64,
    /// The peer's number for the message.
    pub sid: u32,
    /// Its number among the gifts whose return is counted, or 0.
    pub number: u64,
}

// SAFETY: what it points to can be used on any thread, and is as long as the endpoint needs it.
unsafe impl Send for Loan {}
// SAFETY: as for `Send`.
unsafe impl Sync for Loan {}

impl Loan {
    /// What was lent.
    ///
    /// # Safety
    /// The loan has not been given back, and its endpoint's engine exists, as long as it is used.
    #[inline]
    pub(crate) unsafe fn held(&self) -> &Held {
        // SAFETY: stays in place by the module's invariant and by contract.
        unsafe { self.held.as_ref() }
    }
}

/// What was looked up last: most messages come out of the same extent as the one before.
struct Recent {
    peer: PeerId,
    id: u64,
    held: Arc<Held>,
}

/// What is mapped here, by peer and the peer's number for it.
pub(crate) struct Maps {
    budget: Budget,
    entries: FxHashMap<(PeerId, u64), Arc<Held>>,
    /// One of the entries.
    recent: Option<Recent>,
    /// Removed, but lent out.
    retired: Vec<Arc<Held>>,
    /// What was let go of while it was being copied out of, and so still takes address space.
    lingering: Vec<(Weak<Mapping>, usize)>,
    turn: u64,
    mark: Option<Arc<ForkMark>>,
}

impl Maps {
    /// At most `bytes_max` bytes of address space.
    pub(crate) fn new(bytes_max: usize) -> Maps {
        Maps {
            budget: Budget::new(bytes_max),
            entries: FxHashMap::default(),
            recent: None,
            retired: Vec::new(),
            lingering: Vec::new(),
            turn: 0,
            mark: None,
        }
    }

    /// Address space in use.
    pub(crate) fn bytes(&self) -> usize {
        self.budget.used()
    }

    /// Maps what a peer sent. Whether that could be done; where not, messages out of it come by
    /// other paths.
    pub(crate) fn add(&mut self, peer: PeerId, extent: Extent, tie: Tie) -> bool {
        let Extent { id, bytes, writable, fd } = extent;
        self.remove(peer, id);
        self.settle();
        // Nothing has to go for what cannot be mapped anyway.
        let Ok(len) = usize::try_from(bytes) else { return false };
        if len > self.budget.limit() || Mapping::check(fd.as_fd(), bytes, writable).is_err() {
            return false;
        }
        let Some(mark) = self.mark() else { return false };
        let theirs = self.entries.keys().filter(|(owner, _)| *owner == peer).count();
        if theirs >= MAPS_A_PEER && !self.evict(Some(peer)) {
            return false;
        }
        while self.entries.len() >= MAPS_MAX || !self.budget.take(len) {
            if !self.evict(None) {
                return false;
            }
        }
        let mapping = match writable {
            true => Mapping::map_writable(fd.as_fd(), bytes, &mark),
            false => Mapping::map_readonly(fd.as_fd(), bytes, &mark),
        };
        match mapping {
            Ok(mapping) => {
                self.turn += 1;
                let held = Held {
                    id,
                    mapping: Arc::new(mapping),
                    tie,
                    orphaned: AtomicBool::new(false),
                    loans: AtomicU32::new(0),
                    used: AtomicU64::new(self.turn),
                };
                self.entries.insert((peer, id), Arc::new(held));
                true
            }
            Err(error) => {
                self.budget.give(len);
                tracing::debug!(%error, "a peer's arena cannot be mapped");
                false
            }
        }
    }

    /// What tells mappings that they are in a forked child. Made when first wanted.
    fn mark(&mut self) -> Option<Arc<ForkMark>> {
        if self.mark.is_none() {
            self.mark = ForkMark::new().ok().map(Arc::new);
        }
        self.mark.clone()
    }

    /// The mapping of a peer's extent.
    #[inline]
    pub(crate) fn get(&mut self, peer: PeerId, id: u64) -> Option<&Arc<Mapping>> {
        self.find(peer, id).map(|held| &held.mapping)
    }

    #[inline(always)]
    fn find(&mut self, peer: PeerId, id: u64) -> Option<&Arc<Held>> {
        let is_it = |recent: &Recent| (recent.peer, recent.id) == (peer, id);
        if !self.recent.as_ref().is_some_and(is_it) {
            self.find_other(peer, id)?;
        }
        let held = self.recent.as_ref().map(|recent| &recent.held)?;
        self.turn += 1;
        held.used.store(self.turn, Ordering::Relaxed);
        Some(held)
    }

    /// Makes another the most recent one.
    #[cold]
    #[inline(never)]
    fn find_other(&mut self, peer: PeerId, id: u64) -> Option<()> {
        let held = Arc::clone(self.entries.get(&(peer, id))?);
        self.recent = Some(Recent { peer, id, held });
        Some(())
    }

    /// Lends the `len` bytes at `offset` of a peer's extent out, for message `sid`. `None`: it is not
    /// mapped, or they do not lie inside.
    #[inline(always)]
    pub(crate) fn lend(&mut self, peer: PeerId, shelf: Shelf, len: u64, sid: u32) -> Option<Loan> {
        let Shelf { extent, offset } = shelf;
        let held = self.find(peer, extent)?;
        held.mapping.get(offset, len)?;
        held.add_loan();
        Some(Loan { held: NonNull::from(&**held), offset, sid, number: 0 })
    }

    /// Takes back what was lent to be looked at.
    #[inline]
    pub(crate) fn give_back(&mut self, peer: PeerId, loan: &Loan) {
        if !self.give_recent_back(loan) {
            self.give_other_back(peer, loan);
        }
    }

    /// As [`Maps::give_back`], if it is of what was looked up last; whether it is.
    #[inline(always)]
    pub(crate) fn give_recent_back(&mut self, loan: &Loan) -> bool {
        let is_it = |recent: &&Recent| NonNull::from(&*recent.held) == loan.held;
        match self.recent.as_ref().filter(is_it) {
            Some(recent) => {
                recent.held.end_loan();
                true
            }
            None => false,
        }
    }

    #[cold]
    fn give_other_back(&mut self, peer: PeerId, loan: &Loan) {
        let is_it = |held: &Arc<Held>| NonNull::from(&**held) == loan.held;
        // SAFETY: it has not been given back, and this is its endpoint's engine.
        let id = unsafe { loan.held() }.id;
        if let Some(held) = self.entries.get(&(peer, id)).filter(|held| is_it(held)) {
            held.end_loan();
        } else if let Some(at) = self.retired.iter().position(is_it)
            && self.retired[at].end_loan() == 0
        {
            let held = self.retired.swap_remove(at);
            self.retire(held);
        }
    }

    /// Lets go of one; what is in use of it stays until that has ended.
    pub(crate) fn remove(&mut self, peer: PeerId, id: u64) {
        self.recent = None;
        if let Some(held) = self.entries.remove(&(peer, id)) {
            self.retire(held);
        }
    }

    fn retire(&mut self, held: Arc<Held>) {
        if held.loans() > 0 {
            self.retired.push(held);
            return;
        }
        let len = held.mapping.len() as usize;
        let last = Arc::downgrade(&held.mapping);
        drop(held);
        match last.strong_count() {
            0 => self.budget.give(len),
            _ => self.lingering.push((last, len)),
        }
    }

    /// Takes note of what is in use no more.
    fn settle(&mut self) {
        let budget = &mut self.budget;
        self.lingering.retain(|(mapping, len)| {
            let stays = mapping.strong_count() > 0;
            if !stays {
                budget.give(*len);
            }
            stays
        });
    }

    /// Lets go of all that are a peer's.
    pub(crate) fn drop_peer(&mut self, peer: PeerId) {
        self.recent = None;
        let theirs = self.entries.extract_if(|(owner, _), _| *owner == peer);
        let theirs: Vec<_> = theirs.map(|(_, held)| held).collect();
        for held in theirs {
            held.orphaned.store(true, Ordering::Relaxed);
            self.retire(held);
        }
        self.settle();
    }

    /// Lets go of the one, of `peer` or of any, that was not used for longest and is not in use.
    fn evict(&mut self, peer: Option<PeerId>) -> bool {
        let oldest = self
            .entries
            .iter()
            .filter(|((owner, _), _)| peer.is_none_or(|peer| *owner == peer))
            .filter(|(_, held)| held.loans() == 0 && Arc::strong_count(&held.mapping) == 1)
            .min_by_key(|(_, held)| held.used.load(Ordering::Relaxed))
            .map(|(key, _)| *key);
        match oldest {
            Some((owner, id)) => {
                self.remove(owner, id);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use pinfold_sys::{mapping::SharedMapping, memfd};

    use super::*;
    use crate::{
        link::shm::{lane::LaneRx, segment::Segment},
        sync::LightFence,
        wire::layout::{Direction, SEGMENT_BYTES},
    };

    const PAGE: u64 = 4096;

    fn peer(index: u32) -> PeerId {
        PeerId { index, generation: 0 }
    }

    fn tie() -> Tie {
        let file = memfd::create_sealed("pinfold-test", SEGMENT_BYTES).unwrap();
        let mapping = SharedMapping::map(file.as_fd(), SEGMENT_BYTES).unwrap();
        LaneRx::new(
            &Segment::new(mapping),
            Direction::ToAccepting,
            LightFence::Full,
            &Arc::default(),
        )
        .tie()
    }

    fn extent(id: u64, bytes: u64) -> Extent {
        let fd = memfd::create_fixed("pinfold-test", bytes as usize).unwrap();
        memfd::seal(fd.as_fd(), true).unwrap();
        Extent { id, bytes, writable: false, fd }
    }

    #[test]
    fn the_budget_holds_and_the_oldest_goes() {
        let mut maps = Maps::new(3 * PAGE as usize);
        for id in 1..=3 {
            assert!(maps.add(peer(1), extent(id, PAGE), tie()));
        }
        assert_eq!(maps.budget.left(), 0);
        assert!(maps.get(peer(1), 1).is_some());
        let held = Arc::clone(maps.get(peer(1), 2).unwrap());
        assert!(maps.add(peer(2), extent(1, PAGE), tie()));
        assert!(maps.get(peer(1), 3).is_none(), "the oldest");
        assert!(maps.get(peer(1), 1).is_some() && maps.get(peer(2), 1).is_some());
        assert!(!maps.add(peer(2), extent(2, 3 * PAGE), tie()), "one is in use");
        assert!(maps.get(peer(1), 2).is_some(), "in use");
        drop(held);
        maps.settle();
        maps.drop_peer(peer(1));
        assert!(maps.get(peer(1), 2).is_none());
        maps.remove(peer(2), 1);
        maps.remove(peer(2), 1);
        assert_eq!(maps.budget.used(), 0);
    }

    #[test]
    fn what_cannot_be_mapped_costs_the_others_nothing() {
        let mut maps = Maps::new(3 * PAGE as usize);
        assert!(
            maps.add(peer(1), extent(1, PAGE), tie()) && maps.add(peer(1), extent(2, PAGE), tie())
        );
        assert!(!maps.add(peer(2), extent(1, 4 * PAGE), tie()), "more than there may be");
        assert!(!maps.add(peer(2), Extent { bytes: 3 * PAGE, ..extent(1, PAGE) }, tie()), "a lie");
        assert!(maps.get(peer(1), 1).is_some() && maps.get(peer(1), 2).is_some());
    }

    #[test]
    fn what_is_in_use_counts_although_it_was_let_go_of() {
        let mut maps = Maps::new(2 * PAGE as usize);
        assert!(maps.add(peer(1), extent(1, PAGE), tie()));
        let held = Arc::clone(maps.get(peer(1), 1).unwrap());
        // Under the same number, and another, and by way of the peer's end.
        assert!(maps.add(peer(1), extent(1, PAGE), tie()));
        let also = Arc::clone(maps.get(peer(1), 1).unwrap());
        maps.drop_peer(peer(1));
        assert!(!maps.add(peer(2), extent(1, PAGE), tie()));
        drop(held);
        assert!(maps.add(peer(2), extent(1, PAGE), tie()));
        assert!(!maps.add(peer(2), extent(2, 2 * PAGE), tie()));
        maps.remove(peer(2), 1);
        drop(also);
        assert!(maps.add(peer(2), extent(2, 2 * PAGE), tie()));
    }

    #[test]
    fn what_cannot_be_mapped_is_left_out() {
        let mut maps = Maps::new(1 << 30);
        let shrinkable = Extent { bytes: 2 * PAGE, ..extent(1, PAGE) };
        assert!(!maps.add(peer(1), shrinkable, tie()));
        assert!(!maps.add(peer(1), Extent { bytes: u64::MAX, ..extent(1, PAGE) }, tie()));
        assert!(!maps.add(peer(1), Extent { bytes: 0, ..extent(1, PAGE) }, tie()));
        // Writers are not refused, but neither was it said that this one may write.
        let fd = memfd::create_sealed("pinfold-test", PAGE as usize).unwrap();
        assert!(!maps.add(peer(1), Extent { id: 1, bytes: PAGE, writable: false, fd }, tie()));
        assert_eq!(maps.budget.used(), 0);
        assert!(maps.entries.is_empty());
    }

    #[test]
    fn a_number_used_again_replaces() {
        let mut maps = Maps::new(1 << 30);
        assert!(
            maps.add(peer(1), extent(5, PAGE), tie())
                && maps.add(peer(1), extent(5, 2 * PAGE), tie())
        );
        assert_eq!(maps.get(peer(1), 5).unwrap().len(), 2 * PAGE);
        assert_eq!(maps.budget.used() as u64, 2 * PAGE);
    }

    #[test]
    fn what_is_lent_stays() {
        let mut maps = Maps::new(2 * PAGE as usize);
        let shelf = |extent, offset| Shelf { extent, offset };
        assert!(maps.add(peer(1), extent(1, PAGE), tie()));
        assert!(maps.lend(peer(1), shelf(1, 1), PAGE, 1).is_none(), "beyond the end");
        assert!(maps.lend(peer(1), shelf(2, 0), 1, 1).is_none());
        let one = maps.lend(peer(1), shelf(1, 0), PAGE, 1).unwrap();
        let two = maps.lend(peer(1), shelf(1, 8), 8, 2).unwrap();
        // Neither the same number again, nor want of room, nor its end takes it away.
        assert!(maps.add(peer(1), extent(1, PAGE), tie()));
        let three = maps.lend(peer(1), shelf(1, 0), 8, 3).unwrap();
        assert!(!maps.add(peer(1), extent(2, PAGE), tie()));
        maps.drop_peer(peer(1));
        assert_eq!((maps.retired.len(), maps.budget.left()), (2, 0));
        // SAFETY: not given back yet.
        assert_eq!(unsafe { one.held() }.mapping.len(), PAGE);
        maps.give_back(peer(1), &one);
        maps.give_back(peer(1), &three);
        assert_eq!((maps.retired.len(), maps.budget.left()), (1, PAGE as usize));
        maps.give_back(peer(1), &two);
        assert_eq!((maps.retired.len(), maps.budget.used()), (0, 0));
    }
}
