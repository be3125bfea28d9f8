//! Posted receives: the one that takes a message, and when it came.

use crate::{
    PeerId,
    wire::{list::Listed, rendezvous::Rts},
    worker::{
        core::Unexpected,
        matching::Matcher,
        op::{Announced, Done, Keeps, Op, OpKey, OpKind, PartOf, RecvOp},
        op_table::OpTable,
    },
};

/// Messages begin at multiples of so many bytes of the buffer.
pub(crate) const ALIGN: u64 = 8;

/// A receive has matched the message that was matched last.
#[inline]
pub(crate) fn note_arrival(
    matcher: &mut Matcher<OpKey, Unexpected>,
    ops: &mut OpTable,
    key: OpKey,
) {
    set_arrival(ops, key, matcher.matched());
}

#[inline]
fn set_arrival(ops: &mut OpTable, key: OpKey, arrival: u64) {
    if let Some(recv) = ops.recv_mut(key) {
        recv.arrival = arrival;
    }
}

/// The receive that takes message number `arrival`, which lost its own, if one is posted.
pub(crate) fn match_again(
    matcher: &mut Matcher<OpKey, Unexpected>,
    ops: &mut OpTable,
    (peer, tag, len): (PeerId, u64, u64),
    arrival: u64,
) -> Option<OpKey> {
    let key = matcher.arrive_again(peer, tag)?;
    Some(taken_by(matcher, ops, key, (peer, tag, len), arrival))
}

/// A receive is handed a message that stays where it is.
pub(crate) fn note_lent(
    ops: &mut OpTable,
    key: OpKey,
    sid: u32,
    rts: &Rts,
    list: Option<&[Listed]>,
) {
    if let Some(recv) = ops.recv_mut(key) {
        recv.lent = Some(Box::new(Announced { sid, rts: *rts, list: list.map(Box::from) }));
    }
}

/// The receive that takes a message of `len` bytes which has come, if one is posted.
#[inline]
pub(crate) fn match_posted(
    matcher: &mut Matcher<OpKey, Unexpected>,
    ops: &mut OpTable,
    peer: PeerId,
    tag: u64,
    len: u64,
) -> Option<OpKey> {
    let key = matcher.arrive(peer, tag)?;
    Some(taken_by(matcher, ops, key, (peer, tag, len), matcher.matched()))
}

/// The receive for message number `arrival`, which posted receive `key` has matched: that one,
/// or, if it takes many, one of its own into the next part of the memory.
#[inline]
pub(super) fn taken_by(
    matcher: &mut Matcher<OpKey, Unexpected>,
    ops: &mut OpTable,
    key: OpKey,
    message: (PeerId, u64, u64),
    arrival: u64,
) -> OpKey {
    match ops.recv_mut(key) {
        Some(recv) => {
            recv.arrival = arrival;
            key
        }
        None => cut(matcher, ops, key, message, arrival),
    }
}

fn cut(
    matcher: &mut Matcher<OpKey, Unexpected>,
    ops: &mut OpTable,
    key: OpKey,
    (peer, tag, len): (PeerId, u64, u64),
    arrival: u64,
) -> OpKey {
    let Some(multi) = ops.multi_mut(key).filter(|multi| multi.end.is_none()) else {
        return key;
    };
    let (at, size) = (multi.at, multi.memory.len());
    let memory = multi.memory.slice(at, len);
    multi.at = (at + memory.len().max(1)).next_multiple_of(ALIGN).min(size);
    multi.running += 1;
    if size - multi.at < multi.min_free {
        multi.end = Some(Ok(Done::UsedUp(None)));
        if let Some(posted) = multi.posted.take() {
            matcher.cancel(posted);
        }
    }
    let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
    let part = PartOf { multi: key, at, peer, tag, len, arrival };
    ops.insert(Op::kept(Some(Keeps::Part(part)), OpKind::Recv(recv)))
}
