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
    failpoint::{self, Point},
    memory::{
        arena::ArenaRef,
        imported_extents::Loan,
        scatter::{Part, Scatter},
        store::Landing,
    },
    policy::route::MISSING,
    protocol::{
        handoff::vectored,
        rendezvous::{get, request},
        rma::cma::Way,
    },
    transport::shm::ring::Violation,
    wire::{
        descriptor::Kind,
        list::Listed,
        rendezvous::{By, Cts, Exported, Fin, Rts},
    },
    worker::{
        abandoned::{self, no_memory},
        core::{self, Core},
        extent_exchange, inbound,
        inbound_stream::{Came, Inbound, Sink},
        op::{Arrived, Bytes, Lending, OpKey, RecvStage, There},
        peer::Peer,
    },
};

/// Length in bytes from which the receiver of a message says whether it goes to memory that peers
/// may write.
pub(crate) const SAID_FROM: u64 = super::get::SHARED_FROM;

pub(crate) fn errno_of(error: &std::io::Error) -> u32 {
    error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()).unsigned_abs()
}

/// Makes memory for a message of `len` bytes, if its receive brought none.
pub(crate) fn make_room(core: &mut Core, key: OpKey, len: u64) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    if !op.as_message {
        return;
    }
    match Landing::new(len, core.moves) {
        Some((own, memory)) => {
            op.own = Some(own);
            op.memory = memory;
        }
        None => core::finish(core, key, Err(no_memory(len))),
    }
}

/// The first `written` bytes of the memory made for a receive, if any was made.
#[allow(unsafe_code)]
pub(crate) fn own_bytes(core: &mut Core, key: OpKey, written: u64) -> Option<Box<Bytes>> {
    let op = core.ops.recv_mut(key)?;
    let own = op.own.take()?;
    op.memory = Scatter::empty();
    // SAFETY: streams and pulls report only bytes that they have written, from the start on.
    Some(Box::new(unsafe { own.into_bytes(written) }))
}

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
    op_stage(core, key, RecvStage::Streaming { peer: peer.id });
    let lent = match list {
        Some(list) => vectored::lend_parts(core, peer, key, (sid, &rts), list)?,
        None => rts.given && lend_view(core, peer, key, sid, &rts)?,
    };
    if lent {
        return Ok(());
    }
    if rts.number != 0 {
        peer.returns.copies(sid, rts.number);
    }
    make_room(core, key, len);
    let Some(op) = core.ops.recv_mut(key) else {
        // There is no memory for it: the sender is told, the receiver knows.
        let errno = rustix::io::Errno::NOMEM.raw_os_error().unsigned_abs();
        fin(core, peer, sid, errno, 0, By::Kernel);
        return Ok(());
    };
    let (want, offered) = (len.min(op.memory.len()), rts.is_offered());
    let to = op.memory.place();
    let mapped = match list {
        Some(list) => vectored::find_parts(core, peer, list, want)?.map(There::ExportedParts),
        None => find_exported(core, peer, &rts, want)?,
    };
    let room = note_room(core, peer, key, len);
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
        op_stage(core, key, RecvStage::Getting(Box::new(get)));
        core.gets.push_back(key);
        return get::get_step(core, peer, key).map(|_| ());
    }
    if want == 0 {
        fin(core, peer, sid, 0, 0, By::Kernel);
        inbound::complete(core, key, peer, (tag, len), Came::default(), offered, 0);
        return Ok(());
    }
    // The sender chose the kernel, and may not have heard yet that the receiver cannot read.
    let chose = !rts.stream && !rts.given && !offered;
    let errno = peer.cma_access.may(Way::WeRead).err().filter(|_| chose).map_or(0, said);
    begin_stream(core, peer, key, sid, (tag, len), want, offered, errno)
}

/// Has the sender of an announced message send it through the ring; `errno` is the kernel's
/// answer to the earlier attempt to copy it.
#[expect(clippy::too_many_arguments, reason = "what is known of one message")]
pub(crate) fn begin_stream(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    sid: u32,
    (tag, len): (u64, u64),
    want: u64,
    offered: bool,
    errno: u32,
) -> Result<(), Violation> {
    if peer.inbound_at(sid).is_some() {
        return Err(Violation("it began a stream twice"));
    }
    op_stage(core, key, RecvStage::Streaming { peer: peer.id });
    let new = Inbound::new(sid, tag, len, Sink::Op(key));
    ask_for(core, peer, Inbound { end: want, offered, errno, ..new }, false);
    Ok(())
}

