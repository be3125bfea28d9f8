//! The receiver's part in a message that is copied out of its sender's memory.
//!
//! A long one is copied by both sides at once: each claims chunks from its own end until they meet,
//! so that two cores copy, and a sender that does not run delays nothing.

use std::collections::VecDeque;

use pinfold_sys::{cpu::clock, mem::presence::Touch};

use crate::{
    copy::Largest,
    failpoint::{self, Point},
    memory::{arena::ArenaRef, cma_memory::Remote},
    policy::route::MISSING,
    protocol::{
        rendezvous::{
            copies,
            copy_job::Direction,
            get_end,
            get_part::{self, Got},
            transfer::{self, SHARED_FROM},
        },
        rma::cma::{Way, is_denial},
    },
    transport::shm::{
        claim::{self, End},
        ring::Violation,
    },
    wire::{
        descriptor::Kind,
        rendezvous::{By, CHUNKS_MAX, Cts, Place, Put, Rts, Wrote},
    },
    worker::{
        answers,
        core::Core,
        extent_exchange,
        op::{Get, OpKey, OpKind, RecvOp, RecvStage, SharedGet, There},
        op_table::OpTable,
        peer::Peer,
        room,
    },
};

/// The same for messages that the receiver reads out of a mapping. As long as the bytes lie in the
/// caches, it finishes before help is worth the question and the wait for the last chunk, whether
/// the sender writes to a mapping or through the kernel.
const MAPPED_SHARED_FROM: u64 = 2 << 20;
const TAMPERED: Violation = Violation("it tampered with a shared transfer");

/// Bytes one side copies alone before it looks at anything else.
const ALONE_STEP: u64 = 1 << 20;

/// Bytes of this side's memory that are made present at most for a sender that writes all of them:
/// 16 ms.
const PREFAULT_MAX: u64 = 64 << 20;

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

/// Decides which side copies which part, and asks the sender for its part. `to` is the
/// destination, `room` the same in an arena that the sender may write. Returns `None` if the
/// pair cannot.
pub(crate) fn begin_get(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    (sid, rts): (u32, &Rts),
    want: u64,
    mapped: Option<There>,
    (to, room): (Place, Option<(ArenaRef, u64)>),
) -> Option<Get> {
    let is_mapped = mapped.is_some();
    let mut reads = is_mapped || peer.cma_access.may(Way::WeRead).is_ok();
    let started = clock::ticks();
    let mut errno = 0;
    let mut shared = None;
    let source = mapped.unwrap_or_else(|| {
        // A sender whose memory this side cannot read writes all of it; the list of its parts
        // is not needed here.
        if !reads {
            return There::Remote(Remote::none());
        }
        There::Remote(match peer.cma_access.find(rts.place, rts.len, Touch::Read) {
            Ok(remote) => remote,
            Err(error) => {
                errno = transfer::errno_of(&error);
                peer.note_withdrawn();
                Remote::none()
            }
        })
    });
    let peer_writes = peer.cma_access.may(Way::PeerWrites).is_ok();
    let may_help = peer_writes || room.is_some();
    // The sender is the one to wait for the memory of its message.
    let missing = MISSING.raw_os_error().unsigned_abs();
    let is_missing = errno == missing;
    if is_missing && may_help && to.parts <= 1 {
        (reads, errno) = (false, 0);
    }
    // Nor does the sender wait for memory of this side.
    if !reads
        && want <= PREFAULT_MAX
        && let Some(op) = core.ops.recv_mut(key)
    {
        op.memory.put_pages(want);
    }
    let helps = if reads {
        let from = if is_mapped { MAPPED_SHARED_FROM } else { SHARED_FROM };
        // The receiver would have to wait for a peer that loses its processor in the middle of
        // a chunk: a chunk cannot be taken back from a writer that may still write it.
        !peer.two_way.get(started) && want >= from && !core.is_short
    } else {
        // A sender that writes all of it must not need to read the list of our parts.
        want > 0 && to.parts <= 1
    };
    if errno == 0 && may_help && helps {
        let exported = room
            .filter(|_| peer.exported_extents.may_offer())
            .and_then(|(extent, offset)| extent_exchange::export_at(peer, &extent, offset));
        let shift = chunk_shift(want);
        let chunks = want.div_ceil(1 << shift);
        if chunks <= CHUNKS_MAX
            && (exported.is_some() || peer_writes)
            && let Some((line, generation)) = peer.claims.take_claim()
        {
            claim::open(peer.rx.claim_word(line), generation);
            let place = to;
            let push = Put { want, place, exported, claim: line, generation, chunk_shift: shift };
            failpoint::hit(Point::BeforePutAck);
            answers::answer(core, peer, Kind::Cts, sid, &Cts::Put(push).body());
            failpoint::hit(Point::AfterPutAck);
            shared = Some(SharedGet {
                claim: line,
                generation,
                chunks,
                chunk_shift: shift,
                mine: 0,
                theirs: None,
                wrote: None,
                offered: exported.map(|exported| exported.extent),
            });
        }
    }
    if !reads && shared.is_none() && want > 0 {
        if !is_missing {
            return None;
        }
        (reads, errno) = (true, missing);
    }
    Some(Get {
        peer: peer.id,
        sid,
        tag: rts.tag,
        len: rts.len,
        want,
        source,
        is_mapped,
        is_left: false,
        offered: rts.is_offered(),
        given: rts.given,
        copied: 0,
        streamed: 0,
        by: Largest::NONE,
        started,
        took_ns: 0,
        shared,
        reads,
        errno,
        otherwise: if is_missing { missing } else { 0 },
        left: None,
        again: false,
    })
}

