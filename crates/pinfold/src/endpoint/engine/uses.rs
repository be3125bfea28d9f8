#![allow(unsafe_code)]
//! Operations on regions over a connection: how they are asked for, and how their owner does them.
//!
//! Who asks sends what is to be done with the region's key, each time: the owner keeps nothing of who may do
//! what. Bytes that are written follow as a stream of the operation's number, bytes that are read come as one
//! that the answer names. Long ones go past the lanes, from and to the caller's memory and the region's
//! ([`distant`](super::distant)).
//!
//! What is asked costs no credit, for nothing of it is stored: what does not go into a region is dropped as it
//! comes. Operations that are out are bounded on both sides.
//!
//! **Invariant.** The owner touches a region's memory under the engine's lock, and only while the region stands:
//! whoever has removed it may be sure that nothing is written there any more. What is read and still on its way
//! keeps the memory alive ([`Act::Served`]).

use std::{collections::VecDeque, slice, sync::Arc};

use pinfold_sys::process::Segment;

use super::{
    Engine,
    active::Act,
    core::Core,
    inbound::bytes_of,
    op::{Done, Keeps, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp, SendStage},
    peer::{Came, Inbound, Peer, Sink},
    regions::ANSWERS_MAX,
};
use crate::{
    Error, Path, PeerId, Receipt, Result, SharedBuf,
    endpoint::{region::atomics, scatter::Scatter},
    link::shm::ring::Violation,
    status::Tally,
    wire::{
        descriptor::{Header, Piece},
        uses::{BYTES_MAX, NotUsed, Use, Used, What},
    },
};

/// Operations that one peer is asked for at a time.
const OUT_MAX: usize = 16;
/// Reads of one peer that may be on their way. One that is read has ended for the peer before it has for the
/// owner, who may have to wait for the kernel to let go of the memory; these are bounded, too.
const SERVED_MAX: usize = 128;

/// What is out and what waits, of operations that one peer is asked for.
#[derive(Default)]
pub(crate) struct Uses {
    out: usize,
    waiting: VecDeque<OpKey>,
}

/// An operation, where it was begun.
#[derive(Clone, Copy)]
pub(crate) struct Using {
    pub peer: PeerId,
    pub asked: Use,
    /// Bytes of the region, as its owner has said.
    pub size: u64,
}

/// What a send is that is no message.
pub(crate) enum Far {
    /// A write, and what its owner has said if the memory is still looked at.
    Write { using: Using, answer: Option<Result<(), NotUsed>> },
    /// The answer to a read of a peer's.
    Answer { number: u32, region: u64, offset: usize, memory: Arc<SharedBuf> },
}

/// A write of a peer's that is coming in.
pub(crate) struct Landing {
    region: u64,
    offset: u64,
    /// Why it is not written.
    verdict: Result<(), NotUsed>,
}

/// A part of a region that is written.
pub(super) struct Landed {
    pub part: Segment,
    memory: Arc<SharedBuf>,
    at: usize,
}

impl Landed {
    /// Copies bytes to its beginning, by words: others may be at them.
    pub(super) fn put(&self, bytes: &[u8]) {
        self.memory.write(self.at, bytes);
    }
}

impl Far {
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Far::Write { .. })
    }
}

impl Using {
    /// The error that a refusal is.
    fn error(&self, why: NotUsed) -> Error {
        let (offset, size) = (self.asked.offset, self.size);
        match why {
            NotUsed::Revoked => Error::Revoked,
            NotUsed::ReadOnly => Error::ReadOnly,
            NotUsed::Outside => Error::OutOfBounds { offset, len: self.len(), size },
            NotUsed::Misaligned => Error::Misaligned { offset, size: self.len() },
        }
    }

    fn len(&self) -> u64 {
        match self.asked.what {
            What::Read { len } | What::Write { len } => len,
            What::Brief { len, .. } => len as u64,
            What::Change(change) => change.word.size(),
        }
    }
}

