//! The engine's descriptors: the listener, greetings under way, peers' sockets and processes.

mod accept_budget;
pub(crate) mod accepts;
mod connect;
pub(super) mod events;
mod names;
pub(super) mod reconnect;
pub(crate) mod requests;
mod same_host;
mod tcp_connect;
pub(crate) mod tries;

use std::{collections::VecDeque, os::fd::AsFd, sync::Arc, time::Duration};

use pinfold_sys::{
    cpu::{barrier, clock},
    failed::Failed,
    io::{
        alarm::Alarm,
        poll::{Epoll, EventFd, Events, Interest},
    },
    mem::memfd,
};
use rustc_hash::FxHashMap;

use self::accept_budget::Share;
use super::{
    config::Config,
    handshakes::{Call, Greeting},
    op::OpKey,
    peer::Peer,
};
use crate::{
    Error, PeerId, Result,
    memory::arena,
    transport::{
        local::{Listener, Us},
        tcp::{self, key::Key, lookup::Lookups, reconnect::Reconnect, transmit::Driver},
    },
    wire::layout::SEGMENT_BYTES,
};

/// Greetings under way at a time that others on this host began, and callers turned away at a time.
/// Further callers wait in the listener's queue. (From other hosts:
/// `transport/tcp/unauthenticated.rs`.)
const GREETINGS_MAX: usize = 128;
/// Events taken from the kernel at a time.
const EVENTS_AT_ONCE: usize = 64;

/// How long callers wait after there was no descriptor left to answer one with.
const LISTEN_AGAIN_NS: u64 = 100_000_000;

const KIND_SHIFT: u32 = 61;
const LISTENER: u64 = 0;
const KICK: u64 = 1;
const GREETING: u64 = 2;
const SOCKET: u64 = 3;
const PROCESS: u64 = 4;
const RING: u64 = 5;
const ALARM: u64 = 6;
const BELL: u64 = 7;
/// The index of the listener for other hosts; that of this host has 0.
const TCP: u32 = 1;
/// The index of the listener for callers by host and port that are on this host.
const SAME_HOST: u32 = 2;

fn token(kind: u64, index: u32, generation: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(generation & 0x1fff_ffff) << 32 | u64::from(index)
}

pub(crate) struct Connections {
    epoll: Arc<Epoll>,
    pub kick: Arc<EventFd>,
    /// Tells a caller that waits on the endpoint's descriptor what the endpoint's own thread has
    /// done meanwhile.
    pub bell: EventFd,
    /// Wakes a caller that waits on the endpoint's descriptor when a timer is due; made when the
    /// first is.
    alarm: Option<Alarm>,
    listener: Option<Listener>,
    /// The listener for peers on other hosts.
    tcp: Option<tcp::listener::Listener>,
    /// The listener for those of them that are on this host.
    same_host: Option<Listener>,
    /// True if the endpoint looks for such peers.
    shortcut: bool,
    key: Option<Arc<Key>>,
    /// True if connections with other hosts are encrypted.
    encrypts: bool,
    us: Us,
    greetings: Vec<Option<Greeting>>,
    /// Greetings whose next step is to come, after the peers' turn.
    postponed: VecDeque<usize>,
    /// The time that greetings, and callers, have had.
    share: Share,
    /// Peers whose connections may break, by their sessions.
    sessions: FxHashMap<[u8; 16], PeerId>,
    /// Peers without a connection.
    reconnecting: Vec<(PeerId, Reconnect)>,
    /// Look-ups of where those peers may be now.
    lookups: Lookups,
    /// When to look whether peers on other hosts answer.
    pub poll_ns: Option<u64>,
    /// Calls at rest, and when each is made again.
    resting: Vec<(u64, Call)>,
    /// Operations that wait for newcomers, the oldest first.
    accepts: VecDeque<OpKey>,
    /// Newcomers so far.
    came: u64,
    /// When to listen again, after there was no descriptor left to answer a caller with.
    listen_again_ns: Option<u64>,
    /// When to look whether the names lead here, and when that was done last.
    names_ns: u64,
    names_looked_ns: u64,
    /// The name that another endpoint has taken, until that is told.
    lost_name: Option<String>,
    /// The time that the alarm is set to.
    alarm_ns: Option<u64>,
}

