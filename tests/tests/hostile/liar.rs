//! A peer that writes what it likes into its lane.

use std::time::{Duration, Instant};

use pinfold::Endpoint;
use pinfold_tests::{
    baseline::{Mapped, segments},
    host::{peek, scribble},
    role,
};

use super::{
    CONTROL, HOSTILE, KIND, LINE, PATIENCE, RINGS, SLOT, SLOTS, consumed,
    donations::{RTS, add},
    newest,
};

/// Kinds of descriptors.
pub const INLINE: u64 = 1;
pub const INLINE_WIDE: u64 = 2;
pub const EAGER: u64 = 4;
pub const DATA: u64 = 5;
pub const CTS: u64 = 7;
pub const ACTIVE: u64 = 11;
pub const OPEN: u64 = 12;
pub const OPENED: u64 = 13;
pub const USE: u64 = 14;
pub const USED: u64 = 15;
pub const INLINE_FIRST: u64 = 16;
pub const INLINE_REST: u64 = 17;

/// Verbs of active messages.
pub const CALL: u64 = 1;
pub const REPLY: u64 = 3;
pub const FAILED: u64 = 4;

/// The bit of an announcement that is to come through the ring.
pub const STREAM: u64 = 1 << 32;
/// The bit of an announcement that lacks nothing but credit.
pub const UNASKED: u64 = 1 << 35;
/// The bit of an announcement that would rather go through the ring.
pub const PREFERS_RING: u64 = 1 << 36;
/// The number of words for requests.
pub const REQUESTS: u64 = 48;

/// The request in word `word` of the control page.
pub fn request(word: u64, generation: u64) -> u64 {
    1 << 63 | word << 16 | generation
}

/// The first stream number of donated buffers.
pub const COUNTED: u64 = 1 << 31;

/// The descriptor's six bits of length or use, beside a kind.
pub const fn code(code: u64) -> u64 {
    code << (26 - KIND)
}

pub const BULK_BYTES: u64 = 256 << 10;

/// Pieces of 64 bytes, fewer than the message has.
const PIECES: u32 = 10_000;

/// Receives that the victim posts.
pub const RECEIVES: u64 = 16;

/// A range of the bulk bytes, as descriptors name it.
pub fn piece(offset: u64, len: u64) -> u64 {
    offset | len << 32
}

/// Descriptors that a ring which has not grown takes without a wait.
pub const BATCH: u64 = 40;

/// Such a peer.
pub struct Liar {
    pub segment: Mapped,
}

impl Liar {
    /// Connects to the victim, whose endpoint polls the lane from then on.
    pub fn connect() -> Liar {
        let before = segments();
        let (endpoint, victim) = role::connect(Endpoint::builder().label("author"), "victim");
        // Found before there are arenas of the victim's, too.
        let segment = segments().into_iter().find(|segment| !before.contains(segment));
        role::await_go(&endpoint, victim);
        // The victim polls the lane from then on.
        role::go(&endpoint, victim);
        std::mem::forget(endpoint);
        Liar { segment: segment.expect("a new segment") }
    }

    pub fn write(&self, kind: u64, aux: u64, body: &[u64]) {
        add(self.segment, kind, aux, body);
    }

    /// Writes up to `count` descriptors, as the victim takes them, until it takes no more.
    pub fn write_many(&self, count: u64, kind: u64, body: &[u64]) {
        for number in 0..count {
            let end = Instant::now() + Duration::from_secs(1);
            while newest(self.segment).0 - consumed(self.segment) > BATCH {
                if Instant::now() > end {
                    return;
                }
            }
            self.write(kind, number, body);
        }
    }

    /// The place where the victim has written a descriptor of this kind.
    pub fn written(&self, kind: u64) -> usize {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let mut slots = (0..SLOTS).map(|slot| self.segment.at + RINGS[0] + slot * SLOT);
            if let Some(slot) = slots.find(|slot| peek(*slot) >> KIND & 31 == kind) {
                return slot;
            }
        }
        panic!("the victim writes nothing of kind {kind}");
    }

    /// Announces a message that would rather go through the ring, and sends pieces of it for some
    /// time, so that the victim does not take it over yet; claims so many `bytes` meanwhile.
    pub fn claim(&self, bytes: u64) {
        self.write(RTS, 1, &[HOSTILE, 1 << 20, 0, 1 | PREFERS_RING]);
        let word = self.segment.at + CONTROL[1] + 3 * LINE + 2 * 8;
        let end = Instant::now() + Duration::from_millis(20);
        let mut pieces = 0;
        while Instant::now() < end && !super::is_cut_off(self.segment) {
            if newest(self.segment).0 - consumed(self.segment) < BATCH && pieces < PIECES {
                self.write(DATA, 1, &[piece(0, 64)]);
                pieces += 1;
            }
            scribble(word, 1 << 48 | bytes);
        }
    }

    /// The stream under which the victim has announced a message.
    pub fn announced(&self) -> u64 {
        peek(self.written(RTS)) >> 32
    }

    /// The token of the victim's question.
    pub fn asked(&self) -> u64 {
        u64::from(peek(self.written(ACTIVE) + 8) as u32)
    }

    /// Messages that may wait here for the victim, by its own word.
    pub fn announced_max(&self) -> u64 {
        let view = pinfold::status::endpoints_of(std::process::id()).expect("this process");
        let peer = view.endpoints.iter().flat_map(|endpoint| &endpoint.peers).next();
        peer.expect("the victim").waiting_max
    }
}
