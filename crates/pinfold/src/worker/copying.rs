//! Copies of parts that are [lent](super::lent), by the thread that leaves the engine.

use super::{
    ends,
    engine::Engine,
    teardown,
    unlocked_copier::{PartCopier, Purpose},
    unlocked_counts::UnlockedCopies,
    wakes::Wakes,
};
use crate::{
    copy::Largest,
    protocol::{
        handoff::after_close,
        rendezvous::{
            copy_job::{Copied, CopyDone, CopyJob, Direction},
            get, put,
        },
    },
};

/// Takes a part to copy, if there is one. This thread no longer leads then: the copy may take long.
pub(super) fn take_job(engine: &mut Engine, wakes: &mut Wakes) -> Option<Box<CopyJob>> {
    let job = engine.core.lent.pop()?;
    engine.followers.step_down(&mut wakes.unpark);
    Some(Box::new(job))
}

/// Copies a part. Returns also the largest copy at user level.
pub(super) fn copy_part(job: CopyJob, copies: &UnlockedCopies) -> (CopyDone, Largest) {
    let purpose = match job.direction {
        Direction::Get => Purpose::GET,
        Direction::Put { .. } => Purpose::PUT,
    };
    let mut copier = PartCopier::new(copies, purpose);
    let done = job.run(&mut copier);
    (done, copier.by)
}

/// A part is back.
pub(super) fn part_is_back(engine: &mut Engine, done: CopyDone, by: Largest) {
    let CopyDone { key, peer: id, there, copied } = done;
    let end = engine.core.ops.take_back(key);
    let core = &mut engine.core;
    let mut peer = engine.peers.get_mut(id);
    if let (Some(peer), Copied::Out(_)) = (&mut peer, &copied) {
        peer.lent_puts -= 1;
    }
    if let Some(result) = end {
        drop(there);
        ends::finish(core, key, *result);
    } else if core.ops.is_left(key) {
        after_close::end_left(core, key, there);
    } else if let Some(peer) = peer {
        let on = match copied {
            Copied::In(got) => get::part_is_back(core, peer, (key, there), got, by),
            Copied::Out(went) => {
                put::part_is_back(core, peer, (key, there), went, by);
                Ok(())
            }
        };
        if let Err(violation) = on {
            teardown::cut_off(engine, id, violation);
        }
    }
    teardown::writes_no_more(engine, id);
    // Memory of a peer that went meanwhile was mapped for this copy alone.
    engine.core.imported.settle();
    engine.kick_if_needed();
}
