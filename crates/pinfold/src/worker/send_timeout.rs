#![allow(unsafe_code)]
//! Sends with a time limit, seen from the engine.
//!
//! **Invariant.** The memory of a send is another one from [`detach`] on, and no peer was
//! told where it was: a send that is short of credit is announced as one that has to be asked for
//! ([`SendOp::timed`]), and pieces are copied by this side.

use super::{
    abandoned, cancel,
    engine::Engine,
    op::{Keeps, OpKey, SendOp, SendStage},
    post,
    table::PeerTable,
};
use crate::{
    PeerId, Receipt, Result, Untaken,
    memory::scatter::{Part, Scatter},
    policy::route::{Path, Refusal},
};

/// Messages up to this long are copied, if their memory is wanted back and they are under way.
const COPIED_MAX: u64 = 1 << 20;

/// The state of a send whose memory is the caller's again, although it has not ended.
pub(crate) enum Detached {
    /// Its receiver was told of it, and has not answered whether it is too late to take it back.
    Unsure,
    /// The send goes on.
    Goes(Receipt),
}

/// Posts a send of one part that can be [taken back](take_back_late) and
/// [detached](detach).
pub(crate) fn post_timed(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    memory: Part,
    chosen: Option<Receipt>,
) -> Result<OpKey> {
    let receipt = chosen.unwrap_or(Receipt::new(Path::Eager, memory.len()));
    let send = SendOp::new(id, tag, memory.into(), receipt);
    post::post(engine, SendOp { routed: chosen.is_some(), timed: true, ..send }, None)
}

/// Takes back a send whose time is up, if it does not move yet. Returns why it did not.
pub(crate) fn take_back_late(engine: &mut Engine, key: OpKey) -> Option<Untaken> {
    let send = engine.core.ops.send_mut(key)?;
    let (id, len, lacks_credit) = (send.peer, send.memory.len(), lacks_credit(send));
    let credit = engine.peers.get_mut(id).map_or(0, |peer| peer.window);
    let why = match send.stage {
        SendStage::Fresh => Untaken::Behind,
        SendStage::Waiting { .. } if lacks_credit && len <= credit / 2 => {
            Untaken::NoCredit { credit }
        }
        SendStage::Waiting { .. } => Untaken::NoReceive,
        _ => return None,
    };
    cancel::cancel(engine, key);
    engine.kick_if_needed();
    Some(why)
}

/// The name that errors use of a peer.
pub(crate) fn name_of(peers: &mut PeerTable, id: PeerId) -> String {
    peers.get_mut(id).map_or_else(|| "the peer".into(), |peer| peer.info.name.clone())
}

/// Lets a send that could not be taken back go on out of other memory, if it is short and no
/// peer may be reading its memory.
pub(crate) fn detach(engine: &mut Engine, key: OpKey) -> Option<Detached> {
    let send = engine.core.ops.send_mut(key)?;
    if !send.timed || send.memory.len() > COPIED_MAX {
        return None;
    }
    let detached = match send.stage {
        SendStage::Waiting { .. } if lacks_credit(send) => Detached::Unsure,
        SendStage::Streaming { .. } => {
            let mut receipt = send.receipt;
            if receipt.path != Path::Eager {
                receipt.took(Path::Eager, Refusal::Declined);
            }
            receipt.copied_user = 2 * send.memory.len();
            Detached::Goes(receipt)
        }
        _ => return None,
    };
    let mut bytes = send.memory.to_vec();
    // SAFETY: the bytes lie on the heap, and stay until the operation has ended: `keeps` has
    // them.
    send.memory = unsafe { Scatter::one(bytes.as_mut_ptr(), bytes.len()) };
    abandoned::let_go(engine, key, Keeps::Buffer(Box::new(bytes)));
    Some(detached)
}

/// Returns whether a send that is announced is so for want of credit.
fn lacks_credit(send: &SendOp) -> bool {
    matches!(send.receipt.path, Path::Inline | Path::Eager)
}
