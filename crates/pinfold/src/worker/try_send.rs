#![allow(unsafe_code)]
//! Sends through the ring that go now or not at all.
//!
//! **Invariant.** A send that does not go as a whole at once goes on out of a copy, which its
//! operation keeps until it has ended.

use super::{
    Engine,
    core::Core,
    op::{Keeps, SendOp},
    peer::Peer,
};
use crate::{
    Path, PeerId, Receipt, Result, memory::scatter::Scatter, wire::descriptor::INLINE_MAX,
};

impl Engine {
    /// Sends a message through the ring, out of a copy if not all of it goes at once. Returns
    /// whether it goes: it never queues behind others.
    pub(crate) fn try_send(&mut self, id: PeerId, tag: u64, memory: &Scatter) -> Result<bool> {
        self.check()?;
        let len = memory.len();
        let (peer, core) = self.peer_mut(id)?;
        let is_inline = len <= INLINE_MAX as u64 && peer.permissions.may(Path::Inline);
        let path = if is_inline { Path::Inline } else { Path::Eager };
        if let Some(why) = peer.permissions.refusal(path) {
            return Err(crate::Error::PathRefused { path, why });
        }
        if !core.goes_now(peer, len) {
            // The peer may have made room meanwhile.
            self.turn();
            self.progress();
            let (peer, core) = self.peer_mut(id)?;
            if !core.goes_now(peer, len) {
                return Ok(false);
            }
        }
        let mut bytes = memory.to_vec();
        // SAFETY: the bytes lie on the heap, and stay until the operation has ended: it keeps them.
        let copy = unsafe { Scatter::one(bytes.as_mut_ptr(), bytes.len()) };
        let send = SendOp::new(id, tag, copy, Receipt::new(path, len));
        let keeps = Some(Keeps::Buffer(Box::new(bytes)));
        self.post(SendOp { required: Some(path), ..send }, keeps).map(|_| true)
    }
}

impl Core {
    /// Returns whether a message through the ring would begin to go now.
    fn goes_now(&mut self, peer: &mut Peer, len: u64) -> bool {
        let has_room = peer.is_clear() && peer.tx.has_room(&mut self.lane_budget) == Ok(true);
        has_room && self.fits_eager(peer, len)
    }
}