impl Connections {
    pub(crate) fn open(config: &Config, epoll: Arc<Epoll>) -> Result<Connections> {
        if config.listen.is_some() || config.listen_tcp.is_some() {
            // Each peer that calls takes one, so no caller could be answered.
            let memory = format!("memory for each peer, {SEGMENT_BYTES} bytes");
            memfd::check_limit(SEGMENT_BYTES).map_err(Error::failed(memory))?;
        }
        let endpoint_id = super::random()?;
        let us = Us {
            endpoint_id,
            label: config.label.clone(),
            paths: config.paths,
            barrier_global: barrier::register() && barrier::global_available(),
        };
        let kick = EventFd::new().map_err(|error| Error::os("eventfd2", "the endpoint", error))?;
        let bell = EventFd::new().map_err(|error| Error::os("eventfd2", "the endpoint", error))?;
        let kick = Arc::new(kick);
        watch(&epoll, &*kick, token(KICK, 0, 0))?;
        arena::wake_when_gone(&kick);
        let listener = match &config.listen {
            Some(address) => {
                let listener = Listener::bind(address, &config.access)?;
                watch(&epoll, listener.fd(), token(LISTENER, 0, 0))?;
                Some(listener)
            }
            None => None,
        };
        let tcp = match &config.listen_tcp {
            Some(address) => {
                let key = config.key.as_ref();
                let listener = match &config.listen_socket {
                    Some(socket) => tcp::listener::Listener::adopt(address, socket, key)?,
                    None => tcp::listener::Listener::bind(address, key)?,
                };
                listener.watch(&epoll, token(LISTENER, TCP, 0))?;
                Some(listener)
            }
            None => None,
        };
        let same_host = tcp.as_ref().and_then(|_| same_host::listen(config, &us, &epoll));
        let lookups = Lookups::new(tcp::listener::resolve, Arc::clone(&kick));
        Ok(Connections {
            epoll,
            kick,
            bell,
            alarm: None,
            listener,
            tcp,
            same_host,
            shortcut: config.local_shortcut,
            key: config.key.clone(),
            encrypts: config.encrypts,
            us,
            greetings: Vec::new(),
            postponed: VecDeque::new(),
            share: Share::default(),
            sessions: FxHashMap::default(),
            reconnecting: Vec::new(),
            lookups,
            poll_ns: None,
            resting: Vec::new(),
            accepts: VecDeque::new(),
            came: 0,
            listen_again_ns: None,
            names_ns: 0,
            names_looked_ns: clock::now_ns(),
            lost_name: None,
            alarm_ns: None,
        })
    }

    /// The identifier of this endpoint that others see.
    pub(crate) fn endpoint_id(&self) -> [u8; 16] {
        self.us.endpoint_id
    }

    /// Returns whether a peer can still join.
    pub(crate) fn may_join(&self) -> bool {
        self.listens() || self.greetings.iter().any(Option::is_some) || !self.resting.is_empty()
    }

    /// Returns whether others can connect.
    pub(crate) fn listens(&self) -> bool {
        self.listener.is_some() || self.tcp.is_some()
    }

    /// The address at which peers on other hosts can call.
    pub(crate) fn listens_tcp(&self) -> Option<&str> {
        self.tcp.as_ref().map(tcp::listener::Listener::at)
    }

