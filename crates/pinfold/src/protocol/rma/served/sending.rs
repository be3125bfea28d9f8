#![allow(unsafe_code)]
//! Served operations on their way to the region's owner, and bytes on their way back.
//!
//! **Invariant.** Bytes of a region are read under the engine's lock, and only while the region
//! stands; those that are in flight keep the memory alive
//! ([`Act::Served`](crate::protocol::active::act::Act)).

use std::slice;

use crate::{
    protocol::rma::{
        registry::Registry,
        way::{Begun, Served},
    },
    transport::shm::ring::Violation,
    wire::{
        descriptor::Piece,
        served_rma::{Use, Used, What},
        space::Refused,
    },
    worker::{
        answers,
        core::Core,
        op::{OpKey, OpKind, RecvOp, RecvStage, SendOp, SendStage},
        peer::Peer,
    },
};

/// Copies the bytes from `at` on of a peer's read to a piece of the lane.
pub(crate) fn fill_served(
    peer: &mut Peer,
    served: &Served,
    piece: Piece,
    at: u64,
) -> Result<bool, Violation> {
    let Served::Answer { offset, memory, .. } = served else { return Ok(false) };
    let to = peer.tx.place(piece)?;
    // SAFETY: a range that was lent, of a lane whose both ends are in this process: no other
    // thread reaches it.
    let to = unsafe { slice::from_raw_parts_mut(to, piece.len as usize) };
    memory.read(offset + at as usize, to);
    Ok(true)
}

/// Starts waiting operations, as many as may be in flight.
pub(crate) fn drop_served(core: &mut Core, peer: &mut Peer) {
    while let Some(key) = peer.served_rma.next() {
        match core.ops.get(key).map(|op| (&op.kind, op.done.is_some())) {
            Some((OpKind::Send(_), false)) => peer.asked.push_back(key),
            Some((OpKind::Recv(RecvOp { stage: RecvStage::ServedRequest(using), .. }), false)) => {
                let asked = using.asked;
                let header = asked.header(key.index);
                let words = Use::words(header).unwrap_or(0);
                answers::answer_by(core, peer, header, &asked.body()[..words]);
            }
            _ => peer.served_rma.end(),
        }
    }
}

/// Writes a send that is no message to the lane. Returns whether there was room.
pub(crate) fn begin_served(
    registry: &mut Registry,
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
    served: &Served,
) -> Begun {
    let len = op.memory.len();
    let streaming =
        SendStage::Streaming { at: 0, end: len, announced: true, cut: None, request: None };
    match served {
        Served::Write { using, .. } => {
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
        Served::Answer { number, region, .. } => {
            let stands = registry.region(*region).is_some();
            let used = match stands {
                true => Used::Comes { stream: key.index },
                false => Used::Refused(Refused::Unknown),
            };
            let words = Used::words(used.header(0)).unwrap_or(0);
            peer.tx.push(used.header(*number), &used.body()[..words]);
            op.stage = streaming;
            if stands { Begun::Streams } else { Begun::Ended }
        }
    }
}