/// Copies the next part of a pull, or lends it. Returns whether it did anything.
pub(crate) fn get_step(core: &mut Core, peer: &mut Peer, key: OpKey) -> Result<bool, Violation> {
    let Some(mut get) = take_get(core, key) else { return Ok(false) };
    let part = next_part(peer, &mut get);
    if let Ok(Some((at, len))) = part
        && let Some(op) = core.ops.recv_mut(key)
    {
        if core.is_shared && copies::is_lent(&op.memory, len) {
            let there = std::mem::replace(&mut get.source, There::Lent);
            op.stage = RecvStage::Getting(get);
            copies::lend(core, peer, (key, there), (at, len), Direction::Get);
            return Ok(true);
        }
        let (to, copier) = ((&op.memory, at), &mut peer.copies_in);
        let got = get_part::get_part(&get.source, &peer.cma_access, to, (at, len), copier);
        let by = core.copies.take_largest();
        note_part(peer, &mut get, got, by);
    }
    match part {
        Ok(part) => go_on(core, peer, key, get).map(|over| over || part.is_some()),
        Err(violation) => {
            room::op_stage(&mut core.ops, key, RecvStage::Getting(get));
            Err(violation)
        }
    }
}

/// A part of a pull that was lent is back.
pub(crate) fn part_is_back(
    core: &mut Core,
    peer: &mut Peer,
    (key, there): (OpKey, There),
    got: Got,
    by: Largest,
) -> Result<(), Violation> {
    let Some(mut get) = take_get(core, key) else { return Ok(()) };
    get.source = there;
    note_part(peer, &mut get, got, by);
    go_on(core, peer, key, get).map(|_| ())
}

/// Takes the state of a pull, none of whose parts is lent, out of its operation.
fn take_get(core: &mut Core, key: OpKey) -> Option<Box<Get>> {
    if core.ops.is_lent(key) {
        return None;
    }
    let op = core.ops.recv_mut(key)?;
    // A look first: to take something else out and put it back costs more.
    let RecvStage::Getting(_) = &op.stage else { return None };
    match std::mem::replace(&mut op.stage, RecvStage::Moving) {
        RecvStage::Getting(get) => Some(get),
        _ => None,
    }
}

/// The bytes to be copied next, `(at, len)`, if this side can copy any now.
fn next_part(peer: &mut Peer, get: &mut Get) -> Result<Option<(u64, u64)>, Violation> {
    if let Some((at, end)) = get.left {
        let part = (at, (end - at).min(ALONE_STEP));
        return Ok((get.errno == 0 && part.1 > 0).then_some(part));
    }
    let is_stopped = get.errno != 0 || get.again;
    let Some(shared) = &mut get.shared else {
        let left = get.want - get.copied;
        return Ok((!is_stopped && left > 0).then_some((get.copied, left.min(ALONE_STEP))));
    };
    if shared.theirs.is_some() {
        return Ok(None);
    }
    let word = peer.rx.claim_word(shared.claim);
    let taken = if get.reads && !is_stopped {
        claim::take(word, shared.generation, shared.chunks, End::Front)
    } else {
        None
    };
    if let Some(chunk) = taken {
        failpoint::hit(Point::ChunkClaimed);
        let at = chunk << shared.chunk_shift;
        if at >= get.want {
            return Err(TAMPERED);
        }
        shared.mine += 1;
        return Ok(Some((at, (get.want - at).min(1 << shared.chunk_shift))));
    }
    // A sender that copies everything reports the end.
    if get.reads || get.errno != 0 || shared.wrote.is_some() {
        shared.theirs = Some(claim::close(word, shared.generation));
    }
    Ok(None)
}

/// Notes what came of a part.
fn note_part(peer: &mut Peer, get: &mut Get, got: Got, by: Largest) {
    failpoint::hit(Point::ChunkRead);
    get.again |= got.again;
    if got.errno != 0 {
        // A peer that is being let go has said why.
        get.errno = if get.errno == 0 { got.errno } else { get.errno };
        peer.note_withdrawn();
    }
    get.copied += got.bytes;
    if let Some((at, _)) = &mut get.left {
        *at += got.bytes;
    }
    get.by = get.by.and(by);
    get.took_ns += peer.times.arrival_lap_ns(get.started);
}

