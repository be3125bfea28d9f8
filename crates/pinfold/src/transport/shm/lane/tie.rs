//! `Tie`: tells whether memory that one side gave is still as it was given, beyond the end of the
//! connection.
//!
//! A side that cuts the connection says so before it takes its memory back. A side that closes in
//! good order leaves the memory it gave as it is, until the other side has [let go](Tie) of all of
//! it, has closed the connection itself, or has ended. A side that died says nothing, and its
//! memory is not written any more.

use std::{mem, sync::Arc};

use pinfold_sys::fork::ForkMark;

use super::{super::segment::Segment, CLOSED, LET_GO_AT};
use crate::{sync::Ordering, wire::layout::Direction};

/// Held as long as memory that the producer gave is in use. When the last clone is dropped, the
/// producer is told that it can have all of it back.
#[derive(Clone)]
pub(crate) struct Tie(Arc<Knot>);

struct Knot {
    /// Present until the knot is dropped.
    segment: Option<Arc<Segment>>,
    /// The direction in which donated buffers come.
    way: Direction,
    /// `None` if this process cannot tell whether it is a child of `fork(2)`: then the producer is
    /// told nothing.
    mark: Option<ForkMark>,
}

impl Tie {
    pub(super) fn new(segment: &Arc<Segment>, way: Direction) -> Tie {
        Tie(Arc::new(Knot { segment: Some(Arc::clone(segment)), way, mark: ForkMark::new().ok() }))
    }

    /// Returns whether the memory may be its owner's again: either side has cut the connection, or
    /// this one has closed it.
    pub(crate) fn is_cut(&self) -> bool {
        self.closed().is_none_or(|[theirs, ours]| theirs == CLOSED || ours != 0)
    }

    /// Returns whether either side has closed or cut the connection: memory that was lent for as
    /// long as it lasts must not be used any more.
    pub(crate) fn is_over(&self) -> bool {
        self.closed().is_none_or(|words| words != [0; 2])
    }

    /// The words in which the producer and this side say that they have closed.
    fn closed(&self) -> Option<[u32; 2]> {
        let segment = self.0.segment.as_ref()?;
        let closed = |way: Direction| segment.word32(way.closed_at()).load(Ordering::Acquire);
        Some([closed(self.0.way), closed(self.0.way.reverse())])
    }
}

impl Drop for Knot {
    fn drop(&mut self) {
        if self.mark.as_ref().is_none_or(ForkMark::is_child) {
            // A forked child has no mapping of the segment.
            mem::forget(self.segment.take());
        } else if let Some(segment) = &self.segment {
            // This store comes after every read of the memory.
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
    /// Returns whether the consumer has let go of all memory that was given to it.
    pub(crate) fn is_let_go(&self) -> bool {
        let let_go = self.segment.word64(self.way.cursor_at() + LET_GO_AT);
        let closed = self.segment.word32(self.way.reverse().closed_at());
        let_go.load(Ordering::Acquire) != 0 || closed.load(Ordering::Acquire) != 0
    }
}
