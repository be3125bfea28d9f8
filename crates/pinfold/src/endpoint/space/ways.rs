#![allow(unsafe_code)]
//! The ways to a peer's exposed memory, and which one an operation takes.
//!
//! **Invariant.** Memory of a caller that goes to the agent's copies is borrowed by the call, which
//! ends only after they have.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{
    lookaside::{Known, Lookaside, Piece},
    served::{self, Does, Served, Span},
};
use crate::{
    Error, Path, Receipt, Refusal, Result,
    endpoint::{
        region::{
            cma::CmaRegion,
            mapped::{self, Mapped},
        },
        reply::Reply,
    },
    error::inside,
    failpoint::{self, Point},
    memory::scatter::Part,
    protocol::rma::cma::{CmaAccess, Way, is_denial},
    status::Tallies,
    wire::space::{Answered, Ask, Exposure},
    worker::op::Done,
};

/// A peer's exposed memory, as this side uses it.
pub(super) struct Inner {
    pub exposure: Exposure,
    pub cma_access: Arc<CmaAccess>,
    /// The way to memory that is not mapped, unless the kernel was [denied](Inner::denied).
    pub kernel: Option<CmaRegion>,
    /// The reason why the agent copies instead, once there is one.
    pub denied: OnceLock<Refusal>,
    pub agent: Served,
    /// The reason why nothing is mapped.
    pub why_not_mapped: Option<Refusal>,
    /// True if the owner is this process.
    pub own: bool,
    /// This side's knowledge of the addresses. One lock for all of it: each operation takes it
    /// once.
    pub known: Mutex<Knowledge>,
    pub tallies: Tallies,
}

/// The known addresses of a peer's memory.
pub(super) struct Knowledge {
    pub mapped: Lookaside<Mapped>,
    /// The question that is out, and its address.
    pub asked: Option<(Reply, u64)>,
}

impl Inner {
    /// Checks that bytes lie inside the exposed range, and may be used so.
    pub(super) fn check(&self, address: u64, len: u64, writes: bool) -> Result<()> {
        let Exposure { start, len: size, writable, .. } = self.exposure;
        if writes && !writable {
            return Err(Error::ReadOnly);
        }
        match address.checked_sub(start) {
            Some(offset) if inside(offset, len, size).is_ok() => Ok(()),
            _ => Err(Error::OutOfBounds { offset: address, len, size }),
        }
    }

    /// The kernel, where it copies.
    pub(super) fn kernel(&self) -> Option<&CmaRegion> {
        self.kernel.as_ref().filter(|_| self.denied.get().is_none())
    }

