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

use super::{
    engine::{
        op::{Arrived, Done, OpKey},
        post::{self, Look, Now},
    },
    matching::{Source, TagMatch},
    message::Received,
    scatter::Scatter,
    shared::Shared,
};
use crate::{Error, Path, PeerId, Receipt, Result, wire::descriptor::INLINE_MAX};

/// Polls of the lanes before a receive is posted: a message that is about to come needs no entry.
const FIRST_POLLS: u32 = 400;
/// Pauses before a stream's next message is looked for again.
const STREAM_PAUSES: u32 = 8;
/// The first of them follow each other without a pause.
const EAGER_POLLS: u32 = 200;

/// An operation whose memory is borrowed by the current call.
struct Borrowed<'a> {
    shared: &'a Arc<Shared>,
    key: Option<OpKey>,
}

impl Borrowed<'_> {
    fn wait(mut self) -> Result<Done> {
        let Some(key) = self.key else { return Err(Error::Closed) };
        let done = self.shared.wait_for(None, |engine| engine.take_done(key));
        self.key = None;
        done.unwrap_or(Err(Error::Closed))
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // Only if the wait unwound: the memory is still in use.
        if let Some(key) = self.key {
            self.shared.enter().cancel(key);
            let _ = self.shared.wait_for(None, |engine| engine.take_done(key));
        }
    }
}

/// The i-th eight bytes of `data`, the last ones filled up with zeros.
#[inline(always)]
fn word_of(data: &[u8], i: usize) -> u64 {
    let rest = &data[i * 8..];
    match rest.first_chunk::<8>() {
        Some(word) => u64::from_ne_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            u64::from_ne_bytes(word)
        }
    }
}

#[inline]
pub(crate) fn send(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    data: &[u8],
    required: Option<Path>,
) -> Result<Receipt> {
    if data.len() <= INLINE_MAX && required.is_none() {
        let mut engine = shared.enter();
        engine.check()?;
        if let Some(receipt) = engine.send_now(peer, tag, data.len(), |i| word_of(data, i))? {
            return Ok(receipt);
        }
    }
    // SAFETY: borrowed until the operation has ended, below.
    let memory = unsafe { Scatter::one(data.as_ptr().cast_mut(), data.len()) };
    send_scatter(shared, peer, tag, memory, required)
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
    send_scatter(shared, peer, tag, memory, None)
}

fn send_scatter(
    shared: &Arc<Shared>,
    peer: PeerId,
    tag: u64,
    memory: Scatter,
    required: Option<Path>,
) -> Result<Receipt> {
    let key = {
        let mut engine = shared.enter();
        engine.check()?;
        let mut chosen = None;
        if required.is_none() {
            match engine.send_piece_now(peer, tag, &memory)? {
                Now::Sent(receipt) => return Ok(receipt),
                Now::Later(receipt) => chosen = receipt,
            }
        }
        let key = engine.post_send(peer, tag, memory, required, chosen)?;
        if let Some(done) = engine.take_done(key) {
            return post::sent(done);
        }
        key
    };
    post::sent(Borrowed { shared, key: Some(key) }.wait())
}

#[inline]
pub(crate) fn recv_into(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    buf: &mut [u8],
) -> Result<Received> {
    // SAFETY: borrowed until the operation has ended, in `recv_scatter`.
    let memory = unsafe { Scatter::one(buf.as_mut_ptr(), buf.len()) };
    recv_scatter(shared, from, tag, memory)
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

#[inline]
fn recv_scatter(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    memory: Scatter,
) -> Result<Received> {
    let key = {
        let mut engine = shared.enter();
        engine.check()?;
        engine.turn();
        for poll in 0..FIRST_POLLS {
            match engine.recv_now(from, tag, &memory) {
                Look::Took(result) => {
                    engine.in_a_row = engine.in_a_row.saturating_add(1);
                    return result;
                }
                // In a stream, looking at once takes the line from under the sender, which then
                // writes one message a hop; a moment later several are there.
                Look::Nothing if poll == 0 && engine.is_streaming() => {
                    for _ in 0..STREAM_PAUSES {
                        pinfold_sys::clock::relax();
                    }
                }
                // A pause lasts as long as a cache line takes from a near core: none at first.
                Look::Nothing if poll < EAGER_POLLS => std::hint::black_box(()),
                Look::Nothing => pinfold_sys::clock::relax(),
                Look::Other => break,
            }
        }
        engine.post_recv(from, tag, Some(memory))?
    };
    let done = Borrowed { shared, key: Some(key) }.wait();
    post::arrived(done).map(|arrived| Received::from(&arrived))
}

pub(crate) fn recv(
    shared: &Arc<Shared>,
    from: Source,
    tag: TagMatch,
    deadline: Option<Instant>,
) -> Result<Option<Arrived>> {
    let key = shared.enter().post_recv(from, tag, None)?;
    match shared.wait_for(deadline, |engine| engine.take_done(key)) {
        Some(done) => post::arrived(done).map(Some),
        // Out of time; but a message that is already coming in must not be lost.
        None => {
            shared.enter().cancel(key);
            match post::arrived(Borrowed { shared, key: Some(key) }.wait()) {
                Err(Error::Cancelled) => Ok(None),
                result => result.map(Some),
            }
        }
    }
}