// Who asks.

impl Engine {
    /// Begins an operation. `memory` is what is written, or where to what is read.
    pub(crate) fn post_use(&mut self, using: Using, memory: Scatter) -> Result<OpKey> {
        self.check()?;
        let id = using.peer;
        let (peer, core) = self.peer_mut(id)?;
        let kind = match using.asked.what {
            What::Write { .. } | What::Brief { .. } => {
                let receipt = receipt(peer, using.len());
                let far = Some(Box::new(Far::Write { using, answer: None }));
                OpKind::Send(SendOp { far, ..SendOp::new(id, 0, memory, receipt) })
            }
            What::Read { .. } | What::Change(_) => {
                let stage = RecvStage::Using(Box::new(using));
                OpKind::Recv(RecvOp { stage, ..RecvOp::new(Some(memory)) })
            }
        };
        let key = core.ops.insert(Op::new(kind));
        peer.uses.waiting.push_back(key);
        if let Err(violation) = core.pump(peer) {
            self.cut_off(id, violation);
        }
        self.kick_if_needed();
        Ok(key)
    }
}

impl Core {
    /// Lets operations go that wait, as many as may be out.
    pub(super) fn let_uses_go(&mut self, peer: &mut Peer) {
        while peer.uses.out < OUT_MAX
            && let Some(key) = peer.uses.waiting.pop_front()
        {
            match self.ops.get(key).map(|op| (&op.kind, op.done.is_some())) {
                Some((OpKind::Send(_), false)) => peer.asked.push_back(key),
                Some((OpKind::Recv(RecvOp { stage: RecvStage::Using(using), .. }), false)) => {
                    let asked = using.asked;
                    let header = asked.header(key.index);
                    let words = Use::words(header).unwrap_or(0);
                    self.answer_by(peer, header, &asked.body()[..words]);
                }
                _ => continue,
            }
            peer.uses.out += 1;
        }
    }

    /// Takes a send that is no message to where its bytes go. Whether there was room.
    pub(super) fn begin_far(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        op: &mut SendOp,
        far: &Far,
    ) -> Begun {
        let len = op.memory.len();
        let streaming = SendStage::Streaming { at: 0, end: len, announced: true, cut: None };
        match far {
            Far::Write { using, .. } => {
                let header = using.asked.header(key.index);
                let words = Use::words(header).unwrap_or(0);
                peer.tx.push(header, &using.asked.body()[..words]);
                if let What::Brief { .. } = using.asked.what {
                    op.receipt.copied_user = len;
                    op.stage = SendStage::Asked;
                    return Begun::AllOut;
                }
                op.stage = streaming;
                Begun::Streams
            }
            Far::Answer { number, region, .. } => {
                let stands = self.regions.memory(*region).is_some();
                let used = match stands {
                    true => Used::Comes { stream: key.index },
                    false => Used::Refused(NotUsed::Revoked),
                };
                let words = Used::words(used.header(0)).unwrap_or(0);
                peer.tx.push(used.header(*number), &used.body()[..words]);
                op.stage = streaming;
                if stands { Begun::Streams } else { Begun::Ended }
            }
        }
    }

    /// All bytes of a write are out, and its memory is the caller's again: it ends when the owner has answered.
    pub(super) fn written(&mut self, peer: &mut Peer, key: OpKey) {
        let Some(SendOp { far: Some(far), stage, .. }) = self.ops.send_mut(key) else { return };
        *stage = SendStage::Asked;
        if let Far::Write { using, answer } = &mut **far
            && let Some(answer) = answer.take()
        {
            let error = answer.map_err(|why| using.error(why));
            self.end_write(peer, key, error);
        }
    }

    fn end_write(&mut self, peer: &mut Peer, key: OpKey, result: Result<()>) {
        let Some(op) = self.ops.send_mut(key) else { return };
        let receipt = op.receipt;
        self.end_use(peer, key, result.map(|()| Done::Sent(receipt)));
    }

