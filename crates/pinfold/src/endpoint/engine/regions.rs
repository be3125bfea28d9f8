//! Regions of this endpoint that peers can ask for, and the asking.

use rustc_hash::FxHashMap;

use super::{
    Engine,
    core::Core,
    maps::Loan,
    op::{Done, Op, OpKey, OpKind},
    peer::Peer,
};
use crate::{
    Error, Path, PeerId, Refusal, Result, SharedArena, SharedBuf,
    arena::{ArenaBuilder, ArenaRef},
    endpoint::region::{RegionKey, Rights},
    failpoint::{self, Point},
    link::shm::ring::Violation,
    sync::LightFence,
    wire::descriptor::{Kind, Open, Opened, Site},
};

/// Bytes of address space for the words that say whether regions stand: a cache line each.
const FLAGS_BYTES: usize = 64 << 20;

/// Answers that a peer may leave waiting: it asks for no more until it takes them.
const ANSWERS_MAX: usize = 4096;

/// One region.
struct Entry {
    secret: [u64; 2],
    memory: (ArenaRef, u64),
    len: u64,
    rights: Rights,
    flag: (ArenaRef, u64),
}

/// The regions of one endpoint.
#[derive(Default)]
pub(crate) struct Regions {
    entries: FxHashMap<u64, Entry>,
    last: u64,
    /// Where the words lie that say whether regions stand.
    flags: Option<SharedArena>,
}

impl Regions {
    /// A word that peers can read, 0.
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

    /// A region that can be asked for from now on.
    pub(crate) fn add(
        &mut self,
        extent: ArenaRef,
        offset: u64,
        len: u64,
        rights: Rights,
        flag: (ArenaRef, u64),
    ) -> Result<RegionKey> {
        let secret: [u8; 16] = super::random()?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|b| secret[8 * at + b]));
        let secret = [word(0), word(1)];
        self.last += 1;
        let entry = Entry { secret, memory: (extent, offset), len, rights, flag };
        self.entries.insert(self.last, entry);
        Ok(RegionKey { id: self.last, secret })
    }

    /// The region cannot be asked for any more.
    pub(crate) fn remove(&mut self, id: u64) {
        self.entries.remove(&id);
    }

    /// The region with this key. Takes as long for a wrong secret as for the right one.
    fn find(&self, open: &Open) -> Option<&Entry> {
        let entry = self.entries.get(&open.id)?;
        let wrong = (entry.secret[0] ^ open.secret[0]) | (entry.secret[1] ^ open.secret[1]);
        (std::hint::black_box(wrong) == 0).then_some(entry)
    }
}

/// What a peer has lent of a region.
#[derive(Debug)]
pub(crate) struct Lent {
    pub memory: Loan,
    pub flag: Loan,
    pub len: u64,
    pub writable: bool,
    /// What has to come between an operation and a look at the flag.
    pub fence: LightFence,
}

impl Engine {
    /// Asks a peer for a region.
    pub(crate) fn ask(&mut self, id: PeerId, key: &RegionKey) -> Result<OpKey> {
        self.check()?;
        let (peer, core) = self.peer_mut(id)?;
        if let Some(why) = peer.permissions.refusal(Path::Mapped) {
            return Err(Error::PathRefused { path: Path::Mapped, why });
        }
        let op = core.ops.insert(Op::new(OpKind::Open { peer: id }));
        let open = Open { id: key.id, secret: key.secret };
        failpoint::hit(Point::BeforeOpen);
        core.answer(peer, Kind::Open, op.index, &open.body());
        failpoint::hit(Point::AfterOpen);
        self.kick_if_needed();
        Ok(op)
    }
}

impl Core {
    /// A peer has asked for a region.
    pub(crate) fn asked(
        &mut self,
        peer: &mut Peer,
        number: u32,
        open: Open,
    ) -> Result<(), Violation> {
        if peer.control.len() > ANSWERS_MAX {
            return Err(Violation("it asks on without taking the answers"));
        }
        let opened = match self.regions.find(&open) {
            None => Opened::Unknown,
            Some(_) if !peer.permissions.may(Path::Mapped) => Opened::Unshared,
            Some(entry) => {
                let memory = self.shelve_at(peer, &entry.memory.0, entry.memory.1);
                let flag = self.shelve_at(peer, &entry.flag.0, entry.flag.1);
                match (memory, flag) {
                    (Some(memory), Some(flag)) => Opened::Here(Site {
                        memory,
                        len: entry.len,
                        flag,
                        writable: entry.rights == Rights::ReadWrite,
                    }),
                    _ => Opened::Unshared,
                }
            }
        };
        failpoint::hit(Point::BeforeOpened);
        self.answer(peer, Kind::Opened, number, &opened.body());
        failpoint::hit(Point::AfterOpened);
        Ok(())
    }

    /// The answer to a question of ours.
    pub(crate) fn opened(
        &mut self,
        peer: &mut Peer,
        number: u32,
        opened: Option<Opened>,
    ) -> Result<(), Violation> {
        let opened = opened.ok_or(Violation("it answered in no known way"))?;
        let key = self.ops.at(number).ok_or(Violation("it answered a question not asked"))?;
        match self.ops.get(key) {
            Some(Op { kind: OpKind::Open { peer: asked }, done: None, .. })
                if *asked == peer.id => {}
            _ => return Err(Violation("it answered a question that is not its own")),
        }
        let unmapped = || Error::PathRefused { path: Path::Mapped, why: Refusal::NotMapped };
        let result = match opened {
            Opened::Unknown => Err(Error::BadKey),
            Opened::Unshared => Err(unmapped()),
            // Both parcels were sent before.
            Opened::Here(site) => {
                self.await_extent(peer, site.memory.extent)?;
                self.await_extent(peer, site.flag.extent)?;
                let lent = self.lend_region(peer, site);
                lent.map(|lent| Done::Opened(Box::new(lent))).ok_or_else(unmapped)
            }
        };
        if let (true, Ok(Done::Opened(lent))) = (self.ops.is_abandoned(key), &result) {
            self.give_region_back(peer.id, lent);
        }
        self.finish(key, result);
        Ok(())
    }

    fn lend_region(&mut self, peer: &Peer, site: Site) -> Option<Lent> {
        let Site { memory, len, flag, writable } = site;
        if !flag.offset.is_multiple_of(8) || !memory.offset.is_multiple_of(64) {
            return None;
        }
        let memory = self.maps.lend(peer.id, memory, len, 0)?;
        let Some(flag) = self.maps.lend(peer.id, flag, 8, 0) else {
            self.maps.give_back(peer.id, &memory);
            return None;
        };
        Some(Lent { memory, flag, len, writable, fence: peer.fence })
    }

    /// Gives a region's memory back.
    pub(crate) fn give_region_back(&mut self, id: PeerId, lent: &Lent) {
        self.maps.give_back(id, &lent.memory);
        self.maps.give_back(id, &lent.flag);
    }
}
