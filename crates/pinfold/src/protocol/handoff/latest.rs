//! Memory that is given as far as its receiver may hold that much: buffers that wait for that, and
//! messages of which only the newest counts.

use super::{
    account::{self, Offer},
    collect, donate, frames,
};
use crate::{
    PeerId, Result,
    endpoint::DonatedBuf,
    status::Tally,
    worker::{cancel, engine::Engine, gauges, op::OpKey, outbound, teardown},
};

/// Gives up waiting for a donated buffer: it is taken back, or goes on to its end.
pub(crate) fn give_up(engine: &mut Engine, key: OpKey) {
    cancel::cancel(engine, key);
    match engine.core.ops.get_mut(key) {
        Some(op) if op.done.is_none() => op.abandoned = true,
        _ => drop(engine.core.ops.remove(key)),
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
    collect::collect_from(core, peer);
    let cost = account::cost(donation.len() as u64);
    let may_go = peer.is_clear();
    match core.ops.given.offer(id, tag, donation, cost, may_go) {
        Offer::Goes(donation) => {
            let Some(donation) = donate::give_at_once(engine, id, tag, donation, true) else {
                return Ok(None);
            };
            let (peer, core) = engine.peer_mut(id)?;
            frames::queue_frame(&mut core.ops, peer, tag, donation);
            pump(engine, id);
            Ok(None)
        }
        Offer::Waits(replaced) => {
            if replaced.is_some() {
                peer.record.replaced.add(1);
            }
            gauges::update_given_gauges(&core.ops, peer);
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
