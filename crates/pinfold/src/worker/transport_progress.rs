#![allow(unsafe_code)]
//! Peers on other hosts: messages that go over their connections past the lanes.
//!
//! Long messages are sent straight from the sender's memory, and put straight into the receiver's,
//! or into the library's own pages.
//!
//! **Invariant.** The parts of a message's memory that a bridge has belong to an operation that has
//! not ended: it ends when the bridge names it as sent, or together with the peer, when its
//! connection has settled.

use std::ptr;

use super::{
    Engine,
    core::{self, Core},
    inbound,
    inbound_stream::Sink,
    op::{Done, OpKey, SendOp, SendStage},
    peer::{MESSAGE_COST, Peer},
    teardown,
};
use crate::{
    Path,
    protocol::rma::{
        served::{self, owner},
        way::Served,
    },
    status::Tally,
    transport::{Ended, shm::ring::Violation},
    wire::{
        descriptor::{Header, Kind},
        tcp::frame,
    },
};

/// Messages from this length on go past the lane: the copy through the lane costs more than a frame
/// of its own.
const DIRECT_FROM: u64 = 16 << 10;
/// Messages that may be in flight past the lane.
const DIRECT_MAX: usize = 64;
/// Long messages, and bytes of one, that are taken from one peer before others get their turn.
const MESSAGES_A_TURN: u32 = 8;
const BYTES_A_TURN: u64 = 1 << 20;

/// Time between a send and the look whether it has come.
const LOOK_NS: u64 = 1_000_000_000;

/// The time of the next look whether peers on other hosts answer: soon, if something was sent
/// and no look is due.
pub(crate) fn poll_ns(engine: &mut Engine, now_ns: impl FnOnce() -> u64) -> Option<u64> {
    if std::mem::take(&mut engine.core.has_sent) && engine.connections.poll_ns.is_none() {
        engine.connections.poll_ns = Some(now_ns().saturating_add(LOOK_NS));
    }
    engine.connections.poll_ns
}

/// Looks whether peers on other hosts answer, if it is time to.
pub(crate) fn look_after_turned(engine: &mut Engine, now_ns: u64) {
    if poll_ns(engine, || now_ns).is_none_or(|at_ns| now_ns < at_ns) {
        return;
    }
    engine.connections.poll_ns = None;
    for id in engine.peers.ids() {
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        match peer.transport.look(now_ns) {
            Ok(at_ns) => {
                engine.connections.poll_ns =
                    engine.connections.poll_ns.into_iter().chain(at_ns).min();
            }
            Err(ended) => teardown::connection_ended(engine, id, ended),
        }
    }
}

/// Ends the operations whose memory the kernel used and no longer uses, as far as it has told
/// that. Returns whether any ended.
pub(crate) fn land(engine: &mut Engine) -> bool {
    if !engine.core.driver.has_news() {
        return false;
    }
    for id in engine.peers.ids() {
        if let Some(peer) = engine.peers.get_mut(id).filter(|peer| peer.transport.has_in_flight()) {
            end_sent(&mut engine.core, peer);
        }
    }
    true
}

/// Takes the messages that have come over a peer's connection, and hands those for the peer to
/// it. Returns whether anything came, or the kernel is done with a message.
pub(crate) fn turn(core: &mut Core, peer: &mut Peer, waits: bool) -> Result<bool, Ended> {
    let (mut moved, mut took_long) = (false, false);
    for _ in 0..MESSAGES_A_TURN {
        moved |= peer.transport.turn(waits, &mut core.lane_budget)?;
        // Descriptors in the lane come first.
        if peer.rx.head().is_some() || !peer.transport.brings_direct() {
            break;
        }
        let took = take_long(core, peer)?;
        moved |= took > 0;
        took_long |= took > 0;
        if took == 0 || took >= BYTES_A_TURN {
            break;
        }
    }
    if took_long || peer.transport.brings_direct() {
        // The sender of a message that has come may wait to hear of it, and this side may not
        // turn again.
        peer.transport.hand_on();
    }
    // Events that a sleeping leader was to be woken by are not found any more: a connection
    // tells of each change once.
    core.wakes.leader |= moved;
    Ok(end_sent(core, peer) || moved)
}

