//! Messages that wait in their sender's memory: how they come once a receive has matched.
//!
//! One that lies in an arena which is mapped here is copied out of it. Else, where the pair may,
//! the receiver reads it out (`process_vm_readv`). A long one is copied by
//! both sides at once: each claims chunks from its own end until they meet, so that two cores
//! copy, and a sender that does not run delays nothing. The sender copies it into the receiver's
//! arena, if it goes to one that peers may write, or has the kernel write it. Where only the sender
//! may reach the receiver, the sender writes all of it. Where neither may, it comes through the ring.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use pinfold_sys::clock;

use super::{
    core::Core,
    maps::Loan,
    op::{Arrived, Bytes, OpKey, Pull, RecvStage, SharedPull, There, gone},
    peer::{Inbound, Peer, Sink},
};
use crate::{
    Error, Path, Receipt, Refusal,
    arena::ArenaRef,
    endpoint::scatter::{Landing, Part, Remote},
    failpoint::{self, Point},
    link::shm::{
        claim::{self, End},
        ring::Violation,
    },
    wire::descriptor::{By, CHUNKS_MAX, Cts, Fin, Kind, Place, Push, Rts, Shelf, Wrote},
};

/// Messages at least this long are copied by both sides.
const SHARED_FROM: u64 = 64 << 10;
/// Those that the receiver reads out of a mapping. As long as the bytes lie in the caches, it is
/// done with them before help is worth the question and the wait for the last chunk, whether the
/// sender writes to a mapping or through the kernel.
const MAPPED_SHARED_FROM: u64 = 2 << 20;
/// Those whose receiver says whether they go to memory that peers may write.
pub(super) const SAID_FROM: u64 = SHARED_FROM;
/// Bytes one side copies alone before it looks at anything else.
const ALONE_STEP: u64 = 1 << 20;

/// The chunk that both sides claim, as an exponent: large enough that a claim (a cache-line hop or
/// two) is small beside it, small enough that both ends finish together.
fn chunk_shift(len: u64) -> u8 {
    match len {
        0..0x4_0000 => 15,
        0x4_0000..0x10_0000 => 16,
        0x10_0000..0x100_0000 => 17,
        _ => 19,
    }
}

pub(super) fn errno_of(error: &std::io::Error) -> u32 {
    error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()).unsigned_abs()
}

impl Core {
    /// Makes memory for a message of `len` bytes, if its receive brought none.
    pub(crate) fn make_room(&mut self, key: OpKey, len: u64) {
        let Some(op) = self.ops.recv_mut(key) else { return };
        if !op.as_message {
            return;
        }
        match Landing::new(len) {
            Some((own, memory)) => {
                op.own = Some(own);
                op.memory = memory;
            }
            None => self.finish(
                key,
                Err(Error::LimitReached {
                    what: "the memory for one message, in bytes,",
                    limit: len,
                    remedy: "receive it in parts, or into memory of your own",
                }),
            ),
        }
    }

    /// The first `written` bytes of the memory made for a receive, if some was.
    #[allow(unsafe_code)]
    pub(crate) fn own_bytes(&mut self, key: OpKey, written: u64) -> Option<Box<Bytes>> {
        let op = self.ops.recv_mut(key)?;
        let own = op.own.take()?;
        op.memory = crate::endpoint::scatter::Scatter::empty();
        // SAFETY: streams and pulls report only bytes that they have written, from the start on.
        Some(Box::new(Bytes::from_vec(unsafe { own.into_bytes(written) })))
    }

    /// A receive matched message `sid` of the peer, which is still in the peer's memory.
    pub(crate) fn fetch(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        sid: u32,
        rts: Rts,
    ) -> Result<(), Violation> {
        let Rts { tag, len, .. } = rts;
        if rts.given && self.lend_view(peer, key, sid, &rts)? {
            return Ok(());
        }
        if rts.number != 0 {
            peer.returns.copies(sid, rts.number);
        }
        self.make_room(key, len);
        let Some(op) = self.ops.recv_mut(key) else {
            // No memory for it: the sender is told, the receiver knows.
            let errno = rustix::io::Errno::NOMEM.raw_os_error().unsigned_abs();
            self.fin(peer, sid, errno, 0, By::Kernel);
            return Ok(());
        };
        let (want, offered) = (len.min(op.memory.len()), rts.shelf.is_some());
        let to = op.memory.place();
        let mapped = self.find_shelf(peer, &rts, want)?;
        let room = self.note_room(peer, key, len);
        let is_reachable = mapped.is_some()
            || peer.reach.we_read.is_ok()
            || peer.reach.peer_writes.is_ok()
            || room.is_some();
        if !rts.stream
            && is_reachable
            && let Some(pull) = self.begin_pull(peer, sid, &rts, want, mapped, (to, room))
        {
            op_stage(self, key, RecvStage::Pulling(Box::new(pull)));
            self.pulls.push_back(key);
            return self.pull_step(peer, key).map(|_| ());
        }
        if want == 0 {
            self.fin(peer, sid, 0, 0, By::Kernel);
            self.complete(key, peer, (tag, len), 0, offered);
            return Ok(());
        }
        self.begin_stream(peer, key, sid, (tag, len), want, offered)
    }

