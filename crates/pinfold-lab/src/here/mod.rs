//! Measurements on this machine. Each verifies the bytes that it moves, and says in words why it
//! could not measure.

pub mod blocks;
pub mod copying;
pub mod memory;
pub mod pinning;
pub mod remapping;
pub mod sends;
pub mod speeds;
pub mod timing;
