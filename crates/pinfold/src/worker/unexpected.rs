//! Messages that came before their receives: handed to these once they are posted.

use crate::{
    Error, Path, PeerId, Receipt,
    protocol::{
        handoff::{after_close, lists},
        rendezvous::select,
    },
    worker::{
        answers,
        core::{Core, Unexpected},
        deliver, ends,
        engine::Engine,
        inbound_stream::{Came, Sink},
        op::{Next, OpKey, RecvStage},
        peer::Peer,
        room, teardown,
    },
};

/// Receive `key` has matched the message that receive `of` still takes in.
pub(crate) fn follow(core: &mut Core, key: OpKey, of: OpKey) {
    let Some(recv) = core.ops.recv_mut(of) else {
        return ends::finish(core, key, Err(Error::Closed));
    };
    recv.next = Next::Receive(key);
    if let Some(recv) = core.ops.recv_mut(key) {
        recv.stage = RecvStage::Following(of);
    }
}

/// Gives a stored message that is still coming in to a receive.
pub(crate) fn redirect(core: &mut Core, peer: &mut Peer, sid: u32, key: OpKey) {
    let Some(at) = peer.inbound_at(sid) else { return };
    let len = peer.inbound[at].len;
    room::make_room(core, key, len);
    let stream = &mut peer.inbound[at];
    peer.owed -= stream.cost;
    peer.rx.release(std::mem::take(&mut stream.cost));
    if let Sink::Keep(_, kept) = std::mem::replace(&mut stream.sink, Sink::Op(key))
        && let Some(op) = core.ops.recv_mut(key)
    {
        let (stored, kept) = (kept.len(), kept.into_bytes());
        let copied = kept.write_to(&op.memory, &mut core.store);
        op.stage = RecvStage::Streaming { peer: peer.id };
        let Came { by, cma, .. } = stream.came;
        let by = by.and(core.copied_by(copied));
        stream.came = Came { copied, stored, cma, by };
    }
}

/// Gives a stored message to a receive.
pub(crate) fn give(engine: &mut Engine, id: PeerId, tag: u64, unexpected: Unexpected, key: OpKey) {
    let (peers, core) = (&mut engine.peers, &mut engine.core);
    let peer = peers.get_mut(id);
    match (unexpected, peer) {
        (Unexpected::Whole { bytes, cost, inline, by }, peer) => {
            let path = if inline { Path::Inline } else { Path::Eager };
            let mut receipt = Receipt::new(path, 0);
            if let Some(peer) = peer {
                peer.owed -= cost;
                peer.rx.release(cost);
                answers::publish(core, peer);
                receipt = peer.receipt(path, 0, bytes.len());
            }
            receipt.note_copies(by);
            deliver::deliver_stored(core, key, id, tag, bytes, receipt);
        }
        (Unexpected::Arriving { sid, .. }, Some(peer)) => {
            redirect(core, peer, sid, key);
            answers::publish(core, peer);
        }
        (Unexpected::Waiting { sid, rts, list }, Some(peer)) => {
            peer.announced.remove(&sid);
            lists::taken(peer, list.as_deref());
            if let Err(violation) = select::select(core, peer, key, (sid, rts), list.as_deref()) {
                teardown::cut_off(engine, id, violation);
            }
        }
        (Unexpected::Left { len, memory }, _) => {
            after_close::hand_out(core, key, (id, tag, len), memory)
        }
        (Unexpected::Passing { of, .. }, _) => follow(core, key, of),
        (Unexpected::Again { bytes, receipt }, _) => {
            ends::deliver_again(core, key, (id, tag), bytes, *receipt);
        }
        (Unexpected::NoMemory { len }, _) => ends::finish(core, key, Err(ends::no_memory(len))),
        (_, None) | (Unexpected::Lost, _) => {
            let error = engine.present(id).err().unwrap_or(Error::UnknownPeer { peer: id });
            ends::finish(&mut engine.core, key, Err(error));
        }
    }
}
