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
    connections::Connections, core::Core, inbound_stream::Sink, peer::Peer, streams,
    transport_sends,
};
use crate::{
    protocol::rma::served::writes,
    transport::{Ended, shm::ring::Violation},
};

/// Long messages, and bytes of one, that are taken from one peer before others get their turn.
const MESSAGES_A_TURN: u32 = 8;
const BYTES_A_TURN: u64 = 1 << 20;

/// Time between a send and the look whether it has come.
const LOOK_NS: u64 = 1_000_000_000;

/// The time of the next look whether peers on other hosts answer: soon, if something was sent
/// and no look is due.
pub(crate) fn poll_ns(
    core: &mut Core,
    connections: &mut Connections,
    now_ns: impl FnOnce() -> u64,
) -> Option<u64> {
    if std::mem::take(&mut core.has_sent) && connections.poll_ns.is_none() {
        connections.poll_ns = Some(now_ns().saturating_add(LOOK_NS));
    }
    connections.poll_ns
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
    Ok(transport_sends::end_sent(core, peer) || moved)
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
                landed = writes::landing_part(core, landing, stream.got, left);
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
            streams::all_came(core, peer, stream);
            break;
        }
    }
    Ok(took)
}