/// Asks for an announced message in pieces, which are `stored` until there is a receive for it,
/// or go to one.
pub(crate) fn ask_for(core: &mut Core, peer: &mut Peer, stream: Inbound, stored: bool) {
    let Inbound { sid, end: want, errno, request, .. } = stream;
    match want {
        0 => inbound::all_came(core, peer, stream),
        _ => peer.inbound.push(stream),
    }
    let answer = Cts::Stream { want, credit: peer.granted, errno, stored, request };
    failpoint::hit(Point::BeforeStreamAck);
    core::answer(core, peer, Kind::Cts, sid, &answer.body());
    failpoint::hit(Point::AfterStreamAck);
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
    extent_exchange::await_extent(core, peer, exported.extent)?;
    // A message outside of the extent is left to the ordinary path to judge.
    let Some(mut loan) = core.imported.lend(peer.id, exported, rts.len, sid) else {
        return Ok(false);
    };
    loan.number = rts.number;
    if core.ops.is_abandoned(key) {
        end_loan(core, peer, &loan);
    }
    abandoned::note_lent(core, key, sid, rts, None);
    let receipt = Receipt::new(Path::Handoff, rts.len);
    let (tag, len, loan) = (rts.tag, rts.len, Some(Lending::One(Box::new(loan))));
    inbound::arrive(core, key, Arrived { peer: peer.id, tag, len, receipt, bytes: None, loan });
    Ok(true)
}

/// Tells the peer that its memory is no longer in use.
#[inline]
pub(crate) fn end_loan(core: &mut Core, peer: &mut Peer, loan: &Loan) {
    core.imported.give_back(loan);
    if loan.number != 0 && peer.returns.end(loan.number) {
        say_returned(core, peer);
    } else {
        fin(core, peer, loan.sid, 0, 0, By::View);
    }
}

/// Place of a receive's memory in an arena that the peer may write, if it lies in one. The peer
/// is told whether it does, if the message is long: a message that would go through the ring
/// otherwise is then announced.
pub(crate) fn note_room(
    core: &mut Core,
    peer: &Peer,
    key: OpKey,
    len: u64,
) -> Option<(ArenaRef, u64)> {
    if !peer.permissions.may(Path::Mapped) {
        return None;
    }
    let memory = core.ops.memory_of(key)?.part();
    let place = memory.and_then(Part::locate);
    let room = place.filter(|(extent, _)| extent.peers_may_write());
    if len >= SAID_FROM {
        peer.rx.say_open_memory(room.is_some());
    }
    room
}

/// As [`note_room`], for a receive that was only just posted.
pub(crate) fn note_open_memory(core: &mut Core, peer: &Peer, key: OpKey) {
    let memory = core.ops.memory_of(key).map_or(0, Scatter::len);
    if memory >= SAID_FROM && note_room(core, peer, key, 0).is_some() {
        peer.rx.say_open_memory(true);
    }
}

/// The message as it is mapped here, if its sender has put it where it can be mapped, and the
/// first `want` bytes are present.
fn find_exported(
    core: &mut Core,
    peer: &mut Peer,
    rts: &Rts,
    want: u64,
) -> Result<Option<There>, Violation> {
    let Some(Exported { extent, offset }) = rts.exported else { return Ok(None) };
    extent_exchange::await_extent(core, peer, extent)?;
    let Some(mapping) = core.imported.get(peer.id, extent) else { return Ok(None) };
    if mapping.get(offset, rts.len).is_none() {
        return Err(Violation("it announced a message outside its arena"));
    }
    if !mapping.has_memory(offset, want) {
        return Ok(None);
    }
    Ok(Some(There::Mapped { mapping: Arc::clone(mapping), offset }))
}

pub(crate) fn fin(core: &mut Core, peer: &mut Peer, sid: u32, errno: u32, took_ns: u64, by: By) {
    failpoint::hit(Point::BeforeFin);
    let fin = Fin { errno, took_ns, cancelled: false, by };
    core::answer(core, peer, Kind::Fin, sid, &fin.body());
    failpoint::hit(Point::AfterFin);
    copied(core, peer, sid);
}

/// Notes that a message of the peer has been copied, and that its end was reported.
#[inline]
pub(crate) fn copied(core: &mut Core, peer: &mut Peer, sid: u32) {
    if peer.returns.ended(sid) {
        say_returned(core, peer);
    }
}

/// Tells the peer how many of its numbered donated buffers are back.
#[inline]
fn say_returned(core: &mut Core, peer: &mut Peer) {
    if peer.rx.say_returned(peer.returns.count()) {
        core::ring_now(core, peer);
    }
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

pub(crate) fn op_stage(core: &mut Core, key: OpKey, stage: RecvStage) {
    if let Some(op) = core.ops.recv_mut(key) {
        op.stage = stage;
    }
}
