//! Probes that wait: operations that end once a message is stored that they match, and take none.
//!
//! All of them are looked at when the engine is left and something has happened that a waiting
//! thread may want to know (`Wakes::any`): a message was stored or left to the next receive, a peer
//! has gone, the endpoint has closed. Each look costs what one probe does.

use super::{
    claims, ends,
    engine::Engine,
    envelope::Probe,
    op::{Done, Op, OpKey, OpKind},
};
use crate::{
    Result,
    worker::matching::{Source, TagMatch},
};

/// Begins to wait for a message that a receive would take.
pub(crate) fn post(engine: &mut Engine, from: Source, tag: TagMatch) -> Result<OpKey> {
    engine.check()?;
    let op = engine.core.ops.insert(Op::new(OpKind::Probe));
    engine.core.probes.push(Probe { op, from, tag });
    settle(engine);
    Ok(op)
}

/// Ends those for which there is a message, or can be none.
pub(crate) fn settle(engine: &mut Engine) {
    let mut probes = std::mem::take(&mut engine.core.probes);
    probes.retain(|probe| match claims::probe(engine, probe.from, probe.tag).transpose() {
        None => true,
        Some(found) => {
            ends::finish(&mut engine.core, probe.op, found.map(Done::Probed));
            false
        }
    });
    engine.core.probes = probes;
}
