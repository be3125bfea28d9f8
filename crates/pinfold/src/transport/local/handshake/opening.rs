//! The beginning of a greeting, on the connecting and on the accepting side.

use std::{mem, os::fd::AsFd};

use pinfold_sys::socket::seqpacket::{self, Credentials, Socket};
use rustix::io::Errno;

use super::{
    super::{
        access::{Access, describe},
        address::Address,
        directory::{Directory, Places},
        proof::Target,
    },
    Handshake, Moved, PATIENCE_NS, RETRY_NS, State, Us,
    failure::{exhausted, peer_name},
};
use crate::{
    Error, Result,
    failpoint::{self, Point},
    wire::hello::{self, Limits, Refuse},
};

impl Handshake {
    /// Connects to `address` and says hello. The whole greeting has `patience_ns`.
    ///
    /// # Errors
    /// [`Error::NameGone`] if no endpoint listens there; [`Error::NotAllowed`] if a directory is
    /// not safe, the socket is not for this user, or another user serves it; [`Error::BadAddress`]
    /// if there is no such user; [`Error::Os`].
    pub(crate) fn connect(
        address: &Address,
        us: &Us,
        grant: Limits,
        now_ns: u64,
        patience_ns: u64,
    ) -> Result<Handshake> {
        Handshake::connect_in(&Places::from_env(), address, us, grant, now_ns, patience_ns)
    }

    /// As [`Handshake::connect`], in these places.
    pub(crate) fn connect_in(
        places: &Places,
        address: &Address,
        us: &Us,
        grant: Limits,
        now_ns: u64,
        patience_ns: u64,
    ) -> Result<Handshake> {
        let name = address.to_string();
        let fresh =
            || seqpacket::unconnected().map_err(|error| Error::os("socket", name.as_str(), error));
        let mut socket = fresh()?;
        let mut trouble = None;
        for candidate in places.candidates(address)? {
            let directory = match candidate.open() {
                Ok(Some(directory)) => directory,
                Ok(None) => continue,
                Err(error) => {
                    trouble.get_or_insert(error);
                    continue;
                }
            };
            match dial(&socket, &directory, address) {
                Err(Error::NameGone { .. }) => {}
                Err(error) => {
                    trouble.get_or_insert(error);
                }
                // Only a child that its dead owner has forked still has the socket, and answers no
                // caller.
                Ok(true) if seqpacket::is_orphaned(&socket) => socket = fresh()?,
                Ok(connected) => {
                    let owner = candidate.owner;
                    let retry_ns = now_ns.saturating_add(RETRY_NS);
                    let mut greeting = Handshake {
                        us: us.clone(),
                        grant,
                        socket: Some(socket),
                        // This holds until the kernel says more.
                        who: Credentials { pid: 0, uid: owner, gid: u32::MAX },
                        pidfd: None,
                        presence: None,
                        on_condition: false,
                        address: Some(address.clone()),
                        target: Target::new()?,
                        patience_ns,
                        deadline_ns: now_ns.saturating_add(patience_ns),
                        state: State::Dialling { directory, owner, retry_ns },
                    };
                    if connected {
                        greeting.say_hello(owner)?;
                    }
                    return Ok(greeting);
                }
            }
        }
        Err(trouble.unwrap_or(Error::NameGone { name }))
    }

