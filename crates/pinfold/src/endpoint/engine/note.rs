//! What is put down for others to see: gauges, as they change.
//!
//! The quick way puts down nothing but its counters. Whatever queues, stores or waits goes the
//! ordinary way, which ends here, with a few numbers that are compared and seldom stored.

use pinfold_sys::{barrier, clock};

use super::{
    Engine,
    core::Core,
    op::{OpKey, SendStage},
    peer::{Peer, PeerInfo},
};
use crate::{
    Error, Path, Result,
    blockmem::Counts,
    endpoint::config::Config,
    status::{Identity, Introduction, Status, Tally, flags, state},
};

/// Between looks at what receivers have taken, for the credit that others see.
const CREDIT_EVERY_NS: u64 = 20_000_000;

/// The page of a new endpoint.
///
/// # Errors
/// As for [`Status::new`].
pub(super) fn status(config: &Config, id: [u8; 16]) -> Result<Status> {
    let status = Status::new(&Identity {
        id,
        label: &config.label,
        address: match (&config.listen, &config.listen_afar) {
            (Some(address), _) => Some(address.to_string()),
            (None, afar) => afar.as_ref().map(ToString::to_string),
        },
        lane_bytes_max: config.lane_bytes_max,
        unexpected_bytes_max: config.unexpected_bytes_max,
        mapped_bytes_max: config.mapped_bytes_max,
    });
    status.map_err(Error::failed("the endpoint"))
}

impl Core {
    /// Puts down who a new peer is, and at which `place` of another host.
    pub(super) fn introduce(
        &self,
        peer: &Peer,
        endpoint: [u8; 16],
        label: &str,
        place: Option<&str>,
    ) {
        let PeerInfo { id, pid, uid, address, paths, .. } = &peer.info;
        let refusal = |path: Path| peer.permissions.refusal(path);
        let who = Introduction {
            id: *id,
            endpoint,
            label,
            pid: *pid,
            uid: *uid,
            address: address.as_deref().or(place),
            paths: *paths,
            refusal: &refusal,
            credit_max: peer.window,
            waiting_max: peer.waiting_max,
            granted: peer.granted,
            announced_max: peer.announced_max,
        };
        self.status.introduce(&peer.record, &who);
        self.note_peer(peer);
    }

    /// Puts down what is queued and waits with a peer.
    #[inline]
    pub(crate) fn note_peer(&self, peer: &Peer) {
        let record = &peer.record;
        if !record.is_listed() {
            return;
        }
        record.queued.set(peer.out.len() as u64);
        record.answers.set(peer.control.len() as u64);
        peer.note_waiting();
        self.note_given(peer);
        record.note_credit(peer.sent_cost - peer.released);
        record.owed.set(peer.owed);
        record.announced.set(peer.announced.len() as u64);
        record.arriving.set(peer.inbound.len() as u64);
        record.lane_bytes.set(peer.tx.memory() as u64);
        let flag = |is: bool, flag| if is { flag } else { 0 };
        record.flags.set(
            flag(peer.blocked, flags::BLOCKED)
                | flag(peer.hot, flags::POLLED)
                | flag(peer.leaving.is_some(), flags::LEAVING)
                | flag(peer.info.encryption.is_some(), flags::ENCRYPTED),
        );
    }
}

impl Core {
    /// What was copied by algorithms that were chosen, under the lock and beside it.
    pub(crate) fn copies(&self) -> Counts {
        let mut counts = self.copies.counts();
        counts += &self.aside.counts();
        counts
    }

    /// Puts down what was copied by algorithms that were chosen.
    pub(crate) fn note_copies(&self) {
        let (bulk, streamed) = self.copies.copied_bytes();
        self.status.copied_bulk.set(bulk);
        self.status.copied_streamed.set(streamed);
        self.status.note_copies(&self.copies());
    }
}

impl Core {
    /// Takes note of a send that is announced `now`, ticks.
    #[inline]
    pub(super) fn note_wait(&mut self, peer: &mut Peer, key: OpKey, now: u64) {
        if peer.waiting == 0 {
            // What was put down is of others.
            peer.record.waits_since_ns.set(0);
        }
        peer.waits.announce(key, now, peer.waiting, |key| self.is_waiting(key));
    }

    /// Puts down since when the send to a peer has waited that has waited longest; now, in ticks and ns.
    fn note_waits(&mut self, peer: &mut Peer, now: u64, now_ns: u64) {
        let front = peer.out.front().copied();
        let oldest = peer.waits.oldest(front, now, |key| self.is_waiting(key));
        let since =
            oldest.map(|since| now_ns - clock::ns_of(now.saturating_sub(since)).min(now_ns));
        peer.record.waits_since_ns.set(since.unwrap_or(0));
    }

    fn is_waiting(&mut self, key: OpKey) -> bool {
        let send = self.ops.send_mut(key);
        send.is_some_and(|send| matches!(send.stage, SendStage::Waiting { .. }))
    }
}

impl Peer {
    /// Puts down how many messages it was told of and has not answered.
    #[inline(always)]
    pub(super) fn note_waiting(&self) {
        if self.record.is_listed() {
            self.record.waiting.set(u64::from(self.waiting));
        }
    }
}

impl Engine {
    /// Puts down what waits at the endpoint as a whole.
    #[inline]
    pub(crate) fn note(&self) {
        let (core, status) = (&self.core, &self.core.status);
        status.posted.set(core.matcher.posted_len() as u64);
        status.stored.set(core.matcher.unexpected_len() as u64);
        status.copying.set((core.pulls.len() + core.pushes.len()) as u64);
        status.mapped_bytes.set(core.maps.bytes() as u64);
        status.lane_bytes.set(core.lane_budget.used() as u64);
        status.granted_bytes.set(self.core.grants.used() as u64);
        status.newcomers.set(self.newcomers.len() as u64);
        status.barriers.set(barrier::issued());
    }

    /// Puts down that the endpoint has looked around.
    pub(super) fn note_look(&mut self, now_ns: u64) {
        self.core.status.looked_ns.set(now_ns);
        self.note();
        if now_ns >= self.credit_at {
            self.credit_at = now_ns + CREDIT_EVERY_NS;
            self.note_credit(now_ns);
            self.core.note_copies();
        }
    }

    /// Puts down that the endpoint sleeps from now on, one way or the other.
    pub(crate) fn note_sleep(&mut self, how: u64) {
        self.core.status.state.set(how);
        let now_ns = clock::now_ns();
        self.core.status.looked_ns.set(now_ns);
        self.note();
        self.note_credit(now_ns);
        self.core.note_copies();
    }

    /// Puts down that the program waits on the descriptor, unless a thread sleeps on it already.
    pub(crate) fn note_armed(&mut self) {
        if !self.asleep {
            self.note_sleep(state::ARMED);
        }
    }

    /// Looks at what the peers that are polled have taken, and since when sends to them wait.
    fn note_credit(&mut self, now_ns: u64) {
        let now = clock::ticks();
        for &index in &self.hot {
            let Some(peer) = self.peers.at_mut(index) else { continue };
            self.core.note_waits(peer, now, now_ns);
            // What a blocked one waits for is looked at where it would otherwise be missed.
            if peer.sent_cost != peer.released && !peer.blocked {
                peer.refresh_credit();
            }
        }
    }
}
