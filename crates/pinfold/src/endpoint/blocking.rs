#![allow(unsafe_code)]
//! Blocking operations on borrowed memory.
//!
//! **Invariant.** The memory is borrowed for the whole call, and the call returns or unwinds only
//! after the operation has ended.

use std::{
    io::{IoSlice, IoSliceMut},
    sync::Arc,
    time::Instant,
};

use super::{received::Received, spans};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    copy::Largest,
    memory::scatter::{Part, Scatter},
    policy::route::Why,
    protocol::active::{calls::Short, send},
    wire::{
        active::{Label, Verb},
        descriptor::INLINE_MAX,
    },
    worker::{
        abandoned,
        fast_path::{self, Sent},
        matching::{Source, TagMatch},
        op::{Arrived, Done, Keeps, OpKey},
        post, progress,
        shared::Shared,
    },
};

/// An operation whose memory is borrowed by the current call.
pub(crate) struct BlockingOp<'a> {
    shared: &'a Arc<Shared>,
    key: Option<OpKey>,
}

impl<'a> BlockingOp<'a> {
    /// The memory of the operation is borrowed for as long as this value lives.
    pub(crate) fn new(shared: &'a Arc<Shared>, key: OpKey) -> BlockingOp<'a> {
        BlockingOp { shared, key: Some(key) }
    }

    pub(crate) fn wait(mut self) -> Result<Done> {
        self.wait_until(None).unwrap_or(Err(Error::Closed))
    }

    /// As [`BlockingOp::wait`], until `deadline`. `None`: the deadline passed first, and the
    /// operation goes on.
    pub(crate) fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Result<Done>> {
        let Some(key) = self.key else { return Some(Err(Error::Closed)) };
        let done = self.shared.wait_done(key, deadline)?;
        self.key = None;
        Some(done)
    }

    /// The operation goes on without the borrowed memory.
    pub(crate) fn forget(mut self) {
        self.key = None;
    }
}

impl Drop for BlockingOp<'_> {
    fn drop(&mut self) {
        // Only if the wait unwound: the memory is still in use.
        if let Some(key) = self.key {
            if let Ok(mut engine) = self.shared.enter() {
                abandoned::relinquish(&mut engine, key);
            }
            let _ = self.shared.wait_done(key, None);
        }
    }
}

#[inline]
pub(crate) fn send(shared: &Arc<Shared>, peer: PeerId, tag: u64, data: &[u8]) -> Result<Receipt> {
    // SAFETY: borrowed until the operation has ended, below.
    let memory = unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) };
    if data.len() <= INLINE_MAX
        && let Some(mut engine) = shared.fast_path()
        && fast_path::send_at_once(&mut engine, peer, tag, memory)
    {
        drop(engine);
        return Ok(Receipt::copied(Path::Inline, data.len() as u64, Why::NOT_ASKED, Largest::NONE));
    }
    if data.len() >= spans::LONG {
        return send_long(shared, peer, tag, memory);
    }
    send_part(shared, peer, tag, memory)
}

#[cold]
#[inline(never)]
fn send_long(shared: &Arc<Shared>, peer: PeerId, tag: u64, memory: Part) -> Result<Receipt> {
    spans::send(peer, tag, memory.len() as usize, || send_part(shared, peer, tag, memory))
}

/// Sends `data` to a handler of the peer.
#[inline]
pub(crate) fn call(shared: &Arc<Shared>, peer: PeerId, id: u32, data: &[u8]) -> Result<Receipt> {
    let label = Label { verb: Verb::Call, id, token: 0 };
    if let Some(short) = Short::of(data) {
        let gone = match shared.fast_path() {
            Some(mut engine) => send::call_at_once(&mut engine, peer, label, short),
            None => send::call_at_once(&mut *shared.enter()?, peer, label, short),
        };
        if gone {
            return Ok(Receipt::copied(
                Path::Inline,
                data.len() as u64,
                Why::NOT_ASKED,
                Largest::NONE,
            ));
        }
    }
    // SAFETY: borrowed until the operation has ended, below.
    let memory = unsafe { Scatter::one(data.as_ptr().cast_mut(), data.len()) };
    let key = send::post_active(&mut *shared.enter()?, peer, label, memory)?;
    post::sent(BlockingOp::new(shared, key).wait())
}

#[inline(never)]
fn send_part(shared: &Arc<Shared>, peer: PeerId, tag: u64, memory: Part) -> Result<Receipt> {
    let mut chosen = None;
    if let Some(receipt) = send_now(shared, peer, tag, memory, &mut chosen) {
        return Ok(receipt);
    }
    send_scatter(shared, peer, tag, memory.into(), None, chosen)
}

