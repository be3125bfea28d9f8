//! How a greeting fails, in words for both sides.

use std::io;

use pinfold_sys::{process, socket::Credentials};
use rustix::io::Errno;

use super::{super::access::describe, Handshake};
use crate::{
    Error, Gone,
    wire::hello::{self, Malformed, Refuse},
};

impl Handshake {
    /// Tells the peer why it is refused, and passes `error` on. The socket closes with `self`.
    pub(super) fn refuse(&self, why: Refuse, error: Error) -> Error {
        tracing::debug!(peer = %self.peer(), %error, "refused");
        // If it does not get there, the peer sees the socket close.
        let _ = self.send(&hello::encode_refuse(&why), &[]);
        error
    }

    /// The listening side refused us.
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
            Refuse::Exhausted { errno } => {
                let (call, remedy) = match Errno::from_raw_os_error(errno) {
                    Errno::MFILE => ("accept4", "; raise its ulimit -n, or have it close some"),
                    Errno::NFILE => ("accept4", "; raise fs.file-max, or close some"),
                    _ => ("memfd_create", ""),
                };
                Error::Os {
                    call,
                    on: format!("a call, in the process listening at {}{remedy}", self.peer()),
                    source: io::Error::from_raw_os_error(errno),
                }
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

    /// The peer, for messages.
    pub(super) fn peer(&self) -> String {
        match &self.address {
            Some(address) => address.to_string(),
            None => peer_name(&self.who),
        }
    }
}

pub(super) fn peer_name(who: &Credentials) -> String {
    format!("process {} of user {}", who.pid, who.uid)
}
