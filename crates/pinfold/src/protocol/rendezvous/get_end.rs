//! The end of the receiver's part: both sides are told, or the message comes in another way.

use std::sync::atomic::{Ordering, fence};

use crate::{
    Error, Path, Refusal,
    protocol::{
        rendezvous::fin,
        rma::cma::{Way, is_denial},
    },
    transport::shm::ring::Violation,
    wire::rendezvous::By,
    worker::{
        core::Core,
        deliver, ends,
        inbound_stream::{Inbound, Sink},
        op::{Arrived, Get, OpKey, RecvStage, SharedGet, There},
        peer::Peer,
        room, streams,
    },
};

/// Returns whether the kernel found memory of one side or the other missing.
pub(crate) fn is_fault(errno: u32) -> bool {
    errno == rustix::io::Errno::FAULT.raw_os_error().unsigned_abs()
}

/// Ends a pull: tells both sides.
pub(super) fn end_get(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    get: Get,
) -> Result<(), Violation> {
    if let Some(shared) = get.shared {
        peer.claims.give_claim(shared.claim);
    }
    core.gets.retain(|other| *other != key);
    if let Some(how) = peer.leaving() {
        let error = core.why_gone(&peer.info.name, how);
        ends::finish(core, key, Err(error));
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
    if !get.is_mapped && get.reads && !peer.cma_access.is_alive() {
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
        There::Remote(_) | There::Lent if get.offered => By::NoMapping,
        There::Remote(_) | There::Lent => By::Kernel,
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
pub(super) fn cannot_be_sent(core: &mut Core, peer: &mut Peer, sid: u32, errno: u32) {
    let Some(at) = peer.inbound_at(sid) else { return };
    let Inbound { got: 0, sink: Sink::Op(key), .. } = peer.inbound[at] else { return };
    if let Some(request) = peer.inbound.swap_remove(at).request {
        peer.claims.give_request(request);
    }
    cannot_be_touched(core, peer, key, errno);
    fin::copied(core, peer, sid);
}
