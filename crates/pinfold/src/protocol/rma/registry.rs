//! `Registry`: memory of this endpoint that peers can use by a key.
//!
//! It is a *region*, which is memory of the library's in a file of its own, or *addresses*, behind
//! which there is any memory of the program's. Both have a key, rights, bounds, a word that says
//! whether they stand, and guests: peers that were told the addresses.
//!
//! A region's memory can be handed over, and be moved when it is revoked. The memory behind an
//! address is looked up at each access, by the kernel or by the agent, so that no peer ever acts on
//! memory that was there before. Parts of arenas that peers map are kept as long as the addresses
//! are exposed: an address that a peer has translated keeps its meaning.

use std::{
    collections::hash_map,
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use rustc_hash::FxHashMap;

use super::{
    cma::CmaAccess,
    deferred_free::DeferredFree,
    way::{OUT_MAX, PARTS_OUT_MAX},
};
use crate::{
    PeerId, Result, SharedArena, SharedBuf,
    endpoint::rma::RegionKey,
    error::inside,
    failpoint::{self, Point},
    memory::{
        arena::{ArenaBuilder, ArenaRef},
        translate::Rights,
    },
    random,
    transport::shm::validity,
    wire::space::{Claim, Refused},
};

/// Bytes of address space for the flags, the words that say whether memory stands: a cache line
/// each.
const FLAGS_BYTES: usize = 64 << 20;

/// A part of an extent of ours.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) extent: ArenaRef,
    pub(crate) offset: u64,
    pub(crate) address: u64,
}

impl Place {
    pub(crate) fn of(buf: &SharedBuf) -> Place {
        let (extent, offset) = buf.locate();
        Place { extent, offset, address: buf.as_ptr().addr() as u64 }
    }
}

/// Returns whether `said` is the secret. Takes as long for a wrong one as for the right one.
fn is_secret(secret: [u64; 2], said: [u64; 2]) -> bool {
    let wrong = (secret[0] ^ said[0]) | (secret[1] ^ said[1]);
    std::hint::black_box(wrong) == 0
}

/// Memory of an entry.
pub(crate) enum Memory {
    Region { buffer: Arc<SharedBuf>, place: Place },
    Addresses(Kept),
}

/// State of exposed addresses.
#[derive(Default)]
pub(crate) struct Kept {
    /// Arenas of which peers were handed parts.
    pub arenas: Vec<ArenaRef>,
    /// Cloned for each operation by the agent that is in progress.
    serving: Arc<()>,
}

/// Memory that peers can use.
pub(crate) struct Entry {
    secret: [u64; 2],
    /// The address of the first byte, and the number of bytes.
    pub start: u64,
    pub len: u64,
    pub rights: Rights,
    pub memory: Memory,
    /// The word that says whether it stands, and the word's value as long as it does.
    pub flag: Place,
    pub stamp: u64,
    /// Peers that were told the addresses.
    guests: Vec<Arc<CmaAccess>>,
}

impl Entry {
    pub(crate) fn is_writable(&self) -> bool {
        self.rights == Rights::ReadWrite
    }

    /// Notes that a peer was told the addresses.
    pub(crate) fn let_in(&mut self, guest: &Arc<CmaAccess>) {
        if !self.guests.iter().any(|other| Arc::ptr_eq(other, guest)) {
            self.guests.push(Arc::clone(guest));
        }
    }

    /// Has guests look at the flag before their next operation. It says already that the memory no
    /// longer stands.
    fn turn_away(&self) {
        self.guests.iter().for_each(|guest| guest.hazards.withdraw());
    }

    /// Returns an error unless `len` bytes at `offset` may be used in this way.
    fn check(&self, offset: u64, len: u64, writes: bool) -> Result<(), Refused> {
        if writes && !self.is_writable() {
            return Err(Refused::ReadOnly);
        }
        inside(offset, len, self.len).map_err(|_| Refused::Outside)
    }

    /// The same for bytes at an address.
    pub(crate) fn check_address(&self, at: u64, len: u64, writes: bool) -> Result<(), Refused> {
        let offset = at.checked_sub(self.start);
        // A right that is missing is said first.
        self.check(offset.unwrap_or(u64::MAX), len, writes)
    }
}

/// Memory that was withdrawn, and may still be in use.
pub(crate) struct Withdrawn {
    id: u64,
    entry: Entry,
}

