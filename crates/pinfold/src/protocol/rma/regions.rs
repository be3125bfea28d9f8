//! `Regions`: regions of this endpoint that peers can ask for; and the questions to peers for
//! theirs.
//!
//! A peer that can map a region is handed its file. A peer that cannot, but may read and write this
//! process's memory, asks again, is told the address, and is noted as a guest of the region. A peer
//! on another host is told how long the region is, and asks for each operation
//! ([`served`](super::served)).

use std::{collections::hash_map, sync::Arc};

use rustc_hash::FxHashMap;

use super::{cma::CmaAccess, deferred_free::DeferredFree};
use crate::{
    Error, Path, PeerId, Refusal, Result, SharedArena, SharedBuf,
    endpoint::region::{RegionKey, Rights},
    error::inside,
    failpoint::{self, Point},
    memory::{
        arena::{ArenaBuilder, ArenaRef},
        imported_extents::Loan,
    },
    sync::LightFence,
    transport::shm::ring::Violation,
    wire::{
        descriptor::Kind,
        region::{By, Open, Opened, Site, Spot},
        served_rma::NotUsed,
        space::Claim,
    },
    worker::{
        Engine,
        core::Core,
        op::{Done, Op, OpKey, OpKind},
        peer::Peer,
    },
};

/// Bytes of address space for the flags, the words that say whether regions stand: a cache line
/// each.
const FLAGS_BYTES: usize = 64 << 20;

/// Answers that a peer may leave waiting: it asks for no more until it takes them.
pub(crate) const ANSWERS_MAX: usize = 4096;

/// A part of an extent of ours.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) extent: ArenaRef,
    pub(crate) offset: u64,
    pub(crate) address: u64,
}

/// Returns whether `said` is the secret. Takes as long for a wrong one as for the right one.
pub(crate) fn is_secret(secret: [u64; 2], said: [u64; 2]) -> bool {
    let wrong = (secret[0] ^ said[0]) | (secret[1] ^ said[1]);
    std::hint::black_box(wrong) == 0
}

impl Place {
    pub(crate) fn of(buf: &SharedBuf) -> Place {
        let (extent, offset) = buf.locate();
        Place { extent, offset, address: buf.as_ptr().addr() as u64 }
    }
}

/// One region.
pub(crate) struct Entry {
    secret: [u64; 2],
    buffer: Arc<SharedBuf>,
    memory: Place,
    len: u64,
    rights: Rights,
    flag: Place,
    /// The value of the word behind `flag` as long as the region stands.
    stamp: u64,
    /// Peers that were told the address.
    guests: Vec<Arc<CmaAccess>>,
}

impl Entry {
    /// Has guests look at the flag before their next operation. It says already that the region no
    /// longer stands.
    pub(crate) fn turn_away(&self) {
        self.guests.iter().for_each(|guest| guest.hazards.withdraw());
    }
}

/// The regions of one endpoint.
#[derive(Default)]
pub(crate) struct Regions {
    entries: FxHashMap<u64, Entry>,
    last: u64,
    /// The arena of the words that say whether regions stand.
    flags: Option<SharedArena>,
    /// Memory of removed regions that guests have not left yet.
    pub deferred_free: DeferredFree,
    /// Number of reads in flight by each peer on another host.
    serving: FxHashMap<PeerId, usize>,
}

impl Regions {
    /// A new word that peers can read, with value 0.
    pub(crate) fn flag(&mut self) -> Result<SharedBuf> {
        let flags = match &self.flags {
            Some(flags) => flags,
            None => {
                let arena = ArenaBuilder::default().bytes_max(FLAGS_BYTES).build_readable()?;
                self.flags.insert(arena)
            }
        };
        flags.alloc(size_of::<u64>())
    }

    /// Adds a region that can be asked for from now on. Returns its key and the value that its flag
    /// has to hold.
    pub(crate) fn add(
        &mut self,
        buffer: &Arc<SharedBuf>,
        rights: Rights,
        flag: &SharedBuf,
    ) -> Result<(RegionKey, u64)> {
        let (key, stamp) = self.new_key()?;
        let RegionKey { id, secret } = key;
        let (len, guests) = (buffer.len() as u64, Vec::new());
        let (memory, flag) = (Place::of(buffer), Place::of(flag));
        let buffer = Arc::clone(buffer);
        let entry = Entry { secret, buffer, memory, len, rights, flag, stamp, guests };
        self.entries.insert(id, entry);
        Ok((key, stamp))
    }