/// Ends a pull if nothing is left of it; else puts its state back. Returns whether it has ended.
fn go_on(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    mut get: Box<Get>,
) -> Result<bool, Violation> {
    // A peer that is let go reports in its lane (`teardown::poll_leaving`).
    if !peer.is_leaving()
        && let Some(shared) = &mut get.shared
        && let (Some(theirs @ 1..), None) = (shared.theirs, shared.wrote)
        && let word = peer.rx.report_word(shared.claim)
        && let Some(by) = claim::reported(word, shared.generation, theirs)
    {
        let chunks = theirs as u32;
        shared.wrote = Some(Wrote { errno: 0, chunks, by, short: false });
    }
    let over = is_over(peer, &mut get);
    match over {
        Ok(true) => get_end::end_get(core, peer, key, *get).map(|()| true),
        over => {
            room::op_stage(&mut core.ops, key, RecvStage::Getting(get));
            over
        }
    }
}

/// Returns whether nothing is left to copy, or to wait for.
fn is_over(peer: &Peer, get: &mut Get) -> Result<bool, Violation> {
    if let Some((at, end)) = get.left {
        return Ok(at >= end || get.errno != 0 || get.again);
    }
    let Some(shared) = &get.shared else {
        return Ok(get.errno != 0 || get.again || get.copied == get.want);
    };
    Ok(match (shared.theirs, shared.wrote) {
        (Some(0), None) => true,
        (Some(theirs), Some(wrote)) if wrote.short => {
            get.again |= theirs > 0 || !get.reads;
            true
        }
        (Some(theirs), Some(wrote)) => {
            let alone = wrote.errno != 0 && !get.reads;
            let stopped = get.errno != 0 || get.again || alone;
            let adds_up = u64::from(wrote.chunks) == theirs
                && (stopped || shared.mine + theirs == shared.chunks);
            if !adds_up && !peer.is_leaving() {
                return Err(TAMPERED);
            }
            get.again |= alone;
            if wrote.errno != 0 && theirs > 0 && !stopped && !peer.is_leaving() {
                // The sender had claimed these chunks, from the back.
                let at = (shared.chunks - theirs) << shared.chunk_shift;
                get.left = Some((at.min(get.want), get.want));
            }
            get.left.is_none()
        }
        _ => false,
    })
}

/// Stops every pull from a peer that is being disconnected: nothing more can be claimed.
/// Returns whether the peer may still be writing the chunks that it had claimed.
pub(crate) fn stop_gets(ops: &mut OpTable, gets: &mut VecDeque<OpKey>, peer: &mut Peer) -> bool {
    let mut writing = false;
    for key in gets {
        if let Some(op) = ops.recv_mut(*key)
            && let RecvStage::Getting(get) = &mut op.stage
            && get.peer == peer.id
            && let Some(shared) = &mut get.shared
        {
            if shared.theirs.is_none() {
                let word = peer.rx.claim_word(shared.claim);
                shared.theirs = Some(claim::close(word, shared.generation));
            }
            get.errno = rustix::io::Errno::CONNRESET.raw_os_error().unsigned_abs();
            writing |= get.awaits_sender();
        }
    }
    writing
}

/// Takes the sender's report on its chunks.
pub(crate) fn wrote(
    core: &mut Core,
    peer: &mut Peer,
    sid: u32,
    wrote: Wrote,
) -> Result<(), Violation> {
    let key = core.gets.iter().copied().find(|key| {
        matches!(
            core.ops.get(*key).map(|op| &op.kind),
            Some(OpKind::Recv(RecvOp { stage: RecvStage::Getting(get), .. }))
                if get.peer == peer.id && get.sid == sid
        )
    });
    // The report may come after the receiver had claimed all chunks.
    let Some(key) = key else {
        if wrote.errno != 0 {
            get_end::cannot_be_sent(core, peer, sid, wrote.errno);
        }
        return Ok(());
    };
    if let Some(op) = core.ops.recv_mut(key)
        && let RecvStage::Getting(get) = &mut op.stage
        && let Some(shared) = &mut get.shared
    {
        if shared.wrote.replace(wrote).is_some() {
            return Err(Violation("it reported its part twice"));
        }
        match (shared.offered, wrote.by) {
            (Some(_), By::Mapping) => peer.exported_extents.worked(),
            (Some(id), By::NoMapping) => peer.exported_extents.failed(id),
            _ => {}
        }
        if is_denial(wrote.errno) && peer.cma_access.is_alive() {
            peer.withdraw(Way::PeerWrites, wrote.errno);
        }
    }
    get_step(core, peer, key).map(|_| ())
}
