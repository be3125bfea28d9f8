//! The engine of one endpoint: everything that the endpoint's lock guards.
//!
//! - [`core`]: the state that the operations of all peers share; `outbound`, `inbound` and the
//!   modules of [`protocol`](crate::protocol) are its verbs, for one peer at a time.
//! - [`peer`]: one connected peer; [`table`]: all of them, and those that are gone.
//!   join.
//! - [`connections`]: sockets, listeners, ends of processes; [`handshakes`]: greetings under way.
//! - [`extent_exchange`]: arenas that are handed over;
//!   [`exported_extents`](crate::memory::exported_extents) and
//!   [`imported_extents`](crate::memory::imported_extents) keep account of them.
//! - `post`: sends and receives as the caller's side sees them; `fast_path`: short ones without any
//!   obstacle; `abandoned`: receives that are given up; `multi_recv`: receives of many messages.
//! - `ends`: how operations end.
//! - `progress`: the progress loop; `sleep`: how it stops polling without missing anything;
//!   `transport_progress`, `poll_set`: connections with other hosts.
//! - `teardown`: how peers go, and how the endpoint closes; `outstanding`: messages not delivered.
//! - `gauges`: the state that other processes may see.
//! - [`shared`]: the lock; [`wait`], [`followers`]: waiting; [`matching`]: receives matched with
//!   messages.
//!
//! No user code runs in here: wakers and drops of buffers are put on [`Wakes`](op::Wakes) and run
//! once the lock is free.

pub(crate) mod abandoned;
pub(crate) mod claims;
pub(crate) mod config;
pub(crate) mod connections;
pub(crate) mod control_flush;
pub(crate) mod core;
pub(crate) mod credit;
mod ends;
pub(crate) mod extent_exchange;
pub(crate) mod fast_path;
pub(crate) mod followers;
pub(crate) mod gauges;
pub(crate) mod handshakes;
pub(crate) mod inbound;
pub(crate) mod inbound_stream;
pub(crate) mod matching;
pub(crate) mod multi_recv;
pub(crate) mod op;
pub(crate) mod op_key;
pub(crate) mod op_table;
pub(crate) mod outbound;
pub(crate) mod outstanding;
pub(crate) mod peer;
pub(crate) mod peer_times;
pub(crate) mod pending_peer;
pub(crate) mod poll_set;
pub(crate) mod post;
pub(crate) mod prefault;
pub(crate) mod prefaulter;
pub(crate) mod progress;
pub(crate) mod send_timeout;
pub(crate) mod send_waits;
pub(crate) mod shared;
pub(crate) mod sleep;
mod status_page;
pub(crate) mod table;
pub(crate) mod teardown;
pub(crate) mod transport_progress;
pub(crate) mod try_send;
pub(crate) mod unlocked_copy;
pub(crate) mod unlocked_counts;
pub(crate) mod wait;
pub(crate) mod wakes;

use std::{collections::VecDeque, sync::Arc};

use pinfold_sys::{cpu::clock, io::poll::Epoll};

use self::{
    config::Config,
    connections::Connections,
    core::Core,
    followers::Followers,
    matching::Matcher,
    op::{Done, OpKey, OpKind, RecvStage, SendStage, Wakes, gone},
    op_table::OpTable,
    peer::{Peer, PeerInfo},
    poll_set::PollSet,
    prefault::Prefault,
    table::PeerTable,
    unlocked_counts::UnlockedCopies,
};
use crate::{
    Error, PeerId, Result,
    copy::{Copier, Reader},
    memory::imported_extents::ImportedExtents,
    policy::{route, sleep::SleepPolicy, spin::SpinPolicy},
    protocol::{active::queue::Queues, handoff::account::Accounts, rma::registry::Registry},
    random,
    transport::shm::budget::Budget,
    wire::descriptor::Kind,
};