    /// Begins the greeting of an accepted connection. The peer has 10 s for its part; one that is
    /// not admitted is turned away by the first step, which is due at once.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn accepted(
        socket: Socket,
        who: Credentials,
        access: &Access,
        us: &Us,
        grant: Limits,
        room: bool,
        peers_max: u64,
        now_ns: u64,
    ) -> Handshake {
        let admitted = admit(&socket, &who, access, room, peers_max);
        let (target, admitted) = match Target::new() {
            Ok(target) => (target, admitted),
            Err(error) => (Target::blank(), admitted.and(Err((exhausted(&error), error)))),
        };
        Handshake {
            us: us.clone(),
            grant,
            who,
            pidfd: seqpacket::peer_pidfd(&socket).ok(),
            presence: None,
            on_condition: false,
            socket: Some(socket),
            address: None,
            target,
            patience_ns: PATIENCE_NS,
            deadline_ns: now_ns.saturating_add(PATIENCE_NS),
            state: match admitted {
                Ok(()) => State::AwaitHello,
                Err(refused) => State::Refusing(Box::new(refused)),
            },
        }
    }

    pub(super) fn dial_again(&mut self, now_ns: u64) -> Result<Moved> {
        let (State::Dialling { directory, owner, .. }, Some(address)) =
            (mem::replace(&mut self.state, State::Over), &self.address)
        else {
            return Err(Error::Closed);
        };
        if dial(self.fd(), &directory, address)? {
            if seqpacket::is_orphaned(self.fd()) {
                return Err(Error::NameGone { name: address.to_string() });
            }
            self.say_hello(owner)?;
            return Ok(Moved::On);
        }
        let retry_ns = now_ns.saturating_add(RETRY_NS);
        self.state = State::Dialling { directory, owner, retry_ns };
        Ok(Moved::Waiting)
    }

    /// Connecting: checks the listening process, and introduces this side.
    pub(super) fn say_hello(&mut self, owner: u32) -> Result<()> {
        self.who = seqpacket::peer_credentials(self.fd())
            .map_err(|error| Error::os("getsockopt", self.peer(), error))?;
        if self.who.uid != owner {
            return Err(Error::NotAllowed {
                name: self.peer(),
                why: format!(
                    "{} listens there, not {}; have that process stopped",
                    describe(self.who.uid),
                    describe(owner)
                ),
            });
        }
        self.pidfd = seqpacket::peer_pidfd(self.fd()).ok();
        match self.send(&hello::encode_hello(&self.introduction()), &[]) {
            // The listener closed between our connecting and now, perhaps after it sent a reason.
            Err(Error::PeerGone { peer, .. }) => {
                return Err(self.last_word().unwrap_or(Error::NameGone { name: peer }));
            }
            sent => sent?,
        }
        failpoint::hit(Point::HelloSent);
        self.state = State::AwaitWelcome;
        Ok(())
    }
}

/// Checks whether the connecting process may connect. An error comes with the refusal for it.
fn admit(
    socket: &Socket,
    who: &Credentials,
    access: &Access,
    room: bool,
    peers_max: u64,
) -> Result<(), (Refuse, Error)> {
    let owner = pinfold_sys::user::uid();
    if let Err(why) = access.admits(owner, who, &seqpacket::peer_groups(socket)) {
        let (users, groups) = access.counts();
        let refuse = Refuse::NotAdmitted { owner, user: who.uid, users, groups };
        return Err((refuse, Error::NotAllowed { name: peer_name(who), why }));
    }
    if !room {
        let error = Error::LimitReached {
            what: "the number of peers of this endpoint",
            limit: peers_max,
            remedy: "raise peers_max, or disconnect a peer",
        };
        return Err((Refuse::Full { peers_max }, error));
    }
    Ok(())
}

/// Connects; `false` if the listener's queue is full.
fn dial(socket: impl AsFd, directory: &Directory, address: &Address) -> Result<bool> {
    let Err(error) = seqpacket::dial(socket, &directory.reach(address.name())) else {
        return Ok(true);
    };
    let refused = |why| Err(Error::NotAllowed { name: address.to_string(), why });
    let file = || format!("{}/{}", directory.name(), address.name());
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN) => Ok(false),
        Some(Errno::NOENT | Errno::CONNREFUSED) => {
            Err(Error::NameGone { name: address.to_string() })
        }
        Some(Errno::ACCESS) => refused(format!(
            "{} is not for this user; have its owner listen with an access rule that admits {}",
            file(),
            describe(pinfold_sys::user::uid())
        )),
        Some(Errno::PROTOTYPE) => {
            refused(format!("{} is not Pinfold's; have its owner stopped", file()))
        }
        _ => Err(Error::os("connect", file(), error)),
    }
}