    /// A new key, which nothing else has, and the value for its flag.
    pub(crate) fn new_key(&mut self) -> Result<(RegionKey, u64)> {
        let random: [u8; 24] = crate::worker::random()?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|b| random[8 * at + b]));
        self.last += 1;
        // Guests look for the value at an address that may hold anything by then.
        Ok((RegionKey { id: self.last, secret: [word(0), word(1)] }, word(2) | 1))
    }

    /// Removes a region, which cannot be asked for any more. Returns its entry if a peer was told
    /// its address.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Entry> {
        self.entries.remove(&id).filter(|entry| !entry.guests.is_empty())
    }

    /// Keeps the memory of a region, which was withdrawn and whose guests were [turned
    /// away](Entry::turn_away), until the last guest has left.
    pub(crate) fn park(&mut self, id: u64, entry: Entry) {
        self.deferred_free.add(id, entry.memory.extent, entry.guests);
    }

    /// The region with this key. Takes as long for a wrong secret as for the right one.
    fn find(&mut self, open: &Open) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&open.id)?;
        is_secret(entry.secret, open.secret).then_some(entry)
    }

    /// The memory of a region that a peer may use in this way.
    pub(crate) fn usable(
        &self,
        claim: &Claim,
        offset: u64,
        len: u64,
        writes: bool,
    ) -> Result<&Arc<SharedBuf>, NotUsed> {
        let entry = self.entries.get(&claim.id).filter(|it| is_secret(it.secret, claim.secret));
        let entry = entry.ok_or(NotUsed::Revoked)?;
        if writes && entry.rights != Rights::ReadWrite {
            return Err(NotUsed::ReadOnly);
        }
        inside(offset, len, entry.len).map_err(|_| NotUsed::Outside)?;
        Ok(&entry.buffer)
    }

    /// The memory of a region that stands.
    pub(crate) fn memory(&self, id: u64) -> Option<&Arc<SharedBuf>> {
        self.entries.get(&id).map(|entry| &entry.buffer)
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

    /// In a forked child: forgets the guests, for the memory they share with this process did not
    /// come along.
    pub(crate) fn forsake(&mut self) {
        let guests = self.entries.values_mut().map(|entry| std::mem::take(&mut entry.guests));
        guests.for_each(std::mem::forget);
        std::mem::forget(std::mem::take(&mut self.deferred_free));
    }

    /// Forgets guests that will not come again.
    pub(crate) fn forget_gone(&mut self) {
        for (id, entry) in &mut self.entries {
            let may_come = |guest: &Arc<CmaAccess>| !guest.hazards.is_over() && guest.is_alive();
            entry.guests.retain(|guest| may_come(guest) || guest.is_protected(*id));
        }
    }
}

/// A region of a peer's, as the peer has lent it.
#[derive(Debug)]
pub(crate) struct Lent {
    pub memory: Loan,
    pub flag: Loan,
    pub len: u64,
    pub writable: bool,
    /// The fence that has to come between an operation and a look at the flag.
    pub fence: LightFence,
}

/// A region that is read and written where it is.
pub(crate) struct Reached {
    pub spot: Spot,
    pub cma_access: Arc<CmaAccess>,
    /// Reason why the region is not mapped.
    pub why_not_mapped: Refusal,
}

/// Use of an opened region.
pub(crate) enum Way {
    Mapped { lent: Lent, stamp: u64 },
    Kernel(Reached),
    Owner(Asking),
}

/// A region whose owner is asked for each operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub len: u64,
    pub writable: bool,
    /// Reason why the region is not mapped.
    pub why_not_mapped: Refusal,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Way::Mapped { .. } => "Mapped",
            Way::Kernel(_) => "Kernel",
            Way::Owner(_) => "Owner",
        })
    }
}

/// A question that has not been answered.
pub(crate) struct Asked {
    pub peer: PeerId,
    open: Open,
    /// Reason why the region cannot be mapped, if that is settled.
    why_not_mapped: Option<Refusal>,
}

