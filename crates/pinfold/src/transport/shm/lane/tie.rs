//! Whether memory that one side gave is still what it gave, beyond the end of the connection.
//!
//! A side that cuts the connection says so before it takes its memory back. A side that closes in good
//! order leaves what it gave as it is, until the other side has [let go](Tie) of all of it, has closed the
//! connection itself, or has ended. A side that died says nothing, and nobody writes there.

use std::{mem, sync::Arc};

use pinfold_sys::fork::ForkMark;

use super::{super::segment::Segment, CLOSED, LET_GO_AT};
use crate::{sync::Ordering, wire::layout::Direction};

/// Held as long as memory that the producer gave is in use. When the last clone is dropped, the producer is told
/// that it can have all of it back.
#[derive(Clone)]
pub(crate) struct Tie(Arc<Knot>);

struct Knot {
    /// There until the knot is dropped.
    segment: Option<Arc<Segment>>,
    /// The way that donated buffers come.
    way: Direction,
    /// `None`: it cannot be told whether this is a child of `fork(2)`, so that the producer is told nothing.
    mark: Option<ForkMark>,
}

impl Tie {
    pub(super) fn new(segment: &Arc<Segment>, way: Direction) -> Tie {
        Tie(Arc::new(Knot { segment: Some(Arc::clone(segment)), way, mark: ForkMark::new().ok() }))
    }

    /// Whether the memory may be its owner's again: either side has cut the connection, or this one has closed it.
    pub(crate) fn is_cut(&self) -> bool {
        self.closed().is_none_or(|[theirs, ours]| theirs == CLOSED || ours != 0)
    }

    /// Whether either side has closed the connection, in whatever way: what was lent for as long as it lasts is not to
    /// be used any more.
    pub(crate) fn is_over(&self) -> bool {
        self.closed().is_none_or(|words| words != [0; 2])
    }

    /// What the producer and what this side said of that.
    fn closed(&self) -> Option<[u32; 2]> {
        let segment = self.0.segment.as_ref()?;
        let closed = |way: Direction| segment.word32(way.closed_at()).load(Ordering::Acquire);
        Some([closed(self.0.way), closed(self.0.way.reverse())])
    }
}

impl Drop for Knot {
    fn drop(&mut self) {
        if self.mark.as_ref().is_none_or(ForkMark::is_child) {
            // In a child the segment is not there.
            mem::forget(self.segment.take());
        } else if let Some(segment) = &self.segment {
            // After everything that was read of the memory.
            segment.word64(self.way.cursor_at() + LET_GO_AT).store(1, Ordering::Release);
        }
    }
}

/// The producer's side of a lane that it has closed.
pub(crate) struct Left {
    pub(super) segment: Arc<Segment>,
    pub(super) way: Direction,
}

impl Left {
    /// Whether the consumer has nothing any more of what was given to it.
    pub(crate) fn is_let_go(&self) -> bool {
        let let_go = self.segment.word64(self.way.cursor_at() + LET_GO_AT);
        let closed = self.segment.word32(self.way.reverse().closed_at());
        let_go.load(Ordering::Acquire) != 0 || closed.load(Ordering::Acquire) != 0
    }
}
