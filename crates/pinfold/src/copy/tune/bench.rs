//! The interface to what measures, and why nothing can be measured.

use pinfold_sys::cpu::block::Algorithm;

use super::case::Case;

/// The bench that measures. One for this machine, and one for tests.
pub(super) trait Bench {
    /// Does `case` by `algorithm` once, and returns how long that took with the reading after it,
    /// nanoseconds a block. `None` if the case cannot be made here.
    fn run(&mut self, case: &Case, algorithm: Algorithm) -> Option<f64>;

    /// Moves to other memory for the runs from now on.
    fn move_on(&mut self);

    /// Nanoseconds from this core to the one that reads. `None` if there is none.
    fn hop_ns(&mut self) -> Option<f64>;

    /// Some clock, nanoseconds.
    fn now_ns(&mut self) -> u64;
}

/// Nothing could be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotTune {
    /// There is no memory to copy.
    #[error("no memory for the {0} bytes that are copied")]
    NoMemory(usize),
    /// There is no instruction to empty the caches with.
    #[error("this processor has no instruction that empties its caches")]
    NoFlush,
    /// No thread could be started.
    #[error("no thread could be started: {0}")]
    NoThread(String),
}
