//! Exposed memory as a peer of its owner uses it.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{
    Flag,
    lookaside::{Known, Lookaside, Piece},
    served::{self, Served},
};
use crate::{
    Endpoint, Error, Path, PeerId, Receipt, Refusal, RegionKey, Result, Rights,
    copy::Largest,
    endpoint::{
        region::{
            cma::CmaRegion,
            mapped::{self, Mapped},
        },
        reply::Reply,
    },
    failpoint::{self, Point},
    protocol::rma::{
        cma::{CmaAccess, Way, is_denial},
        regions::Reached,
    },
    status::Tallies,
    wire::{
        region::Spot,
        space::{Answered, Ask, Claim, Exposure, Refused},
    },
    worker::shared::Shared,
};

/// Memory of a peer that it has [exposed](Endpoint::expose), by its addresses there. A handle:
/// clones are the same memory, and can be used from many threads.
///
/// Reads and writes go the cheapest way that there is to an address; receipts say which
/// ([module](crate) documentation of paths): [`Path::Mapped`] for memory in an arena of the peer's,
/// some 50 ns; [`Path::Cma`] for all else, 1 to 2 µs; [`Path::Eager`] where the kernel denies that:
/// then the peer's endpoint has to make progress.
///
/// An operation that succeeds came before the exposure ended, and used the memory that was at the
/// address then, however often the peer has mapped something else there before.
#[derive(Clone)]
pub struct RemoteSpace(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    peer: PeerId,
    claim: Claim,
    exposure: Exposure,
    cma_access: Arc<CmaAccess>,
    otherwise: Otherwise,
    /// The agent, which copies in place of the kernel once that has denied it.
    instead: OnceLock<Served>,
    /// The reason why nothing is mapped.
    why_not_mapped: Option<Refusal>,
    /// True if the owner is this process.
    own: bool,
    known: Mutex<Knowledge>,
    tallies: Tallies,
}

/// This side's knowledge of the addresses. One lock for all of it: each operation takes it once.
struct Knowledge {
    mapped: Lookaside<Mapped>,
    /// The question that is out, and its address.
    asked: Option<(Reply, u64)>,
}

/// The way to memory that is not mapped.
enum Otherwise {
    CmaRegion(CmaRegion),
    Served(Served),
}

impl Endpoint {
    /// Opens the memory that a peer exposes by this key. Asks its owner, which answers while it
    /// makes progress.
    ///
    /// # Errors
    /// [`Error::BadKey`]; [`Error::PathRefused`] if the kernel denies reading or writing it and the
    /// endpoint is [`strict`](crate::Builder::strict); [`Error::LimitReached`] if too much that the
    /// peer has withdrawn is still in use by this process; [`Error::PeerGone`],
    /// [`Error::UnknownPeer`], [`Error::Closed`], [`Error::Forked`].
    pub fn open_space(&self, peer: PeerId, key: &RegionKey) -> Result<RemoteSpace> {
        RemoteSpace::open(self.shared(), peer, key)
    }
}

