//! Outstanding messages: those not delivered to peers, and memory of peers not given back.

use super::{
    core::Core,
    engine::Engine,
    op::{Keeps, Op, OpKey, OpKind, SendOp, SendStage},
    op_table::OpTable,
    peer::Peer,
    table::PeerTable,
};
use crate::{
    Error, Gone, Outstanding, PeerId,
    protocol::{
        active::act::Act,
        handoff::{after_close::is_out, collect, state::Fate},
    },
};

/// Returns whether the end of a send is not reported to the program, and its sender did not take it
/// back.
fn is_unheard(op: &Op, send: &SendOp) -> bool {
    let taken_back = matches!(send.stage, SendStage::Waiting { cancelled: true });
    let unheard = match &op.keeps {
        Some(Keeps::Act(act)) => matches!(act, Act::Gone { .. }),
        Some(Keeps::Buffer(_) | Keeps::DonatedBuf { .. } | Keeps::DonatedBufs { .. }) => {
            op.abandoned
        }
        Some(Keeps::Part(_)) | None => false,
    };
    unheard && !taken_back
}

/// Returns whether a send whose end is not awaited has not been delivered when its peer goes,
/// `how`.
pub(crate) fn is_lost(ops: &OpTable, key: OpKey, how: Gone) -> bool {
    ops.get(key).is_some_and(|op| {
        matches!(&op.kind, OpKind::Send(send)
            if is_unheard(op, send) && !(how == Gone::Disconnected && is_out(send)))
    })
}

/// The messages that connected peers have not got, and the memory not given back; peers with
/// neither are left out.
pub(crate) fn outstanding(peers: &mut PeerTable, core: &mut Core) -> Vec<Outstanding> {
    let mut all = Vec::new();
    for id in peers.ids() {
        let Some(peer) = peers.get_mut(id).filter(|peer| !peer.is_leaving()) else {
            continue;
        };
        collect::collect_from(core, peer);
        let mut one = Outstanding {
            peer: id,
            name: peer.info.name.clone(),
            sends: peer.controls() as u64,
            given: 0,
            given_bytes: 0,
            gone: None,
        };
        for fate in peer.given.iter() {
            // Memory that is out with a send is counted as that send.
            if let Fate::Out { donation, .. } = fate {
                one.given += 1;
                one.given_bytes += donation.len() as u64;
            }
        }
        for donation in core.ops.given.waiting(id) {
            one.given += 1;
            one.given_bytes += donation.len() as u64;
        }
        if !peer.transport.is_flushed() {
            one.sends += peer.tx.in_flight().max(1);
        }
        all.push(one);
    }
    for (_, Op { kind, .. }) in core.ops.open() {
        let OpKind::Send(send) = kind else { continue };
        let Some(one) = all.iter_mut().find(|one| one.peer == send.peer) else { continue };
        if send.given {
            one.given += 1;
            one.given_bytes += send.memory.len();
        } else {
            one.sends += 1;
        }
    }
    all.retain(|one| !one.is_none());
    all
}

/// How a peer went, if it did.
pub(crate) fn how_gone(engine: &Engine, id: PeerId) -> Option<Gone> {
    match engine.present(id) {
        Ok(()) => None,
        Err(Error::PeerGone { how, .. }) => Some(how),
        // The peer went so long ago that it is no longer remembered.
        Err(_) => Some(Gone::Closed),
    }
}

/// Returns whether a message in flight whose end is not awaited, to this peer or any, would be
/// lost if the connection ended now.
pub(crate) fn has_unsent(engine: &Engine, to: Option<PeerId>) -> bool {
    let is_it = |id: PeerId| to.is_none_or(|to| to == id);
    // By shared memory, waiting frames can go at any time.
    let waits = |peer: &Peer| !peer.shares_memory() && engine.core.ops.given.has_waiting(peer.id);
    let frames = |peer: &Peer| is_it(peer.id) && !peer.is_leaving() && waits(peer);
    engine.peers.iter().any(frames)
        || engine.core.ops.open().any(|(_, op)| {
            matches!(&op.kind, OpKind::Send(send) if is_it(send.peer)
                && is_unheard(op, send)
                && is_lost_with(&engine.peers, send.peer, is_out(send)))
        })
}

/// Returns whether a send to this peer is lost if the connection ends; `left`: its memory stays
/// with the receiver.
fn is_lost_with(peers: &PeerTable, id: PeerId, left: bool) -> bool {
    let peer = peers.get(id).filter(|peer| !peer.is_leaving());
    peer.is_some_and(|peer| !left || !peer.shares_memory())
}