    /// The mapped piece with these addresses; `None` if they are not mapped, or not known to be.
    pub(super) fn find(
        &self,
        address: u64,
        len: u64,
        writes: bool,
    ) -> Result<Option<Arc<Piece<Mapped>>>> {
        self.check(address, len, writes)?;
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
        let reply = served::ask(&self.agent.shared, self.agent.peer, self.agent.claim, question);
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
                    Some((end, engine.lend_translated(peer, behind, self.exposure.stamp)?))
                });
                let Some((end, lent)) = lent else {
                    return self.known.lock().mapped.learn_nothing(address);
                };
                let (stamp, shared) = (self.exposure.stamp, Arc::clone(shared));
                let memory = Mapped { lent, stamp, peer, shared, own: self.own };
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

    /// Uses the mapped memory, as long as the exposure stands. The operation is given the offset
    /// of the address.
    pub(super) fn at<T>(
        &self,
        piece: &Piece<Mapped>,
        address: u64,
        operation: impl FnOnce(&Mapped, u64) -> Result<T>,
    ) -> Result<T> {
        // From here on the owner waits for this, or is seen to have ended it.
        let hazard = self.cma_access.hazard(self.agent.claim.id)?;
        failpoint::hit(Point::InSpace);
        piece.memory.confirm()?;
        let done = operation(&piece.memory, address - piece.addresses.start)?;
        drop(hazard);
        Ok(done)
    }

    /// Writes, unless the agent has to.
    pub(super) fn write_here(&self, address: u64, data: &[u8]) -> Result<Option<Receipt>> {
        match self.find(address, data.len() as u64, true)? {
            Some(piece) => {
                let by = self.at(&piece, address, |memory, offset| memory.write(offset, data))?;
                Ok(Some(self.wrote(mapped::receipt(data.len(), by))))
            }
            None => self.write_by_kernel(&[(address, data)]),
        }
    }

    /// Reads, unless the agent has to.
    pub(super) fn read_here(&self, address: u64, into: &mut [u8]) -> Result<Option<Receipt>> {
        match self.find(address, into.len() as u64, false)? {
            Some(piece) => {
                let by = self.at(&piece, address, |memory, offset| memory.read(offset, into))?;
                Ok(Some(self.read(mapped::receipt(into.len(), by))))
            }
            None => self.read_by_kernel(&mut [(address, into)]),
        }
    }

    /// Writes parts that are not mapped, unless the agent has to.
    fn write_by_kernel(&self, parts: &[(u64, &[u8])]) -> Result<Option<Receipt>> {
        let Some(kernel) = self.kernel() else { return Ok(None) };
        let start = self.exposure.start;
        let offsets: SmallVec<[(u64, &[u8]); 1]> =
            parts.iter().map(|(address, data)| (address - start, *data)).collect();
        match kernel.write(&offsets) {
            Ok(receipt) => Ok(Some(self.wrote(receipt))),
            Err(error) => {
                let len = parts.iter().map(|(_, data)| data.len() as u64).sum();
                let first = parts.first().map_or(start, |part| part.0);
                self.deny(error, first, len).map(|()| None)
            }
        }
    }

    /// Reads parts that are not mapped, unless the agent has to.
    fn read_by_kernel(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Option<Receipt>> {
        let Some(kernel) = self.kernel() else { return Ok(None) };
        let start = self.exposure.start;
        let first = parts.first().map_or(start, |part| part.0);
        let len = parts.iter().map(|(_, into)| into.len() as u64).sum();
        let mut offsets: SmallVec<[(u64, &mut [u8]); 1]> =
            parts.iter_mut().map(|(address, into)| (*address - start, &mut **into)).collect();
        match kernel.read(&mut offsets) {
            Ok(receipt) => Ok(Some(self.read(receipt))),
            Err(error) => self.deny(error, first, len).map(|()| None),
        }
    }

    /// Has the agent copy from now on, if the kernel denied an operation. Other errors are handed
    /// back, by name where there is no memory.
    #[cold]
    fn deny(&self, error: Error, address: u64, len: u64) -> Result<()> {
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
        let mut engine = self.agent.shared.enter()?;
        if engine.core.strict {
            return Err(Error::PathRefused { path: Path::Cma, why });
        }
        engine.peer_mut(self.agent.peer)?.0.withdraw(way, errno.unsigned_abs());
        self.denied.get_or_init(|| why);
        Ok(())
    }

    /// Has the agent write parts.
    pub(super) fn write_there(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        let spans = self.spans(parts.iter().map(|(address, data)| {
            // SAFETY: borrowed until the operation has ended, below, and only read.
            (*address, unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) })
        }));
        self.sent(self.agent.perform(self.writes(spans))).map(|receipt| self.wrote(receipt))
    }

    /// Has the agent read parts.
    pub(super) fn read_there(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let spans = self.spans(parts.iter_mut().map(|(address, into)| {
            // SAFETY: borrowed mutably until the operation has ended, below.
            (*address, unsafe { Part::new(into.as_mut_ptr(), into.len()) })
        }));
        self.sent(self.agent.perform(self.reads(spans))).map(|receipt| self.read(receipt))
    }

    /// Spans for the agent: one at least, which shows whether the exposure stands.
    pub(super) fn spans(&self, parts: impl Iterator<Item = (u64, Part)>) -> served::Spans {
        let mut spans: served::Spans =
            parts.map(|(address, memory)| Span { address, memory }).collect();
        if spans.is_empty() {
            // SAFETY: no memory.
            let memory = unsafe { Part::new(std::ptr::null_mut(), 0) };
            spans.push(Span { address: self.exposure.start, memory });
        }
        spans
    }

    /// A write of spans.
    pub(super) fn writes(&self, spans: served::Spans) -> Does {
        let receipt = self.receipt(&spans);
        Does::Write(spans, receipt)
    }

    /// A read of spans.
    pub(super) fn reads(&self, spans: served::Spans) -> Does {
        let receipt = self.receipt(&spans);
        Does::Read(spans, receipt)
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

    fn sent(&self, done: Result<Done>) -> Result<Receipt> {
        match done? {
            Done::Sent(receipt) => Ok(receipt),
            _ => Err(Error::Withdrawn),
        }
    }

    /// Writes parts inside the exposed range, each in its way.
    pub(super) fn write_all(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        let places = parts.iter().map(|(address, data)| (*address, data.len())).collect();
        self.in_runs(places, true, |run, piece| match (piece, &parts[run]) {
            (Some(piece), [(address, data)]) => {
                let by = self.at(&piece, *address, |memory, offset| memory.write(offset, data))?;
                Ok(self.wrote(mapped::receipt(data.len(), by)))
            }
            (_, plain) => match self.write_by_kernel(plain)? {
                Some(receipt) => Ok(receipt),
                None => self.write_there(plain),
            },
        })
    }

    /// Reads parts inside the exposed range, each in its way.
    pub(super) fn read_all(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let places = parts.iter().map(|(address, into)| (*address, into.len())).collect();
        self.in_runs(places, false, |run, piece| match (piece, &mut parts[run]) {
            (Some(piece), [(address, into)]) => {
                let by = self.at(&piece, *address, |memory, offset| memory.read(offset, into))?;
                Ok(self.read(mapped::receipt(into.len(), by)))
            }
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
        for (address, len) in places {
            let piece = self.find(address, len as u64, writes)?;
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

    /// Counts a write that has ended, or was posted.
    pub(super) fn wrote(&self, receipt: Receipt) -> Receipt {
        self.tallies.wrote(receipt.bytes);
        self.tallies.went_by(receipt.path);
        receipt
    }

    /// Counts a read, likewise.
    pub(super) fn read(&self, receipt: Receipt) -> Receipt {
        self.tallies.read(receipt.bytes);
        self.tallies.went_by(receipt.path);
        receipt
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