impl Engine {
    /// Asks a peer for a region.
    pub(crate) fn ask(&mut self, id: PeerId, key: &RegionKey) -> Result<OpKey> {
        self.check()?;
        let (peer, core) = self.peer_mut(id)?;
        let why_not_mapped = peer.permissions.refusal(Path::Mapped);
        let by = match why_not_mapped {
            None => By::Mapping,
            Some(_) if peer.serves_regions => match peer.permissions.refusal(Path::Eager) {
                Some(why) => return Err(Error::PathRefused { path: Path::Eager, why }),
                None => By::Owner,
            },
            Some(why) => {
                core.check_reach(peer, why, false)?;
                By::Kernel
            }
        };
        let open = Open { id: key.id, secret: key.secret, by };
        let asked = Asked { peer: id, open, why_not_mapped };
        let op = core.ops.insert(Op::new(OpKind::Open(asked)));
        failpoint::hit(Point::BeforeOpen);
        core.answer(peer, Kind::Open, op.index, &open.body());
        failpoint::hit(Point::AfterOpen);
        self.kick_if_needed();
        Ok(op)
    }
}

impl Core {
    /// Returns an error unless a region of a peer's that cannot be mapped can be used through the
    /// kernel.
    fn check_reach(&self, peer: &Peer, why_not_mapped: Refusal, writable: bool) -> Result<()> {
        let by_choice =
            [Refusal::SwitchedOff, Refusal::SwitchedOffByPeer].contains(&why_not_mapped);
        if self.strict && !by_choice {
            return Err(Error::PathRefused { path: Path::Mapped, why: why_not_mapped });
        }
        let refused = |why| Error::OutOfReach { mapped: why_not_mapped, cma: why };
        peer.cma_access.there(writable).map_err(refused)
    }

    /// Answers a peer that has asked for a region.
    pub(crate) fn asked(
        &mut self,
        peer: &mut Peer,
        number: u32,
        open: Option<Open>,
    ) -> Result<(), Violation> {
        let open = open.ok_or(Violation("it asked for a region in no known way"))?;
        if peer.controls() > ANSWERS_MAX {
            return Err(Violation("it asks on without taking the answers"));
        }
        let opened = match open.by {
            By::Kernel => self.let_in(peer, &open),
            By::Mapping => self.hand_over(peer, &open),
            By::Owner if !peer.shares_memory() => self.offer_services(&open),
            By::Owner => return Err(Violation("it asked for what goes between hosts")),
        };
        failpoint::hit(Point::BeforeOpened);
        self.answer(peer, Kind::Opened, number, &opened.body());
        failpoint::hit(Point::AfterOpened);
        Ok(())
    }

    fn hand_over(&mut self, peer: &mut Peer, open: &Open) -> Opened {
        let Some(entry) = self.regions.find(open) else { return Opened::Unknown };
        let Entry { memory, flag, len, stamp, .. } = entry;
        let (len, stamp, writable) = (*len, *stamp, entry.rights == Rights::ReadWrite);
        let places = [memory, flag].map(|place| (place.extent.clone(), place.offset));
        if !peer.permissions.may(Path::Mapped) {
            return Opened::Unshared;
        }
        let [memory, flag] = places.map(|(extent, offset)| self.export_at(peer, &extent, offset));
        match (memory, flag) {
            (Some(memory), Some(flag)) => Opened::Here(Site { memory, len, flag, stamp, writable }),
            _ => Opened::Unshared,
        }
    }

    fn offer_services(&mut self, open: &Open) -> Opened {
        self.regions.find(open).map_or(Opened::Unknown, |entry| Opened::Served {
            len: entry.len,
            writable: entry.rights == Rights::ReadWrite,
        })
    }

    fn let_in(&mut self, peer: &Peer, open: &Open) -> Opened {
        let full = self.regions.deferred_free.is_full_of(&peer.cma_access);
        let Some(entry) = self.regions.find(open) else { return Opened::Unknown };
        let writable = entry.rights == Rights::ReadWrite;
        let allowed = match peer.cma_access.here(writable) {
            Ok(()) if full => Err(Refusal::NotLeft),
            said => said,
        };
        if let Err(why) = allowed {
            return Opened::Refused(why.code());
        }
        if !entry.guests.iter().any(|guest| Arc::ptr_eq(guest, &peer.cma_access)) {
            entry.guests.push(Arc::clone(&peer.cma_access));
        }
        Opened::There(Spot {
            memory: entry.memory.address,
            len: entry.len,
            flag: entry.flag.address,
            stamp: entry.stamp,
            writable,
        })
    }

