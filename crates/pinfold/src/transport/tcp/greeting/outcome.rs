//! The outcome of a greeting.

use super::SessionSecret;
use crate::{
    policy::route::PathSet,
    transport::local::Address,
    wire::tcp::{
        greeting::Role,
        offer::{ModeSet, Offer, Reached},
    },
};

/// A peer that has proved its key and waits to be let in.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub peer: Offer,
    /// The session it wants to go on with.
    pub resumes: Option<[u8; 16]>,
}

/// A pair that is ready to exchange frames.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "a pair stays on its connection, in the clear, and ends with it")
)]
#[derive(Debug)]
pub(crate) struct Agreed {
    pub role: Role,
    pub version: u16,
    /// True if both have shown a key.
    pub is_proved: bool,
    /// The peer's identity and offer.
    pub peer: Offer,
    /// True if both run on one host and see the same local endpoints.
    pub is_same_host: bool,
    /// The paths that neither has switched off, for a pair on one host.
    pub paths: PathSet,
    /// The modes that both can use over TCP.
    pub modes: ModeSet,
    /// True if the connection is to be encrypted from here on: both want it so.
    pub tls: bool,
    /// The ticket to go on with if the connection breaks.
    ///
    /// The accepting side knows a new session once it has seen the last packet of the greeting. If
    /// that was lost, it refuses to go on with it, and says which process it is: if that is
    /// still the same, nothing of the session has got there, and the connecting side may begin
    /// a new one with all of it.
    pub ticket: Ticket,
    /// The count of frames and bytes that the peer has received, if this goes on with a session.
    pub peer_received: Option<Reached>,
}

impl Agreed {
    /// The peer's address on this host, if it is here and has one.
    pub(crate) fn local_address(&self) -> Option<Address> {
        let local = self.peer.local.as_ref().filter(|_| self.is_same_host)?;
        format!("local:{}/{}", local.user, local.name).parse().ok()
    }
}

/// A ticket with which a side goes on with a session over a new connection.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub id: [u8; 16],
    pub secret: SessionSecret,
    /// The peer's endpoint and process: another one has not got this session.
    pub endpoint_id: [u8; 16],
    pub incarnation: u64,
    /// The count of frames and bytes that this side has received: to be set before it is used.
    pub received: Reached,
}

impl Ticket {
    pub(super) fn is_of(&self, peer: &Offer) -> bool {
        (self.endpoint_id, self.incarnation) == (peer.endpoint_id, peer.incarnation)
    }
}
