//! Gauges for other processes to see, updated as they change.
//!
//! The fast path updates only its counters. Every operation that queues, stores or waits goes the
//! ordinary way, which ends here, with a few numbers that are compared and seldom stored.

use pinfold_sys::cpu::{barrier, clock};

use super::{
    core::Core,
    engine::Engine,
    op::{OpKey, SendStage},
    op_table::OpTable,
    peer::{Peer, PeerInfo},
    unlocked_counts::UnlockedCopies,
};
use crate::{
    Path,
    copy::Counts,
    status::{Introduction, Status, Tally, flags, state},
};

/// Between looks at how much receivers have taken, for the credit that other processes see.
const CREDIT_EVERY_NS: u64 = 20_000_000;

/// Stores the identity of a new peer, and its `place` on another host.
pub(crate) fn introduce(
    ops: &OpTable,
    status: &Status,
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
    status.introduce(&peer.record, &who);
    update_peer_gauges(ops, peer);
}

/// Stores how much is queued and waits with a peer.
#[inline]
pub(crate) fn update_peer_gauges(ops: &OpTable, peer: &Peer) {
    let record = &peer.record;
    if !record.is_listed() {
        return;
    }
    record.queued.set(peer.sends().len() as u64);
    record.answers.set(peer.controls() as u64);
    peer.update_waiting_gauges();
    update_given_gauges(ops, peer);
    record.note_credit(peer.sent_cost - peer.released);
    record.owed.set(peer.owed);
    record.announced.set(peer.announced.len() as u64);
    record.arriving.set(peer.inbound.len() as u64);
    record.lane_bytes.set(peer.tx.memory() as u64);
    let flag = |is: bool, flag| if is { flag } else { 0 };
    record.flags.set(
        flag(peer.blocked, flags::BLOCKED)
            | flag(peer.hot, flags::POLLED)
            | flag(peer.is_leaving(), flags::LEAVING)
            | flag(peer.info.encryption.is_some(), flags::ENCRYPTED),
    );
}

/// The bytes copied by algorithms that were chosen, under the lock and beside it.
pub(crate) fn copies(copies: &crate::copy::Tally, unlocked: &UnlockedCopies) -> Counts {
    let mut counts = copies.counts();
    counts += &unlocked.counts();
    counts
}

/// Stores how the memory of messages was translated.
fn update_translation_gauges(core: &Core) {
    let (counts, status) = (core.driver.translations(), &core.status);
    let levels = status.translated.iter().zip(counts.by_level);
    levels.for_each(|(word, count)| word.set(count));
    status.pin_evictions.set(counts.evictions);
    status.pinned_bytes.set(counts.pinned_bytes);
}

/// Stores the bytes copied by algorithms that were chosen, and how memory was translated.
pub(crate) fn update_copy_gauges(core: &Core) {
    update_translation_gauges(core);
    let (bulk, streamed) = core.copies.copied_bytes();
    core.status.copied_bulk.set(bulk);
    core.status.copied_streamed.set(streamed);
    core.status.note_copies(&copies(&core.copies, &core.unlocked));
}

/// Notes a send that is announced `now`, ticks.
#[inline]
pub(crate) fn note_wait(ops: &mut OpTable, peer: &mut Peer, key: OpKey, now: u64) {
    if peer.waiting == 0 {
        // The stored time is of earlier sends.
        peer.record.waits_since_ns.set(0);
    }
    peer.waits.announce(key, now, peer.waiting, |key| is_waiting(ops, key));
}

/// Stores since when the send to a peer has waited that has waited longest; now, in ticks and
/// ns.
fn update_wait_gauges(ops: &mut OpTable, peer: &mut Peer, now: u64, now_ns: u64) {
    let front = peer.sends().front().copied();
    let oldest = peer.waits.oldest(front, now, |key| is_waiting(ops, key));
    let since = oldest.map(|since| now_ns - clock::ns_of(now.saturating_sub(since)).min(now_ns));
    peer.record.waits_since_ns.set(since.unwrap_or(0));
}

fn is_waiting(ops: &mut OpTable, key: OpKey) -> bool {
    let send = ops.send_mut(key);
    send.is_some_and(|send| matches!(send.stage, SendStage::Waiting { .. }))
}

impl Peer {
    /// Stores how many announced messages the peer has not answered.
    #[inline(always)]
    pub(crate) fn update_waiting_gauges(&self) {
        if self.record.is_listed() {
            self.record.waiting.set(u64::from(self.waiting));
        }
    }
}

/// Stores how much waits at the endpoint as a whole.
#[inline]
pub(crate) fn update_gauges(engine: &Engine) {
    let (core, status) = (&engine.core, &engine.core.status);
    status.posted.set(core.matcher.posted_len() as u64);
    status.stored.set(core.matcher.unexpected_len() as u64);
    status.copying.set((core.gets.len() + core.puts.len()) as u64);
    status.mapped_bytes.set(core.imported.bytes() as u64);
    status.lane_bytes.set(core.lane_budget.used() as u64);
    status.granted_bytes.set(engine.core.grants.used() as u64);
    status.newcomers.set(engine.newcomers.len() as u64);
    status.barriers.set(barrier::issued());
}

/// Stores that the endpoint has looked around.
pub(crate) fn update_credit_gauges_if_due(engine: &mut Engine, now_ns: u64) {
    engine.core.status.looked_ns.set(now_ns);
    // A program that never waits finds the end of a shortage here.
    engine.core.is_short = engine.core.is_short && engine.spin.is_short(now_ns);
    update_gauges(engine);
    if now_ns >= engine.credit_at {
        engine.credit_at = now_ns + CREDIT_EVERY_NS;
        update_credit_gauges(engine, now_ns);
        update_copy_gauges(&engine.core);
    }
}

/// Stores that the endpoint sleeps from now on, one way or the other.
pub(crate) fn update_sleep_gauge(engine: &mut Engine, how: u64) {
    engine.core.status.state.set(how);
    let now_ns = clock::now_ns();
    engine.core.status.looked_ns.set(now_ns);
    update_gauges(engine);
    update_credit_gauges(engine, now_ns);
    update_copy_gauges(&engine.core);
}

/// Stores that the program waits on the descriptor, unless a thread sleeps on it already.
pub(crate) fn update_armed_gauge(engine: &mut Engine) {
    if !engine.asleep {
        update_sleep_gauge(engine, state::ARMED);
    }
}

/// Looks at how much the polled peers have taken, and since when sends to them wait.
fn update_credit_gauges(engine: &mut Engine, now_ns: u64) {
    let now = clock::ticks();
    for &index in &engine.hot {
        let Some(peer) = engine.peers.at_mut(index) else { continue };
        update_wait_gauges(&mut engine.core.ops, peer, now, now_ns);
        // A blocked peer's credit is read elsewhere, where a change of it would otherwise be
        // missed.
        if peer.sent_cost != peer.released && !peer.blocked {
            peer.refresh_credit();
        }
    }
}

/// Updates the gauges of the memory given to a peer.
#[inline]
pub(crate) fn update_given_gauges(ops: &OpTable, peer: &Peer) {
    if peer.record.is_listed() {
        peer.record.given_bytes.set(ops.given.out(peer.id));
    }
}
