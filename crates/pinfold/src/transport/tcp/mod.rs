//! Peers on other hosts: finding and greeting them, and connections that carry what lanes carry within one
//! host.
//!
//! An endpoint is called by host and port ([`address`]). Who shares its key ([`key`]) may connect,
//! which both sides prove before anything else ([`greeting`], which has no I/O; [`handshake`]
//! drives it over a connection, [`listener`] takes callers, [`unauthenticated`] says who of them
//! makes room for others). A name may stand for several addresses: [`happy_eyeballs`] says which to
//! call when, [`dial`] does. From then on a pair has a lane whose other end is in this process, and
//! goes on over the [`connection`] ([`bridge`]), which is encrypted if both want it so ([`tls`]).
//! Long messages leave by an [`transmit`]. If the connection breaks, whoever had connected calls
//! again ([`reconnect`] says when, [`lookup`] where), and the pair goes on where it was. That the
//! other end does not answer any more, [`keep_alive`] finds out. How fast it is sent to,
//! [`congestion`] leaves to the host, but for short routes.

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
