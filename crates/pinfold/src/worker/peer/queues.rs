//! The queues of sends and of control descriptors before a peer, and the obstacles to a message
//! that would go at once.
//!
//! **Invariant.** [`Obstacles`] repeats in one byte, near the lane's end, what the queues and the
//! end of the connection say: everything that changes those stands here.

use std::collections::VecDeque;

use super::Peer;
use crate::{
    Gone, Path,
    policy::route::Permissions,
    wire::descriptor::{Body, Header},
    worker::op::OpKey,
};

/// A descriptor that answers the peer, waiting for room.
pub(crate) struct Control {
    pub header: Header,
    pub body: Body,
    pub words: usize,
}

/// The reasons why a message must not go at once, one bit each.
#[derive(Clone, Copy)]
pub(super) struct Obstacles(u8);

impl Obstacles {
    /// The peer is being let go.
    const LEAVING: u8 = 1;
    /// Sends are queued.
    const SENDS: u8 = 2;
    /// Control descriptors are queued.
    const CONTROLS: u8 = 4;
    /// Short messages may not go in their descriptors.
    const NO_INLINE: u8 = 8;

    pub(super) fn of(permissions: &Permissions) -> Obstacles {
        Obstacles(if permissions.may(Path::Inline) { 0 } else { Obstacles::NO_INLINE })
    }

    #[inline(always)]
    fn note(&mut self, obstacle: u8, is_there: bool) {
        self.0 = if is_there { self.0 | obstacle } else { self.0 & !obstacle };
    }
}

impl Peer {
    /// Returns whether nothing stands before a new message.
    #[inline(always)]
    pub(crate) fn is_clear(&self) -> bool {
        self.obstacles.0 & !Obstacles::NO_INLINE == 0
    }

    /// The same for a message that goes in its descriptor, as the pair allows.
    #[inline(always)]
    pub(crate) fn is_clear_inline(&self) -> bool {
        self.obstacles.0 == 0
    }

    /// Returns whether the peer is being let go.
    #[inline(always)]
    pub(crate) fn is_leaving(&self) -> bool {
        self.obstacles.0 & Obstacles::LEAVING != 0
    }

    /// How the peer is being let go, if it is.
    pub(crate) fn leaving(&self) -> Option<Gone> {
        self.leaving
    }

    /// The peer is being let go, `how`.
    pub(crate) fn leave(&mut self, how: Gone) {
        self.leaving = Some(how);
        self.obstacles.note(Obstacles::LEAVING, true);
    }

    /// Sends that have descriptors to write, in order, but for those that the peer has asked for.
    pub(crate) fn sends(&self) -> &VecDeque<OpKey> {
        &self.sends
    }

    /// Queues a send behind the others.
    pub(crate) fn queue_send(&mut self, key: OpKey) {
        self.sends.push_back(key);
        self.obstacles.note(Obstacles::SENDS, true);
    }

    /// The send that is next to write.
    pub(crate) fn next_send(&self) -> Option<OpKey> {
        self.asked.front().or(self.sends.front()).copied()
    }

    /// Takes the send that is next to write off its queue.
    pub(crate) fn pass_send(&mut self) {
        if self.asked.pop_front().is_none() {
            self.sends.pop_front();
            self.obstacles.note(Obstacles::SENDS, !self.sends.is_empty());
        }
    }

    /// Takes a send off the queue, wherever it stands there.
    pub(crate) fn unqueue_send(&mut self, key: OpKey) {
        self.sends.retain(|queued| *queued != key);
        self.obstacles.note(Obstacles::SENDS, !self.sends.is_empty());
    }

    /// Control descriptors that wait for room.
    pub(crate) fn controls(&self) -> usize {
        self.controls.len()
    }

    /// Queues a control descriptor.
    pub(crate) fn queue_control(&mut self, control: Control) {
        self.controls.push_back(control);
        self.obstacles.note(Obstacles::CONTROLS, true);
    }

    /// Takes the first control descriptor off the queue.
    pub(crate) fn next_control(&mut self) -> Option<Control> {
        let control = self.controls.pop_front();
        self.obstacles.note(Obstacles::CONTROLS, !self.controls.is_empty());
        control
    }
}
