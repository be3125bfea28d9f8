//! Completion queues: the ends of many operations, in the order in which they ended.
//!
//! - `queue`: the queue that programs hold.
//! - `entry`: one completion.
//! - `taker`: an operation whose result goes to a queue.

mod entry;
mod queue;
mod taker;

pub use self::{
    entry::{Completed, Completion},
    queue::CompletionQueue,
    taker::Queueable,
};