/// Ends the operations whose messages are sent. Returns whether there were any.
pub(crate) fn end_sent(core: &mut Core, peer: &mut Peer) -> bool {
    let mut any = false;
    core.has_sent |= peer.transport.take_has_sent();
    while let Some(transmitted) = peer.transport.take_sent() {
        any = true;
        let key = OpKey::of_word(transmitted.name);
        let Some(op) = core.ops.send_mut(key) else { continue };
        let SendStage::Handed { bytes } = op.stage else { continue };
        let mut receipt = op.receipt;
        if peer.info.encryption.is_some() {
            // The kernel copies ciphertext, not the message.
            receipt.copied_user = bytes;
            receipt.note_encrypted();
        } else {
            receipt.copied_kernel = bytes.saturating_sub(transmitted.spared);
            receipt.note_sent(transmitted.mode, transmitted.driver, transmitted.translated);
        }
        core.status.copied_user.add(receipt.copied_user);
        core.status.copied_kernel.add(receipt.copied_kernel);
        core.wakes.leader = true;
        if op.served.as_deref().is_some_and(Served::is_write) {
            op.receipt = receipt;
            served::written(core, peer, key);
            continue;
        }
        let (len, is_message) = (op.memory.len(), op.served.is_none());
        if is_message {
            peer.record.count_sent(Path::Eager, len);
        }
        core::finish(core, key, Ok(Done::Sent(receipt)));
    }
    any
}

/// Hands a message to the connection, if it is long enough for that. `bytes` of it are wanted;
/// `announced`: the receiver has asked for them.
pub(crate) fn hand_to_connection(
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
    bytes: u64,
    announced: bool,
) -> Result<bool, Violation> {
    let sid = op.sid(key);
    let Some(direct) = peer.transport.past_lane() else { return Ok(false) };
    if bytes < DIRECT_FROM || direct.direct_ones() >= DIRECT_MAX {
        return Ok(false);
    }
    let mut parts = op.memory.first(bytes);
    let name = key.word();
    if announced {
        let header = Header::new(Kind::Data, 0, sid);
        // SAFETY: the memory is there until the operation has ended, see the invariant.
        unsafe { direct.send_directly(name, header, &frame::long_data(bytes), &mut parts) }?;
    } else {
        let header = Header::new(Kind::Eager, op.verb as u8, sid);
        // SAFETY: as above.
        unsafe {
            direct.send_directly(name, header, &frame::long_eager(op.tag, bytes), &mut parts)
        }?;
        peer.sent_cost += MESSAGE_COST + bytes;
    }
    op.stage = SendStage::Handed { bytes };
    Ok(true)
}

/// Puts the next bytes of a long message to their place. Returns how many bytes, and at least 1
/// if it goes through the lane from here on.
fn take_long(core: &mut Core, peer: &mut Peer) -> Result<u64, Ended> {
    let mut took = 0;
    while took < BYTES_A_TURN
        && let Some(direct) = peer.transport.past_lane()
        && let Some((sid, left)) = direct.direct()
    {
        let at = peer.inbound.iter().position(|stream| stream.sid == sid);
        let at = at.ok_or(Violation("it sent bytes of no stream"))?;
        let stream = &mut peer.inbound[at];
        let mut landed = None;
        if left > stream.end - stream.got {
            return Err(Violation("it sent more of a message than it announced").into());
        }
        let part = match &mut stream.sink {
            Sink::Op(key) | Sink::Read(key) => {
                core.ops.recv_mut(*key).and_then(|op| op.memory.part_at(stream.got))
            }
            Sink::Keep(_, kept) => kept.next_part(),
            Sink::Write(landing) => {
                landed = owner::landing_part(core, landing, stream.got, left);
                landed.as_ref().map(|to| to.part)
            }
        };
        let Some(part) = part else {
            // There is less room than the message has bytes.
            direct.through_lane();
            return Ok(took + 1);
        };
        // SAFETY: memory of a receive that has not ended, the library's own and no other's, or
        // a region's that stands; the kernel writes the bytes that `put` does not.
        let came = unsafe {
            direct.take_directly(part, &mut |bytes| match &landed {
                Some(region) => region.put(bytes),
                // The bytes that have come are fewer than the part, and are memory of the
                // transport's.
                None => ptr::copy_nonoverlapping(bytes.as_ptr(), part.ptr, bytes.len()),
            })
        }? as u64;
        if came == 0 {
            break;
        }
        took += came;
        stream.got += came;
        stream.came.copied += came;
        if peer.info.encryption.is_none() {
            stream.came.cma += came;
        }
        if let Sink::Keep(_, kept) = &mut stream.sink {
            // SAFETY: the bytes were written just now, where it said.
            unsafe { kept.came(came) };
        }
        if stream.got == stream.end {
            let stream = peer.inbound.swap_remove(at);
            inbound::all_came(core, peer, stream);
            break;
        }
    }
    Ok(took)
}
