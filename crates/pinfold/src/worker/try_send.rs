#![allow(unsafe_code)]
//! Sends through the ring that go now or not at all.
//!
//! **Invariant.** A send that does not go as a whole at once goes on out of a copy, which its
//! operation keeps until it has ended.

use super::{
    engine::Engine,
    op::{Keeps, SendOp},
    peer::Peer,
    post, progress, routing,
};
use crate::{
    Path, PeerId, Receipt, Result, memory::scatter::Scatter, transport::shm::budget::Budget,
    wire::descriptor::INLINE_MAX,
};

/// Sends a message through the ring, out of a copy if not all of it goes at once. Returns
/// whether it goes: it never queues behind others.
pub(crate) fn try_send(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    memory: &Scatter,
) -> Result<bool> {
    engine.check()?;
    let len = memory.len();
    let (peer, core) = engine.peer_mut(id)?;
    let is_inline = len <= INLINE_MAX as u64 && peer.permissions.may(Path::Inline);
    let path = if is_inline { Path::Inline } else { Path::Eager };
    if let Some(why) = peer.permissions.refusal(path) {
        return Err(crate::Error::PathRefused { path, why });
    }
    if !goes_now(&mut core.lane_budget, peer, len) {
        // The peer may have made room meanwhile.
        progress::turn(engine);
        progress::progress(engine);
        let (peer, core) = engine.peer_mut(id)?;
        if !goes_now(&mut core.lane_budget, peer, len) {
            return Ok(false);
        }
    }
    let mut bytes = memory.to_vec();
    // SAFETY: the bytes lie on the heap, and stay until the operation has ended: it keeps them.
    let copy = unsafe { Scatter::one(bytes.as_mut_ptr(), bytes.len()) };
    let send = SendOp::new(id, tag, copy, Receipt::new(path, len));
    let keeps = Some(Keeps::Buffer(Box::new(bytes)));
    post::post(engine, SendOp { required: Some(path), ..send }, keeps).map(|_| true)
}

/// Returns whether a message through the ring would begin to go now.
fn goes_now(lane_budget: &mut Budget, peer: &mut Peer, len: u64) -> bool {
    let has_room = peer.is_clear() && peer.tx.has_room(lane_budget) == Ok(true);
    has_room && routing::fits_eager(peer, len)
}
