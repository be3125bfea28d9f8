//! What was received, and when to say so.

use super::{Bounds, Violation};

/// Up to where everything was received, and up to where the peer was told.
#[derive(Debug)]
pub(crate) struct Inbox {
    received: u64,
    told: u64,
    /// Received since the peer was told.
    bytes: u64,
    /// The peer has sent again what was received: it has not been told.
    repeats: bool,
    every_frames: u64,
    every_bytes: u64,
}

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is the next one. Once it is there as a whole, say so: [`Inbox::received`].
    Deliver,
    /// It was received before: its payload is to be read and dropped.
    Duplicate,
    /// One before it is missing.
    Gap(Violation),
}

impl Inbox {
    pub(super) fn new(bounds: Bounds) -> Inbox {
        Inbox {
            received: 0,
            told: 0,
            bytes: 0,
            repeats: false,
            every_frames: bounds.acknowledge_every_frames,
            every_bytes: bounds.acknowledge_every_bytes,
        }
    }

    /// The number of the last frame that was received; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.received
    }

    /// What to do with the frame of this number, whose head has come.
    pub(crate) fn accept(&mut self, seq: u64) -> Verdict {
        if seq <= self.received {
            self.repeats = true;
            return Verdict::Duplicate;
        }
        match self.received + 1 {
            expected if expected == seq => Verdict::Deliver,
            expected => Verdict::Gap(Violation::Gap { seq, expected }),
        }
    }

    /// The frame of this number is there as a whole, with `bytes` of payload.
    ///
    /// # Panics
    /// If it is not the next one.
    pub(crate) fn received(&mut self, seq: u64, bytes: u64) {
        assert_eq!(seq, self.received + 1, "a frame was received out of turn");
        self.received = seq;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether the peer should be told now, in a frame of its own if there is no other.
    pub(crate) fn is_due(&self) -> bool {
        self.received - self.told >= self.every_frames || self.bytes >= self.every_bytes
    }

    /// Whether there is anything that the peer was not told: it should be when there is nothing else to
    /// do.
    pub(crate) fn owes(&self) -> bool {
        self.repeats || self.told < self.received
    }

    /// The number to put into a frame, or into the next greeting. The peer is then told.
    pub(crate) fn tell(&mut self) -> u64 {
        (self.told, self.bytes, self.repeats) = (self.received, 0, false);
        self.received
    }
}