pub(crate) struct Engine {
    pub config: Config,
    pub peers: PeerTable,
    pub core: Core,
    pub connections: Connections,
    /// Peers (by index) whose lanes are polled.
    hot: Vec<u32>,
    /// The set of those on other hosts that are among them.
    poll_set: PollSet,
    /// Peers that connected and have not been accepted.
    pub newcomers: VecDeque<PeerId>,
    pub spin: SpinPolicy,
    rest: SleepPolicy,
    polls: u32,
    events_at: u64,
    /// The time of the next look at credit for other processes to see.
    credit_at: u64,
    /// True if a thread is in, or about to go into, its sleep on the endpoint's descriptor.
    pub asleep: bool,
    /// True if the caller was told to wait on the descriptor itself.
    pub armed: bool,
    /// True if a thread of the endpoint's own drives it.
    pub driven: bool,
    /// True if a thread waits for room for answers.
    pub control_flush: bool,
    /// True if something has happened since the caller last asked before waiting.
    pub news: bool,
    /// The threads that wait.
    pub followers: Followers,
    /// True if a sleeping leader has to look again.
    pub kick: bool,
    pub closed: bool,
    /// Extents of arenas of this process that were gone when the peers were last told.
    gone_told: u64,
}

/// Random bytes that cannot be guessed.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    random::bytes("a new endpoint")
}

impl Engine {
    /// In a box, so that the caller has it on the stack neither meanwhile nor afterwards:
    /// unoptimised, each move is another copy there.
    #[inline(never)]
    pub(crate) fn new(mut config: Config, epoll: Arc<Epoll>) -> Result<Box<Engine>> {
        clock::ticks_per_us();
        let driver = connections::driver(&config, &epoll);
        let connections = Connections::open(&config, epoll)?;
        let copies = Arc::default();
        let status = status_page::status(&config, connections.endpoint_id())?;
        let mut core = Core {
            matcher: Matcher::new(u64::from_ne_bytes(random()?)),
            ops: OpTable::default(),
            gets: VecDeque::new(),
            puts: VecDeque::new(),
            blocked: Vec::new(),
            wakes: Wakes::default(),
            lane_budget: Budget::new(config.lane_bytes_max),
            grants: Budget::new(config.unexpected_bytes_max),
            imported: ImportedExtents::new(config.mapped_bytes_max),
            donations_out: 0,
            awaits_returns: 0,
            prefault: Prefault::new(config.prepares != Some(false)),
            registry: Registry::default(),
            active: Queues::new(config.active_bytes_max, std::mem::take(&mut config.handlers)),
            store: Copier::new(Reader::Me, &copies),
            copies,
            driver,
            has_sent: false,
            unlocked: Arc::new(UnlockedCopies::new(status.unlocked())),
            model: route::model(),
            strict: config.strict,
            moves: config.moves,
            is_short: false,
            status,
        };
        core.ops.given = Accounts::new(config.given_bytes_max, config.frames_max);
        Ok(Box::new(Engine {
            config,
            peers: PeerTable::default(),
            core,
            connections,
            hot: Vec::new(),
            poll_set: PollSet::default(),
            newcomers: VecDeque::new(),
            spin: SpinPolicy::default(),
            rest: SleepPolicy::new(),
            polls: 0,
            events_at: 0,
            credit_at: 0,
            asleep: false,
            armed: false,
            driven: false,
            control_flush: false,
            news: false,
            followers: Followers::default(),
            kick: false,
            closed: false,
            gone_told: 0,
        }))
    }

