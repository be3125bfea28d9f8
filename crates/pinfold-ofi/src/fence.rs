//! Operations that wait until all before them have ended (`FI_FENCE`).
//!
//! One waits at a time. The program has to try again with later ones meanwhile, so these are
//! deferred, too.

use crate::{ffi::flags::FI_FENCE, state::Inside};

/// A function that begins an operation.
type Begin = Box<dyn FnOnce(&mut Inside<'_>) + Send>;

/// The operation that waits, if one does.
#[derive(Default)]
pub struct Fence(Option<Begin>);

impl Fence {
    /// Returns whether an operation waits.
    pub fn is_up(&self) -> bool {
        self.0.is_some()
    }
}

impl Inside<'_> {
    /// Begins an operation that is on the table: now, or if it is fenced once no other is there.
    #[inline]
    pub fn begin(&mut self, flags: u64, begin: impl FnOnce(&mut Inside<'_>) + Send + 'static) {
        if flags & FI_FENCE == 0 || self.state.ops.sends <= 1 {
            begin(self);
        } else {
            self.state.fence = Fence(Some(Box::new(begin)));
        }
    }

    /// Begins the operation that waits, if no other is left. It may have ended itself.
    pub fn lower_fence(&mut self) {
        if self.state.ops.sends <= 1
            && let Some(begin) = self.state.fence.0.take()
        {
            begin(self);
        }
    }
}