    fn end_use(&mut self, peer: &mut Peer, key: OpKey, result: Result<Done>) {
        peer.uses.out = peer.uses.out.saturating_sub(1);
        self.finish(key, result);
        if !peer.uses.waiting.is_empty() {
            self.block(peer);
        }
    }

    /// The owner of a region has answered.
    pub(super) fn used(
        &mut self,
        peer: &mut Peer,
        header: Header,
        body: &[u64; 7],
    ) -> Result<(), Violation> {
        let used = Used::read(header, body).ok_or(Violation("it answered in no known way"))?;
        let key = self.ops.at(header.aux());
        let key = key.ok_or(Violation("it answered an operation that is not open"))?;
        let not_own = Violation("it answered an operation that is not its own");
        let op = self.ops.get_mut(key).filter(|op| op.done.is_none()).ok_or(not_own)?;
        match &mut op.kind {
            OpKind::Send(SendOp { peer: whose, far: Some(far), stage, .. })
                if *whose == peer.id =>
            {
                let Far::Write { using, answer } = &mut **far else { return Err(not_own) };
                let said = match used {
                    Used::Written => Ok(()),
                    Used::Refused(why) => Err(why),
                    _ => return Err(Violation("it answered another question than it was asked")),
                };
                match stage {
                    SendStage::Asked => {
                        let result = said.map_err(|why| using.error(why));
                        self.end_write(peer, key, result);
                    }
                    // It has all of it, and the kernel has not said that it no longer looks at it.
                    SendStage::Handed { .. } if answer.is_none() => *answer = Some(said),
                    _ => return Err(Violation("it answered before it was told what")),
                }
                Ok(())
            }
            OpKind::Recv(RecvOp { stage: RecvStage::Using(using), .. })
                if using.peer == peer.id =>
            {
                let using = **using;
                self.read_or_changed(peer, key, using, used)
            }
            _ => Err(not_own),
        }
    }

    fn read_or_changed(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        using: Using,
        used: Used,
    ) -> Result<(), Violation> {
        let len = using.len();
        let result = match (using.asked.what, used) {
            (_, Used::Refused(why)) => Err(using.error(why)),
            (What::Change(_), Used::Was(word)) => Ok(Done::Was(word)),
            (What::Read { .. }, Used::Bytes { len: came, words }) if came as u64 == len => {
                let Some(op) = self.ops.recv_mut(key) else { return Ok(()) };
                op.memory.write(&mut self.store, 0, &bytes_of(&words)[..came]);
                let mut receipt = receipt(peer, len);
                receipt.copied_user = len;
                Ok(Done::Sent(receipt))
            }
            (What::Read { .. }, Used::Comes { stream: sid }) if len > 0 => {
                if peer.inbound_at(sid).is_some() {
                    return Err(Violation("it began a stream twice"));
                }
                if let Some(op) = self.ops.recv_mut(key) {
                    op.stage = RecvStage::Streaming { peer: peer.id };
                }
                peer.inbound.push(stream(sid, len, Sink::Read(key)));
                return Ok(());
            }
            _ => return Err(Violation("it answered another question than it was asked")),
        };
        self.end_use(peer, key, result);
        Ok(())
    }

    /// All bytes of a read have come.
    pub(super) fn read_whole(&mut self, peer: &mut Peer, key: OpKey, came: Came) {
        let mut receipt = receipt(peer, came.copied);
        receipt.copied_user = came.copied - came.by_kernel;
        receipt.copied_kernel = came.by_kernel;
        self.status.copied_user.add(receipt.copied_user);
        self.status.copied_kernel.add(receipt.copied_kernel);
        self.end_use(peer, key, Ok(Done::Sent(receipt)));
    }
}

/// How far a send that is no message got at its first step.
pub(super) enum Begun {
    /// Its bytes come next.
    Streams,
    /// They are out.
    AllOut,
    Ended,
}