    /// Checks that the endpoint is still open.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<()> {
        if self.closed {
            return Err(Error::Closed);
        }
        Ok(())
    }

    /// Wakes a sleeping leader for a change that it would not notice.
    pub(crate) fn kick_if_needed(&mut self) {
        if !self.asleep {
            return;
        }
        let peers = &mut self.peers;
        let unasked = |index: &u32| peers.at_mut(*index).is_some_and(|peer| !peer.room_asked);
        self.kick |= self.core.blocked.iter().any(unasked)
            || !self.core.puts.is_empty()
            || self.core.has_get_work()
            || self.core.active.has_chores()
            || self.core.driver.has_news();
    }

    /// Returns whether a turn of progress would do anything but take messages that have come.
    pub(crate) fn has_chores(&self) -> bool {
        !self.core.blocked.is_empty()
            || !self.core.gets.is_empty()
            || !self.core.puts.is_empty()
            || self.core.active.has_chores()
    }

    /// The connected peer, or the error that tells how it went.
    #[inline(always)]
    pub(crate) fn peer_mut(&mut self, id: PeerId) -> Result<(&mut Peer, &mut Core)> {
        // Asked twice, for the borrow checker's sake; the answer is the same.
        self.present(id)?;
        match self.peers.get_mut(id) {
            Some(peer) => Ok((peer, &mut self.core)),
            None => Err(Error::UnknownPeer { peer: id }),
        }
    }

    /// Checks that a peer is connected; the error tells how it went.
    #[inline(always)]
    pub(crate) fn present(&self, id: PeerId) -> Result<()> {
        match self.peers.get(id) {
            Some(peer) => match peer.leaving() {
                None => Ok(()),
                Some(how) => Err(gone(&peer.info.name, how)),
            },
            None => Err(self.peers.why_gone(id)),
        }
    }

    /// Facts about the connected peers.
    pub(crate) fn infos(&self) -> Vec<PeerInfo> {
        let present = self.peers.iter().filter(|peer| !peer.is_leaving());
        present.map(|peer| peer.info.clone()).collect()
    }

    /// Takes the result of an operation off the table, if it has ended.
    #[inline]
    pub(crate) fn take_done(&mut self, key: OpKey) -> Option<Result<Done>> {
        match self.core.ops.get(key) {
            Some(op) if op.done.is_some() => self.core.ops.take_done(key),
            Some(_) => None,
            None => Some(Err(Error::Closed)),
        }
    }

    /// Tries to take an operation back. Returns whether it has ended or will end as cancelled;
    /// `false`: it goes on to its end.
    pub(crate) fn cancel(&mut self, key: OpKey) -> bool {
        let cancelled = self.take_back(key);
        self.update_gauges();
        cancelled
    }

    fn take_back(&mut self, key: OpKey) -> bool {
        let Some(op) = self.core.ops.get_mut(key) else { return false };
        if op.done.is_some() {
            return false;
        }
        match &mut op.kind {
            OpKind::Open(_) => false,
            OpKind::Connect => self.hang_up(key),
            OpKind::Accept => self.stop_accepting(key),
            OpKind::Multi(multi) => match multi.posted.take() {
                Some(posted) => {
                    self.core.matcher.cancel(posted);
                    self.core.finish(key, Err(Error::Cancelled));
                    true
                }
                None => false,
            },
            OpKind::Recv(recv) => match recv.stage {
                RecvStage::Posted(posted) => {
                    self.core.matcher.cancel(posted);
                    self.core.finish(key, Err(Error::Cancelled));
                    true
                }
                _ => false,
            },
            OpKind::Send(send) => match &mut send.stage {
                SendStage::Fresh if send.served.is_none() => {
                    let id = send.peer;
                    if let Some(peer) = self.peers.get_mut(id) {
                        peer.unqueue_send(key);
                        self.core.update_peer_gauges(peer);
                    }
                    self.core.finish(key, Err(Error::Cancelled));
                    true
                }
                SendStage::Waiting { cancelled } if !*cancelled => {
                    *cancelled = true;
                    let id = send.peer;
                    if let Some(peer) = self.peers.get_mut(id) {
                        self.core.answer(peer, Kind::Cancel, key.index, &[]);
                    }
                    true
                }
                _ => false,
            },
        }
    }

    /// The scope of an operation ends: a receive is given up, a send only if the scope unwinds.
    pub(crate) fn end_of_scope(&mut self, key: OpKey, unwinding: bool) {
        let is_recv = matches!(self.core.ops.get(key).map(|op| &op.kind), Some(OpKind::Recv(_)));
        if is_recv || unwinding {
            self.relinquish(key);
        }
    }
}
