//! Connections that are encrypted: TLS 1.3 (RFC 8446), bound to the shared key.
//!
//! # The design
//!
//! There are no certificates. A peer may connect if it has the [key](super::key), which both sides
//! prove in the [greeting](super::greeting) before any other bytes are looked at; both offers say
//! there, under those proofs, whether the connection is to be encrypted. If both want that, the
//! last word of the greeting is followed by a TLS handshake, in which the connecting side is the
//! client. Its keys are drawn afresh by both (X25519), and forgotten with the connection. The
//! server signs with a raw public key (RFC 7250) that its process drew when it first needed one,
//! and that no peer has to know: by itself it proves nothing.
//!
//! The proof is the *channel binding* (RFC 9266, `tls-exporter`). The first bytes that each side
//! sends within the channel are an HMAC under the shared key over the whole greeting and 32 bytes
//! that TLS derives from its handshake (`EXPORTER-Channel-Binding`). Both ends of one channel have
//! the same 32 bytes, and no other process has them. An attacker in the middle that passes the
//! greeting on and ends the channel itself has two channels, with two different values; for either
//! it lacks the HMAC, for it lacks the key. So each side knows that the channel ends where the
//! greeting did, before it sends or takes any frame.
//!
//! # Why so
//!
//! - The greeting comes first, and not within TLS. A stranger never gets to speak to the TLS
//!   library: its bytes stay at 324, and cost no signature. The price is that a listener on the way
//!   sees what the two offer each other (labels, limits), as without TLS, and one or two more round
//!   trips.
//! - There is no downgrade. Each side's wish is under the proofs of the greeting, and a side that
//!   wants encryption refuses one that does not, and the other way round.
//! - There is no resumption of TLS, and no early data: each connection of a pair has a handshake
//!   and keys of its own.
//! - Without a key (loopback addresses only) the binding proves nothing, as the greeting does not.
//!   The channel is then safe from an eavesdropper, not from an attacker in its middle.
//!
//! The end of a connection is said by a frame, within the channel. One that ends without it has
//! broken, so no attacker on the way can cut a message off unnoticed; `close_notify` is not needed.
//! A record that was altered breaks the connection, too (`EBADMSG`): the pair goes on over another
//! one, and nothing of that record is delivered.
//!
//! X25519 does not protect recorded traffic from a later quantum computer.
//!
//! - [`Session`]: one side of a channel, without I/O. [`Securing`]: its establishment, without I/O.
//!   `identity`: the configuration of both. `absent`: the sessions that there are without the
//!   feature `tls`: none.

#[cfg(not(feature = "tls"))]
mod absent;
#[cfg(feature = "tls")]
mod identity;
mod securing;
#[cfg(feature = "tls")]
mod session;
#[cfg(all(test, feature = "tls"))]
pub(crate) mod tests;

#[cfg(not(feature = "tls"))]
use self::absent as session;

pub(crate) use self::{
    securing::{Binding, Securing, Trouble},
    session::{RECORD_BYTES, Session},
};

/// Bytes of the value that both ends of a channel derive from it.
pub(crate) const EXPORTED_BYTES: usize = 32;