    /// Has the sender of an announced message send it through the ring.
    fn begin_stream(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        sid: u32,
        (tag, len): (u64, u64),
        want: u64,
        offered: bool,
    ) -> Result<(), Violation> {
        if peer.inbound_at(sid).is_some() {
            return Err(Violation("it began a stream twice"));
        }
        op_stage(self, key, RecvStage::Streaming { peer: peer.id });
        peer.inbound.push(Inbound {
            sid,
            tag,
            len,
            end: want,
            got: 0,
            copied: 0,
            offered,
            sink: Sink::Op(key),
            cost: 0,
            started: clock::ticks(),
        });
        failpoint::hit(Point::BeforeStreamAnswer);
        self.answer(peer, Kind::Cts, sid, &Cts::Stream { want }.body());
        failpoint::hit(Point::AfterStreamAnswer);
        Ok(())
    }

    /// Ends a receive with a message that stays where it is. Whether the receive takes such, and
    /// the message is mapped here.
    fn lend_view(
        &mut self,
        peer: &mut Peer,
        key: OpKey,
        sid: u32,
        rts: &Rts,
    ) -> Result<bool, Violation> {
        if !self.ops.recv_mut(key).is_some_and(|op| op.as_view) {
            return Ok(false);
        }
        let Some(shelf) = rts.shelf else { return Ok(false) };
        self.await_extent(peer, shelf.extent)?;
        // What lies outside is for the ordinary way to judge.
        let Some(mut loan) = self.maps.lend(peer.id, shelf, rts.len, sid) else { return Ok(false) };
        loan.number = rts.number;
        if self.ops.is_abandoned(key) {
            self.end_loan(peer, &loan);
        }
        let receipt = Receipt::new(Path::Handoff, rts.len);
        let (tag, len, loan) = (rts.tag, rts.len, Some(Box::new(loan)));
        self.arrive(key, Arrived { peer: peer.id, tag, len, receipt, bytes: None, loan });
        Ok(true)
    }

    /// Tells the peer that its memory is looked at no more.
    #[inline]
    pub(super) fn end_loan(&mut self, peer: &mut Peer, loan: &Loan) {
        self.maps.give_back(peer.id, loan);
        if loan.number != 0 && peer.returns.end(loan.number) {
            peer.rx.say_returned(peer.returns.count());
        } else {
            self.fin(peer, loan.sid, 0, 0, By::View);
        }
    }

    /// Where a receive's memory lies in an arena that the peer may write, if it does. Whether it does
    /// the peer is told, if the message is long: one that would go through the ring otherwise is
    /// then announced.
    pub(super) fn note_room(
        &mut self,
        peer: &Peer,
        key: OpKey,
        len: u64,
    ) -> Option<(ArenaRef, u64)> {
        if !peer.permissions.may(Path::Mapped) {
            return None;
        }
        let memory = self.ops.recv_mut(key)?.memory.part();
        let place = memory.and_then(Part::locate);
        let room = place.filter(|(extent, _)| extent.peers_may_write());
        if len >= SAID_FROM {
            peer.rx.say_open_memory(room.is_some());
        }
        room
    }

    /// As [`Core::note_room`], of a receive that was only just posted.
    pub(super) fn note_open_memory(&mut self, peer: &Peer, key: OpKey) {
        let memory = self.ops.recv_mut(key).map_or(0, |op| op.memory.len());
        if memory >= SAID_FROM && self.note_room(peer, key, 0).is_some() {
            peer.rx.say_open_memory(true);
        }
    }

