//! Greetings under way, whatever link they go over.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use pinfold_sys::poll::{Epoll, Interest};

use super::joining::{Back, Joining, Outcome, Session, Stranger};
use crate::{
    Error, PathSet, PeerId, Result,
    blockmem::Tally,
    link::{
        local::{self, Limits},
        tcp::{self, greeting::Ticket},
    },
    wire::{
        hello,
        tcp::{
            greeting::Refusal,
            offer::{HostIdentity, ModeSet, Offer},
        },
    },
};

/// One greeting under way.
pub(super) struct Greeting {
    pub handshake: Handshake,
    pub granted: Limits,
    /// The call that waits for it; `None` for one that a peer began.
    pub call: Option<u64>,
    /// The peer that it is to lead back.
    pub resumes: Option<PeerId>,
}

/// What a greeting goes over.
pub(super) enum Handshake {
    Host(Box<local::Handshake>),
    Wire(Box<tcp::handshake::Handshake>),
}

impl Handshake {
    /// When to take the next step at the latest.
    pub(super) fn deadline_ns(&self) -> u64 {
        match self {
            Handshake::Host(handshake) => handshake.deadline_ns(),
            Handshake::Wire(handshake) => handshake.deadline_ns(),
        }
    }

    /// Has the epoll tell when to take the next step.
    pub(super) fn watch(&self, epoll: &Epoll, token: u64) -> Result<()> {
        let watched = match self {
            Handshake::Host(handshake) => epoll.add(handshake.fd(), token, Interest::Read),
            Handshake::Wire(handshake) => match handshake.fd() {
                Some(fd) => epoll.add(fd, token, Interest::Changes),
                None => Ok(()),
            },
        };
        watched.map_err(|error| Error::os("epoll_ctl", "the endpoint", error))
    }

    /// Ends that, of a greeting that has failed.
    pub(super) fn unwatch(&self, epoll: &Epoll) {
        let _ = match self {
            Handshake::Host(handshake) => epoll.remove(handshake.fd()),
            // Its socket is closed, and nobody has a copy that was not forked.
            Handshake::Wire(handshake) => handshake.fd().map_or(Ok(()), |fd| epoll.remove(fd)),
        };
    }

    /// The session that a peer was just let in to go on with.
    pub(super) fn take_admitted(&mut self) -> Option<[u8; 16]> {
        match self {
            Handshake::Host(_) => None,
            Handshake::Wire(handshake) => handshake.take_admitted(),
        }
    }

    /// Why a peer has refused to go on, if it has.
    pub(super) fn refused(&self) -> Option<Refusal> {
        match self {
            Handshake::Host(_) => None,
            Handshake::Wire(handshake) => handshake.refused(),
        }
    }

    /// Goes as far as it can now. `sessions` knows those that peers may go on with.
    pub(super) fn step(
        &mut self,
        now_ns: u64,
        paths: PathSet,
        tally: &Arc<Tally>,
        sessions: &dyn Fn(&[u8; 16]) -> Option<Ticket>,
    ) -> Result<Option<Outcome>> {
        match self {
            Handshake::Host(handshake) => {
                let established = handshake.step(now_ns)?;
                Ok(established.map(|it| Outcome::Joins(Box::new(Joining::from(*it)))))
            }
            Handshake::Wire(handshake) => {
                let Some(met) = handshake.step(now_ns, sessions)? else { return Ok(None) };
                let (socket, rest) = (met.socket, met.rest);
                if let Some(received) = met.agreed.peer_received {
                    return Ok(Some(Outcome::Returns(Back { socket, rest, received })));
                }
                let resumes = met.agreed.modes.contains(ModeSet::RESUMES);
                let home = met.address.clone().zip(met.to);
                let session = Session { ticket: met.agreed.ticket, home };
                let peer = met.agreed.peer;
                let stranger = Stranger {
                    socket,
                    rest,
                    session: resumes.then_some(session),
                    label: peer.label,
                    endpoint_id: peer.endpoint_id,
                    address: met.address,
                    place: met.place,
                    paths: peer.paths,
                    granted: peer.limits,
                };
                let lanes = |error| Error::os("memfd_create", "the lanes of a peer", error);
                let joining = Joining::from_afar(stranger, paths, tally).map_err(lanes)?;
                Ok(Some(Outcome::Joins(Box::new(joining))))
            }
        }
    }
}

/// What an endpoint says of itself to peers on other hosts.
pub(super) fn offer(
    endpoint_id: [u8; 16],
    label: &str,
    limits: Limits,
    paths: PathSet,
    resumes: bool,
) -> Result<Offer> {
    let modes = ModeSet::none().with(ModeSet::RENDEZVOUS).with(ModeSet::ACTIVE);
    let (incarnation, host) = *process()?;
    Ok(Offer {
        endpoint_id,
        incarnation,
        host,
        // Peers on this host that were called by host and port stay with that.
        local: None,
        label: hello::fit_label(label),
        limits,
        paths,
        modes: if resumes { modes.with(ModeSet::RESUMES) } else { modes },
        tls: false,
    })
}

/// What tells this process from all others, and its host.
fn process() -> Result<&'static (u64, HostIdentity)> {
    static PROCESS: OnceLock<(u64, HostIdentity)> = OnceLock::new();
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    let boot = boot_id().unwrap_or(super::random()?);
    let word = u64::from_le_bytes(super::random()?);
    let incarnation = u64::from_le_bytes(super::random()?).max(1);
    Ok(PROCESS.get_or_init(|| (incarnation, HostIdentity { boot, word })))
}

/// What the kernel drew when it booted. See `random(4)`.
fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(io::Error::other)?;
    Ok(number.to_be_bytes())
}
