//! Selection of the way that a message in its sender's memory takes, once a receive has matched.
//!
//! A message in an arena that is mapped here is copied out of it. Else, where the pair may, the
//! receiver has the kernel read it out (`process_vm_readv`). The sender helps, or does all of it
//! where only it may reach the other side: it copies into the receiver's arena, if the message goes
//! to one that peers may write, or has the kernel write it. `get` and `put` are the two sides'
//! parts. Where neither may, the message comes through the ring.

use std::sync::Arc;

use rustix::io::Errno;

use crate::{
    Path, Receipt, Refusal,
    memory::imported_extents::ImportedExtents,
    policy::route::MISSING,
    protocol::{
        handoff::lists,
        rendezvous::{fin, get, request},
        rma::cma::Way,
    },
    transport::shm::ring::Violation,
    wire::{
        list::Listed,
        rendezvous::{By, Exported, Rts},
    },
    worker::{
        core::Core,
        deliver, extent_exchange,
        inbound_stream::Came,
        op::{Arrived, Lending, OpKey, RecvStage, There, Wakes},
        peer::Peer,
        posted, room, streams,
    },
};

/// Chooses the way of message `sid` of the peer, which a receive matched and which is still in
/// the peer's memory: in the parts of `list`, if it has one.
pub(crate) fn select(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    (sid, rts): (u32, Rts),
    list: Option<&[Listed]>,
) -> Result<(), Violation> {
    let Rts { tag, len, .. } = rts;
    // Any error found from now on ends the receive together with its peer.
    room::op_stage(&mut core.ops, key, RecvStage::Streaming { peer: peer.id });
    let lent = match list {
        Some(list) => lists::lend_parts(core, peer, key, (sid, &rts), list)?,
        None => rts.given && lend_view(core, peer, key, sid, &rts)?,
    };
    if lent {
        return Ok(());
    }
    if rts.number != 0 {
        peer.returns.copies(sid, rts.number);
    }
    room::make_room(core, key, len);
    let Some(op) = core.ops.recv_mut(key) else {
        // There is no memory for it: the sender is told, the receiver knows.
        let errno = rustix::io::Errno::NOMEM.raw_os_error().unsigned_abs();
        fin::fin(core, peer, sid, errno, 0, By::Kernel);
        return Ok(());
    };
    let (want, offered) = (len.min(op.memory.len()), rts.is_offered());
    let to = op.memory.place();
    let mapped = match list {
        Some(list) => lists::find_parts(&mut core.wakes, &mut core.imported, peer, list, want)?
            .map(There::ExportedParts),
        None => find_exported(&mut core.wakes, &mut core.imported, peer, &rts, want)?,
    };
    let room = room::note_room(&mut core.ops, peer, key, len);
    if mapped.is_none()
        && room.is_none()
        && want > 0
        && request::begin_request(core, peer, key, (sid, &rts), want)?
    {
        return Ok(());
    }
    let is_reachable = mapped.is_some()
        || peer.cma_access.may(Way::WeRead).is_ok()
        || peer.cma_access.may(Way::PeerWrites).is_ok()
        || room.is_some();
    if !rts.stream
        && is_reachable
        && let Some(get) = get::begin_get(core, peer, key, (sid, &rts), want, mapped, (to, room))
    {
        room::op_stage(&mut core.ops, key, RecvStage::Getting(Box::new(get)));
        core.gets.push_back(key);
        return get::get_step(core, peer, key).map(|_| ());
    }
    if want == 0 {
        fin::fin(core, peer, sid, 0, 0, By::Kernel);
        streams::complete(core, key, peer, (tag, len), Came::default(), offered, 0);
        return Ok(());
    }
    // The sender chose the kernel, and may not have heard yet that the receiver cannot read.
    let chose = !rts.stream && !rts.given && !offered;
    let errno = peer.cma_access.may(Way::WeRead).err().filter(|_| chose).map_or(0, said);
    streams::begin_stream(core, peer, key, sid, (tag, len), want, offered, errno)
}

/// Ends a receive with a message that stays in its sender's memory. Returns whether the receive
/// takes views, and the message is mapped here.
fn lend_view(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    sid: u32,
    rts: &Rts,
) -> Result<bool, Violation> {
    if !core.ops.recv_mut(key).is_some_and(|op| op.as_view) {
        return Ok(false);
    }
    let Some(exported) = rts.exported else { return Ok(false) };
    extent_exchange::await_extent(&mut core.wakes, &mut core.imported, peer, exported.extent)?;
    // A message outside of the extent is left to the ordinary path to judge.
    let Some(mut loan) = core.imported.lend(peer.id, exported, rts.len, sid) else {
        return Ok(false);
    };
    loan.number = rts.number;
    if core.ops.is_abandoned(key) {
        fin::end_loan(core, peer, &loan);
    }
    posted::note_lent(&mut core.ops, key, sid, rts, None);
    let receipt = Receipt::new(Path::Handoff, rts.len);
    let (tag, len, loan) = (rts.tag, rts.len, Some(Lending::One(Box::new(loan))));
    deliver::arrive(core, key, Arrived { peer: peer.id, tag, len, receipt, bytes: None, loan });
    Ok(true)
}

/// The message as it is mapped here, if its sender has put it where it can be mapped, and the
/// first `want` bytes are present.
fn find_exported(
    wakes: &mut Wakes,
    imported: &mut ImportedExtents,
    peer: &mut Peer,
    rts: &Rts,
    want: u64,
) -> Result<Option<There>, Violation> {
    let Some(Exported { extent, offset }) = rts.exported else { return Ok(None) };
    extent_exchange::await_extent(wakes, imported, peer, extent)?;
    let Some(mapping) = imported.get(peer.id, extent) else { return Ok(None) };
    if mapping.get(offset, rts.len).is_none() {
        return Err(Violation("it announced a message outside its arena"));
    }
    if !mapping.has_memory(offset, want) {
        return Ok(None);
    }
    Ok(Some(There::Mapped { mapping: Arc::clone(mapping), offset }))
}

/// The `errno` that tells a sender why its memory is not read here.
fn said(why: Refusal) -> u32 {
    let errno = match why {
        Refusal::Denied(errno) => errno,
        Refusal::Confined => Errno::PERM.raw_os_error(),
        Refusal::Fickle => MISSING.raw_os_error(),
        _ => 0,
    };
    errno.unsigned_abs()
}
