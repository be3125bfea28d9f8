//! Finding and greeting peers on other hosts, and what keeps a pair's messages in order when the
//! connection between them breaks. Nothing here does I/O: bytes, events and times go in, bytes and
//! decisions come out.
//!
//! An endpoint is called by host and port ([`address`]). Who shares its key ([`key`]) may connect, which
//! both sides prove before anything else ([`greeting`]). Messages outlive a connection that breaks
//! ([`session`]).

pub(crate) mod address;
pub(crate) mod greeting;
pub(crate) mod key;
pub(crate) mod session;