    /// When the next greeting runs out of time.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let greetings = self.greetings.iter().flatten();
        let greetings = greetings.map(|greeting| greeting.handshake.deadline_ns());
        let reconnecting = self.reconnecting.iter().map(|(_, reconnect)| reconnect.due_ns());
        let resting = self.resting.iter().map(|(due_ns, _)| *due_ns);
        let others = self.listen_again_ns.into_iter().chain(self.poll_ns).chain(resting);
        let postponed = self.postponed.front().map(|_| 0);
        greetings
            .chain(reconnecting)
            .chain(others)
            .chain(postponed)
            .chain(self.names_due_ns())
            .min()
    }

    /// Has the endpoint's descriptor become readable at a time; `None`: at no time any more.
    pub(crate) fn set_alarm(&mut self, at_ns: Option<u64>) -> Result<(), Failed> {
        if self.alarm.is_none() && at_ns.is_some() {
            let alarm = Alarm::new()?;
            let watched = self.epoll.add(&alarm, token(ALARM, 0, 0), Interest::Read);
            watched.map_err(Failed::of("epoll_ctl"))?;
            self.alarm = Some(alarm);
        }
        let Some(alarm) = self.alarm.as_ref().filter(|_| self.alarm_ns != at_ns) else {
            return Ok(());
        };
        alarm.set(at_ns)?;
        self.alarm_ns = at_ns;
        Ok(())
    }

    /// Stops watching a peer.
    pub(crate) fn forget(&mut self, peer: &Peer) {
        // Closing would do, were it not for copies of the descriptors in forked children.
        peer.transport.unwatch(&self.epoll);
        if let Some(pidfd) = &peer.cma_access.pidfd {
            let _ = self.epoll.remove(pidfd);
        }
        if let Some(session) = &peer.session {
            self.sessions.remove(&session.ticket.id);
            self.end_reconnect(peer.id);
        }
    }

    pub(crate) fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = self.epoll.remove(listener.fd());
        }
        if let Some(listener) = self.tcp.take() {
            listener.unwatch(&self.epoll);
        }
        if let Some(listener) = self.same_host.take() {
            let _ = self.epoll.remove(listener.fd());
        }
        self.greetings.clear();
        self.reconnecting.clear();
        self.resting.clear();
        self.accepts.clear();
    }

    /// Leaves everything to the process that this one was forked from.
    pub(crate) fn forsake(&mut self) {
        self.listener = None;
        self.tcp = None;
        self.same_host = None;
        std::mem::forget(std::mem::take(&mut self.greetings));
    }

    /// Leaves callers where they are until a time: no event tells of them, or they would keep the
    /// endpoint awake.
    fn rest_until(&mut self, at_ns: u64) {
        for listener in [&self.listener, &self.same_host].into_iter().flatten() {
            let _ = self.epoll.remove(listener.fd());
        }
        if let Some(listener) = &self.tcp {
            listener.unwatch(&self.epoll);
        }
        self.listen_again_ns = self.listen_again_ns.max(Some(at_ns));
    }

    /// The descriptors that have events.
    fn events(&self) -> Option<Events> {
        let mut events = Events::with_capacity(EVENTS_AT_ONCE);
        match self.epoll.wait(&mut events, Some(Duration::ZERO)) {
            Ok(_) => Some(events),
            Err(error) => {
                tracing::warn!(%error, "epoll_wait");
                None
            }
        }
    }

    fn add_greeting(&mut self, greeting: Greeting) -> Result<usize> {
        let at = match self.greetings.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.greetings.push(None);
                self.greetings.len() - 1
            }
        };
        greeting.handshake.watch(&self.epoll, token(GREETING, at as u32, 0))?;
        self.greetings[at] = Some(greeting);
        Ok(at)
    }
}

fn watch(epoll: &Epoll, fd: impl AsFd, token: u64) -> Result<()> {
    let readable = Interest::Read;
    epoll.add(fd, token, readable).map_err(|error| Error::os("epoll_ctl", "the endpoint", error))
}

/// The driver that sends long messages of an endpoint to other hosts.
pub(crate) fn driver(config: &Config, epoll: &Arc<Epoll>) -> Arc<Driver> {
    Arc::new(Driver::new(config.sending, Arc::clone(epoll), token(RING, 0, 0)))
}
