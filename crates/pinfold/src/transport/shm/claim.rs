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
//! The other side can write anything here. Each side counts its own claims privately, and the
//! receiver finally checks that the two counts add up; a liar spoils its own message.

use crate::{
    sync::{AtomicU64, Ordering},
    wire::rendezvous::CHUNKS_MAX,
};

const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

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
    let last =
        word.swap((generation.wrapping_add(1) as u64) << (2 * COUNT_BITS), Ordering::Relaxed);
    last >> COUNT_BITS & COUNT_MASK
}