    /// The message as it is mapped here, if its sender has put it where it can be, and the first
    /// `want` bytes have memory.
    fn find_shelf(
        &mut self,
        peer: &mut Peer,
        rts: &Rts,
        want: u64,
    ) -> Result<Option<There>, Violation> {
        let Some(Shelf { extent, offset }) = rts.shelf else { return Ok(None) };
        self.await_extent(peer, extent)?;
        let Some(mapping) = self.maps.get(peer.id, extent) else { return Ok(None) };
        if mapping.get(offset, rts.len).is_none() {
            return Err(Violation("it announced a message outside its arena"));
        }
        if !mapping.has_memory(offset, want) {
            return Ok(None);
        }
        Ok(Some(There::Mapped { mapping: Arc::clone(mapping), offset }))
    }

    /// Decides who copies what, and asks the sender for its part. `to` is where it goes, `room` the
    /// same in an arena that the sender may write. `None`: the pair cannot.
    fn begin_pull(
        &mut self,
        peer: &mut Peer,
        sid: u32,
        rts: &Rts,
        want: u64,
        mapped: Option<There>,
        (to, room): (Place, Option<(ArenaRef, u64)>),
    ) -> Option<Pull> {
        let reads = mapped.is_some() || peer.reach.we_read.is_ok();
        let started = clock::ticks();
        let mut errno = 0;
        let mut shared = None;
        let helps = if reads {
            let from = if mapped.is_some() { MAPPED_SHARED_FROM } else { SHARED_FROM };
            !peer.two_way.pull(started) && want >= from
        } else {
            // A sender that writes all of it must not need to read the list of our parts.
            want > 0 && to.parts <= 1
        };
        let may_help = peer.reach.peer_writes.is_ok() || room.is_some();
        let source = mapped.unwrap_or_else(|| {
            There::Remote(match Remote::fetch(peer.info.pid, rts.place, rts.len) {
                Ok(remote) => remote,
                // A sender that cannot be read writes all of it; its parts are not needed here.
                Err(_) if !reads => Remote::none(),
                Err(error) => {
                    errno = errno_of(&error);
                    Remote::none()
                }
            })
        });
        if errno == 0 && may_help && helps {
            let shelf = room
                .filter(|_| peer.exports.may_offer())
                .and_then(|(extent, offset)| self.shelve_at(peer, &extent, offset));
            let shift = chunk_shift(want);
            let chunks = want.div_ceil(1 << shift);
            if chunks <= CHUNKS_MAX
                && (shelf.is_some() || peer.reach.peer_writes.is_ok())
                && let Some((line, generation)) = peer.take_claim()
            {
                claim::open(peer.rx.claim_word(line), generation);
                let place = to;
                let push = Push { want, place, shelf, claim: line, generation, chunk_shift: shift };
                failpoint::hit(Point::BeforePushAnswer);
                self.answer(peer, Kind::Cts, sid, &Cts::Push(push).body());
                failpoint::hit(Point::AfterPushAnswer);
                shared = Some(SharedPull {
                    claim: line,
                    generation,
                    chunks,
                    chunk_shift: shift,
                    mine: 0,
                    theirs: None,
                    wrote: None,
                    offered: shelf.map(|shelf| shelf.extent),
                });
            }
        }
        if !reads && shared.is_none() && want > 0 {
            return None;
        }
        Some(Pull {
            peer: peer.id,
            sid,
            tag: rts.tag,
            len: rts.len,
            want,
            source,
            offered: rts.shelf.is_some(),
            copied: 0,
            started,
            shared,
            reads,
            errno,
            again: false,
        })
    }

