#![allow(unsafe_code)]
//! The back end that copies for the engine: threads, or hardware such as Intel's DSA or the copy
//! engines of GPUs.
//!
//! **Invariant.** Implementors of [`Backend`] make a promise that the engine cannot check: that
//! they are done with memory when they say so.

use std::sync::Arc;

use super::{Key, Work};

/// A part of some request, for a back end to do.
#[derive(Debug)]
pub struct Part {
    /// The key by which its completion names it.
    pub id: Key,
    /// The bytes to be copied or zeroed. Source and destination do not overlap.
    pub work: Work,
}

/// The end of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// So many bytes are in place, from the first on. If they are not all, the rest was not
    /// touched, or holds anything; the engine sees to it.
    Moved(usize),
    /// It failed. The bytes at its destination may be anything; the engine copies there itself.
    Failed,
}

/// A part has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The part's key.
    pub id: Key,
    /// The part's end.
    pub outcome: Outcome,
}

/// The abilities of a back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Parts that it does at the same time; up to twice as many are given to it. At least 1.
    pub lanes: usize,
    /// The longest part it takes, bytes.
    pub part_bytes_max: usize,
    /// True if it calls when there is something to poll. If not, requests go on while a thread
    /// polls or waits for one, or submits one.
    pub notifies: bool,
}

/// Is called when there is something to poll, with no lock of the back end held.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// Does the copying for a [`CopyEngine`](super::CopyEngine).
///
/// # Safety
/// A part that was taken completes in the end, with any outcome. It writes nothing but its
/// destination. Once its completion has been polled nothing touches its memory any more, and the
/// thread that polled can see the bytes written there.
pub unsafe trait Backend: Send + Sync + 'static {
    /// Constant.
    fn capabilities(&self) -> Capabilities;

    /// Is called once, before anything else.
    fn start(&self, notify: Notify);

    /// Takes a part and returns at once, without calling [`Notify`].
    ///
    /// # Errors
    /// The part, if there is no room for it: it is given again after a completion, or done without.
    ///
    /// # Safety
    /// The part's memory may be used, by nothing else, until its completion has been polled.
    unsafe fn submit(&self, part: Part) -> Result<(), Part>;

    /// Hands out the completions that were not handed out yet.
    fn poll(&self, done: &mut dyn FnMut(Completion));

    /// Does one of the parts it has taken in the calling thread, if it can, before it returns.
    fn help(&self) -> bool {
        false
    }

    /// Nothing more will be submitted, and nothing is on the way. Not called in the back end's
    /// locks.
    fn stop(&self);
}
