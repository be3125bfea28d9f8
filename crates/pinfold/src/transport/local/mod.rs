//! Peers on this host: how they find and greet each other.
//!
//! A name is a socket file in a directory that only its owner can enter ([`directory`]), or, if an
//! access rule admits others, in one that they may pass through. The kernel reports the connecting
//! process's user, which is checked against the rule ([`access`]). The two sides then introduce
//! themselves, hand over the segment and find out by trying which paths the pair has ([`proof`],
//! [`handshake`]), in memory that a peer may touch at any time ([`slots`]).

pub(crate) mod access;
pub(crate) mod address;
pub(crate) mod directory;
pub(crate) mod fickle;
pub(crate) mod handshake;
pub(crate) mod listener;
pub(crate) mod proof;
pub(crate) mod slots;

pub use access::{Access, Who};
pub use address::Address;
pub(crate) use handshake::{Established, Handshake, Side, Us};
pub(crate) use listener::Listener;

pub(crate) use crate::wire::hello::Limits;
