//! The reason why a message was not folded.

use std::fmt;

use thiserror::Error;

/// The reason why a message was not folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FoldError {
    /// There is no memory to copy it to.
    #[error("no memory for a message of {bytes} bytes")]
    NoMemory {
        /// Its length, bytes.
        bytes: u64,
    },
    /// The folder was made by this process's parent, and so was the message's memory.
    #[error("the folder was made before a fork, by the parent: make another one")]
    Child,
    /// The caller's memory is shorter than the message.
    #[error("{bytes} bytes do not fit into {room}")]
    Short {
        /// Bytes of the message.
        bytes: u64,
        /// Bytes of the memory.
        room: u64,
    },
}

/// A message that was not folded, as it was.
pub struct Unfolded<M> {
    /// The reason.
    pub error: FoldError,
    /// The message.
    pub message: M,
}

impl<M> fmt::Debug for Unfolded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unfolded").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<M> fmt::Display for Unfolded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<M> std::error::Error for Unfolded<M> {}

impl<M> From<Unfolded<M>> for FoldError {
    fn from(unfolded: Unfolded<M>) -> FoldError {
        unfolded.error
    }
}