impl Withdrawn {
    /// Number of peers, and operations by the agent, that still use it.
    pub(crate) fn visitors(&mut self) -> usize {
        self.entry.guests.retain(|guest| guest.is_protected(self.id));
        let serving = match &self.entry.memory {
            Memory::Region { .. } => 0,
            Memory::Addresses(kept) => Arc::strong_count(&kept.serving) - 1,
        };
        self.entry.guests.len() + serving
    }
}

/// Memory that one endpoint lets peers use.
#[derive(Default)]
pub(crate) struct Registry {
    entries: FxHashMap<u64, Entry>,
    last: u64,
    /// The arena of the words that say whether memory stands.
    flags: Option<SharedArena>,
    /// Memory of removed regions that guests have not left yet.
    pub deferred_free: DeferredFree,
    /// Number of reads in flight by each peer on another host.
    serving: FxHashMap<PeerId, usize>,
    /// Cloned for each operation of a peer's that the agent has put off.
    put_off: FxHashMap<PeerId, Arc<()>>,
}

/// Operations of one peer that the agent puts off at a time: as many as a peer asks for.
pub(crate) const PUT_OFF_MAX: usize = OUT_MAX * PARTS_OUT_MAX;

impl Registry {
    /// A new word that peers can read, with value 0.
    fn flag(&mut self) -> Result<SharedBuf> {
        let flags = match &self.flags {
            Some(flags) => flags,
            None => {
                let arena = ArenaBuilder::default().bytes_max(FLAGS_BYTES).build_readable()?;
                self.flags.insert(arena)
            }
        };
        flags.alloc(size_of::<u64>())
    }

    /// Adds a region that can be asked for from now on.
    pub(crate) fn add_region(&mut self, buffer: &Arc<SharedBuf>, rights: Rights) -> Result<Shown> {
        let place = Place::of(buffer);
        let (start, len) = (place.address, buffer.len() as u64);
        let buffer = Arc::clone(buffer);
        self.add(start..start + len, rights, Memory::Region { buffer, place })
    }

    /// Adds addresses that can be asked for from now on.
    pub(crate) fn add_addresses(&mut self, range: Range<u64>, rights: Rights) -> Result<Shown> {
        self.add(range, rights, Memory::Addresses(Kept::default()))
    }

    fn add(&mut self, range: Range<u64>, rights: Rights, memory: Memory) -> Result<Shown> {
        let word = self.flag()?;
        let random: [u8; 24] = random::bytes("a key")?;
        let random = |at: usize| u64::from_ne_bytes(std::array::from_fn(|b| random[8 * at + b]));
        self.last += 1;
        // Guests look for the value at an address that may hold anything by then.
        let (id, secret, stamp) = (self.last, [random(0), random(1)], random(2) | 1);
        // Before any peer can be told of it.
        if let Some(word) = word.word64(0) {
            word.store(stamp, Ordering::SeqCst);
        }
        let Range { start, end } = range;
        let (len, flag, guests) = (end - start, Place::of(&word), Vec::new());
        self.entries.insert(id, Entry { secret, start, len, rights, memory, flag, stamp, guests });
        Ok(Shown { key: RegionKey { id, secret }, flag: word })
    }

    /// The memory with this key. Takes as long for a wrong secret as for the right one.
    pub(crate) fn find(&mut self, claim: &Claim) -> Result<&mut Entry, Refused> {
        let entry = self.entries.get_mut(&claim.id).ok_or(Refused::Unknown)?;
        if is_secret(entry.secret, claim.secret) { Ok(entry) } else { Err(Refused::Unknown) }
    }

    /// Memory of a region that a peer may use in this way.
    pub(crate) fn usable(
        &mut self,
        claim: &Claim,
        offset: u64,
        len: u64,
        writes: bool,
    ) -> Result<&Arc<SharedBuf>, Refused> {
        let entry = self.find(claim)?;
        entry.check(offset, len, writes)?;
        match &entry.memory {
            Memory::Region { buffer, .. } => Ok(buffer),
            Memory::Addresses(_) => Err(Refused::Unknown),
        }
    }

