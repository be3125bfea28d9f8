//! Lists of segments for the kernel, which goes by addresses alone (`process_vm_readv(2)`):
//! adjacent segments are joined.
//!
//! Each side of a call has a list of its own, and the bytes of one go to those of the other in
//! order, wherever they lie. So each is joined by itself.

use pinfold_sys::process::{RemoteSegment, Segment};
use smallvec::SmallVec;

/// Segments of one call, on either side.
pub(crate) const SEGMENTS_A_CALL: usize = 64;

/// Segments of one call, on one side.
pub(crate) type List<S> = SmallVec<[S; 4]>;

/// A segment on this side or the other.
pub(crate) trait Join: Copy {
    /// Makes `next` part of this, if it begins where this ends.
    fn join(&mut self, next: Self) -> bool;
}

impl Join for Segment {
    fn join(&mut self, next: Segment) -> bool {
        let joins = self.ptr.addr().checked_add(self.len) == Some(next.ptr.addr());
        if joins {
            // The pointer to the first part is none to the second. Exposed, both are reached by
            // their addresses, as the kernel does.
            self.ptr.expose_provenance();
            next.ptr.expose_provenance();
            self.len += next.len;
        }
        joins
    }
}

impl Join for RemoteSegment {
    fn join(&mut self, next: RemoteSegment) -> bool {
        // Both are a peer's words: a sum that overflows keeps them apart.
        let joins = self.addr.checked_add(self.len) == Some(next.addr);
        let len = self.len.checked_add(next.len).filter(|_| joins);
        self.len = len.unwrap_or(self.len);
        len.is_some()
    }
}

/// Puts `next`, of some bytes, at the end of the list of a call. Returns whether there was room.
pub(crate) fn push<S: Join>(list: &mut List<S>, next: S) -> bool {
    if list.last_mut().is_some_and(|last| last.join(next)) {
        return true;
    }
    let room = list.len() < SEGMENTS_A_CALL;
    if room {
        list.push(next);
    }
    room
}

#[cfg(all(test, not(loom)))]
mod tests;