    /// Copies the next part of a pull. Whether it did anything.
    pub(crate) fn pull_step(&mut self, peer: &mut Peer, key: OpKey) -> Result<bool, Violation> {
        let Some(op) = self.ops.recv_mut(key) else { return Ok(false) };
        let RecvStage::Pulling(_) = &op.stage else { return Ok(false) };
        let RecvStage::Pulling(mut pull) = std::mem::replace(&mut op.stage, RecvStage::Moving)
        else {
            return Ok(false);
        };
        let mut moved = false;
        let tampered = Violation("it tampered with a shared transfer");
        let pid = peer.info.pid;
        let range = match &mut pull.shared {
            None if pull.errno == 0 && !pull.again && pull.copied < pull.want => {
                Some((pull.copied, (pull.want - pull.copied).min(ALONE_STEP)))
            }
            None => None,
            Some(shared) if shared.theirs.is_none() => {
                let word = peer.rx.claim_word(shared.claim);
                let taken = if pull.reads && pull.errno == 0 && !pull.again {
                    claim::take(word, shared.generation, shared.chunks, End::Front)
                } else {
                    None
                };
                match taken {
                    Some(chunk) => {
                        failpoint::hit(Point::ChunkClaimed);
                        let at = chunk << shared.chunk_shift;
                        if at >= pull.want {
                            op.stage = RecvStage::Pulling(pull);
                            return Err(tampered);
                        }
                        shared.mine += 1;
                        Some((at, (pull.want - at).min(1 << shared.chunk_shift)))
                    }
                    None if pull.reads || pull.errno != 0 => {
                        shared.theirs = Some(claim::close(word, shared.generation));
                        None
                    }
                    // The sender does it all, and says when.
                    None => {
                        if shared.wrote.is_some() {
                            shared.theirs = Some(claim::close(word, shared.generation));
                        }
                        None
                    }
                }
            }
            Some(_) => None,
        };
        if let Some((at, len)) = range {
            moved = true;
            let mut done = 0;
            while done < len {
                let (at, len) = (at + done, len - done);
                let copied = match &pull.source {
                    There::Remote(remote) => op.memory.pull(at, pid, remote, len),
                    There::Mapped { mapping, offset } => {
                        op.memory.copy_out_of(mapping, offset + at, at, len)
                    }
                };
                match (copied, &pull.source) {
                    (Ok(bytes), _) => done += bytes,
                    (Err(_), There::Mapped { mapping, .. }) if mapping.is_fickle() => {
                        pull.again = true;
                        break;
                    }
                    (Err(error), _) => {
                        pull.errno = errno_of(&error);
                        break;
                    }
                }
            }
            failpoint::hit(Point::ChunkRead);
            pull.copied += done;
        }
        let over = match &pull.shared {
            None => pull.errno != 0 || pull.again || pull.copied == pull.want,
            Some(shared) => match (shared.theirs, shared.wrote) {
                (Some(0), None) => true,
                (Some(theirs), Some(wrote)) if wrote.short => {
                    pull.again |= theirs > 0 || !pull.reads;
                    true
                }
                (Some(theirs), Some(wrote)) => {
                    let stopped = pull.errno != 0 || pull.again;
                    let adds_up = u64::from(wrote.chunks) == theirs
                        && (stopped || shared.mine + theirs == shared.chunks);
                    if !adds_up && peer.leaving.is_none() {
                        op.stage = RecvStage::Pulling(pull);
                        return Err(tampered);
                    }
                    true
                }
                _ => false,
            },
        };
        if over {
            return self.end_pull(peer, key, *pull).map(|()| true);
        }
        op.stage = RecvStage::Pulling(pull);
        Ok(moved)
    }

    /// Stops every pull from a peer that is being let go: nothing more can be claimed. Whether the
    /// peer may still be writing what it had claimed.
    pub(crate) fn stop_pulls(&mut self, peer: &mut Peer) -> bool {
        let mut writing = false;
        for key in &self.pulls {
            if let Some(op) = self.ops.recv_mut(*key)
                && let RecvStage::Pulling(pull) = &mut op.stage
                && pull.peer == peer.id
                && let Some(shared) = &mut pull.shared
            {
                if shared.theirs.is_none() {
                    let word = peer.rx.claim_word(shared.claim);
                    shared.theirs = Some(claim::close(word, shared.generation));
                }
                pull.errno = rustix::io::Errno::CONNRESET.raw_os_error().unsigned_abs();
                writing |= pull.awaits_sender();
            }
        }
        writing
    }

