//! Memory that is given as far as its receiver may hold that much: buffers that wait for that, and
//! messages of which only the newest counts.

use super::{
    account::{self, Offer},
    donate,
};
use crate::{
    Error, PeerId, Result,
    endpoint::DonatedBuf,
    status::Tally,
    worker::{
        self, Engine,
        core::Core,
        op::{Keeps, Op, OpKey, OpKind, SendOp, SendStage},
        outbound,
        peer::Peer,
        teardown,
    },
};

/// State of a donated buffer that its giver waits for.
pub(crate) enum Admission {
    /// The buffer waits until its receiver gives something back.
    Held,
    /// The buffer is in flight.
    Goes,
    /// The buffer has ended, as its operation says.
    Ended,
}

/// The state of a send of memory that is given.
pub(crate) fn admission(engine: &Engine, key: OpKey) -> Admission {
    match engine.core.ops.get(key) {
        Some(Op { kind: OpKind::Send(SendOp { charge: 0, .. }), done: None, .. }) => {
            Admission::Held
        }
        Some(Op { done: None, .. }) => Admission::Goes,
        _ => Admission::Ended,
    }
}

/// Charges a send of memory that is to be posted, if that may be given now: it then waits for
/// nothing but room and credit.
pub(crate) fn charge_early(engine: &mut Engine, mut send: SendOp) -> SendOp {
    let Ok((peer, core)) = engine.peer_mut(send.peer) else { return send };
    // A send that is charged later goes later: else it might wait for credit that those behind
    // it hold.
    let waits = peer.sends().iter().rev().find_map(|key| {
        let before = core.ops.send_mut(*key).filter(|before| before.given);
        before.map(|before| before.charge == 0)
    });
    if waits == Some(true) || !is_charged(core, peer, &mut send) {
        peer.record.given_stalls.add(1);
    }
    send
}

/// Gives up waiting for a donated buffer: it is taken back, or goes on to its end.
pub(crate) fn give_up(engine: &mut Engine, key: OpKey) {
    worker::cancel(engine, key);
    match engine.core.ops.get_mut(key) {
        Some(op) if op.done.is_none() => op.abandoned = true,
        _ => drop(engine.core.ops.remove(key)),
    }
}

/// The error of a donated buffer that its receiver has no room for.
pub(crate) fn held(engine: &Engine) -> Error {
    Error::LimitReached {
        what: "the memory that is given to a peer and not back, in bytes,",
        limit: engine.core.ops.given.bytes_max(),
        remedy: "wait until it has dropped views, or raise Builder::given_bytes_max",
    }
}

/// Gives memory away of which only the newest counts. Returns the buffer that it replaces, if
/// it does.
///
/// # Errors
/// As for any send, as far as that is known at once.
pub(crate) fn give_latest(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    donation: DonatedBuf,
) -> Result<Option<DonatedBuf>> {
    engine.check()?;
    let (peer, core) = engine.peer_mut(id)?;
    donate::collect_from(core, peer);
    let cost = account::cost(donation.len() as u64);
    let may_go = peer.is_clear();
    match core.ops.given.offer(id, tag, donation, cost, may_go) {
        Offer::Goes(donation) => {
            let Some(donation) = donate::give_at_once(engine, id, tag, donation, true) else {
                return Ok(None);
            };
            let (peer, core) = engine.peer_mut(id)?;
            queue_frame(core, peer, tag, donation);
            pump(engine, id);
            Ok(None)
        }
        Offer::Waits(replaced) => {
            if replaced.is_some() {
                peer.record.replaced.add(1);
            }
            update_given_gauges(core, peer);
            // The frame is looked at again in each turn.
            core.block(peer);
            engine.kick_if_needed();
            Ok(replaced)
        }
    }
}

fn pump(engine: &mut Engine, id: PeerId) {
    if let Ok((peer, core)) = engine.peer_mut(id)
        && let Err(violation) = outbound::pump(core, peer)
    {
        teardown::cut_off(engine, id, violation);
    }
    engine.kick_if_needed();
}

/// Returns whether a send of memory that is given has been charged, or can be now.
pub(crate) fn is_charged(core: &mut Core, peer: &mut Peer, op: &mut SendOp) -> bool {
    if op.charge > 0 {
        return true;
    }
    let cost = account::cost(op.memory.len());
    if !core.ops.given.admits(peer.id, cost) {
        donate::collect_from(core, peer);
    }
    if !core.ops.given.admits(peer.id, cost) {
        return false;
    }
    core.ops.given.charge(peer.id, cost);
    op.charge = cost;
    true
}

/// Queues a frame, which counts as being out.
fn queue_frame(core: &mut Core, peer: &mut Peer, tag: u64, donation: DonatedBuf) {
    let cost = account::cost(donation.len() as u64);
    core.ops.given.charge(peer.id, cost);
    let send = donate::fresh(peer.id, tag, &donation);
    let send = SendOp { charge: cost, is_frame: true, ..send };
    debug_assert!(matches!(send.stage, SendStage::Fresh));
    let op = Op::kept(Some(Keeps::DonatedBuf { donation }), OpKind::Send(send));
    let key = core.ops.insert(op);
    peer.queue_send(key);
}

/// Queues the next frame that may go to a peer for which nothing else is queued. Returns
/// whether there was one.
pub(crate) fn next_frame(core: &mut Core, peer: &mut Peer) -> bool {
    if !core.ops.given.has_waiting(peer.id) {
        return false;
    }
    donate::collect_from(core, peer);
    let cost = |donation: &DonatedBuf| account::cost(donation.len() as u64);
    match core.ops.given.next(peer.id, cost, false) {
        Some((tag, donation)) => {
            queue_frame(core, peer, tag, donation);
            true
        }
        None => {
            core.block(peer);
            false
        }
    }
}

/// Sends the frames that wait, however many are out, because this side closes in good order.
pub(crate) fn let_frames_go(core: &mut Core, peer: &mut Peer) {
    let cost = |donation: &DonatedBuf| account::cost(donation.len() as u64);
    let mut any = false;
    while let Some((tag, donation)) = core.ops.given.next(peer.id, cost, true) {
        queue_frame(core, peer, tag, donation);
        any = true;
    }
    if any {
        // A frame that finds no room, or makes no sense to the peer, is lost with it.
        let _ = outbound::pump(core, peer);
    }
}

/// Updates the gauges of the memory given to a peer.
#[inline]
pub(crate) fn update_given_gauges(core: &Core, peer: &Peer) {
    if peer.record.is_listed() {
        peer.record.given_bytes.set(core.ops.given.out(peer.id));
    }
}
