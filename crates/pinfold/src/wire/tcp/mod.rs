//! Bytes that processes on two hosts share: the greeting, frames. All numbers are little-endian.
//!
//! As everywhere in `wire`, bytes are decoded from a copy, and every value is checked. No byte is
//! ignored: unused ones have to be zero.

pub(crate) mod frame;
pub(crate) mod greeting;
pub(crate) mod offer;
