//! Answers to peers: descriptors that must not wait for room, and the bell behind them.

use pinfold_sys::cpu::clock;

use crate::{
    failpoint::{self, Point},
    status::Tally,
    wire::descriptor::{Header, Kind},
    worker::{
        core::Core,
        peer::{Control, Peer},
        transport_sends,
    },
};

/// Answers that a peer may leave waiting: it asks for no more until it takes them.
pub(crate) const ANSWERS_MAX: usize = 4096;
/// Consumed descriptors after which the sender is told of them at the latest.
pub(crate) const PUBLISH_AFTER: u64 = 16;

/// Sends an answer: at once if there is room and nothing waits before it, else queued.
pub(crate) fn answer(core: &mut Core, peer: &mut Peer, kind: Kind, aux: u32, words: &[u64]) {
    answer_by(core, peer, Header::new(kind, 0, aux), words);
}

/// The same of a descriptor with this header.
pub(crate) fn answer_by(core: &mut Core, peer: &mut Peer, header: Header, words: &[u64]) {
    if peer.controls() == 0 && peer.tx.has_room(&mut core.lane_budget) == Ok(true) {
        peer.tx.push(header, words);
        ring(core, peer);
        return;
    }
    let mut body = [0; 7];
    body[..words.len()].copy_from_slice(words);
    peer.queue_control(Control { header, body, words: words.len() });
    core.block(peer);
}

/// Wakes the peer if it sleeps.
#[inline(always)]
pub(crate) fn ring(core: &mut Core, peer: &mut Peer) {
    if peer.tx.must_ring(peer.fence) {
        ring_now(core, peer);
    }
}

#[cold]
pub(crate) fn ring_now(core: &mut Core, peer: &mut Peer) {
    if peer.is_turned() {
        peer.transport.hand_on();
        transport_sends::end_sent(core, peer);
        return;
    }
    peer.record.doorbells_sent.add(1);
    peer.tx.say_rung(clock::now_ns());
    core.yields_once = true;
    // A peer that is gone cannot be rung; its socket tells the thread that polls it.
    if let Err(error) = peer.transport.ring() {
        tracing::debug!(%error, peer = peer.info.name, "ringing failed");
    }
}

/// Tells the peer how many descriptors have been consumed.
#[inline(always)]
pub(crate) fn publish(core: &mut Core, peer: &mut Peer) {
    failpoint::hit(Point::BeforePublish);
    if peer.rx.publish() {
        ring_now(core, peer);
    }
    failpoint::hit(Point::AfterPublish);
}
