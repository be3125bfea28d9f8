//! Operations on regions over a connection: how a peer asks for them, and how the region's owner
//! does them.
//!
//! The requester sends the region's key with each operation: the owner keeps no record of
//! permissions. Bytes to write follow as a stream of the operation's number, bytes to read come as
//! one that the answer names. Long ones go past the lanes, from and to the caller's memory and the
//! region's ([`transport_progress`](crate::worker::transport_progress)).
//!
//! A request costs no credit, for nothing of it is stored: bytes that do not go into a region are
//! dropped as they come. The number of operations in flight is bounded on both sides.
//!
//! - here: the requester's question; `sending`: on its way; `results`: what came of it.
//! - `owner`: the owner; `writes`, `landing`: writes that are coming in there.

pub(crate) mod landing;
pub(crate) mod owner;
pub(crate) mod results;
pub(crate) mod sending;
pub(crate) mod writes;

use super::way::{Served, ServedRequest};
use crate::{
    Result,
    memory::scatter::Scatter,
    wire::served_rma::What,
    worker::{
        engine::Engine,
        op::{Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
        outbound, teardown,
    },
};

/// Begins an operation. `memory` holds the bytes to write, or receives those that are read.
pub(crate) fn post_served(
    engine: &mut Engine,
    using: ServedRequest,
    memory: Scatter,
) -> Result<OpKey> {
    engine.check()?;
    let id = using.peer;
    let (peer, core) = engine.peer_mut(id)?;
    let kind = match using.asked.what {
        What::Write { .. } | What::Brief { .. } => {
            let receipt = results::receipt(peer, using.len());
            let served = Some(Box::new(Served::Write { using, answer: None }));
            OpKind::Send(SendOp { served, ..SendOp::new(id, 0, memory, receipt) })
        }
        What::Read { .. } | What::Change(_) => {
            let stage = RecvStage::ServedRequest(Box::new(using));
            OpKind::Recv(RecvOp { stage, ..RecvOp::new(Some(memory)) })
        }
    };
    let key = core.ops.insert(Op::new(kind));
    peer.served_rma.waiting.push_back(key);
    if let Err(violation) = outbound::pump(core, peer) {
        teardown::cut_off(engine, id, violation);
    }
    engine.kick_if_needed();
    Ok(key)
}
