//! Claims: both sides copy one message, and a shared word says which side copies which chunk.
//!
//! A message in the sender's memory is read by the receiver from the front and written by the
//! sender from the back, each claiming a chunk at a time in one shared word, until they meet. A
//! side that does not get to run claims nothing and delays nothing.
//!
//! ```text
//! bits  0..24  chunks the receiver has claimed, from the front
//! bits 24..48  chunks the sender has claimed, from the back
//! bits 48..64  generation: the transfer this word is about
//! ```
//!
//! A message that its sender copies into the ring as long as it runs, and that the receiver may
//! take over, needs only one count:
//!
//! ```text
//! bits  0..48  bytes the sender has claimed, from the front
//! bits 48..64  generation
//! ```
//!
//! The other side can write anything here. Each side counts its own claims privately, and the
//! receiver finally checks that the two counts add up; a liar spoils its own message.

use crate::{
    sync::{AtomicU64, Ordering},
    wire::{
        layout::{CLAIMS, REQUESTS},
        rendezvous::{By, CHUNKS_MAX, Request},
    },
};

const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// The longest message that can be claimed by bytes is one byte less.
pub(crate) const BYTES_MASK: u64 = (1 << (2 * COUNT_BITS)) - 1;

const _: () = assert!(CHUNKS_MAX == COUNT_MASK);

/// End of the message at which a side works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The receiver's end.
    Front,
    /// The sender's end.
    Back,
}

/// Opens `word` for transfer `generation` with nothing claimed.
pub(crate) fn open(word: &AtomicU64, generation: u16) {
    word.store((generation as u64) << (2 * COUNT_BITS), Ordering::Release);
}

/// Claims one chunk of `chunks`. `Some(k)` says that the k-th from that end is the caller's.
///
/// Returns `None` if all are claimed, or the word is about another transfer.
pub(crate) fn take(word: &AtomicU64, generation: u16, chunks: u64, end: End) -> Option<u64> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let front = seen & COUNT_MASK;
        let back = seen >> COUNT_BITS & COUNT_MASK;
        if seen >> (2 * COUNT_BITS) != generation as u64 || front + back >= chunks {
            return None;
        }
        let (mine, step) = match end {
            End::Front => (front, 1),
            End::Back => (back, 1 << COUNT_BITS),
        };
        // Relaxed: the word shares out work and orders no data; the bytes are ordered by the
        // descriptors that report them.
        match word.compare_exchange_weak(seen, seen + step, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some(mine),
            Err(now) => seen = now,
        }
    }
}

/// Ends transfer `generation`: nothing more can be claimed. Returns the number of chunks that the
/// sender had claimed.
pub(crate) fn close(word: &AtomicU64, generation: u16) -> u64 {
    end(word, generation) >> COUNT_BITS & COUNT_MASK
}

/// Returns whether nothing more can be claimed of transfer `generation`.
pub(crate) fn is_exhausted(word: &AtomicU64, generation: u16, chunks: u64) -> bool {
    let seen = word.load(Ordering::Relaxed);
    let (front, back) = (seen & COUNT_MASK, seen >> COUNT_BITS & COUNT_MASK);
    seen >> (2 * COUNT_BITS) != generation as u64 || front + back >= chunks
}

/// The sender of transfer `generation` has written `chunks` chunks: a receiver that finds all of
/// those claimed among them need not wait for the [report](crate::wire::rendezvous::Wrote), which
/// takes another call of the sender's.
pub(crate) fn report(word: &AtomicU64, generation: u16, chunks: u32, by: By) {
    let said = (generation as u64) << (2 * COUNT_BITS) | (by as u64) << COUNT_BITS | chunks as u64;
    // Release: the chunks are written.
    word.store(said, Ordering::Release);
}

/// Returns whether the sender of transfer `generation` has written `chunks` chunks, and how.
pub(crate) fn reported(word: &AtomicU64, generation: u16, chunks: u64) -> Option<By> {
    let said = word.load(Ordering::Acquire);
    let is_about = said >> (2 * COUNT_BITS) == generation as u64 && said & COUNT_MASK == chunks;
    is_about.then_some(By::read(said >> COUNT_BITS & COUNT_MASK))
}

/// Claims the bytes from `at` to `end` of transfer `generation`, all those before `at` being
/// claimed. Returns `false` if the receiver has taken the rest over.
pub(crate) fn advance(word: &AtomicU64, generation: u16, at: u64, end: u64) -> bool {
    let of = |bytes: u64| (generation as u64) << (2 * COUNT_BITS) | bytes & BYTES_MASK;
    // Relaxed, as above.
    word.compare_exchange(of(at), of(end), Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// Ends transfer `generation`. Returns the number of bytes that the sender had claimed.
pub(crate) fn take_over(word: &AtomicU64, generation: u16) -> u64 {
    end(word, generation) & BYTES_MASK
}

/// Ends transfer `generation`. Returns the last value of its word.
fn end(word: &AtomicU64, generation: u16) -> u64 {
    word.swap((generation.wrapping_add(1) as u64) << (2 * COUNT_BITS), Ordering::Relaxed)
}

/// The words of one direction that its receiver has in use.
#[derive(Default)]
pub(crate) struct Words {
    claims: u32,
    claim_generations: [u16; CLAIMS as usize],
    requests: u64,
    request_generation: u16,
}

impl Words {
    /// Takes a claim line for a shared transfer, and its generation.
    pub(crate) fn take_claim(&mut self) -> Option<(u32, u16)> {
        let claim = (!self.claims).trailing_zeros();
        if claim >= CLAIMS {
            return None;
        }
        self.claims |= 1 << claim;
        let generation = &mut self.claim_generations[claim as usize];
        *generation = generation.wrapping_add(1);
        Some((claim, *generation))
    }

    /// Gives a claim line back, its transfer closed.
    pub(crate) fn give_claim(&mut self, claim: u32) {
        self.claims &= !(1 << claim);
    }

    /// Takes a word for a message through the ring.
    pub(crate) fn take_request(&mut self) -> Option<Request> {
        let word = (!self.requests).trailing_zeros();
        if word >= REQUESTS {
            return None;
        }
        self.requests |= 1 << word;
        self.request_generation = self.request_generation.wrapping_add(1);
        Some(Request { word, generation: self.request_generation })
    }

    /// Gives the word back: its message has come, or is taken over.
    pub(crate) fn give_request(&mut self, request: Request) {
        self.requests &= !(1 << request.word);
    }
}
