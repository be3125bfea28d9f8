//! The helpers that the whole-system tests share.
//!
//! A test is a play: the test function is the director. It opens a [`Stage`], casts [roles](role)
//! as processes of their own (the test binary runs itself again), tells them when to go on, and
//! watches the clock. The endpoints live in the roles alone, so a test can kill them, starve them,
//! take system calls from them, and compare their descriptors and mappings before and after.
//!
//! No test can hang: every wait of the director has the stage's deadline, and roles end with it.

pub mod again;
pub mod aligned;
pub mod baseline;
pub mod block_on;
pub mod changes;
pub mod figures;
pub mod filter;
pub mod ground;
pub mod group;
#[cfg(doctest)]
pub mod guide;
pub mod host;
pub mod huge;
pub mod network;
pub mod pair;
pub mod remote;
pub mod role;
pub mod seen;
pub mod skip;
pub mod stage;
pub mod stamp;

pub use self::{
    again::again,
    aligned::Aligned,
    baseline::Baseline,
    block_on::block_on,
    network::Network,
    pair::{Pair, driven, pair, progress_until, tcp_pair, wait_for_empty},
    role::Args,
    seen::{status_of, until},
    skip::skip,
    stage::Stage,
};
