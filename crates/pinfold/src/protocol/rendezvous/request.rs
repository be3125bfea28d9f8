//! The receiver's part in a long message through the ring, for which it asks.
//!
//! Copying through the ring can be cheaper than the kernel's copy, but both sides have to run. So
//! the sender claims each piece before it copies it ([`claim`]), and a receiver that gets nothing
//! for some time takes the rest over: the kernel copies that out of the sender's memory, as it does
//! all of other messages. A sender that has posted its message and calls the library no more keeps
//! nobody waiting.

use pinfold_sys::{cpu::clock, mem::presence::Touch};

use super::{
    get,
    transfer::{self, Requested},
};
use crate::{
    copy::Largest,
    memory::cma_memory::Remote,
    protocol::rma::cma::Way,
    transport::shm::{claim, ring::Violation},
    wire::rendezvous::Rts,
    worker::{
        core::Core,
        inbound_stream::{Inbound, Sink},
        op::{Get, OpKey, RecvStage, There},
        op_table::OpTable,
        peer::Peer,
        room, streams,
    },
};

/// Time without any piece from a peer after which the rest of a message is taken over, ns: a
/// sleeping sender wakes up within it, and the kernel copies a megabyte in twice the time.
const PATIENCE_NS: u64 = 50_000;
/// How many times as long it is while the peer may be fetching messages of this side's: the kernel
/// copies half a megabyte in one call.
const PATIENCE_TWO_WAY: u64 = 4;

/// Asks for message `sid` through the ring, if its sender wants that, and if it can be taken
/// over later. Returns whether it has.
pub(crate) fn begin_request(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    (sid, rts): (u32, &Rts),
    want: u64,
) -> Result<bool, Violation> {
    let can_be_taken_over = peer.cma_access.may(Way::WeRead).is_ok();
    if !rts.prefers_ring
        || rts.stream
        || rts.given
        || !can_be_taken_over
        || want > claim::BYTES_MASK
    {
        return Ok(false);
    }
    if peer.inbound_at(sid).is_some() {
        return Err(Violation("it began a stream twice"));
    }
    let Some(request) = peer.claims.take_request() else { return Ok(false) };
    claim::open(peer.rx.request_word(request.word), request.generation);
    let (rts, started) = (*rts, clock::ticks());
    let requested = Requested {
        peer: peer.id,
        sid,
        rts,
        want,
        request,
        started,
        pieces: peer.pieces,
        looked: started,
        is_over: false,
    };
    room::op_stage(&mut core.ops, key, RecvStage::Requested(Box::new(requested)));
    core.gets.push_back(key);
    let new = Inbound::new(sid, rts.tag, rts.len, Sink::Op(key));
    let request = Some(request);
    streams::ask_for(core, peer, Inbound { end: want, request, ..new }, false);
    Ok(true)
}

/// Returns whether a receive waits for a message that was asked for.
pub(crate) fn is_requested(ops: &mut OpTable, key: OpKey) -> bool {
    ops.recv_mut(key).is_some_and(|op| matches!(op.stage, RecvStage::Requested(_)))
}

/// Looks whether a message that was asked for still comes, and takes the rest over if not.
/// Returns whether it did.
pub(crate) fn look_after_request(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
) -> Result<bool, Violation> {
    let Some(op) = core.ops.recv_mut(key) else { return Ok(false) };
    let RecvStage::Requested(requested) = &mut op.stage else { return Ok(false) };
    if requested.is_over {
        return Ok(false);
    }
    let now = clock::ticks();
    if requested.pieces != peer.pieces {
        (requested.pieces, requested.looked) = (peer.pieces, now);
        return Ok(false);
    }
    let times = if peer.two_way.has_offers() { PATIENCE_TWO_WAY } else { 1 };
    if clock::ns_of(now.saturating_sub(requested.looked)) < PATIENCE_NS * times {
        return Ok(false);
    }
    // A peer that takes pieces out of its ring calls the library, and goes on with its own.
    if peer.tx.room_came()? {
        requested.looked = now;
        return Ok(false);
    }
    let Requested { sid, want, request, .. } = **requested;
    let claimed = claim::take_over(peer.rx.request_word(request.word), request.generation);
    requested.is_over = true;
    let Some(at) = peer.inbound_at(sid) else { return Ok(false) };
    let stream = &mut peer.inbound[at];
    if claimed < stream.got || claimed > want {
        return Err(Violation("it tampered with a message that was asked for"));
    }
    tracing::debug!(peer = peer.info.name, claimed, want, "a message is taken over");
    stream.end = claimed;
    if claimed < want && stream.got == claimed {
        let stream = peer.inbound.swap_remove(at);
        take_over_rest(core, peer, key, &stream)?;
    }
    Ok(true)
}

/// All that the sender had claimed of a message has come. Returns whether the rest of it is
/// now copied by this side.
pub(crate) fn take_over_rest(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    stream: &Inbound,
) -> Result<bool, Violation> {
    let Some(op) = core.ops.recv_mut(key) else { return Ok(false) };
    let RecvStage::Requested(requested) = &op.stage else { return Ok(false) };
    let Requested { sid, rts, want, started, .. } = **requested;
    if stream.got == want {
        return Ok(false);
    }
    if let Some(request) = stream.request {
        peer.claims.give_request(request);
    }
    let remote = peer.cma_access.find(rts.place, rts.len, Touch::Read);
    let errno = remote.as_ref().map_or_else(transfer::errno_of, |_| 0);
    if errno != 0 {
        peer.note_withdrawn();
    }
    let get = Get {
        peer: peer.id,
        sid,
        tag: rts.tag,
        len: rts.len,
        want,
        source: There::Remote(remote.unwrap_or_else(|_| Remote::none())),
        is_mapped: false,
        is_left: false,
        offered: false,
        given: false,
        copied: 0,
        streamed: stream.got,
        by: Largest::NONE,
        started,
        took_ns: 0,
        shared: None,
        reads: true,
        errno,
        otherwise: 0,
        left: Some((stream.got, want)),
        again: false,
    };
    op.stage = RecvStage::Getting(Box::new(get));
    get::get_step(core, peer, key)
}
