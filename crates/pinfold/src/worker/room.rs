//! Room for messages: memory of receives, made here or told to their senders.

use crate::{
    Path,
    memory::{
        arena::ArenaRef,
        scatter::{Part, Scatter},
        store::Landing,
    },
    protocol::rendezvous::transfer::SHARED_FROM,
    worker::{
        core::Core,
        ends,
        op::{Bytes, OpKey, RecvStage},
        op_table::OpTable,
        peer::Peer,
    },
};

/// Length in bytes from which the receiver of a message says whether it goes to memory that peers
/// may write.
pub(crate) const SAID_FROM: u64 = SHARED_FROM;

/// Makes memory for a message of `len` bytes, if its receive brought none.
pub(crate) fn make_room(core: &mut Core, key: OpKey, len: u64) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    if !op.as_message {
        return;
    }
    match Landing::new(len, core.moves) {
        Some((own, memory)) => {
            op.own = Some(own);
            op.memory = memory;
        }
        None => ends::finish(core, key, Err(ends::no_memory(len))),
    }
}

/// The first `written` bytes of the memory made for a receive, if any was made.
#[allow(unsafe_code)]
pub(crate) fn own_bytes(ops: &mut OpTable, key: OpKey, written: u64) -> Option<Box<Bytes>> {
    let op = ops.recv_mut(key)?;
    let own = op.own.take()?;
    op.memory = Scatter::empty();
    // SAFETY: streams and pulls report only bytes that they have written, from the start on.
    Some(Box::new(unsafe { own.into_bytes(written) }))
}

/// Place of a receive's memory in an arena that the peer may write, if it lies in one. The peer
/// is told whether it does, if the message is long: a message that would go through the ring
/// otherwise is then announced.
pub(crate) fn note_room(
    ops: &mut OpTable,
    peer: &Peer,
    key: OpKey,
    len: u64,
) -> Option<(ArenaRef, u64)> {
    if !peer.permissions.may(Path::Mapped) {
        return None;
    }
    let memory = ops.memory_of(key)?.part();
    let place = memory.and_then(Part::locate);
    let room = place.filter(|(extent, _)| extent.peers_may_write());
    if len >= SAID_FROM {
        peer.rx.say_open_memory(room.is_some());
    }
    room
}

/// As [`note_room`], for a receive that was only just posted.
pub(crate) fn note_open_memory(ops: &mut OpTable, peer: &Peer, key: OpKey) {
    let memory = ops.memory_of(key).map_or(0, Scatter::len);
    if memory >= SAID_FROM && note_room(ops, peer, key, 0).is_some() {
        peer.rx.say_open_memory(true);
    }
}

pub(crate) fn op_stage(ops: &mut OpTable, key: OpKey, stage: RecvStage) {
    if let Some(op) = ops.recv_mut(key) {
        op.stage = stage;
    }
}
