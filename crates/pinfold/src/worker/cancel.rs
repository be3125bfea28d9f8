//! Operations that are taken back before they have ended.

use crate::{
    Error,
    wire::descriptor::Kind,
    worker::{
        answers,
        connections::{accepts, requests},
        ends,
        engine::Engine,
        gauges,
        op::{OpKey, OpKind, RecvStage, SendStage},
    },
};

/// Tries to take an operation back. Returns whether it has ended or will end as cancelled;
/// `false`: it goes on to its end.
pub(crate) fn cancel(engine: &mut Engine, key: OpKey) -> bool {
    let cancelled = take_back(engine, key);
    gauges::update_gauges(engine);
    cancelled
}

fn take_back(engine: &mut Engine, key: OpKey) -> bool {
    let Some(op) = engine.core.ops.get_mut(key) else { return false };
    if op.done.is_some() {
        return false;
    }
    match &mut op.kind {
        OpKind::Open(_) => false,
        OpKind::Connect => requests::hang_up(engine, key),
        OpKind::Accept => accepts::stop_accepting(&mut engine.core, &mut engine.connections, key),
        OpKind::Probe => {
            engine.core.probes.retain(|probe| probe.op != key);
            ends::finish(&mut engine.core, key, Err(Error::Cancelled));
            true
        }
        OpKind::Multi(multi) => match multi.posted.take() {
            Some(posted) => {
                engine.core.matcher.cancel(posted);
                ends::finish(&mut engine.core, key, Err(Error::Cancelled));
                true
            }
            None => false,
        },
        OpKind::Recv(recv) => match recv.stage {
            RecvStage::Posted(posted) => {
                engine.core.matcher.cancel(posted);
                ends::finish(&mut engine.core, key, Err(Error::Cancelled));
                true
            }
            _ => false,
        },
        OpKind::Send(send) => match &mut send.stage {
            SendStage::Fresh if send.served.is_none() => {
                let id = send.peer;
                if let Some(peer) = engine.peers.get_mut(id) {
                    peer.unqueue_send(key);
                    gauges::update_peer_gauges(&engine.core.ops, peer);
                }
                ends::finish(&mut engine.core, key, Err(Error::Cancelled));
                true
            }
            SendStage::Waiting { cancelled } if !*cancelled => {
                *cancelled = true;
                let id = send.peer;
                if let Some(peer) = engine.peers.get_mut(id) {
                    answers::answer(&mut engine.core, peer, Kind::Cancel, key.index, &[]);
                }
                true
            }
            _ => false,
        },
    }
}
