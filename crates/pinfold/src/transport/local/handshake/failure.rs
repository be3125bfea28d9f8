//! Failures of a greeting, in words for both sides.

use std::io;

use super::{super::access::describe, Handshake};
use pinfold_sys::{process, socket::seqpacket::Credentials};
use rustix::io::Errno;

use crate::{
    Error, Gone,
    error::ELSEWHERE,
    wire::hello::{self, Malformed, Refuse},
};

impl Handshake {
    /// Tells the peer why it is refused, and passes `error` on. The socket closes with `self`.
    pub(super) fn refuse(&self, why: Refuse, error: Error) -> Error {
        tracing::debug!(peer = %self.peer(), %error, "refused");
        // If the refusal does not get there, the peer sees the socket close.
        let _ = self.send(&hello::encode_refuse(&why), &[]);
        error
    }

    /// Tells a connecting peer of a system call that failed here, and passes the error on.
    pub(super) fn told(&self, error: Error) -> Error {
        match &error {
            Error::Os { .. } if self.address.is_none() => self.refuse(exhausted(&error), error),
            _ => error,
        }
    }

    /// The listening side's reason for closing, if it sent one before.
    pub(super) fn last_word(&self) -> Option<Error> {
        let last = self.receive(0).ok().flatten()?;
        hello::decode_refusal(last.bytes()).map(|why| self.refused(why))
    }

    /// The error for a refusal from the listening side.
    pub(super) fn refused(&self, why: Refuse) -> Error {
        match why {
            Refuse::NotAdmitted { owner, user, users, groups } => Error::NotAllowed {
                name: self.peer(),
                why: format!(
                    "the access rule there admits {}, {users} other users and {groups} groups, \
                     not {}; have its owner add .user({user}) to the rule",
                    describe(owner),
                    describe(user)
                ),
            },
            Refuse::Version { min, max } => self.version_mismatch(min, max),
            Refuse::Full { peers_max } => Error::LimitReached {
                what: "the number of peers of the listening endpoint",
                limit: peers_max,
                remedy: "raise peers_max there, or disconnect a peer",
            },
            Refuse::Exhausted { call, errno } => {
                // An older listener does not say which call failed.
                let call = if call.is_empty() { "a system call" } else { call };
                let source = io::Error::from_raw_os_error(errno);
                Error::os(call, format!("{ELSEWHERE}{}", self.peer()), source)
            }
        }
    }

    pub(super) fn version_mismatch(&self, theirs_min: u32, theirs_max: u32) -> Error {
        Error::VersionMismatch {
            peer: self.peer(),
            ours_min: hello::VERSION,
            ours_max: hello::VERSION,
            theirs_min,
            theirs_max,
        }
    }

    pub(super) fn gone(&self) -> Error {
        let dead = self.pidfd.as_ref().is_some_and(|pidfd| !process::pidfd_alive(pidfd));
        let how = if dead { Gone::Died } else { Gone::Closed };
        Error::PeerGone { peer: self.peer(), how }
    }

    pub(super) fn bad(&self, why: Malformed) -> Error {
        self.misbehaved(why.0)
    }

    pub(super) fn misbehaved(&self, how: &'static str) -> Error {
        Error::PeerGone { peer: self.peer(), how: Gone::Misbehaved(how) }
    }

    /// The peer's name, for messages.
    pub(super) fn peer(&self) -> String {
        match &self.address {
            Some(address) => address.to_string(),
            None => peer_name(&self.who),
        }
    }
}

/// The refusal that tells the peer of a system call that failed here.
pub(in super::super) fn exhausted(error: &Error) -> Refuse {
    match error {
        Error::Os { call, source, .. } => Refuse::Exhausted {
            call,
            errno: source.raw_os_error().unwrap_or(Errno::NOMEM.raw_os_error()),
        },
        _ => Refuse::Exhausted { call: "", errno: Errno::NOMEM.raw_os_error() },
    }
}

pub(super) fn peer_name(who: &Credentials) -> String {
    format!("process {} of user {}", who.pid, who.uid)
}
