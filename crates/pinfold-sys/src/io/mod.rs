//! Waiting for descriptors, and rings of the kernel.

pub mod alarm;
pub mod pipe_bell;
pub mod poll;
pub mod send_ring;
