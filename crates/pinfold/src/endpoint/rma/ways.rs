#![allow(unsafe_code)]
//! Memory by address: the ways to it, and which one an operation takes. Places are offsets from its
//! first byte.
//!
//! **Invariant.** Memory of a caller that goes to the agent's copies is borrowed by the call, which
//! ends only after they have; or its maker keeps it until then.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{Ordering, fence},
    },
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{
    atomics::{AtomicChange, AtomicWord},
    cma::CmaRegion,
    flag::Flag,
    lookaside::{Known, Lookaside, Piece},
    mapped::{self, Mapped},
    transfer::{self, Agent, Does, Span, Spans, Whole},
};
use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    endpoint::reply::Reply,
    failpoint::{self, Point},
    memory::scatter::Part,
    protocol::rma::{
        cma::{CmaAccess, Way, is_denial},
        translate,
        way::{Exposed, Reached, check},
    },
    wire::{
        region::{Extent, Spot},
        space::{Answered, Ask, Claim, Exposure},
    },
    worker::{
        op::{Done, OpKey},
        shared::Shared,
    },
};

/// A peer's exposed memory, as this side uses it.
pub(super) struct Ways {
    extent: Extent,
    /// The value of the word that says whether it stands.
    stamp: u64,
    cma_access: Arc<CmaAccess>,
    /// The way to memory that is not mapped, unless the kernel was [denied](Ways::denied).
    kernel: Option<CmaRegion>,
    /// The reason why the agent copies instead, once there is one.
    denied: OnceLock<Refusal>,
    agent: Agent,
    /// The reason why nothing is mapped.
    why_not_mapped: Option<Refusal>,
    /// True if the owner is this process.
    own: bool,
    /// This side's knowledge of the addresses. One lock for all of it: each operation takes it
    /// once.
    known: Mutex<Knowledge>,
}

/// The known addresses of a peer's memory.
struct Knowledge {
    mapped: Lookaside<Mapped>,
    /// The question that is out, and its address.
    asked: Option<(Reply, u64)>,
}

impl Ways {
    pub(super) fn new(
        exposed: Exposed,
        claim: Claim,
        peer: PeerId,
        shared: &Arc<Shared>,
        own: bool,
    ) -> Result<Ways> {
        let denied = exposed.denied();
        let Exposed { exposure, cma_access, why_not_mapped } = exposed;
        let Exposure { start, len, writable, flag, exported, stamp, .. } = exposure;
        let kernel = denied.is_none().then(|| {
            let spot = Spot { memory: start, len, flag, stamp, writable };
            let why_not_mapped = why_not_mapped.unwrap_or(Refusal::NotShareable);
            let reached = Reached { spot, cma_access: Arc::clone(&cma_access), why_not_mapped };
            let flag = exported.and_then(|exported| Flag::new(shared, peer, exported, stamp));
            CmaRegion::new(reached, claim.id, Arc::clone(shared)).with_flag(flag)
        });
        let mapped = Lookaside::new().map_err(|_| Error::BadKey)?;
        Ok(Ways {
            extent: Extent { start, len, writable },
            stamp,
            cma_access,
            kernel,
            denied: denied.map_or_else(OnceLock::new, OnceLock::from),
            agent: Agent { shared: Arc::clone(shared), peer, claim },
            why_not_mapped,
            own,
            known: Mutex::new(Knowledge { mapped, asked: None }),
        })
    }

    /// The path to what is not mapped.
    pub(super) fn path(&self) -> Path {
        if self.kernel().is_some() { Path::Cma } else { Path::Eager }
    }

    pub(super) fn why_not_mapped(&self) -> Option<Refusal> {
        self.why_not_mapped
    }

    /// The kernel, where it copies.
    fn kernel(&self) -> Option<&CmaRegion> {
        self.kernel.as_ref().filter(|_| self.denied.get().is_none())
    }

