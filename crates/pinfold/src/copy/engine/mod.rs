#![allow(unsafe_code)]
//! The copy engine: copies that go on while their callers do something else.
//!
//! After the memory controller's copy engine of Calhoun, *Characterization of Block Memory
//! Operations*, chapter 6: requests are queued and complete by poll, wake-up or callback; the queue
//! has a bound; a caller that finds it full copies by itself; requests that overlap are kept in
//! their order. The hardware or threads that copy are behind a trait, [`Backend`].
//!
//! **Invariant.** The safe functions let the engine reach only memory that their requests own or
//! borrow until they have ended; [`CopyEngine::submit`] leaves that to its caller.

mod backend;
mod core;
mod queue;
mod request;
mod scope;
mod slots;
#[cfg(test)]
mod tests;
mod threads;
mod watch;
mod work;

use std::{fmt, sync::Arc};

pub use self::{
    backend::{Backend, Capabilities, Completion, Notify, Outcome, Part},
    queue::EngineCounts,
    request::{Cancelled, CopyRequest, Ticket, Unequal},
    scope::{CopyScope, ScopedCopy},
    slots::Key,
    threads::Threads,
    work::Work,
};
use self::{core::Core, queue::Queue};

/// Settings of a [`CopyEngine`].
///
/// ```
/// use pinfold::{CopyEngine, EngineConfig};
///
/// let config = EngineConfig { threads: 1, bytes_min: 64 << 10, ..EngineConfig::default() };
/// let engine = CopyEngine::new(config);
/// assert!(engine.copy(vec![1; 1000], vec![0; 1000]).is_ok());
/// assert_eq!(engine.counts().short, 1); // Shorter than `bytes_min`, it is done at once.
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Threads that copy: 1 to 64. One less than there are processors, if not set, for a waiting
    /// thread copies as well.
    pub threads: usize,
    /// Requests that may be queued: 0 to 4096. 64 if not set. To submit one takes a look at each.
    pub queue_max: usize,
    /// Shorter requests are done by their submitter, bytes. 256 KiB if not set.
    pub bytes_min: usize,
    /// Requests are split into parts of at least so many bytes: 4 KiB or more. 256 KiB if not set.
    pub part_bytes_min: usize,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        EngineConfig {
            threads: processors.saturating_sub(1).max(1),
            queue_max: 64,
            bytes_min: 256 << 10,
            part_bytes_min: 256 << 10,
        }
    }
}

/// The treatment of requests that are open when an engine is shut down.
///
/// ```
/// use pinfold::{CopyEngine, EngineConfig, Shutdown};
///
/// let engine = CopyEngine::new(EngineConfig::default());
/// let copying = engine.copy(vec![1; 8 << 20], vec![0; 8 << 20]).expect("they are of one length");
/// engine.shut_down(Shutdown::Finish); // `Shutdown::Cancel` would end it in the middle.
/// let (result, from, to) = copying.wait().expect("its result was not taken before");
/// assert!(result.is_ok() && from == to);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// They are finished.
    Finish,
    /// Their parts that have not been started are cancelled.
    Cancel,
}

/// Makes copies in the background.
///
/// A request whose memory overlaps that of earlier ones takes effect after them; all others may
/// overtake each other. Copies that are short, that find the queue full, or whose source and
/// destination overlap are made at once, in the calling thread, after those they overlap with. A
/// copy does not fail: the engine does the parts that the back end cannot do.
///
/// Dropping it finishes all open requests. In a process forked from its own it copies at once, and
/// requests from before count as cancelled.
///
/// ```
/// use pinfold::{CopyEngine, EngineConfig};
///
/// let engine = CopyEngine::new(EngineConfig::default());
/// let copying = engine.copy(vec![7; 8 << 20], vec![0; 8 << 20]).expect("they are of one length");
/// // The program does something else here, while threads of the engine copy.
/// let (result, from, to) = copying.wait().expect("its result was not taken before");
/// assert!(result.is_ok() && from == to);
///
/// let mut zeroed = [1; 100];
/// engine.scope(|scope| drop(scope.zero(&mut zeroed))); // In a scope memory may be borrowed.
/// assert_eq!(zeroed, [0; 100]);
/// ```
pub struct CopyEngine {
    core: Arc<Core>,
}

impl CopyEngine {
    /// An engine with threads, which start with the first copy for them. Settings beyond their
    /// limits count as the limit.
    pub fn new(config: EngineConfig) -> CopyEngine {
        CopyEngine::with_backend(Threads::new(config.threads.clamp(1, 64)), config)
    }

    /// An engine with another back end.
    pub fn with_backend(backend: impl Backend, config: EngineConfig) -> CopyEngine {
        let queue = Queue::new(config.queue_max.min(4096), config.part_bytes_min.max(4096));
        CopyEngine { core: Core::start(Box::new(backend), queue, config.bytes_min) }
    }

    /// Submits a copy between two buffers that the request owns. Some hundred nanoseconds, or as
    /// long as the copy takes if it is made at once.
    ///
    /// # Errors
    /// `Unequal`, with the buffers, if they differ in length.
    pub fn copy<S, D>(&self, from: S, to: D) -> Result<CopyRequest<S, D>, Unequal<S, D>>
    where
        S: AsRef<[u8]> + Send + 'static,
        D: AsMut<[u8]> + Send + 'static,
    {
        CopyRequest::submit(&self.core, from, to)
    }

    /// Runs `f` with a scope, in which copies may borrow their memory. All of them have ended when
    /// this returns; if `f` panics, those that have not been started are cancelled.
    pub fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope CopyScope<'scope, 'env>) -> R,
    ) -> R {
        scope::run(&self.core, f)
    }

    /// Submits work of any kind, as raw as it is.
    ///
    /// # Safety
    /// Until the request has ended the source must be readable and the destination writable, and
    /// nothing in this process may write the source or touch the destination, but other requests to
    /// this engine. Other processes may: then any mixture may arrive.
    pub unsafe fn submit(&self, work: Work) -> Ticket {
        // SAFETY: as the caller promised.
        unsafe { Ticket::submit(&self.core, work) }
    }

    /// Makes progress where the back end does not say when there is some to be made.
    pub fn turn(&self) {
        if !self.core.is_child() {
            self.core.turn();
        }
    }

    /// The counts of the requests that it has done.
    pub fn counts(&self) -> EngineCounts {
        self.core.counts()
    }

    /// Ends everything that is open, waits for that, and ends the threads. Copies are made at once
    /// from now on.
    pub fn shut_down(&self, how: Shutdown) {
        self.core.shut_down(how == Shutdown::Cancel);
    }
}

impl Drop for CopyEngine {
    fn drop(&mut self) {
        self.shut_down(Shutdown::Finish);
    }
}

impl fmt::Debug for CopyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyEngine").finish_non_exhaustive()
    }
}
