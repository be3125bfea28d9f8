//! Teardown: how a peer goes, and how the endpoint closes.

use super::{
    answers,
    connections::Connections,
    core::{Core, Unexpected},
    credit, ends,
    engine::Engine,
    gauges, inbound,
    matching::{Source, TagMatch},
    op::{OpKey, OpKind, RecvStage},
    outstanding,
    peer::Peer,
    table::PeerTable,
    transport_sends,
};
use crate::{
    Error, Gone, PeerId,
    failpoint::{self, Point},
    protocol::{handoff::after_close, rendezvous::get},
    status::Tally,
    transport::{local::Limits, shm::ring::Violation},
    wire::descriptor::Kind,
};

/// Ends the connection with a peer that broke the protocol.
#[cold]
pub(crate) fn cut_off(engine: &mut Engine, id: PeerId, violation: Violation) {
    remove_peer(engine, id, Gone::Misbehaved(violation.0));
}

/// The connection with a peer ends, `how`: takes the messages that it still sent, ends every
/// operation with it, frees all that it held.
///
/// A live peer that is in the middle of writing into a receive of ours is only let go once it
/// has reported, or its process has ended; that receive ends then, everything else now.
#[cold]
pub(crate) fn remove_peer(engine: &mut Engine, id: PeerId, how: Gone) {
    let Some(peer) = engine.peers.get_mut(id) else { return };
    let first = !peer.is_leaving();
    // An orderly close comes from the peer's own thread, which then is not in mid-copy; a dead
    // process has none.
    let stopped = matches!(how, Gone::Closed | Gone::Died | Gone::Lost(_));
    // A thread of this side that is writing into its memory goes on for a while: the peer takes
    // that memory back as soon as it hears that this side is gone.
    let writes = how != Gone::Died && peer.lent_puts > 0;
    let how = peer.leaving().unwrap_or(how);
    peer.leave(how);
    // Messages it had written whole before it went are still good, and so is memory it gave,
    // unless it took that back.
    let stays_given = how == Gone::Died || how == Gone::Closed && peer.rx.has_left();
    if first && stopped {
        if stays_given {
            after_close::take_last_extents(&mut engine.core.imported, peer);
        }
        while let Some(header) = peer.rx.head() {
            if let Err(violation) = inbound::receive(&mut engine.core, peer, header) {
                peer.leave(Gone::Misbehaved(violation.0));
                break;
            }
        }
    }
    let how = peer.leaving().unwrap_or(how);
    if first && stays_given {
        after_close::take_over(&mut engine.core, peer);
        // The last hold on the memory that it gave goes with the tie.
        drop(peer.rx.tie());
    }
    // A peer that is gone needs no farewell, which would also end the memory that it gave.
    if first && !stays_given {
        if writes {
            peer.owes_farewell = true;
        } else {
            say_farewell(&mut engine.core, peer, how);
        }
    }
    if how != Gone::Died {
        peer.transport.say_goodbye();
    }
    // Messages sent before it went have been sent; the memory of the rest goes back to its
    // owners.
    transport_sends::end_sent(&mut engine.core, peer);
    peer.transport.settle();
    let may_write = get::stop_gets(&mut engine.core.ops, &mut engine.core.gets, peer)
        && peer.cma_access.is_alive();
    let may_write = may_write && !stopped;
    let name = peer.info.name.clone();
    engine.kick = true;
    engine.core.wakes.any = true;
    end_operations(engine, id, &name, how, may_write);
    if !may_write && !writes {
        record_gone(engine, id, how);
    }
}

/// Tells a peer that this side is gone.
fn say_farewell(core: &mut Core, peer: &mut Peer, how: Gone) {
    match how {
        Gone::Disconnected if peer.shares_memory() => {
            after_close::let_frames_go(core, peer);
            after_close::leave_donations(core, peer);
        }
        _ => peer.tx.say_closed(),
    }
}

