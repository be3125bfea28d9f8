#![allow(unsafe_code)]
//! Sends of borrowed memory that never wait.
//!
//! **Invariant.** The memory is borrowed for the whole call, and is not touched after it: a message
//! goes at once, or out of a copy.

use std::{io::IoSlice, sync::Arc};

use super::blocking::send_now;
use crate::{
    Endpoint, Error, PeerId, Result,
    memory::scatter::{Part, Scatter},
    wire::descriptor::INLINE_MAX,
    worker::shared::Shared,
};

impl Endpoint {
    /// The longest message that [`Endpoint::try_send`] takes, bytes.
    pub const TRY_SEND_MAX: usize = 16 << 10;

    /// Sends `data` through the ring if it can go now; the memory is then the caller's again.
    /// `false`: it would have to wait, since the ring is full, the peer's credit is used up, or
    /// other sends wait before it; nothing was sent, and nothing is kept. The peer makes room while
    /// it makes progress, and this endpoint learns of it in its own. Up to 56 bytes cost as much as
    /// [`Endpoint::send`].
    ///
    /// # Errors
    /// [`Error::LimitReached`] for more than [`Endpoint::TRY_SEND_MAX`] bytes;
    /// [`Error::PathRefused`] if the pair has no ring for such messages; and as
    /// [`Endpoint::send`].
    #[inline]
    pub fn try_send(&self, peer: PeerId, tag: u64, data: &[u8]) -> Result<bool> {
        // SAFETY: borrowed for the whole call.
        let memory = unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) };
        if data.len() <= INLINE_MAX
            && let Some(mut engine) = self.shared().fast_path()
            && engine.send_at_once(peer, tag, memory)
        {
            return Ok(true);
        }
        try_send(self.shared(), peer, tag, memory.into())
    }

    /// As [`Endpoint::try_send`], of memory in several parts, as one message.
    ///
    /// # Errors
    /// As [`Endpoint::try_send`].
    pub fn try_send_vectored(&self, peer: PeerId, tag: u64, parts: &[IoSlice<'_>]) -> Result<bool> {
        let parts = parts.iter().map(|part| (part.as_ptr().cast_mut(), part.len()));
        // SAFETY: borrowed for the whole call.
        let memory = unsafe { Scatter::many(parts) };
        try_send(self.shared(), peer, tag, memory)
    }
}

#[inline(never)]
fn try_send(shared: &Arc<Shared>, peer: PeerId, tag: u64, memory: Scatter) -> Result<bool> {
    if memory.len() > Endpoint::TRY_SEND_MAX as u64 {
        return Err(Error::LimitReached {
            what: "the bytes of a message that must not wait",
            limit: Endpoint::TRY_SEND_MAX as u64,
            remedy: "send it by `send_owned`, which never waits either",
        });
    }
    let send = |part| send_now(shared, peer, tag, part, &mut None);
    if memory.part().and_then(send).is_some() {
        return Ok(true);
    }
    shared.enter()?.try_send(peer, tag, &memory)
}
