//! Peers on other hosts: finding and greeting them, and connections that do the work of lanes
//! between hosts.
//!
//! An endpoint is called by host and port ([`address`]). A peer that shares its key ([`key`]) may
//! connect, which both sides prove before anything else ([`greeting`], which has no I/O;
//! [`handshake`] drives it over a connection, [`listener`] takes callers, [`unauthenticated`] says
//! which of them make room for others). A name may stand for several addresses: [`happy_eyeballs`]
//! says which to call when, [`dial`] does. From then on a pair has a lane whose other end is in
//! this process, and goes on over the [`connection`] ([`bridge`]), which is encrypted if both want
//! it so ([`tls`]). Long messages leave by [`transmit`]. If the connection breaks, the side that
//! had connected calls again ([`reconnect`] says when, [`lookup`] where), and the pair goes on
//! where it was. [`keep_alive`] finds out that the other end does not answer any more.
//! [`congestion`] leaves the sending rate to the host, but for short routes.

pub(crate) mod address;
pub(crate) mod bridge;
pub(crate) mod congestion;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod greeting;
pub(crate) mod handshake;
pub(crate) mod happy_eyeballs;
pub(crate) mod host;
pub(crate) mod keep_alive;
pub(crate) mod key;
pub(crate) mod listener;
pub(crate) mod lookup;
pub(crate) mod reconnect;
pub(crate) mod tls;
pub(crate) mod transmit;
pub(crate) mod unauthenticated;