    /// Ends a pull: tells both sides.
    fn end_pull(&mut self, peer: &mut Peer, key: OpKey, pull: Pull) -> Result<(), Violation> {
        if let Some(shared) = pull.shared {
            peer.give_claim(shared.claim);
        }
        self.pulls.retain(|other| *other != key);
        if let Some(how) = peer.leaving {
            self.finish(key, Err(gone(&peer.info.name, how)));
            return Ok(());
        }
        // The sender closed in mid-transfer: what was read may be no more what it sent. Bytes that
        // were copied here were copied before this look; of the kernel's that goes without saying.
        fence(Ordering::Acquire);
        if peer.rx.is_closed() {
            op_stage(self, key, RecvStage::Streaming { peer: peer.id });
            return Ok(());
        }
        let Pull { sid, tag, len, want, .. } = pull;
        let offered = pull.shared.is_some_and(|shared| shared.offered.is_some());
        if pull.again && pull.errno == 0 {
            let offered = pull.offered || offered;
            return self.begin_stream(peer, key, sid, (tag, len), want, offered);
        }
        if pull.errno != 0 {
            // A peer that died in mid-transfer is reported as that, when its end is noticed.
            if pull.errno == rustix::io::Errno::SRCH.raw_os_error().unsigned_abs()
                && !peer.reach.is_alive()
            {
                op_stage(self, key, RecvStage::Streaming { peer: peer.id });
                return Ok(());
            }
            self.fin(peer, sid, pull.errno, 0, By::Kernel);
            let source = std::io::Error::from_raw_os_error(pull.errno as i32);
            let error = Error::Transfer { peer: peer.info.name.clone(), source };
            self.finish(key, Err(error));
            return Ok(());
        }
        let ns = peer.pull_lap_ns(pull.started);
        let by = match pull.source {
            There::Mapped { .. } => By::Mapping,
            There::Remote(_) if pull.offered => By::NoMapping,
            There::Remote(_) => By::Kernel,
        };
        // What the sender did, it knows.
        self.fin(peer, sid, 0, ns.max(1), by);
        let wrote = pull.shared.and_then(|shared| shared.wrote).map(|wrote| wrote.by);
        let theirs = pull.shared.and_then(|shared| shared.theirs).unwrap_or(0);
        let pushed = theirs > 0 && wrote == Some(By::Mapping);
        let path = if by == By::Mapping || pushed { Path::Mapped } else { Path::Cma };
        let mut receipt = peer.receipt(path, want, len);
        match by {
            By::Mapping => receipt.copied_user = pull.copied,
            _ => receipt.copied_kernel = pull.copied,
        }
        if path == Path::Cma && (by == By::NoMapping || wrote == Some(By::NoMapping)) {
            receipt.refuse(Path::Mapped, Refusal::NotMapped);
        }
        let bytes = self.own_bytes(key, want);
        self.arrive(key, Arrived { peer: peer.id, tag, len, receipt, bytes, loan: None });
        Ok(())
    }

    pub(super) fn fin(&mut self, peer: &mut Peer, sid: u32, errno: u32, took_ns: u64, by: By) {
        failpoint::hit(Point::BeforeFin);
        let fin = Fin { errno, took_ns, cancelled: false, by };
        self.answer(peer, Kind::Fin, sid, &fin.body());
        failpoint::hit(Point::AfterFin);
        self.copied(peer, sid);
    }

    /// A message of the peer has been copied, and its end was reported.
    #[inline]
    pub(super) fn copied(&self, peer: &mut Peer, sid: u32) {
        if peer.returns.ended(sid) {
            peer.rx.say_returned(peer.returns.count());
        }
    }

    /// The sender has written its chunks.
    pub(crate) fn wrote(
        &mut self,
        peer: &mut Peer,
        sid: u32,
        wrote: Wrote,
    ) -> Result<(), Violation> {
        let key = self.pulls.iter().copied().find(|key| {
            matches!(
                self.ops.get(*key).map(|op| &op.kind),
                Some(super::op::OpKind::Recv(super::op::RecvOp { stage: RecvStage::Pulling(pull), .. }))
                    if pull.peer == peer.id && pull.sid == sid
            )
        });
        // Its report may come after the receiver had claimed all there was.
        let Some(key) = key else { return Ok(()) };
        if let Some(op) = self.ops.recv_mut(key)
            && let RecvStage::Pulling(pull) = &mut op.stage
            && let Some(shared) = &mut pull.shared
        {
            if shared.wrote.replace(wrote).is_some() {
                return Err(Violation("it reported its part twice"));
            }
            match (shared.offered, wrote.by) {
                (Some(_), By::Mapping) => peer.exports.worked(),
                (Some(id), By::NoMapping) => peer.exports.failed(id),
                _ => {}
            }
            if wrote.errno != 0 {
                pull.errno = wrote.errno;
            }
        }
        self.pull_step(peer, key).map(|_| ())
    }
}

fn op_stage(core: &mut Core, key: OpKey, stage: RecvStage) {
    if let Some(op) = core.ops.recv_mut(key) {
        op.stage = stage;
    }
}
