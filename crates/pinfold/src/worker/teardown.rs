//! Teardown: how a peer goes, and how the endpoint closes.

use super::{
    Engine,
    core::{Core, Unexpected},
    op::{OpKey, OpKind, RecvStage, gone},
};
use crate::{
    Error, Gone, PeerId,
    failpoint::{self, Point},
    status::Tally,
    transport::{Ended, local::Limits, shm::ring::Violation},
    wire::descriptor::Kind,
    worker::matching::{Source, TagMatch},
};

impl Engine {
    /// Ends the connection with a peer that broke the protocol.
    #[cold]
    pub(crate) fn cut_off(&mut self, id: PeerId, violation: Violation) {
        self.remove_peer(id, Gone::Misbehaved(violation.0));
    }

    /// The connection with a peer on another host has ended, and with it the peer, unless it may
    /// come back.
    #[cold]
    pub(crate) fn connection_ended(&mut self, id: PeerId, ended: Ended) {
        if self.may_return(id, ended) {
            return;
        }
        let how = match ended {
            Ended::Closed => Gone::Closed,
            Ended::Gone => Gone::Died,
            Ended::Broken(errno) => Gone::Lost(errno),
            Ended::Violation(violation) => Gone::Misbehaved(violation.0),
        };
        self.remove_peer(id, how);
    }

