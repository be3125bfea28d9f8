//! Greetings under way, over any link.

mod same_host_upgrade;

use std::sync::{Arc, OnceLock};

use pinfold_sys::io::poll::{Epoll, Interest};

pub(crate) use self::same_host_upgrade::SameHostUpgrade;
use self::same_host_upgrade::Tried;
use super::{
    op::OpKey,
    pending_peer::{Outcome, PendingPeer, Session, TcpPeer},
};
use crate::{
    Error, PathSet, PeerId, Result,
    copy::Tally,
    transport::{
        Back,
        local::{self, Address, Limits},
        tcp::{self, dial::Dial, greeting::Ticket, handshake::Here, unauthenticated::Caller},
    },
    wire::{
        hello,
        layout::SEGMENT_BYTES,
        tcp::offer::{HostIdentity, LocalName, ModeSet, Offer},
    },
};

/// One greeting under way.
pub(crate) struct Greeting {
    pub handshake: Handshake,
    pub granted: Limits,
    /// The call that it is for; `None` for one that a peer began.
    pub call: Option<Call>,
    /// True if the peer must have been [admitted](Handshake::admitted) over a connection.
    pub same_host: bool,
    /// The peer that the greeting is to lead back.
    pub resumes: Option<PeerId>,
    /// The caller from another host.
    pub caller: Option<Caller>,
    /// The places to call next if this greeting fails.
    pub dial: Option<Box<Dial>>,
}

/// A call of this endpoint: it is with its greeting or, between two of them, at rest.
pub(crate) struct Call {
    /// The operation that ends with it.
    pub op: OpKey,
    /// The repetition while no endpoint is there, if the caller waits for one.
    pub again: Option<Box<Again>>,
}

/// A call within this host that is made again.
pub(crate) struct Again {
    pub address: Address,
    /// The time from which on a failure is the last.
    pub until_ns: u64,
}

impl Greeting {
    /// A greeting that just begins.
    pub(crate) fn new(handshake: Handshake, granted: Limits) -> Greeting {
        let (call, same_host, resumes, caller, dial) = (None, false, None, None, None);
        Greeting { handshake, granted, call, same_host, resumes, caller, dial }
    }

    /// The caller, if it has not shown the key.
    pub(crate) fn tcp_peer(&self) -> Option<Caller> {
        self.caller.filter(|_| self.handshake.admitted().is_none())
    }

    /// Returns whether the greeting is about to become a peer for which there has to be a place.
    pub(crate) fn takes_place(&self) -> bool {
        self.tcp_peer().is_none() && self.resumes.is_none()
    }
}

/// The link that a greeting goes over.
pub(crate) enum Handshake {
    /// There is no connection yet.
    Dial(Box<Dial>),
    Shm(Box<local::Handshake>),
    /// The first waits for the outcome of the second, if there is one.
    Tcp(Box<tcp::handshake::Handshake>, Option<Box<SameHostUpgrade>>),
}

/// The result of a step.
pub(crate) enum Step {
    More,
    /// The peer is on this host, and is to be tried there.
    Here(Here),
    Done(Outcome),
}

impl Handshake {
    /// The latest time for the next step.
    pub(crate) fn deadline_ns(&self) -> u64 {
        match self {
            Handshake::Dial(dial) => dial.due_ns(),
            Handshake::Shm(handshake) => handshake.deadline_ns(),
            Handshake::Tcp(_, Some(same_host)) => same_host.deadline_ns(),
            Handshake::Tcp(wire, None) => wire.deadline_ns(),
        }
    }

    /// Has the epoll tell when to take the next step.
    pub(crate) fn watch(&self, epoll: &Epoll, token: u64) -> Result<()> {
        let watched = match self {
            // Each attempt is watched as it begins.
            Handshake::Dial(_) => Ok(()),
            Handshake::Shm(handshake) => epoll.add(handshake.fd(), token, Interest::Read),
            Handshake::Tcp(wire, _) => match wire.fd() {
                Some(fd) => epoll.add(fd, token, Interest::Changes),
                None => Ok(()),
            },
        };
        watched.map_err(|error| Error::os("epoll_ctl", "the endpoint", error))
    }

    /// Ends the watch, of a greeting that has failed.
    pub(crate) fn unwatch(&mut self, epoll: &Epoll) {
        let _ = match self {
            Handshake::Dial(dial) => {
                dial.unwatch(epoll);
                Ok(())
            }
            Handshake::Shm(handshake) => epoll.remove(handshake.fd()),
            Handshake::Tcp(wire, same_host) => {
                if let Some(same_host) = same_host {
                    same_host.unwatch(epoll);
                }
                // Without a descriptor the connection is closed, and only forked children may have
                // copies.
                wire.fd().map_or(Ok(()), |fd| epoll.remove(fd))
            }
        };
    }

    /// The endpoint that was let in over a connection and has the last word.
    pub(crate) fn admitted(&self) -> Option<[u8; 16]> {
        match self {
            Handshake::Dial(_) | Handshake::Shm(_) => None,
            Handshake::Tcp(wire, _) => wire.admitted(),
        }
    }

    /// The session that a peer was just let in to go on with.
    pub(crate) fn take_readmitted(&mut self) -> Option<[u8; 16]> {
        match self {
            Handshake::Dial(_) | Handshake::Shm(_) => None,
            Handshake::Tcp(wire, _) => wire.take_readmitted(),
        }
    }