    /// The mapped piece with these bytes; `None` if they are not mapped, or not known to be.
    fn find(&self, offset: u64, len: u64, writes: bool) -> Result<Option<Arc<Piece<Mapped>>>> {
        check(&self.extent, offset, len, writes)?;
        let address = self.extent.start + offset;
        if self.agent.shared.is_forked() {
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
        let reply = transfer::ask(&self.agent.shared, self.agent.peer, self.agent.claim, question);
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
                let (shared, peer) = (&self.agent.shared, self.agent.peer);
                let lent = end.and_then(|end| {
                    let mut engine = shared.enter().ok()?;
                    Some((end, translate::lend_translated(&mut engine, peer, behind, self.stamp)?))
                });
                let Some((end, lent)) = lent else {
                    return self.known.lock().mapped.learn_nothing(address);
                };
                let (stamp, shared) = (self.stamp, Arc::clone(shared));
                let memory = Mapped { lent, stamp, shared, own: self.own };
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

    /// Uses the mapped memory, as long as the exposure stands. The operation is given the
    /// offset in that.
    fn at<T>(
        &self,
        piece: &Piece<Mapped>,
        offset: u64,
        operation: impl FnOnce(&Mapped, u64) -> Result<T>,
    ) -> Result<T> {
        // From here on the owner waits for this, or is seen to have ended it.
        let hazard = self.cma_access.hazard(self.agent.claim.id)?;
        failpoint::hit(Point::InSpace);
        piece.memory.confirm()?;
        let done = operation(&piece.memory, self.extent.start + offset - piece.addresses.start)?;
        drop(hazard);
        Ok(done)
    }

    /// Writes, unless the agent has to.
    pub(super) fn write_here(&self, offset: u64, data: &[u8]) -> Result<Option<Receipt>> {
        match self.find(offset, data.len() as u64, true)? {
            Some(piece) => self.write_mapped(&piece, offset, data).map(Some),
            None => self.write_by_kernel(&[(offset, data)]),
        }
    }

    /// Reads, unless the agent has to.
    pub(super) fn read_here(&self, offset: u64, into: &mut [u8]) -> Result<Option<Receipt>> {
        match self.find(offset, into.len() as u64, false)? {
            Some(piece) => self.read_mapped(&piece, offset, into).map(Some),
            None => self.read_by_kernel(&mut [(offset, into)]),
        }
    }

    /// Changes a word, unless the agent has to.
    pub(super) fn change_here<W: AtomicWord>(
        &self,
        offset: u64,
        change: AtomicChange<W>,
    ) -> Result<Option<W>> {
        let size = size_of::<W>() as u64;
        if !self.extent.start.wrapping_add(offset).is_multiple_of(size) {
            return Err(Error::Misaligned { offset, size });
        }
        let Some(piece) = self.find(offset, size, true)? else { return Ok(None) };
        let change = |memory: &Mapped, at| mapped::on_mapped(memory, at, change);
        self.at(&piece, offset, change).map(Some)
    }

    fn write_mapped(&self, piece: &Piece<Mapped>, offset: u64, data: &[u8]) -> Result<Receipt> {
        let by = self.at(piece, offset, |memory, at| memory.write(at, data))?;
        Ok(mapped::receipt(data.len(), by))
    }

    fn read_mapped(&self, piece: &Piece<Mapped>, offset: u64, into: &mut [u8]) -> Result<Receipt> {
        let by = self.at(piece, offset, |memory, at| memory.read(at, into))?;
        Ok(mapped::receipt(into.len(), by))
    }

    /// Writes parts that are not mapped, unless the agent has to.
    fn write_by_kernel(&self, parts: &[(u64, &[u8])]) -> Result<Option<Receipt>> {
        let Some(kernel) = self.kernel() else { return Ok(None) };
        kernel.write(parts).map(Some).or_else(|error| {
            let len = parts.iter().map(|(_, data)| data.len() as u64).sum();
            self.deny(error, parts.first().map_or(0, |part| part.0), len).map(|()| None)
        })
    }

    /// Reads parts that are not mapped, unless the agent has to.
    fn read_by_kernel(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Option<Receipt>> {
        let Some(kernel) = self.kernel() else { return Ok(None) };
        kernel.read(parts).map(Some).or_else(|error| {
            let len = parts.iter().map(|(_, into)| into.len() as u64).sum();
            self.deny(error, parts.first().map_or(0, |part| part.0), len).map(|()| None)
        })
    }

    /// Has the agent copy from now on, if the kernel denied an operation. Other errors are handed
    /// back, by name where there is no memory.
    #[cold]
    fn deny(&self, error: Error, offset: u64, len: u64) -> Result<()> {
        let (errno, way) = match &error {
            Error::Os { call, source, .. } => {
                let way = if *call == "process_vm_writev" { Way::WeWrite } else { Way::WeRead };
                (source.raw_os_error().unwrap_or(0), way)
            }
            _ => (0, Way::WeRead),
        };
        if !is_denial(errno.unsigned_abs()) {
            return Err(not_mapped(error, self.extent.start + offset, len));
        }
        let why = Refusal::Denied(errno);
        let mut engine = self.agent.shared.enter()?;
        if engine.core.strict {
            return Err(Error::PathRefused { path: Path::Cma, why });
        }
        engine.peer_mut(self.agent.peer)?.0.withdraw(way, errno.unsigned_abs());
        self.denied.get_or_init(|| why);
        Ok(())
    }

    /// Has the agent write parts.
    fn write_there(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        let spans = self.spans(parts.iter().map(|(offset, data)| {
            // SAFETY: borrowed until the operation has ended, below, and only read.
            (*offset, unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) })
        }));
        let receipt = self.receipt(&spans);
        self.perform(Whole::Write(spans, receipt))
    }

    /// Has the agent read parts.
    fn read_there(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let spans = self.spans(parts.iter_mut().map(|(offset, into)| {
            // SAFETY: borrowed mutably until the operation has ended, below.
            (*offset, unsafe { Part::new(into.as_mut_ptr(), into.len()) })
        }));
        let receipt = self.receipt(&spans);
        self.perform(Whole::Read(spans, receipt))
    }

    fn perform(&self, does: Whole) -> Result<Receipt> {
        match self.agent.perform(does)? {
            Done::Sent(receipt) => Ok(receipt),
            _ => Err(Error::Withdrawn),
        }
    }

    /// Asks the agent for an operation, whose memory on this side its maker keeps until it has
    /// ended.
    pub(super) fn begin(&self, offset: u64, does: Does) -> Result<OpKey> {
        let spans = |part| self.spans([(offset, part)].into_iter());
        self.agent.begin(match does {
            Does::Write(part) => {
                let spans = spans(part);
                let receipt = self.receipt(&spans);
                Whole::Write(spans, receipt)
            }
            Does::Read(part) => {
                let spans = spans(part);
                let receipt = self.receipt(&spans);
                Whole::Read(spans, receipt)
            }
            Does::Change(change) => Whole::Change(self.extent.start + offset, change),
        })
    }

    /// Spans for the agent: one at least, which shows whether the exposure stands.
    fn spans(&self, parts: impl Iterator<Item = (u64, Part)>) -> Spans {
        let span = |(offset, memory)| Span { address: self.extent.start + offset, memory };
        let mut spans: Spans = parts.map(span).collect();
        if spans.is_empty() {
            // SAFETY: no memory.
            let memory = unsafe { Part::new(std::ptr::null_mut(), 0) };
            spans.push(Span { address: self.extent.start, memory });
        }
        spans
    }

    pub(super) fn flush(&self) -> Result<()> {
        if self.agent.shared.is_forked() {
            return Err(Error::Forked);
        }
        fence(Ordering::SeqCst);
        match self.kernel() {
            Some(kernel) => kernel.flush(),
            None => self.read_there(&mut []).map(drop),
        }
    }

    /// The receipt of the agent's copies: copied into the ring here, or out of it, and once more
    /// there.
    fn receipt(&self, spans: &[Span]) -> Receipt {
        let bytes = spans.iter().map(|span| span.memory.len()).sum();
        let mut receipt = Receipt::new(Path::Eager, bytes);
        receipt.copied_user = bytes;
        if let Some(why) = self.denied.get() {
            receipt.refuse(Path::Cma, *why);
        }
        receipt.refuse(Path::Mapped, self.why_not_mapped.unwrap_or(Refusal::NotShareable));
        receipt
    }

    /// Writes parts, each in its way.
    pub(super) fn write(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        for (offset, data) in parts {
            check(&self.extent, *offset, data.len() as u64, true)?;
        }
        let places = parts.iter().map(|(offset, data)| (*offset, data.len())).collect();
        self.in_runs(places, true, |run, piece| match (piece, &parts[run]) {
            (Some(piece), [(offset, data)]) => self.write_mapped(&piece, *offset, data),
            (_, plain) => match self.write_by_kernel(plain)? {
                Some(receipt) => Ok(receipt),
                None => self.write_there(plain),
            },
        })
    }

    /// Reads parts, each in its way.
    pub(super) fn read(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        for (offset, into) in parts.iter() {
            check(&self.extent, *offset, into.len() as u64, false)?;
        }
        let places = parts.iter().map(|(offset, into)| (*offset, into.len())).collect();
        self.in_runs(places, false, |run, piece| match (piece, &mut parts[run]) {
            (Some(piece), [(offset, into)]) => self.read_mapped(&piece, *offset, into),
            (_, plain) => match self.read_by_kernel(plain)? {
                Some(receipt) => Ok(receipt),
                None => self.read_there(plain),
            },
        })
    }

    /// Has `go` go through parts in order: one that is mapped by itself, others together. Without
    /// a part, too, it goes to see whether the exposure stands.
    fn in_runs(
        &self,
        places: SmallVec<[(u64, usize); 4]>,
        writes: bool,
        mut go: impl FnMut(Range<usize>, Option<Arc<Piece<Mapped>>>) -> Result<Receipt>,
    ) -> Result<Receipt> {
        let (mut all, mut plain) = (None, 0..0);
        for (offset, len) in places {
            let piece = self.find(offset, len as u64, writes)?;
            let at = plain.end;
            if piece.is_none() {
                plain.end += 1;
                continue;
            }
            if !plain.is_empty() {
                add(&mut all, go(plain, None)?);
            }
            add(&mut all, go(at..at + 1, piece)?);
            plain = at + 1..at + 1;
        }
        if !plain.is_empty() || all.is_none() {
            add(&mut all, go(plain, None)?);
        }
        all.ok_or(Error::Withdrawn)
    }
}

fn add(all: &mut Option<Receipt>, receipt: Receipt) {
    match all {
        None => *all = Some(receipt),
        Some(all) => all.add(&receipt),
    }
}

/// The kernel's error where there is no memory, by name.
fn not_mapped(error: Error, address: u64, len: u64) -> Error {
    const FAULT: i32 = rustix::io::Errno::FAULT.raw_os_error();
    match error {
        Error::Os { source, .. } if source.raw_os_error() == Some(FAULT) => {
            Error::NotMapped { address, len }
        }
        other => other,
    }
}