    /// Begins an operation of the agent. No peer is told that the exposure has ended before the
    /// returned value is dropped.
    pub(crate) fn serve_at(
        &mut self,
        claim: &Claim,
        address: u64,
        len: u64,
        writes: bool,
    ) -> Result<Arc<()>, Refused> {
        let entry = self.find(claim)?;
        entry.check_address(address, len, writes)?;
        match &entry.memory {
            Memory::Addresses(kept) => Ok(Arc::clone(&kept.serving)),
            Memory::Region { .. } => Err(Refused::Unknown),
        }
    }

    /// Memory of a region that stands.
    pub(crate) fn region(&self, id: u64) -> Option<&Arc<SharedBuf>> {
        match &self.entries.get(&id)?.memory {
            Memory::Region { buffer, .. } => Some(buffer),
            Memory::Addresses(_) => None,
        }
    }

    /// Counts one more operation of a peer's as put off, until the returned value is dropped.
    pub(crate) fn put_off(&mut self, peer: PeerId) -> Result<Arc<()>, Refused> {
        let count = self.put_off.entry(peer).or_default();
        if Arc::strong_count(count) > PUT_OFF_MAX {
            return Err(Refused::Full);
        }
        Ok(Arc::clone(count))
    }

    /// Counts one more read by a peer as in flight. Returns `false`, and does not count it, if
    /// there are `max` already.
    pub(crate) fn serve(&mut self, peer: PeerId, max: usize) -> bool {
        let serving = self.serving.entry(peer).or_default();
        let fits = *serving < max;
        *serving += usize::from(fits);
        fits
    }

    /// Counts a read by a peer as no longer in flight.
    pub(crate) fn served(&mut self, peer: PeerId) {
        if let hash_map::Entry::Occupied(mut serving) = self.serving.entry(peer) {
            *serving.get_mut() -= 1;
            if *serving.get() == 0 {
                serving.remove();
            }
        }
    }

    /// Removes memory, which cannot be asked for any more.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Entry> {
        self.entries.remove(&id)
    }

    /// Keeps the memory of a region that was withdrawn until the last guest has left.
    pub(crate) fn park(&mut self, Withdrawn { id, entry }: Withdrawn) {
        if let Memory::Region { place, .. } = entry.memory
            && !entry.guests.is_empty()
        {
            self.deferred_free.add(id, place.extent, entry.guests);
        }
    }

    /// In a forked child: forgets the guests, for the memory they share with this process did not
    /// come along.
    pub(crate) fn forsake(&mut self) {
        let guests = self.entries.values_mut().map(|entry| std::mem::take(&mut entry.guests));
        guests.for_each(std::mem::forget);
        std::mem::forget(std::mem::take(&mut self.deferred_free));
    }

    /// Forgets guests that will not come again.
    pub(crate) fn forget_gone(&mut self) {
        self.put_off.retain(|_, count| Arc::strong_count(count) > 1);
        for (id, entry) in &mut self.entries {
            let may_come = |guest: &Arc<CmaAccess>| !guest.hazards.is_over() && guest.is_alive();
            entry.guests.retain(|guest| may_come(guest) || guest.is_protected(*id));
        }
    }
}

/// The key of memory that peers can use, and the word that says whether it stands: it holds a
/// number of its own as long as it does.
pub(crate) struct Shown {
    pub key: RegionKey,
    flag: SharedBuf,
}

impl Shown {
    /// Ends the use by peers that keep to the rules, but for those that are in the midst of it.
    /// `entry` was [removed](Registry::remove).
    pub(crate) fn withdraw(&self, entry: Option<Entry>) -> Option<Withdrawn> {
        failpoint::hit(Point::BeforeFlag);
        if let Some(word) = self.flag.word64(0) {
            validity::take_down(word);
        }
        failpoint::hit(Point::AfterFlag);
        // Other memory may have the flag next, with another number.
        let entry = entry?;
        entry.turn_away();
        Some(Withdrawn { id: self.key.id, entry })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_put_off_as_a_peer_asks_for() {
        let mut registry = Registry::default();
        let [one, other] = [1, 2].map(|index| PeerId::new(index, 0));
        let mut held: Vec<_> = (0..PUT_OFF_MAX).map(|_| registry.put_off(one).unwrap()).collect();
        assert_eq!(registry.put_off(one), Err(Refused::Full));
        drop(registry.put_off(other).unwrap());
        held.pop();
        held.push(registry.put_off(one).unwrap());
        registry.forget_gone();
        assert_eq!((registry.put_off.len(), registry.put_off(one)), (1, Err(Refused::Full)));
    }
}