impl RemoteSpace {
    fn open(shared: &Arc<Shared>, peer: PeerId, key: &RegionKey) -> Result<RemoteSpace> {
        let claim = Claim { id: key.id, secret: key.secret };
        failpoint::hit(Point::BeforeSpace);
        let reply = served::ask(shared, peer, claim, Ask::Open);
        failpoint::hit(Point::AfterSpace);
        let message = reply.wait().map_err(served::failed)?;
        let exposure = match Answered::read(&message) {
            Some(Answered::Exposed(exposure)) => exposure,
            Some(Answered::Refused(Refused::Full)) => {
                return Err(Error::LimitReached {
                    what: "what a peer has withdrawn and this process still uses",
                    limit: 16,
                    remedy: "let the operations on it end",
                });
            }
            _ => return Err(Error::BadKey),
        };
        let Exposure { start, len, writable, flag, exported, stamp, cma } = exposure;
        let fits =
            |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64);
        if !fits(start, len) || !fits(flag, 8) || stamp == 0 {
            return Err(Error::BadKey);
        }
        let mut engine = shared.enter()?;
        let strict = engine.core.strict;
        let (found, core) = engine.peer_mut(peer)?;
        let own = found.info.pid == std::process::id();
        let cma_access = Arc::clone(&found.cma_access);
        let why_not_mapped = found.permissions.refusal(Path::Mapped);
        let tallies = core.status.tallies(peer).ok_or(Error::UnknownPeer { peer })?;
        drop(engine);
        let denied = match Refusal::from_code(cma) {
            Some(why) if cma != 0 => Err(why.mirrored()),
            _ => cma_access.there(writable),
        };
        let otherwise = match denied {
            Ok(()) => {
                let spot = Spot { memory: start, len, flag, stamp, writable };
                let why_not_mapped = why_not_mapped.unwrap_or(Refusal::NotShareable);
                let reached = Reached { spot, cma_access: Arc::clone(&cma_access), why_not_mapped };
                let flag = exported.and_then(|exported| Flag::new(shared, peer, exported, stamp));
                let kernel = CmaRegion::new(reached, key.id, peer, Arc::clone(shared));
                Otherwise::CmaRegion(kernel.with_flag(flag))
            }
            Err(why) => {
                let by_choice = [Refusal::SwitchedOff, Refusal::SwitchedOffByPeer].contains(&why);
                if strict && !by_choice {
                    return Err(Error::PathRefused { path: Path::Cma, why });
                }
                let shared = Arc::clone(shared);
                Otherwise::Served(Served { shared, peer, claim, why_not_cma: why })
            }
        };
        let mapped = Lookaside::new().map_err(|_| Error::BadKey)?;
        Ok(RemoteSpace(Arc::new(Inner {
            shared: Arc::clone(shared),
            peer,
            claim,
            exposure,
            cma_access,
            otherwise,
            instead: OnceLock::new(),
            why_not_mapped,
            own,
            known: Mutex::new(Knowledge { mapped, asked: None }),
            tallies,
        })))
    }

    /// The peer that owns it.
    pub fn peer(&self) -> PeerId {
        self.0.peer
    }

    /// The addresses, in the peer's process.
    pub fn addresses(&self) -> Range<u64> {
        let Exposure { start, len, .. } = self.0.exposure;
        start..start + len
    }

    /// The rights of this side.
    pub fn rights(&self) -> Rights {
        if self.0.exposure.writable { Rights::ReadWrite } else { Rights::Read }
    }

    /// The path to memory that is not mapped here: [`Path::Cma`], or [`Path::Eager`] where the
    /// kernel denies that, or comes to deny it.
    pub fn path(&self) -> Path {
        match self.0.otherwise {
            Otherwise::CmaRegion(_) if self.0.instead.get().is_none() => Path::Cma,
            _ => Path::Eager,
        }
    }

    /// Writes `data` at an address of the peer's.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]: nothing was written. [`Error::NotMapped`]:
    /// there is no memory, or it may not be written, at least at some of the addresses.
    /// [`Error::Revoked`], [`Error::Withdrawn`] or [`Error::PeerGone`] if the peer is gone: the
    /// bytes may or may not have been written. [`Error::PathRefused`] if the kernel now denies an
    /// access it allowed when the pair met and the endpoint is
    /// [`strict`](crate::Builder::strict); [`Error::Forked`].
    pub fn write(&self, address: u64, data: &[u8]) -> Result<Receipt> {
        if !self.0.exposure.writable {
            return Err(Error::ReadOnly);
        }
        let len = data.len() as u64;
        let receipt = match self.0.find(address, len, true)? {
            Some(piece) => {
                self.0.at(&piece, len, |memory| memory.write(address - piece.addresses.start, data))
            }
            None => self.0.write_plain(address, data),
        };
        let receipt = receipt?;
        self.0.tallies.wrote(receipt.bytes);
        self.0.tallies.went_by(receipt.path);
        Ok(receipt)
    }

    /// Reads the bytes at an address of the peer's.
    ///
    /// # Errors
    /// As [`RemoteSpace::write`], except for `ReadOnly`; the bytes in `into` mean nothing then.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<Receipt> {
        let len = into.len() as u64;
        let receipt = match self.0.find(address, len, false)? {
            Some(piece) => {
                self.0.at(&piece, len, |memory| memory.read(address - piece.addresses.start, into))
            }
            None => self.0.read_plain(address, into),
        };
        let receipt = receipt?;
        self.0.tallies.read(receipt.bytes);
        self.0.tallies.went_by(receipt.path);
        Ok(receipt)
    }
}

impl Inner {
    /// The mapped piece with these addresses; `None` if they are not mapped, or not known to be.
    fn find(&self, address: u64, len: u64, writes: bool) -> Result<Option<Arc<Piece<Mapped>>>> {
        let Exposure { start, len: size, .. } = self.exposure;
        if address < start || address - start > size || len > size - (address - start) {
            return Err(Error::OutOfBounds { offset: address, len, size });
        }
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        if self.why_not_mapped.is_some() || len == 0 {
            return Ok(None);
        }
        let mut known = self.known.lock();
        if let Some((reply, of)) = known.asked.take() {
            // Handlers may run in there, and use this.
            drop(known);
            self.hear(reply, of);
            known = self.known.lock();
        }
        let found = known.mapped.find(address, len, writes);
        drop(known);
        match found {
            Known::Mapped(piece) => return Ok(Some(piece)),
            Known::Plain => {}
            Known::Nothing => self.ask(address, writes),
        }
        Ok(None)
    }

    /// Asks for the memory behind an address. No other question goes out until there is an answer.
    #[cold]
    fn ask(&self, address: u64, writes: bool) {
        let question = Ask::Translate { address, writes };
        failpoint::hit(Point::BeforeTranslate);
        // Here, too, handlers may run.
        let reply = served::ask(&self.shared, self.peer, self.claim, question);
        failpoint::hit(Point::AfterTranslate);
        self.known.lock().asked = Some((reply, address));
    }

    /// Looks whether the answer has come.
    #[cold]
    fn hear(&self, mut reply: Reply, of: u64) {
        match reply.try_wait() {
            Some(answer) => self.learn(answer.ok().and_then(|it| Answered::read(&it)), of),
            None => self.known.lock().asked = Some((reply, of)),
        }
    }

