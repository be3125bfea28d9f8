//! Bytes that processes on two hosts share: the greeting, frames. All numbers are little-endian.
//!
//! As everywhere in `wire`, what came is decoded from a copy, and every value of it is checked. There
//! are no bytes that do not count: what is not used has to be zero.

pub(crate) mod frame;
pub(crate) mod greeting;
pub(crate) mod offer;
