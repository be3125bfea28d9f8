//! Posted receives: the one that takes a message, and when it came.

use crate::{
    PeerId,
    wire::{list::Listed, rendezvous::Rts},
    worker::{
        core::Core,
        op::{Announced, Done, Keeps, Op, OpKey, OpKind, PartOf, RecvOp},
    },
};

/// Messages begin at multiples of so many bytes of the buffer.
pub(crate) const ALIGN: u64 = 8;

/// A receive has matched the message that was matched last.
#[inline]
pub(crate) fn note_arrival(core: &mut Core, key: OpKey) {
    set_arrival(core, key, core.matcher.matched());
}

#[inline]
fn set_arrival(core: &mut Core, key: OpKey, arrival: u64) {
    if let Some(recv) = core.ops.recv_mut(key) {
        recv.arrival = arrival;
    }
}

/// The receive that takes message number `arrival`, which lost its own, if one is posted.
pub(crate) fn match_again(
    core: &mut Core,
    (peer, tag, len): (PeerId, u64, u64),
    arrival: u64,
) -> Option<OpKey> {
    let key = core.matcher.arrive_again(peer, tag)?;
    Some(taken_by(core, key, (peer, tag, len), arrival))
}

/// A receive is handed a message that stays where it is.
pub(crate) fn note_lent(core: &mut Core, key: OpKey, sid: u32, rts: &Rts, list: Option<&[Listed]>) {
    if let Some(recv) = core.ops.recv_mut(key) {
        recv.lent = Some(Box::new(Announced { sid, rts: *rts, list: list.map(Box::from) }));
    }
}

/// The receive that takes a message of `len` bytes which has come, if one is posted.
#[inline]
pub(crate) fn match_posted(core: &mut Core, peer: PeerId, tag: u64, len: u64) -> Option<OpKey> {
    let key = core.matcher.arrive(peer, tag)?;
    Some(taken_by(core, key, (peer, tag, len), core.matcher.matched()))
}

/// The receive for message number `arrival`, which posted receive `key` has matched: that one,
/// or, if it takes many, one of its own into the next part of the memory.
#[inline]
pub(super) fn taken_by(
    core: &mut Core,
    key: OpKey,
    message: (PeerId, u64, u64),
    arrival: u64,
) -> OpKey {
    match core.ops.recv_mut(key) {
        Some(recv) => {
            recv.arrival = arrival;
            key
        }
        None => cut(core, key, message, arrival),
    }
}

fn cut(core: &mut Core, key: OpKey, (peer, tag, len): (PeerId, u64, u64), arrival: u64) -> OpKey {
    let Some(multi) = core.ops.multi_mut(key).filter(|multi| multi.end.is_none()) else {
        return key;
    };
    let (at, size) = (multi.at, multi.memory.len());
    let memory = multi.memory.slice(at, len);
    multi.at = (at + memory.len().max(1)).next_multiple_of(ALIGN).min(size);
    multi.running += 1;
    if size - multi.at < multi.min_free {
        multi.end = Some(Ok(Done::UsedUp(None)));
        if let Some(posted) = multi.posted.take() {
            core.matcher.cancel(posted);
        }
    }
    let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
    let part = PartOf { multi: key, at, peer, tag, len, arrival };
    core.ops.insert(Op::kept(Some(Keeps::Part(part)), OpKind::Recv(recv)))
}
