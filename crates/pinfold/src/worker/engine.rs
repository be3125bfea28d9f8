//! The engine: the type, and what every room of it asks of the whole.

use std::{collections::VecDeque, sync::Arc};

use pinfold_sys::{cpu::clock, io::poll::Epoll};

use crate::{
    Error, PeerId, Result,
    copy::{Copier, Reader},
    memory::imported_extents::ImportedExtents,
    policy::{route, sleep::SleepPolicy, spin::SpinPolicy},
    protocol::{active::queue::Queues, handoff::account::Accounts, rma::registry::Registry},
    transport::shm::budget::Budget,
    worker::{
        self,
        config::Config,
        connections::{self, Connections},
        core::Core,
        followers::Followers,
        matching::Matcher,
        op::{Done, OpKey, Wakes, gone},
        op_table::OpTable,
        peer::{Peer, PeerInfo},
        poll_set::PollSet,
        prefault::Prefault,
        stand_by::Waits,
        status_page,
        table::PeerTable,
        unlocked_counts::UnlockedCopies,
    },
};

pub(crate) struct Engine {
    pub config: Config,
    pub peers: PeerTable,
    pub core: Core,
    pub connections: Connections,
    /// Peers (by index) whose lanes are polled.
    pub(super) hot: Vec<u32>,
    /// The set of those on other hosts that are among them.
    pub(super) poll_set: PollSet,
    /// Peers that connected and have not been accepted.
    pub newcomers: VecDeque<PeerId>,
    pub spin: SpinPolicy,
    pub(super) rest: SleepPolicy,
    pub(super) polls: u32,
    pub(super) events_at: u64,
    /// The time of the next look at credit for other processes to see.
    pub(super) credit_at: u64,
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
    /// The looks of calls that wait, for the endpoint's own thread.
    pub(super) waits: Waits,
    /// True if a sleeping leader has to look again.
    pub kick: bool,
    /// Extents of arenas of this process that were gone when the peers were last told.
    pub(super) gone_told: u64,
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
            matcher: Matcher::new(u64::from_ne_bytes(worker::random()?)),
            ops: OpTable::default(),
            probes: Vec::new(),
            gets: VecDeque::new(),
            puts: VecDeque::new(),
            lent: Vec::new(),
            closed: false,
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
            yields_once: false,
            is_shared: false,
            status,
        };
        let spin = SpinPolicy::new(config.heeds_shortage);
        core.ops.given = Accounts::new(config.given_bytes_max, config.frames_max);
        Ok(Box::new(Engine {
            config,
            peers: PeerTable::default(),
            core,
            connections,
            hot: Vec::new(),
            poll_set: PollSet::default(),
            newcomers: VecDeque::new(),
            spin,
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
            waits: Waits::default(),
            kick: false,
            gone_told: 0,
        }))
    }

    /// Checks that the endpoint is still open.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<()> {
        if self.core.closed {
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
            || !self.core.lent.is_empty()
            || self.core.has_put_work()
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
}