    /// Goes as far as it can now. `sessions` knows the sessions that peers may go on with.
    pub(crate) fn step(
        &mut self,
        now_ns: u64,
        paths: PathSet,
        tally: &Arc<Tally>,
        epoll: &Epoll,
        sessions: &dyn Fn(&[u8; 16]) -> Option<Ticket>,
    ) -> Result<Step> {
        match self {
            Handshake::Dial(_) => Ok(Step::More),
            Handshake::Shm(handshake) => on_host(handshake, now_ns),
            Handshake::Tcp(wire, same_host) => {
                match try_same_host(wire, same_host, now_ns, epoll) {
                    Some(step) => Ok(step),
                    None => match wire.step(now_ns, sessions)? {
                        tcp::handshake::Step::More => Ok(Step::More),
                        tcp::handshake::Step::Here(here) => Ok(Step::Here(here)),
                        tcp::handshake::Step::Met(met) => met_tcp(*met, paths, tally),
                    },
                }
            }
        }
    }
}

// One function each: the stack that one needs is free again while another goes on.

fn on_host(handshake: &mut local::Handshake, now_ns: u64) -> Result<Step> {
    let established = handshake.step(now_ns)?;
    Ok(established.map_or(Step::More, |it| joins(PendingPeer::from(*it))))
}

/// A step of the greeting beside a connection; `None` once it is the connection's turn.
fn try_same_host(
    wire: &mut tcp::handshake::Handshake,
    same_host: &mut Option<Box<SameHostUpgrade>>,
    now_ns: u64,
    epoll: &Epoll,
) -> Option<Step> {
    match same_host.as_mut()?.step(now_ns, epoll) {
        Tried::More => Some(Step::More),
        Tried::There(mut pending) => {
            pending.address = wire.address().map(str::to_owned);
            // The peer learns by the end of the connection that it is not needed.
            let _ = wire.fd().map_or(Ok(()), |fd| epoll.remove(fd));
            Some(joins(*pending))
        }
        Tried::Not(why) => {
            *same_host = None;
            wire.stay(why);
            None
        }
    }
}

/// The outcome of a greeting that two endpoints have finished over a connection.
fn met_tcp(met: tcp::handshake::Met, paths: PathSet, tally: &Arc<Tally>) -> Result<Step> {
    let (socket, rest) = (met.socket, met.rest);
    if let Some(received) = met.agreed.peer_received {
        let to = met.home.map(|home| home.to);
        let back = Back { socket, rest, received, to };
        return Ok(Step::Done(Outcome::Returns(back)));
    }
    let modes = met.agreed.modes;
    let resumes = modes.contains(ModeSet::RESUMES);
    let serves = ModeSet::ONE_SIDED.with(ModeSet::ATOMICS);
    let address = met.home.as_ref().map(|home| home.address.clone());
    let session = Session { ticket: met.agreed.ticket, home: met.home, lookup: None };
    let peer = met.agreed.peer;
    let tcp_peer = TcpPeer {
        socket,
        rest,
        session: resumes.then_some(session),
        serves_regions: modes.contains(serves),
        label: peer.label,
        endpoint_id: peer.endpoint_id,
        address,
        place: met.place,
        apart: met.apart,
        paths: peer.paths,
        granted: peer.limits,
    };
    let lanes = format!("the lanes of a peer, {SEGMENT_BYTES} bytes");
    let pending = PendingPeer::from_tcp(tcp_peer, paths, tally).map_err(Error::failed(lanes))?;
    Ok(joins(pending))
}

fn joins(pending: PendingPeer) -> Step {
    Step::Done(Outcome::Joins(Box::new(pending)))
}

/// The offer of an endpoint to peers on other hosts.
pub(crate) fn offer(
    endpoint_id: [u8; 16],
    label: &str,
    limits: Limits,
    paths: PathSet,
    (shortcut, local): (bool, Option<LocalName>),
    resumes: bool,
    encrypts: bool,
) -> Result<Offer> {
    let modes = [ModeSet::RENDEZVOUS, ModeSet::ACTIVE, ModeSet::ONE_SIDED, ModeSet::ATOMICS];
    let modes = modes.into_iter().fold(ModeSet::none(), ModeSet::with);
    Ok(Offer {
        endpoint_id,
        incarnation: incarnation()?,
        host: host(shortcut)?,
        local,
        label: hello::fit_label(label),
        limits,
        paths,
        modes: if resumes { modes.with(ModeSet::RESUMES) } else { modes },
        tls: encrypts,
    })
}

/// The number that tells this process from all others.
fn incarnation() -> Result<u64> {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    if let Some(incarnation) = PROCESS.get() {
        return Ok(*incarnation);
    }
    let drawn = u64::from_le_bytes(super::random()?).max(1);
    Ok(*PROCESS.get_or_init(|| drawn))
}

/// The identity of the host; a random one if it is not to be told, or not known.
fn host(says: bool) -> Result<HostIdentity> {
    if says && let Ok(host) = tcp::host::identity() {
        return Ok(host);
    }
    Ok(HostIdentity { boot: super::random()?, word: u64::from_le_bytes(super::random()?) })
}
