//! Sizing: modes and budgets for a program, by the library's own policies on a trace, and how far
//! the answer hangs on each input.
//!
//! - [`inputs`](Inputs): the program. [`trace`](Trace): the buffers of its messages.
//! - [`pins`], [`tlb`]: the pin-down cache and a network interface's TLB, replayed.
//! - [`thresholds`]: the lengths at which the cost model changes its mind.
//! - [`answer`](Answer): all figures, each with its source; the answer for varied inputs.
//!
//! Nothing is measured, and nothing of this machine counts: the costs are those that the library
//! begins with.

mod answer;
mod inputs;
pub mod pins;
#[cfg(test)]
mod testing;
pub mod thresholds;
pub mod tlb;
mod trace;

pub use self::{
    answer::{Answer, Change, Datum, Figure, Varied, answer, vary},
    inputs::{BYTES_MAX, Input, Inputs, PARTS_MAX, PEERS_MAX, Part, Wrong, bytes_of},
    trace::{Trace, Used},
};