    /// The connection with a peer ends, `how`: takes the messages that it still sent, ends every
    /// operation with it, frees all that it held.
    ///
    /// A live peer that is in the middle of writing into a receive of ours is only let go once it
    /// has reported, or its process has ended; that receive ends then, everything else now.
    #[cold]
    pub(crate) fn remove_peer(&mut self, id: PeerId, how: Gone) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        let first = !peer.is_leaving();
        // An orderly close comes from the peer's own thread, which then is not in mid-copy; a dead
        // process has none.
        let stopped = matches!(how, Gone::Closed | Gone::Died | Gone::Lost(_));
        let how = peer.leaving().unwrap_or(how);
        peer.leave(how);
        // Messages it had written whole before it went are still good, and so is memory it gave,
        // unless it took that back.
        let stays_given = how == Gone::Died || how == Gone::Closed && peer.rx.has_left();
        if first && stopped {
            if stays_given {
                self.core.take_last_extents(peer);
            }
            while let Some(header) = peer.rx.head() {
                if let Err(violation) = self.core.receive(peer, header) {
                    peer.leave(Gone::Misbehaved(violation.0));
                    break;
                }
            }
        }
        let how = peer.leaving().unwrap_or(how);
        if first && stays_given {
            self.core.take_over(peer);
            // The last hold on the memory that it gave goes with the tie.
            drop(peer.rx.tie());
        }
        // A peer that is gone needs no farewell, which would also end the memory that it gave.
        if first && !stays_given {
            match how {
                Gone::Disconnected if peer.shares_memory() => {
                    self.core.let_frames_go(peer);
                    self.core.leave_donations(peer);
                }
                _ => peer.tx.say_closed(),
            }
        }
        if how != Gone::Died {
            peer.transport.say_goodbye();
        }
        // Messages sent before it went have been sent; the memory of the rest goes back to its
        // owners.
        self.core.end_sent(peer);
        peer.transport.settle();
        let may_write = self.core.stop_gets(peer) && peer.cma_access.is_alive();
        let stays = may_write && !stopped;
        let name = peer.info.name.clone();
        self.kick = true;
        self.core.wakes.any = true;
        self.end_operations(id, &name, how, stays);
        if !stays {
            self.record_gone(id, how);
        }
    }

    /// Ends the operations with a peer; but not, if it `stays` for that, the receives it may still
    /// write to.
    fn end_operations(&mut self, id: PeerId, name: &str, how: Gone, stays: bool) {
        let closed = self.closed;
        let error = || if closed { Error::Closed } else { gone(name, how) };
        for key in self.core.matcher.drop_posted(|from| from == Source::Peer(id)) {
            self.core.finish(key, Err(error()));
        }
        // Messages that are whole stay; one that is not stays as a mark, so that no receive takes a
        // later one for it.
        self.core.matcher.each_unexpected_of(id, |unexpected| {
            let is_whole = matches!(
                unexpected,
                Unexpected::Whole { .. }
                    | Unexpected::Left { .. }
                    | Unexpected::Again { .. }
                    | Unexpected::NoMemory { .. }
            );
            if !is_whole {
                *unexpected = Unexpected::Lost;
            }
        });
        let cut = self.core.active.cut(id);
        self.core.status.unhandled.add(cut);
        let theirs: Vec<OpKey> = self
            .core
            .ops
            .open()
            .filter(|(_, op)| match &op.kind {
                OpKind::Connect | OpKind::Accept => false,
                OpKind::Open(asked) => asked.peer == id,
                // Its messages end, and it with them if it waits for this peer alone.
                OpKind::Multi(_) => false,
                OpKind::Send(send) => send.peer == id,
                OpKind::Recv(recv) => match &recv.stage {
                    RecvStage::Streaming { peer }
                    | RecvStage::Asked { peer, .. }
                    | RecvStage::InParts { peer, .. } => *peer == id,
                    RecvStage::ServedRequest(using) => using.peer == id,
                    RecvStage::Requested(requested) => requested.peer == id,
                    RecvStage::Getting(get) => get.peer == id && !(stays && get.awaits_sender()),
                    // A following receive ends with the one that it follows.
                    RecvStage::Posted(_) | RecvStage::Moving | RecvStage::Following(_) => false,
                },
            })
            .map(|(key, _)| key)
            .collect();
        let lost = theirs.iter().filter(|key| self.core.is_lost(**key, how)).count() as u64
            + self.core.ops.given.close(id);
        if lost > 0 {
            tracing::warn!(
                peer = name,
                messages = lost,
                "not delivered: nobody had waited for them"
            );
            self.core.status.undelivered.add(lost);
        }
        for key in theirs {
            self.core.finish(key, Err(error()));
        }
        let ops = &self.core.ops;
        let open = |key: &OpKey| ops.get(*key).is_some_and(|op| op.done.is_none());
        self.core.gets.retain(open);
        self.core.puts.retain(open);
        if let Some(peer) = self.peers.get_mut(id) {
            self.core.update_peer_gauges(peer);
        }
        self.update_gauges();
    }

    /// Frees all that a peer held. Every operation with it has ended.
    pub(crate) fn record_gone(&mut self, id: PeerId, how: Gone) {
        let Some(peer) = self.peers.remove(id, how) else { return };
        tracing::debug!(peer = peer.info.name, %how, "a peer is gone");
        self.core.status.strike(id);
        self.core.status.peers_gone.add(1);
        self.hot.retain(|index| *index != id.index);
        self.poll_set.forget(id.index);
        if peer.hot && peer.is_turned() {
            self.poll_set.end();
        }
        self.core.blocked.retain(|index| *index != id.index);
        self.newcomers.retain(|newcomer| *newcomer != id);
        self.connections.forget(&peer);
        self.core.imported.drop_peer(id);
        self.core.registry.forget_gone();
        self.core.donations_out -= peer.given.len();
        self.core.lane_budget.give(peer.tx.budgeted() + peer.transport.budgeted());
        self.ungrant(Limits { unexpected_bytes: peer.granted, rendezvous_max: peer.announced_max });
        if self.nobody_left().is_some() {
            for key in self.core.matcher.drop_posted(|from| from == Source::Any) {
                let error = self.nobody_left().filter(|_| !self.closed).unwrap_or(Error::Closed);
                self.core.finish(key, Err(error));
            }
        }
    }

    /// Takes the reports of a peer that is being let go; lets it go after the last.
    #[cold]
    pub(crate) fn poll_leaving(&mut self, index: u32, how: Gone) {
        let Some(peer) = self.peers.at_mut(index) else { return };
        let id = peer.id;
        let awaiting = |core: &Core| {
            let of_this = |key: &OpKey| core.ops.awaits_sender(*key, id);
            core.gets.iter().copied().filter(of_this).collect::<Vec<OpKey>>()
        };
        let before = awaiting(&self.core);
        while let Some(header) = peer.rx.head() {
            let report = header.kind() == Some(Kind::Wrote);
            // Its other messages, and its faults, no longer matter.
            if report && self.core.receive(peer, header).is_ok() {
                continue;
            }
            if peer.rx.advance(header).is_err() {
                break;
            }
        }
        if self.closed {
            // At a closed endpoint, the receives that waited for the report end with its error.
            for key in before {
                if let Some(op) = self.core.ops.get_mut(key) {
                    op.done = op.done.take().map(|_| Err(Error::Closed));
                }
            }
        }
        if awaiting(&self.core).is_empty() {
            self.record_gone(id, how);
        }
    }

    /// The error of a receive from any source that no peer can satisfy any more.
    pub(crate) fn nobody_left(&self) -> Option<Error> {
        if self.peers.live() > 0 || self.connections.may_join() {
            return None;
        }
        let (last, how) = self.peers.last_gone()?;
        Some(Error::NobodyLeft { last: last.to_owned(), how })
    }

    /// Ends everything, in good order.
    pub(crate) fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        failpoint::hit(Point::BeforeClose);
        for id in self.peers.ids() {
            if let Some(peer) = self.peers.get_mut(id) {
                Engine::publish(&mut self.core, peer);
            }
            self.remove_peer(id, Gone::Disconnected);
        }
        // Nothing can be received any more.
        while let Some((.., unexpected)) = self.core.matcher.take(Source::Any, TagMatch::any()) {
            if let Unexpected::Left { memory, .. } = unexpected {
                self.core.let_go_of(memory);
            }
        }
        let open: Vec<OpKey> = self.core.ops.open().map(|(key, _)| key).collect();
        for key in open {
            // Receives that a peer may still write to end when that peer has reported.
            if !self.core.ops.is_awaiting(key) {
                self.core.finish(key, Err(Error::Closed));
            }
        }
        self.core.active.close(&mut self.core.wakes);
        self.connections.close();
        self.core.status.withdraw();
    }

    /// Prepares the engine for its end in a child of the process whose endpoint it is.
    pub(crate) fn forsake(&mut self) {
        self.closed = true;
        // The mappings did not come along, and their addresses may be anything by now; the name
        // in the file system is the parent's.
        std::mem::forget(std::mem::take(&mut self.peers));
        self.core.registry.forsake();
        self.connections.forsake();
        self.core.status.forsake();
    }

    /// Returns whether nothing is left that a peer waits to hear from this side, or still uses.
    pub(crate) fn is_flushed(&self) -> bool {
        self.core.registry.deferred_free.is_empty()
            && self
                .peers
                .iter()
                .all(|peer| peer.controls() == 0 && !peer.is_leaving() && peer.transport.is_quiet())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A peer that never reported may write at any time: its targets are never given back.
        if self.peers.iter().any(|peer| peer.is_leaving()) {
            std::mem::forget(std::mem::take(&mut self.core.ops));
        }
    }
}