/// A copy into a peer's memory has ended: lets a peer go that stayed for it.
pub(crate) fn writes_no_more(engine: &mut Engine, id: PeerId) {
    let Some(peer) = engine.peers.get_mut(id) else { return };
    let Some(how) = peer.leaving() else { return };
    if peer.lent_puts > 0 {
        return;
    }
    if std::mem::take(&mut peer.owes_farewell) {
        say_farewell(&mut engine.core, peer, how);
    }
    if !is_awaited(&engine.core, id) {
        record_gone(engine, id, how);
        // A thread that closes the endpoint may wait for this.
        engine.kick = true;
        engine.core.wakes.any = true;
    }
}

/// Returns whether receives of a peer's messages have not ended.
fn is_awaited(core: &Core, id: PeerId) -> bool {
    core.gets.iter().any(|key| core.ops.stays_for(*key, id))
}

/// Ends the operations with a peer; but not, if it `stays` for that, the receives it may still
/// write to.
fn end_operations(engine: &mut Engine, id: PeerId, name: &str, how: Gone, stays: bool) {
    for key in engine.core.matcher.drop_posted(|from| from == Source::Peer(id)) {
        let error = engine.core.why_gone(name, how);
        ends::finish(&mut engine.core, key, Err(error));
    }
    // Messages that are whole stay; one that is not stays as a mark, so that no receive takes a
    // later one for it.
    engine.core.matcher.each_unexpected_of(id, |unexpected| {
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
    let cut = engine.core.active.cut(id);
    engine.core.status.unhandled.add(cut);
    let theirs: Vec<OpKey> = engine
        .core
        .ops
        .open()
        .filter(|(_, op)| match &op.kind {
            OpKind::Connect | OpKind::Accept | OpKind::Probe => false,
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
                RecvStage::Getting(get) => {
                    get.peer == id && !get.is_left && !(stays && get.awaits_sender())
                }
                // A following receive ends with the one that it follows.
                RecvStage::Posted(_) | RecvStage::Moving | RecvStage::Following(_) => false,
            },
        })
        .map(|(key, _)| key)
        .collect();
    let lost =
        theirs.iter().filter(|key| outstanding::is_lost(&engine.core.ops, **key, how)).count()
            as u64
            + engine.core.ops.given.close(id);
    if lost > 0 {
        tracing::warn!(peer = name, messages = lost, "not delivered: nobody had waited for them");
        engine.core.status.undelivered.add(lost);
    }
    for key in theirs {
        let error = engine.core.why_gone(name, how);
        ends::finish(&mut engine.core, key, Err(error));
    }
    let ops = &engine.core.ops;
    let open = |key: &OpKey| ops.get(*key).is_some_and(|op| op.done.is_none());
    engine.core.gets.retain(open);
    engine.core.puts.retain(open);
    if let Some(peer) = engine.peers.get_mut(id) {
        gauges::update_peer_gauges(&engine.core.ops, peer);
    }
    gauges::update_gauges(engine);
}

/// Frees all that a peer held. Every operation with it has ended.
pub(crate) fn record_gone(engine: &mut Engine, id: PeerId, how: Gone) {
    let Some(peer) = engine.peers.remove(id, how) else { return };
    tracing::debug!(peer = peer.info.name, %how, "a peer is gone");
    engine.core.status.strike(id);
    engine.core.status.peers_gone.add(1);
    engine.hot.retain(|index| *index != id.index());
    engine.poll_set.forget(id.index());
    if peer.hot && peer.is_turned() {
        engine.poll_set.end();
    }
    engine.core.blocked.retain(|index| *index != id.index());
    engine.newcomers.retain(|newcomer| *newcomer != id);
    engine.connections.forget(&peer);
    engine.core.imported.drop_peer(id);
    engine.core.registry.forget_gone();
    engine.core.donations_out -= peer.given.len();
    engine.core.lane_budget.give(peer.tx.budgeted() + peer.transport.budgeted());
    credit::ungrant(
        &mut engine.core.grants,
        Limits { unexpected_bytes: peer.granted, rendezvous_max: peer.announced_max },
    );
    if nobody_left(&engine.peers, &engine.connections).is_some() {
        for key in engine.core.matcher.drop_posted(|from| from == Source::Any) {
            let error = nobody_left(&engine.peers, &engine.connections)
                .filter(|_| !engine.core.closed)
                .unwrap_or(Error::Closed);
            ends::finish(&mut engine.core, key, Err(error));
        }
    }
}

/// Takes the reports of a peer that is being let go; lets it go after the last.
#[cold]
pub(crate) fn poll_leaving(engine: &mut Engine, index: u32, how: Gone) {
    let Some(peer) = engine.peers.at_mut(index) else { return };
    let id = peer.id;
    while let Some(header) = peer.rx.head() {
        let report = header.kind() == Some(Kind::Wrote);
        // Its other messages, and its faults, no longer matter.
        if report && inbound::receive(&mut engine.core, peer, header).is_ok() {
            continue;
        }
        if peer.rx.advance(header).is_err() {
            break;
        }
    }
    let writes = engine.peers.get_mut(id).is_some_and(|peer| peer.lent_puts > 0);
    if !writes && !is_awaited(&engine.core, id) {
        record_gone(engine, id, how);
    }
}

/// The error of a receive from any source that no peer can satisfy any more.
pub(crate) fn nobody_left(peers: &PeerTable, connections: &Connections) -> Option<Error> {
    if peers.live() > 0 || connections.may_join() {
        return None;
    }
    let (last, how) = peers.last_gone()?;
    Some(Error::NobodyLeft { last: last.to_owned(), how })
}

/// Ends everything, in good order.
pub(crate) fn close(engine: &mut Engine) {
    if engine.core.closed {
        return;
    }
    engine.core.closed = true;
    failpoint::hit(Point::BeforeClose);
    for id in engine.peers.ids() {
        if let Some(peer) = engine.peers.get_mut(id) {
            answers::publish(&mut engine.core, peer);
        }
        remove_peer(engine, id, Gone::Disconnected);
    }
    // Nothing can be received any more.
    while let Some((.., unexpected)) = engine.core.matcher.take(Source::Any, TagMatch::any()) {
        if let Unexpected::Left { memory, .. } = unexpected {
            after_close::let_go_of(&mut engine.core.imported, memory);
        }
    }
    let open: Vec<OpKey> = engine.core.ops.open().map(|(key, _)| key).collect();
    for key in open {
        // Receives that a peer may still write to end when that peer has reported.
        if !engine.core.ops.is_awaiting(key) {
            ends::finish(&mut engine.core, key, Err(Error::Closed));
        }
    }
    engine.core.active.close(&mut engine.core.wakes);
    engine.connections.close();
    engine.core.status.withdraw();
}

/// Prepares the engine for its end in a child of the process whose endpoint it is.
pub(crate) fn forsake(engine: &mut Engine) {
    engine.core.closed = true;
    // The mappings did not come along, and their addresses may be anything by now; the name
    // in the file system is the parent's.
    std::mem::forget(std::mem::take(&mut engine.peers));
    std::mem::forget(std::mem::take(&mut engine.core.lent));
    engine.core.registry.forsake();
    engine.connections.forsake();
    engine.core.status.forsake();
}

/// Returns whether nothing is left that a peer waits to hear from this side, or still uses.
pub(crate) fn is_flushed(engine: &Engine) -> bool {
    engine.core.registry.deferred_free.is_empty()
        && engine
            .peers
            .iter()
            .all(|peer| peer.controls() == 0 && !peer.is_leaving() && peer.transport.is_quiet())
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A peer that never reported may write at any time: its targets are never given back.
        if self.peers.iter().any(|peer| peer.is_leaving()) {
            std::mem::forget(std::mem::take(&mut self.core.ops));
        }
    }
}