    /// Takes the answer about `address`; `None` if there will be none.
    fn learn(&self, answer: Option<Answered>, address: u64) {
        match answer {
            Some(Answered::Mapped(behind)) => {
                let (start, len, writable) = (behind.start, behind.len, behind.writable);
                let end = start.checked_add(len).filter(|end| (start..*end).contains(&address));
                let lent = end.and_then(|end| {
                    let mut engine = self.shared.enter().ok()?;
                    Some((end, engine.lend_translated(self.peer, behind, self.exposure.stamp)?))
                });
                let Some((end, lent)) = lent else {
                    return self.known.lock().mapped.learn_nothing(address);
                };
                let memory = Mapped {
                    lent,
                    stamp: self.exposure.stamp,
                    peer: self.peer,
                    shared: Arc::clone(&self.shared),
                    own: self.own,
                };
                let piece = Piece { addresses: start..end, writable, memory };
                failpoint::hit(Point::Learned);
                let out = self.known.lock().mapped.learn(piece);
                drop(out);
            }
            Some(Answered::Plain { start, len }) => {
                let end = start.saturating_add(len);
                self.known.lock().mapped.learn_plain(start..end);
            }
            _ => self.known.lock().mapped.learn_nothing(address),
        }
    }

    /// Uses the mapped memory, as long as the exposure stands.
    fn at(
        &self,
        piece: &Piece<Mapped>,
        len: u64,
        copy: impl FnOnce(&Mapped) -> Result<Largest>,
    ) -> Result<Receipt> {
        // From here on the owner waits for this, or is seen to have ended it.
        let hazard = self.cma_access.hazard(self.claim.id)?;
        failpoint::hit(Point::InSpace);
        piece.memory.confirm()?;
        let by = copy(&piece.memory)?;
        drop(hazard);
        Ok(mapped::receipt(len as usize, by))
    }

    fn write_plain(&self, address: u64, data: &[u8]) -> Result<Receipt> {
        let agent = match &self.otherwise {
            Otherwise::CmaRegion(kernel) if self.instead.get().is_none() => {
                match kernel.write(&[(address - self.exposure.start, data)]) {
                    Ok(receipt) => return Ok(receipt),
                    Err(error) => self.denied(error, address, data.len())?,
                }
            }
            Otherwise::Served(agent) => agent,
            Otherwise::CmaRegion(_) => self.instead.get().ok_or(Error::Closed)?,
        };
        agent.write(address, data).map(|it| self.explain(it))
    }

    /// The agent, if the kernel denied the operation. Other errors are handed back, by name where
    /// there is no memory.
    #[cold]
    fn denied(&self, error: Error, address: u64, len: usize) -> Result<&Served> {
        let (errno, way) = match &error {
            Error::Os { call, source, .. } => {
                let way = if *call == "process_vm_writev" { Way::WeWrite } else { Way::WeRead };
                (source.raw_os_error().unwrap_or(0), way)
            }
            _ => (0, Way::WeRead),
        };
        if !is_denial(errno.unsigned_abs()) {
            return Err(not_mapped(error, address, len));
        }
        let why = Refusal::Denied(errno);
        let mut engine = self.shared.enter()?;
        if engine.core.strict {
            return Err(Error::PathRefused { path: Path::Cma, why });
        }
        engine.peer_mut(self.peer)?.0.withdraw(way, errno.unsigned_abs());
        drop(engine);
        let (shared, peer, claim) = (Arc::clone(&self.shared), self.peer, self.claim);
        Ok(self.instead.get_or_init(|| Served { shared, peer, claim, why_not_cma: why }))
    }

    fn read_plain(&self, address: u64, into: &mut [u8]) -> Result<Receipt> {
        let len = into.len();
        let agent = match &self.otherwise {
            Otherwise::CmaRegion(kernel) if self.instead.get().is_none() => {
                match kernel.read(&mut [(address - self.exposure.start, &mut *into)]) {
                    Ok(receipt) => return Ok(receipt),
                    Err(error) => self.denied(error, address, len)?,
                }
            }
            Otherwise::Served(agent) => agent,
            Otherwise::CmaRegion(_) => self.instead.get().ok_or(Error::Closed)?,
        };
        agent.read(address, into).map(|it| self.explain(it))
    }

    /// Notes in a receipt why the memory was not mapped.
    fn explain(&self, mut receipt: Receipt) -> Receipt {
        receipt.refuse(Path::Mapped, self.why_not_mapped.unwrap_or(Refusal::NotShareable));
        receipt
    }
}

/// The kernel's error where there is no memory, by name.
fn not_mapped(error: Error, address: u64, len: usize) -> Error {
    const FAULT: i32 = rustix::io::Errno::FAULT.raw_os_error();
    match error {
        Error::Os { source, .. } if source.raw_os_error() == Some(FAULT) => {
            Error::NotMapped { address, len: len as u64 }
        }
        other => other,
    }
}

impl fmt::Debug for RemoteSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSpace")
            .field("peer", &self.peer())
            .field("addresses", &self.addresses())
            .field("rights", &self.rights())
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