/// Of an operation that its owner does.
fn receipt(peer: &Peer, len: u64) -> Receipt {
    let mut receipt = Receipt::new(Path::Eager, len);
    for path in [Path::Cma, Path::Mapped] {
        if let Some(why) = peer.permissions.refusal(path) {
            receipt.refuse(path, why);
        }
    }
    receipt
}

fn stream(sid: u32, len: u64, sink: Sink) -> Inbound {
    let came = Came::default();
    let (tag, got, cost, started) = (0, 0, 0, 0);
    Inbound { sid, tag, len, end: len, got, came, offered: false, sink, cost, started, lap: None }
}

// The owner.

impl Core {
    /// A peer asks for an operation on a region.
    pub(super) fn use_for(
        &mut self,
        peer: &mut Peer,
        header: Header,
        body: &[u64; 7],
    ) -> Result<(), Violation> {
        let Use { claim, offset, what } =
            Use::read(header, body).ok_or(Violation("it asked for no known operation"))?;
        let number = header.aux();
        if peer.control.len() > ANSWERS_MAX {
            return Err(Violation("it asks on without taking the answers"));
        }
        let regions = &self.regions;
        let used = match what {
            What::Brief { len, words } => {
                regions.usable(&claim, offset, len as u64, true).map(|memory| {
                    memory.write(offset as usize, &bytes_of(&words)[..len]);
                    Used::Written
                })
            }
            What::Change(change) => {
                let size = change.word.size();
                let memory = regions.usable(&claim, offset, size, true);
                memory.and_then(|memory| match offset.is_multiple_of(size) {
                    // SAFETY: a word of the region, at a multiple of its size: the region is at one of 64.
                    // It is reached atomically only.
                    true => Ok(Used::Was(unsafe {
                        atomics::by_number(memory.as_ptr().add(offset as usize), change)
                    })),
                    false => Err(NotUsed::Misaligned),
                })
            }
            What::Read { len } if len <= BYTES_MAX as u64 => {
                regions.usable(&claim, offset, len, false).map(|memory| {
                    let (len, mut bytes) = (len as usize, [0; BYTES_MAX]);
                    memory.read(offset as usize, &mut bytes[..len]);
                    let word = |at| u64::from_ne_bytes(std::array::from_fn(|b| bytes[8 * at + b]));
                    Used::Bytes { len, words: std::array::from_fn(word) }
                })
            }
            What::Read { len } => match regions.usable(&claim, offset, len, false).cloned() {
                Ok(memory) => {
                    let far =
                        Far::Answer { number, region: claim.id, offset: offset as usize, memory };
                    return self.serve(peer, far, len as usize);
                }
                Err(why) => Err(why),
            },
            What::Write { len } => {
                let verdict = regions.usable(&claim, offset, len, true).map(|_| ());
                return self.await_bytes(
                    peer,
                    number,
                    len,
                    Landing { region: claim.id, offset, verdict },
                );
            }
        };
        self.say_used(peer, number, used.unwrap_or_else(Used::Refused));
        Ok(())
    }

    fn say_used(&mut self, peer: &mut Peer, number: u32, used: Used) {
        let header = used.header(number);
        let words = Used::words(header).unwrap_or(0);
        self.answer_by(peer, header, &used.body()[..words]);
    }

    /// Sends what a peer reads, in its turn.
    fn serve(&mut self, peer: &mut Peer, far: Far, len: usize) -> Result<(), Violation> {
        let Far::Answer { offset, memory, .. } = &far else { return Ok(()) };
        if !self.regions.serve(peer.id, SERVED_MAX) {
            return Err(Violation("it reads on without taking what it has read"));
        }
        let (at, buffer) = (memory.as_ptr().wrapping_add(*offset), Arc::clone(memory));
        // SAFETY: inside the region's memory, which the operation keeps until it has ended.
        let parts = unsafe { Scatter::one(at, len) };
        let receipt = Receipt::new(Path::Eager, len as u64);
        let send = SendOp { far: Some(Box::new(far)), ..SendOp::new(peer.id, 0, parts, receipt) };
        let keeps = Keeps::Act(Act::Served { peer: peer.id, memory: buffer });
        let key = self.ops.insert(Op::kept(Some(keeps), OpKind::Send(send)));
        peer.asked.push_back(key);
        self.pump(peer)
    }

