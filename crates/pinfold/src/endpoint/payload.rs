#![allow(unsafe_code)]
//! Payloads to a handler, or back from one, which no thread waits for.
//!
//! **Invariant.** A payload that does not go at once is moved to the heap, and given to the engine,
//! which keeps it there until its operation has ended.

use std::{any::Any, sync::Arc};

use super::buffers::OwnedBuf;
use crate::{
    PeerId, Result,
    memory::scatter::{Part, Scatter},
    protocol::active::{act::Act, calls::Short, send},
    wire::active::Label,
    worker::{peer::MESSAGE_COST, shared::Shared, unlocked_copy::Purpose},
};

/// A buffer that is only ever dropped.
struct Kept<B>(#[allow(dead_code, reason = "kept for its drop")] B);

/// The bytes of a message, which perhaps have to be kept.
pub(crate) trait Payload {
    type Buf: OwnedBuf;

    /// Its bytes, before it is kept, if they are few enough to go at once.
    fn short(&self) -> Option<Short>;

    /// The buffer, to be kept.
    fn into_buf(self, shared: &Shared) -> Self::Buf;
}

/// The caller's bytes, to be copied if they have to be kept.
pub(crate) struct BlockingOp<'a>(pub &'a [u8]);

impl Payload for BlockingOp<'_> {
    type Buf = Vec<u8>;

    fn short(&self) -> Option<Short> {
        Short::of(self.0)
    }

    fn into_buf(self, shared: &Shared) -> Vec<u8> {
        let len = self.0.len();
        let mut kept = Vec::with_capacity(len);
        // SAFETY: the one is borrowed, the other has room for as much and is new.
        unsafe { shared.copy_unlocked(Purpose::PAYLOAD, self.0.as_ptr(), kept.as_mut_ptr(), len) };
        // SAFETY: so many have been written.
        unsafe { kept.set_len(len) };
        kept
    }
}

/// A buffer that belongs to the message.
pub(crate) struct Owned<B>(pub B);

impl<B: OwnedBuf> Payload for Owned<B> {
    type Buf = B;

    fn short(&self) -> Option<Short> {
        let (ptr, len) = self.0.bytes();
        // SAFETY: `OwnedBuf` promises that they can be read as long as the buffer is there, which
        // this outlives by nothing.
        Short::of_part(unsafe { Part::new(ptr.cast_mut(), len) })
    }

    fn into_buf(self, _: &Shared) -> B {
        self.0
    }
}

/// Moves a payload to where it stays: its bytes, and the buffer that has to be kept as long as they
/// are used.
pub(crate) fn keep(shared: &Shared, payload: impl Payload) -> (Scatter, Box<dyn Any + Send>) {
    let kept = Box::new(Kept(payload.into_buf(shared)));
    let (ptr, len) = kept.0.bytes();
    // SAFETY: `OwnedBuf` keeps the bytes in place. The caller either posts an operation and has the
    // engine keep the buffer until that has ended, or posts none.
    (unsafe { Scatter::one(ptr.cast_mut(), len) }, kept)
}

/// Sends a handler's message, charged to the peer whose message it handles. Never waits.
pub(crate) fn say(
    shared: &Arc<Shared>,
    origin: PeerId,
    to: PeerId,
    label: Label,
    payload: impl Payload,
) -> Result<()> {
    if let Some(short) = payload.short()
        && send::call_at_once(&mut *shared.enter()?, to, label, short)
    {
        return Ok(());
    }
    // Outside the engine: the methods of a buffer are the user's code.
    let (memory, buffer) = keep(shared, payload);
    let mut engine = shared.enter()?;
    let bytes = MESSAGE_COST + memory.len();
    let key = send::post_active(&mut engine, to, label, memory)?;
    send::act_on(&mut engine.core, key, Act::Gone { origin, bytes, buffer });
    Ok(())
}