    /// Takes the answer to a question of ours.
    pub(crate) fn opened(
        &mut self,
        peer: &mut Peer,
        number: u32,
        opened: Option<Opened>,
    ) -> Result<(), Violation> {
        let opened = opened.ok_or(Violation("it answered in no known way"))?;
        let key = self.ops.at(number).ok_or(Violation("it answered a question not asked"))?;
        let (open, why_not_mapped) = match self.ops.get(key) {
            Some(Op { kind: OpKind::Open(asked), done: None, .. }) if asked.peer == peer.id => {
                (asked.open, asked.why_not_mapped)
            }
            _ => return Err(Violation("it answered a question that is not its own")),
        };
        let result = match (opened, why_not_mapped) {
            (Opened::Unknown, _) => Err(Error::BadKey),
            (Opened::Unshared, None) => return self.ask_again(peer, key, open),
            // Both channel messages were sent before the answer.
            (Opened::Here(site), None) => {
                self.await_extent(peer, site.memory.extent)?;
                self.await_extent(peer, site.flag.extent)?;
                match self.lend_region(peer, site) {
                    Some(lent) => Ok(Way::Mapped { lent, stamp: site.stamp }),
                    None => return self.ask_again(peer, key, open),
                }
            }
            (Opened::Served { len, writable }, Some(why_not_mapped))
                if open.by == By::Owner && len <= i64::MAX as u64 =>
            {
                Ok(Way::Owner(Asking { len, writable, why_not_mapped }))
            }
            (Opened::There(spot), Some(why)) if open.by == By::Kernel => {
                self.reach_region(peer, spot, why)?
            }
            (Opened::Refused(code), Some(mapped)) => {
                let cma = Refusal::from_code(code);
                let cma = cma.ok_or(Violation("it refused for no known reason"))?.mirrored();
                Err(Error::OutOfReach { mapped, cma })
            }
            _ => return Err(Violation("it answered another question than it was asked")),
        };
        if let (true, Ok(Way::Mapped { lent, .. })) = (self.ops.is_abandoned(key), &result) {
            self.give_region_back(lent);
        }
        self.finish(key, result.map(|way| Done::Opened(Box::new(way))));
        Ok(())
    }

    /// Asks again for a region that cannot be mapped, to use it through the kernel, if that is
    /// possible.
    fn ask_again(&mut self, peer: &mut Peer, key: OpKey, open: Open) -> Result<(), Violation> {
        let why = Refusal::NotMapped;
        if let Err(error) = self.check_reach(peer, why, false) {
            self.finish(key, Err(error));
            return Ok(());
        }
        let open = Open { by: By::Kernel, ..open };
        if let Some(op) = self.ops.get_mut(key) {
            op.kind = OpKind::Open(Asked { peer: peer.id, open, why_not_mapped: Some(why) });
        }
        self.answer(peer, Kind::Open, key.index, &open.body());
        Ok(())
    }

    pub(crate) fn lend_region(&mut self, peer: &Peer, site: Site) -> Option<Lent> {
        let Site { memory, len, flag, writable, .. } = site;
        if !flag.offset.is_multiple_of(8) || !memory.offset.is_multiple_of(64) {
            return None;
        }
        let memory = self.imported.lend(peer.id, memory, len, 0)?;
        let Some(flag) = self.imported.lend(peer.id, flag, 8, 0) else {
            self.imported.give_back(&memory);
            return None;
        };
        Some(Lent { memory, flag, len, writable, fence: peer.fence })
    }

    /// Takes an answer that names addresses. It need not be checked that they are the peer's own,
    /// for the kernel reads and writes them in the peer's process; but this side computes with
    /// them.
    fn reach_region(
        &self,
        peer: &Peer,
        spot: Spot,
        why_not_mapped: Refusal,
    ) -> Result<Result<Way>, Violation> {
        let fits =
            |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64);
        if !fits(spot.memory, spot.len) || !fits(spot.flag, 8) || spot.stamp == 0 {
            return Err(Violation("it named memory that no process can have"));
        }
        let cma_access = Arc::clone(&peer.cma_access);
        let way = || Way::Kernel(Reached { spot, cma_access, why_not_mapped });
        Ok(self.check_reach(peer, why_not_mapped, spot.writable).map(|()| way()))
    }

    /// Gives a region's memory back.
    pub(crate) fn give_region_back(&mut self, lent: &Lent) {
        self.imported.give_back(&lent.memory);
        self.imported.give_back(&lent.flag);
    }
}
