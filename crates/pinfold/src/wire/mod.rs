//! Bytes that two processes share: descriptors, the segment layout, greetings.
//!
//! Nothing outside this module knows a byte offset. Every value a peer wrote is copied out once and
//! checked here before any other code sees it.

pub(crate) mod active;
pub(crate) mod change;
pub(crate) mod descriptor;
#[cfg(not(loom))]
pub(crate) mod hello;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod region;
pub(crate) mod rendezvous;
pub(crate) mod sample;
pub(crate) mod served_rma;
pub(crate) mod space;
#[cfg(not(loom))]
pub(crate) mod tcp;

/// Words of a body, and zeros behind them.
#[cfg(test)]
fn padded(words: &[u64]) -> descriptor::Body {
    let mut body = [0; layout::DESCRIPTOR_WORDS - 1];
    body[..words.len()].copy_from_slice(words);
    body
}