/// Sends a short message that needs no operation because no other stands before it. `None`: it has
/// to be posted, by the path in `chosen` if the cost model was asked.
#[inline]
pub(crate) fn send_now(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    memory: Part,
    chosen: &mut Option<Receipt>,
) -> Option<Receipt> {
    let sent = match shared.fast_path() {
        Some(mut engine) => fast_path::send_fast(&mut engine, peer, tag, memory, chosen),
        // A thread other than the owner's.
        None => fast_path::send_fast(&mut *shared.enter().ok()?, peer, tag, memory, chosen),
    };
    sent.map(|Sent { path, why, by }| Receipt::copied(path, memory.len(), why, by))
}

/// Sends `data` by `path` and no other.
pub(crate) fn send_by(
    shared: &Arc<Shared>,
    path: Path,
    peer: PeerId,
    tag: u64,
    data: &[u8],
) -> Result<Receipt> {
    // SAFETY: borrowed until the operation has ended, below.
    let memory = unsafe { Scatter::one(data.as_ptr().cast_mut(), data.len()) };
    send_scatter(shared, peer, tag, memory, Some(path), None)
}

pub(crate) fn send_vectored(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    parts: &[IoSlice<'_>],
) -> Result<Receipt> {
    let parts = parts.iter().map(|part| (part.as_ptr().cast_mut(), part.len()));
    // SAFETY: borrowed until the operation has ended, below.
    let memory = unsafe { Scatter::many(parts) };
    send_scatter(shared, peer, tag, memory, None, None)
}

#[inline(never)]
fn send_scatter(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    memory: Scatter,
    required: Option<Path>,
    chosen: Option<Receipt>,
) -> Result<Receipt> {
    let key = {
        let mut engine = shared.enter()?;
        let key = post::post_send(&mut engine, peer, tag, memory, required, chosen)?;
        if let Some(done) = engine.take_done(key) {
            return post::sent(done);
        }
        key
    };
    post::sent(BlockingOp::new(shared, key).wait())
}

#[inline]
pub(crate) fn recv_into(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    buf: &mut [u8],
) -> Result<Received> {
    // SAFETY: borrowed until the operation has ended, in `recv_scatter`.
    let memory = unsafe { Part::new(buf.as_mut_ptr(), buf.len()) };
    if buf.len() >= spans::LONG {
        return recv_long(shared, from, tag, memory);
    }
    recv_part(shared, from, tag, memory)
}

/// Apart from [`recv_into`], whose arguments a closure would have put into memory for all lengths.
#[cold]
#[inline(never)]
fn recv_long(shared: &Arc<Shared>, from: Source, tag: TagMatch, memory: Part) -> Result<Received> {
    spans::recv(memory.len() as usize, || recv_part(shared, from, tag, memory))
}

#[inline(always)]
fn recv_part(shared: &Arc<Shared>, from: Source, tag: TagMatch, memory: Part) -> Result<Received> {
    if let Some(mut engine) = shared.fast_path()
        && let Some(took) = fast_path::recv_fast(&mut engine, from, tag, memory)
    {
        return took.received();
    }
    recv_scatter(shared, from, tag, memory.into())
}

pub(crate) fn recv_vectored(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    parts: &mut [IoSliceMut<'_>],
) -> Result<Received> {
    let parts = parts.iter_mut().map(|part| (part.as_mut_ptr(), part.len()));
    // SAFETY: as in `recv_into`.
    let memory = unsafe { Scatter::many(parts) };
    recv_scatter(shared, from, tag, memory)
}

#[inline(never)]
fn recv_scatter(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    memory: Scatter,
) -> Result<Received> {
    let key = {
        let mut engine = shared.enter()?;
        progress::turn(&mut engine);
        if let Some(part) = memory.part()
            && let Some(took) = fast_path::recv_fast(&mut engine, from, tag, part)
        {
            return took.received();
        }
        post::post_recv(&mut engine, from, tag, Some(memory))?
    };
    let done = BlockingOp::new(shared, key).wait();
    post::arrived(done).map(|arrived| Received::from(&arrived))
}

pub(crate) fn recv(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    deadline: Option<Instant>,
) -> Result<Option<Arrived>> {
    let key = post::post_recv(&mut *shared.enter()?, from, tag, None)?;
    match shared.wait_done(key, deadline) {
        Some(done) => post::arrived(done).map(Some),
        // The deadline has passed, unless the message came at the last moment.
        None => {
            let mut engine = shared.enter()?;
            if let Some(done) = engine.take_done(key) {
                return post::arrived(done).map(Some);
            }
            abandoned::abandon(&mut engine, key, Keeps::Buffer(Box::new(())));
            Ok(None)
        }
    }
}
