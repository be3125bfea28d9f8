//! The receiver's part in a message that is copied out of its sender's memory.
//!
//! A long one is copied by both sides at once: each claims chunks from its own end until they meet,
//! so that two cores copy, and a sender that does not run delays nothing.

use std::{
    collections::VecDeque,
    sync::atomic::{Ordering, fence},
};

use pinfold_sys::{cpu::clock, mem::presence::Touch};

use crate::{
    Error, Path, Refusal,
    copy::Largest,
    failpoint::{self, Point},
    memory::{arena::ArenaRef, cma_memory::Remote},
    policy::route::MISSING,
    protocol::{
        rendezvous::{
            fin,
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
        deliver, ends, extent_exchange,
        inbound_stream::{Inbound, Sink},
        op::{Arrived, Get, OpKey, OpKind, RecvOp, RecvStage, SharedGet, There, gone},
        op_table::OpTable,
        peer::Peer,
        room, streams,
    },
};

/// The same for messages that the receiver reads out of a mapping. As long as the bytes lie in the
/// caches, it finishes before help is worth the question and the wait for the last chunk, whether
/// the sender writes to a mapping or through the kernel.
const MAPPED_SHARED_FROM: u64 = 2 << 20;
/// Bytes one side copies alone before it looks at anything else.
const ALONE_STEP: u64 = 1 << 20;

/// Bytes of this side's memory that are made present at most for a sender that writes all of them:
/// 16 ms.
const PREFAULT_MAX: u64 = 64 << 20;

/// Returns whether the kernel found memory of one side or the other missing.
pub(crate) fn is_fault(errno: u32) -> bool {
    errno == rustix::io::Errno::FAULT.raw_os_error().unsigned_abs()
}

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

/// Copies the next part of a pull. Returns whether it did anything.
pub(crate) fn get_step(core: &mut Core, peer: &mut Peer, key: OpKey) -> Result<bool, Violation> {
    let Some(op) = core.ops.recv_mut(key) else { return Ok(false) };
    let RecvStage::Getting(_) = &op.stage else { return Ok(false) };
    let RecvStage::Getting(mut get) = std::mem::replace(&mut op.stage, RecvStage::Moving) else {
        return Ok(false);
    };
    let mut moved = false;
    let tampered = Violation("it tampered with a shared transfer");
    let pid = peer.info.pid;
    let range = match &mut get.shared {
        _ if get.left.is_some() => {
            let left = get.left.filter(|_| get.errno == 0);
            left.map(|(at, end)| (at, (end - at).min(ALONE_STEP))).filter(|it| it.1 > 0)
        }
        None if get.errno == 0 && !get.again && get.copied < get.want => {
            Some((get.copied, (get.want - get.copied).min(ALONE_STEP)))
        }
        None => None,
        Some(shared) if shared.theirs.is_none() => {
            let word = peer.rx.claim_word(shared.claim);
            let taken = if get.reads && get.errno == 0 && !get.again {
                claim::take(word, shared.generation, shared.chunks, End::Front)
            } else {
                None
            };
            match taken {
                Some(chunk) => {
                    failpoint::hit(Point::ChunkClaimed);
                    let at = chunk << shared.chunk_shift;
                    if at >= get.want {
                        op.stage = RecvStage::Getting(get);
                        return Err(tampered);
                    }
                    shared.mine += 1;
                    Some((at, (get.want - at).min(1 << shared.chunk_shift)))
                }
                None if get.reads || get.errno != 0 => {
                    shared.theirs = Some(claim::close(word, shared.generation));
                    None
                }
                // The sender copies everything, and reports the end.
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
            let copied = match &get.source {
                There::Remote(remote) => {
                    peer.cma_access.copy(Way::WeRead, || op.memory.get(at, pid, remote, len))
                }
                There::Mapped { mapping, offset } => {
                    op.memory.copy_out_of(&mut peer.copies_in, mapping, offset + at, at, len)
                }
                There::ExportedParts(exported_parts) => {
                    exported_parts.copy(&op.memory, &mut peer.copies_in, at, len)
                }
            };
            match (copied, &get.source) {
                (Ok(bytes), _) => done += bytes,
                (Err(_), There::Mapped { mapping, .. }) if mapping.is_fickle() => {
                    get.again = true;
                    break;
                }
                (Err(_), There::ExportedParts(exported_parts)) if exported_parts.are_fickle() => {
                    get.again = true;
                    break;
                }
                (Err(error), _) => {
                    get.errno = transfer::errno_of(&error);
                    peer.note_withdrawn();
                    break;
                }
            }
        }
        failpoint::hit(Point::ChunkRead);
        get.copied += done;
        if let Some((at, _)) = &mut get.left {
            *at += done;
        }
        get.by = get.by.and(core.copies.take_largest());
        get.took_ns += peer.times.arrival_lap_ns(get.started);
    }
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
    let over = match &get.shared {
        _ if get.left.is_some() => {
            get.left.is_none_or(|(at, end)| at >= end) || get.errno != 0 || get.again
        }
        None => get.errno != 0 || get.again || get.copied == get.want,
        Some(shared) => match (shared.theirs, shared.wrote) {
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
                    op.stage = RecvStage::Getting(get);
                    return Err(tampered);
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
        },
    };
    if over {
        return end_get(core, peer, key, *get).map(|()| true);
    }
    op.stage = RecvStage::Getting(get);
    Ok(moved)
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

/// Ends a pull: tells both sides.
fn end_get(core: &mut Core, peer: &mut Peer, key: OpKey, get: Get) -> Result<(), Violation> {
    if let Some(shared) = get.shared {
        peer.claims.give_claim(shared.claim);
    }
    core.gets.retain(|other| *other != key);
    if let Some(how) = peer.leaving() {
        ends::finish(core, key, Err(gone(&peer.info.name, how)));
        return Ok(());
    }
    // The sender may have closed in mid-transfer: the bytes read may no longer be those it
    // sent. Bytes that were copied here were copied before this look; for the kernel's copies
    // that goes without saying.
    fence(Ordering::Acquire);
    if peer.rx.is_closed() && !(get.given && peer.rx.has_left()) {
        room::op_stage(&mut core.ops, key, RecvStage::Streaming { peer: peer.id });
        return Ok(());
    }
    let Get { sid, tag, len, want, .. } = get;
    let offered = get.shared.is_some_and(|shared| shared.offered.is_some());
    // A peer that died in mid-transfer is reported as dead, when its end is noticed. Its
    // process id may be another process's by now, whose memory was read then.
    if matches!(get.source, There::Remote(_)) && get.reads && !peer.cma_access.is_alive() {
        room::op_stage(&mut core.ops, key, RecvStage::Streaming { peer: peer.id });
        return Ok(());
    }
    if is_denial(get.errno) {
        peer.withdraw(Way::WeRead, get.errno);
    }
    // If memory of this side cannot be written, another path would not help. Memory that was
    // made for the message can be written, and its length is the sender's word: looking at each
    // page of it takes a second for a gigabyte.
    if is_fault(get.errno)
        && core
            .ops
            .recv_mut(key)
            .is_some_and(|op| op.own.is_none() && !op.memory.may_be_touched(want, true))
    {
        fin::fin(core, peer, sid, get.errno, 0, By::Kernel);
        cannot_be_touched(core, peer, key, get.errno);
        return Ok(());
    }
    if get.again || get.errno != 0 {
        let offered = get.offered || offered;
        let theirs = get.shared.and_then(|shared| shared.wrote).map_or(0, |wrote| wrote.errno);
        let errno = if get.errno == 0 { get.otherwise } else { get.errno };
        streams::begin_stream(core, peer, key, sid, (tag, len), want, offered, errno)?;
        if let Some(at) = peer.inbound_at(sid).filter(|_| errno == 0) {
            peer.inbound[at].errno = theirs;
        }
        return Ok(());
    }
    let ns = get.took_ns + peer.times.arrival_lap_ns(get.started);
    let by = match get.source {
        There::Mapped { .. } | There::ExportedParts(_) => By::Mapping,
        There::Remote(_) if get.offered => By::NoMapping,
        There::Remote(_) => By::Kernel,
    };
    // The sender knows its own part.
    fin::fin(core, peer, sid, 0, ns.max(1), by);
    // By reference: what is not there would else be copied, and looked at.
    let (theirs, wrote) = match &get.shared {
        Some(SharedGet { theirs, wrote, .. }) => {
            (theirs.unwrap_or(0), wrote.as_ref().map(|wrote| wrote.by))
        }
        None => (0, None),
    };
    let pushed = theirs > 0 && wrote == Some(By::Mapping);
    let path = if by == By::Mapping || pushed { Path::Mapped } else { Path::Cma };
    let mut receipt = peer.receipt(path, want, len);
    match by {
        By::Mapping => {
            receipt.copied_user = get.copied;
            receipt.note_copies(get.by);
        }
        _ => receipt.copied_kernel = get.copied,
    }
    if get.is_taken_over() {
        receipt.copied_user += get.streamed;
        receipt.refuse(Path::Eager, Refusal::Stalled);
    }
    if path == Path::Cma && (by == By::NoMapping || wrote == Some(By::NoMapping)) {
        receipt.refuse(Path::Mapped, Refusal::NotMapped);
    }
    if theirs > 0
        && let Some(op) = core.ops.recv_mut(key)
    {
        op.memory.was_written(want);
    }
    let bytes = room::own_bytes(&mut core.ops, key, want);
    deliver::arrive(core, key, Arrived { peer: peer.id, tag, len, receipt, bytes, loan: None });
    Ok(())
}

/// Ends a receive with an error: the memory of the message cannot be touched, on one side or
/// the other.
fn cannot_be_touched(core: &mut Core, peer: &Peer, key: OpKey, errno: u32) {
    let source = std::io::Error::from_raw_os_error(errno as i32);
    let error = Error::Transfer { peer: peer.info.name.clone(), source };
    ends::finish(core, key, Err(error));
}

/// Ends a receive with an error: the sender of a message that was to come through the ring
/// cannot read it.
fn cannot_be_sent(core: &mut Core, peer: &mut Peer, sid: u32, errno: u32) {
    let Some(at) = peer.inbound_at(sid) else { return };
    let Inbound { got: 0, sink: Sink::Op(key), .. } = peer.inbound[at] else { return };
    if let Some(request) = peer.inbound.swap_remove(at).request {
        peer.claims.give_request(request);
    }
    cannot_be_touched(core, peer, key, errno);
    fin::copied(core, peer, sid);
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
            cannot_be_sent(core, peer, sid, wrote.errno);
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
