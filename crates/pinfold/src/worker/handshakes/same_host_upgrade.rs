//! Same-host upgrade: peers that were called by host and port, are on this host, and may be reached
//! as such.
//!
//! An endpoint that listens at `tcp:` also listens at a local name, and tells it to a peer that has
//! shown the key. The connecting side then greets there, while its greeting over the connection
//! waits for its last word. If it meets the same endpoint, it closes the connection without that
//! word, so no peer joins by it; if not, it sends the word, and the pair stays on the connection.
//! So a message can only be sent when that is decided.

use pinfold_sys::io::poll::{Epoll, Interest};
use rustix::io::Errno;

use super::Handshake;
use crate::{
    Error, Refusal,
    transport::{
        local::{self, Limits, Us},
        tcp::handshake::Here,
    },
    worker::pending_peer::PendingPeer,
};

/// How long the peer may take there. It has just answered, and its own greeting has five seconds.
const PATIENCE_NS: u64 = 1_000_000_000;

/// A greeting with a peer on this host that was called by host and port.
pub(crate) struct SameHostUpgrade {
    host: local::Handshake,
    endpoint_id: [u8; 16],
}

/// The result of a step.
pub(super) enum Tried {
    More,
    There(Box<PendingPeer>),
    /// The peer cannot be reached that way.
    Not(Refusal),
}

impl SameHostUpgrade {
    pub(super) fn deadline_ns(&self) -> u64 {
        self.host.deadline_ns()
    }

    pub(super) fn unwatch(&self, epoll: &Epoll) {
        let _ = epoll.remove(self.host.fd());
    }

    pub(super) fn step(&mut self, now_ns: u64, epoll: &Epoll) -> Tried {
        match self.host.step(now_ns) {
            Ok(None) => Tried::More,
            Ok(Some(met)) if met.endpoint_id == self.endpoint_id => {
                Tried::There(Box::new(PendingPeer::from(*met)))
            }
            Ok(Some(other)) => {
                let _ = epoll.remove(&other.socket);
                tracing::debug!(label = other.label, "another endpoint has the local name");
                Tried::Not(Refusal::OutOfReach(Errno::NOENT.raw_os_error()))
            }
            Err(error) => {
                tracing::debug!(%error, "a peer on this host is not reached as one");
                self.unwatch(epoll);
                Tried::Not(out_of_reach(&error))
            }
        }
    }
}

impl Handshake {
    /// Connecting: tries the peer on this host.
    pub(crate) fn upgrade_to_same_host(
        &mut self,
        here: &Here,
        us: &Us,
        granted: Limits,
        now_ns: u64,
        epoll: &Epoll,
        token: u64,
    ) {
        let called = local::Handshake::connect(&here.at, us, granted, now_ns, PATIENCE_NS);
        let watched = called.and_then(|host| {
            let added = epoll.add(host.fd(), token, Interest::Read);
            added.map_err(|error| Error::os("epoll_ctl", "the endpoint", error))?;
            Ok(SameHostUpgrade { host, endpoint_id: here.endpoint_id })
        });
        let Handshake::Tcp(wire, same_host) = self else { return };
        match watched {
            Ok(found) => *same_host = Some(Box::new(found)),
            Err(error) => {
                tracing::debug!(%error, "a peer on this host is not reached as one");
                wire.stay(out_of_reach(&error));
            }
        }
    }
}

/// The reason, as receipts carry it.
fn out_of_reach(error: &Error) -> Refusal {
    let errno = match error {
        Error::NameGone { .. } => Errno::NOENT,
        Error::NotAllowed { .. } => Errno::ACCESS,
        Error::NoAnswer { .. } => Errno::TIMEDOUT,
        Error::LimitReached { .. } => Errno::USERS,
        Error::VersionMismatch { .. } => Errno::PROTO,
        Error::Os { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
        _ => Errno::CONNRESET,
    };
    Refusal::OutOfReach(errno.raw_os_error())
}
