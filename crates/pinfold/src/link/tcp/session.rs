//! Exactly once, in order, over connections that break.
//!
//! Frames are numbered from 1 on for as long as a session lasts, over however many connections. Each side
//! keeps what it has sent until the other side says that it has received it ([`outbox`]); data may stay
//! in the sender's memory, since what is kept is a descriptor. Each side knows the last number that it
//! has received ([`inbox`]), says so in every frame, and in the greeting of the next connection: from
//! there the other side sends again.
//!
//! A frame is received once all of its payload is where it belongs, not when its head has come: one that
//! breaks off in the middle is sent again as a whole.

use crate::wire::tcp::offer::SEQ_MAX;

pub(crate) mod inbox;
pub(crate) mod outbox;
#[cfg(test)]
mod tests;

use inbox::Inbox;
use outbox::Outbox;

/// Both directions of a session, which begins with nothing sent and nothing received. `P` says where
/// a frame and its payload are.
#[derive(Debug)]
pub(crate) struct Session<P> {
    pub outbox: Outbox<P>,
    pub inbox: Inbox,
}

/// What a session may hold back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Frames that were sent and not acknowledged, at most.
    pub unacknowledged_frames_max: usize,
    /// Bytes of them, at most; a frame that is alone may be longer.
    pub unacknowledged_bytes_max: u64,
    /// After how many frames received an acknowledgement is due; fewer than the other side may have
    /// unacknowledged, or it waits for one that only an idle receiver sends.
    pub acknowledge_every_frames: u64,
    /// After how many bytes received it is due.
    pub acknowledge_every_bytes: u64,
}

/// What no honest peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it acknowledges frame {upto}, but {sent} is the last that was sent")]
    NeverSent { upto: u64, sent: u64 },
    #[error("it acknowledges frame {upto}, but has acknowledged {acknowledged} before")]
    TakenBack { upto: u64, acknowledged: u64 },
    #[error("it sends frame {seq} where {expected} is next")]
    Gap { seq: u64, expected: u64 },
}

impl<P> Session<P> {
    pub(crate) fn new(bounds: Bounds) -> Session<P> {
        Session { outbox: Outbox::new(bounds), inbox: Inbox::new(bounds) }
    }
}

// Numbers do not wrap: at a frame a nanosecond they last 292 years.
const _: () = assert!(SEQ_MAX == i64::MAX as u64);
