//! What was sent and may have to be sent again.

use std::collections::VecDeque;

use super::{Bounds, SEQ_MAX, Violation};

/// Frames in the order of their numbers, from the first that is not acknowledged to the last that was
/// sent.
///
/// *Invariant.* It holds exactly the frames `acknowledged + 1 ..= acknowledged + frames.len()`.
#[derive(Debug)]
pub(crate) struct Outbox<P> {
    acknowledged: u64,
    frames: VecDeque<(u64, P)>,
    /// Of all of them together.
    bytes: u64,
    frames_max: usize,
    bytes_max: u64,
}

/// There is no room until something is acknowledged; what was to be sent is given back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full<P>(pub P);

impl<P> Outbox<P> {
    pub(super) fn new(bounds: Bounds) -> Outbox<P> {
        Outbox {
            acknowledged: 0,
            frames: VecDeque::new(),
            bytes: 0,
            frames_max: bounds.unacknowledged_frames_max,
            bytes_max: bounds.unacknowledged_bytes_max,
        }
    }

    /// The number of the last frame; 0 if there was none.
    pub(crate) fn last(&self) -> u64 {
        self.acknowledged + self.frames.len() as u64
    }

    /// Frames that are kept, and bytes of them.
    pub(crate) fn held(&self) -> (usize, u64) {
        (self.frames.len(), self.bytes)
    }

    /// Whether a frame of so many bytes may be sent now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let fits = self.bytes.checked_add(bytes).is_some_and(|all| all <= self.bytes_max);
        self.frames.len() < self.frames_max
            && (fits || self.frames.is_empty())
            && self.last() < SEQ_MAX
    }

    /// Keeps a frame that is about to be sent: its number.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn push(&mut self, bytes: u64, what: P) -> Result<u64, Full<P>> {
        if !self.has_room(bytes) {
            return Err(Full(what));
        }
        self.frames.push_back((bytes, what));
        self.bytes += bytes;
        Ok(self.last())
    }

    /// The peer has received all frames up to this number: what they were is released, in order.
    ///
    /// # Errors
    /// A [`Violation`]; nothing is released then.
    pub(crate) fn acknowledge(
        &mut self,
        upto: u64,
        mut release: impl FnMut(P),
    ) -> Result<(), Violation> {
        if upto > self.last() {
            return Err(Violation::NeverSent { upto, sent: self.last() });
        }
        if upto < self.acknowledged {
            return Err(Violation::TakenBack { upto, acknowledged: self.acknowledged });
        }
        while self.acknowledged < upto {
            let Some((bytes, what)) = self.frames.pop_front() else { break };
            self.acknowledged += 1;
            self.bytes -= bytes;
            release(what);
        }
        Ok(())
    }

    /// The peer goes on over another connection, and has received all frames up to this number: those to
    /// be sent again, in order, with their numbers.
    ///
    /// # Errors
    /// As [`Outbox::acknowledge`].
    pub(crate) fn resume(
        &mut self,
        received: u64,
        release: impl FnMut(P),
    ) -> Result<impl Iterator<Item = (u64, &P)>, Violation> {
        self.acknowledge(received, release)?;
        Ok((received + 1..).zip(self.frames.iter().map(|(_, what)| what)))
    }
}
