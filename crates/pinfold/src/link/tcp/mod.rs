//! Peers on other hosts: connections that carry what lanes carry within one.
//!
//! - [`bridge`]: a lane whose other end is in this process, and goes on over a connection.

pub(crate) mod bridge;