    /// Copies bytes `at..` of what a peer reads to a piece of the lane.
    pub(super) fn fill_far(
        peer: &mut Peer,
        far: &Far,
        piece: Piece,
        at: u64,
    ) -> Result<bool, Violation> {
        let Far::Answer { offset, memory, .. } = far else { return Ok(false) };
        let to = peer.tx.place(piece)?;
        // SAFETY: a range that was lent, of a lane whose both ends are in this process: nobody else reaches it.
        let to = unsafe { slice::from_raw_parts_mut(to, piece.len as usize) };
        memory.read(offset + at as usize, to);
        Ok(true)
    }

    /// Makes ready for what a peer writes.
    fn await_bytes(
        &mut self,
        peer: &mut Peer,
        number: u32,
        len: u64,
        landing: Landing,
    ) -> Result<(), Violation> {
        if len == 0 || len > i64::MAX as u64 {
            return Err(Violation("it writes nothing, or more than memory has"));
        }
        // They come one after the other.
        let one_by_one = !peer.inbound.iter().any(|stream| matches!(stream.sink, Sink::Write(_)));
        if !one_by_one || peer.inbound_at(number).is_some() {
            return Err(Violation("it began a write within another"));
        }
        peer.inbound.push(stream(number, len, Sink::Write(Box::new(landing))));
        Ok(())
    }

    /// The memory that a write goes to, if it still does.
    fn landing<'a>(&'a self, landing: &mut Landing) -> Option<&'a Arc<SharedBuf>> {
        landing.verdict.ok()?;
        let memory = self.regions.memory(landing.region);
        if memory.is_none() {
            landing.verdict = Err(NotUsed::Revoked);
        }
        memory
    }

    /// Where in a region byte `got` of a write goes, and those after it.
    pub(super) fn landing_part(
        &self,
        landing: &mut Landing,
        got: u64,
        left: u64,
    ) -> Option<Landed> {
        let memory = self.landing(landing)?;
        let at = (landing.offset + got) as usize;
        let len = usize::try_from(left).ok()?.min(memory.len() - at);
        let part = Segment { ptr: memory.as_ptr().wrapping_add(at), len };
        Some(Landed { part, memory: Arc::clone(memory), at })
    }

    /// Puts a piece of a write to its place. How many bytes of it went anywhere.
    pub(super) fn land_piece(
        &self,
        peer: &Peer,
        landing: &mut Landing,
        piece: Piece,
        got: u64,
    ) -> Result<u64, Violation> {
        let from = peer.rx.place(piece)?;
        let Some(memory) = self.landing(landing) else { return Ok(0) };
        // SAFETY: a piece that has come, of a lane whose both ends are in this process: nobody writes it before
        // it is given back.
        let from = unsafe { slice::from_raw_parts(from, piece.len as usize) };
        memory.write((landing.offset + got) as usize, from);
        Ok(piece.len.into())
    }

    /// All bytes of a write have come.
    pub(super) fn landed(
        &mut self,
        peer: &mut Peer,
        number: u32,
        mut landing: Landing,
        came: Came,
    ) {
        self.status.copied_user.add(came.copied - came.by_kernel);
        self.status.copied_kernel.add(came.by_kernel);
        // It may have been revoked since the last of them.
        self.landing(&mut landing);
        let used = landing.verdict.map_or_else(Used::Refused, |()| Used::Written);
        self.say_used(peer, number, used);
    }
}
