//! Chunks of active messages that are settled as their operations end.

use crate::{
    protocol::active::act::Act,
    worker::{
        core::Core,
        ends,
        op::{Arrived, Done},
    },
};

/// Acts on the ends of operations that no caller waits for.
#[cold]
pub(crate) fn settle(core: &mut Core) {
    while let Some(origin) = core.ops.answered.pop() {
        core.active.shut(origin);
    }
    while let Some((key, act, result)) = core.ops.settled.pop() {
        match (act, result) {
            (Act::Landed { peer, room }, result) => {
                let came = match result {
                    Ok(Done::Arrived(Arrived { bytes, receipt, .. })) => {
                        Some((bytes.map(|bytes| *bytes).unwrap_or_default(), receipt))
                    }
                    _ => None,
                };
                core.active.landed(peer, key, room, came);
            }
            (Act::Gone { origin, bytes, buffer }, _) => {
                core.active.discharge(origin, bytes);
                core.wakes.drops.push(buffer);
            }
            (Act::Served { peer, memory }, _) => {
                core.registry.served(peer);
                core.wakes.drops.push(Box::new(memory));
            }
            (Act::Asked { answer, origin, bytes, buffer }, result) => {
                if let Some(origin) = origin {
                    core.active.discharge(origin, bytes);
                }
                core.wakes.drops.push(buffer);
                if let Err(error) = result {
                    ends::finish(core, answer, Err(error));
                }
            }
        }
    }
}
