//! Active messages that come: for handlers, and answers to requests of this endpoint.
//!
//! A call or a request costs credit like an unexpected message, until its handler has ended. A
//! request that was announced stays in its sender's memory until it is first in its queue. An
//! answer costs none: the requester has set a place aside.

use super::{
    act::Act,
    queue::{Item, What},
};
use crate::{
    Error, NotHandled, Path, PeerId, Receipt,
    protocol::rendezvous::{fin, select},
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        active::{ACTIVE_MAX, Failure, Label, Verb},
        descriptor::{Body, Eager, Header, Kind},
        rendezvous::{By, Fin, Rts},
    },
    worker::{
        answers,
        core::Core,
        deliver, ends,
        inbound_stream::{Inbound, Sink},
        op::{Bytes, Keeps, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
        op_table::OpTable,
        peer::{MESSAGE_COST, Peer},
        pieces, room,
    },
};

/// The `errno` values by which a receiver rejects an active message.
pub(crate) const NO_HANDLER: i32 = rustix::io::Errno::NOENT.raw_os_error();
const TOO_LONG: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();

/// The error for one of our messages that its receiver did not take.
pub(crate) fn not_fetched(peer: &Peer, op: &SendOp, errno: u32) -> Error {
    let errno = errno as i32;
    let why = match errno {
        NO_HANDLER => Some(NotHandled::NoHandler),
        TOO_LONG => Some(NotHandled::TooLong),
        _ => None,
    };
    match why {
        Some(why) if op.verb != Verb::Tagged => {
            not_handled(peer, Label::from_tag(op.verb, op.tag).id, why)
        }
        _ => {
            let source = std::io::Error::from_raw_os_error(errno);
            Error::Transfer { peer: peer.info.name.clone(), source }
        }
    }
}

fn not_handled(peer: &Peer, id: u32, why: NotHandled) -> Error {
    Error::NotHandled { peer: peer.info.name.clone(), id, why }
}

/// Takes a short message, which is whole in its descriptor.
pub(crate) fn active_whole(
    core: &mut Core,
    peer: &mut Peer,
    header: Header,
    body: &Body,
) -> Result<(), Violation> {
    let len = header.inline_len(ACTIVE_MAX);
    let len = len.ok_or(Violation("it wrote an inline message that is too long"))?;
    let label = Label::read(header.aux(), body);
    let label = label.ok_or(Violation("it wrote a message of no known use"))?;
    let bytes = &deliver::bytes_of(&body[1..])[..len];
    match label.verb {
        Verb::Call | Verb::Request | Verb::Serve => {
            let cost = hold(peer, len as u64)?;
            let mut receipt = Receipt::new(Path::Inline, len as u64);
            receipt.copied_user = len as u64;
            peer.record.count_received(Path::Inline, len as u64);
            core.status.copied_user.add(len as u64);
            let what = What::Whole { bytes: Bytes::from_slice(bytes), receipt };
            core.active.push(peer.id, Item { label, what, cost, room: 0 });
        }
        Verb::Reply | Verb::Tagged => {
            let (key, id) = our_request(&mut core.ops, peer, label.token)?;
            deliver::deliver(core, key, peer.id, id.into(), bytes, Receipt::new(Path::Inline, 0));
        }
        Verb::Failed => {
            let (key, id) = our_request(&mut core.ops, peer, label.token)?;
            let failure = Failure::from_id(label.id);
            let why = match failure.ok_or(Violation("it failed for no known reason"))? {
                Failure::NoHandler => NotHandled::NoHandler,
                Failure::Panicked => NotHandled::Panicked,
                Failure::NoAnswer => NotHandled::NoAnswer,
                Failure::TooLong => NotHandled::TooLong,
            };
            ends::finish(core, key, Err(not_handled(peer, id, why)));
        }
    }
    Ok(())
}

/// Counts a message for a handler against the credit that the peer was granted. Returns its
/// cost.
fn hold(peer: &mut Peer, len: u64) -> Result<u64, Violation> {
    let cost = MESSAGE_COST + len;
    peer.owed += cost;
    if peer.owed > peer.granted {
        return Err(Violation("it sent more than its credit"));
    }
    Ok(cost)
}

/// Our open request that the peer's answer with this token belongs to, and the handler it was
/// for.
fn our_request(ops: &mut OpTable, peer: &Peer, token: u32) -> Result<(OpKey, u32), Violation> {
    let asked = ops.at(token).and_then(|key| match ops.recv_mut(key)?.stage {
        RecvStage::Asked { peer: whom, id } if whom == peer.id => Some((key, id)),
        _ => None,
    });
    asked.ok_or(Violation("it answered a request that is not open"))
}

/// Creates an operation that receives a message for a handler.
pub(crate) fn land(ops: &mut OpTable, peer: PeerId, room: usize, stage: RecvStage) -> OpKey {
    let mut op = Op::new(OpKind::Recv(RecvOp { stage, ..RecvOp::new(None) }));
    op.abandoned = true;
    op.keeps = Some(Keeps::Act(Act::Landed { peer, room }));
    ops.insert(op)
}

/// Takes the first piece of a longer message.
pub(crate) fn active_piece(
    core: &mut Core,
    peer: &mut Peer,
    sid: u32,
    verb: Verb,
    eager: Eager,
) -> Result<(), Violation> {
    pieces::check_first(peer, sid, &eager)?;
    let Eager { tag, len, piece } = eager;
    let label = Label::from_tag(verb, tag);
    let (key, id) = match verb {
        Verb::Call | Verb::Request | Verb::Serve => {
            let cost = hold(peer, len)?;
            let key = land(&mut core.ops, peer.id, 0, RecvStage::Streaming { peer: peer.id });
            let item = Item { label, what: What::Coming(key), cost, room: 0 };
            core.active.push(peer.id, item);
            (key, label.id)
        }
        Verb::Reply => {
            peer.rx.release(MESSAGE_COST + len);
            let asked = our_request(&mut core.ops, peer, label.token)?;
            if let Some(op) = core.ops.recv_mut(asked.0) {
                op.stage = RecvStage::Streaming { peer: peer.id };
            }
            asked
        }
        Verb::Failed | Verb::Tagged => {
            return Err(Violation("it wrote a message of no known use"));
        }
    };
    room::make_room(core, key, len);
    let stream = Inbound::new(sid, id.into(), len, Sink::Op(key));
    pieces::take_piece(core, peer, stream, piece)
}

/// Takes the announcement of a message that waits in its sender's memory.
pub(crate) fn active_announced(
    core: &mut Core,
    peer: &mut Peer,
    sid: u32,
    verb: Verb,
    rts: Rts,
) -> Result<(), Violation> {
    let label = Label::from_tag(verb, rts.tag);
    match verb {
        Verb::Call | Verb::Request | Verb::Serve if rts.len > core.active.len_max() => {
            core.status.unhandled.add(1);
            fin::fin(core, peer, sid, TOO_LONG.unsigned_abs(), 0, By::Kernel);
            Ok(())
        }
        Verb::Call | Verb::Request | Verb::Serve => {
            if peer.announced.len() >= peer.announced_max as usize {
                return Err(Violation("it announced more messages than it may"));
            }
            if peer.announced.insert(sid, None).is_some() {
                return Err(Violation("it announced a stream twice"));
            }
            let item = Item { label, what: What::Waiting { sid, rts }, cost: 0, room: 0 };
            core.active.push(peer.id, item);
            Ok(())
        }
        Verb::Reply => {
            if rts.len > i64::MAX as u64 {
                return Err(Violation("it announced a message longer than memory"));
            }
            let (key, id) = our_request(&mut core.ops, peer, label.token)?;
            if core.ops.is_abandoned(key) {
                let fin = Fin { errno: 0, took_ns: 0, cancelled: true, by: By::Kernel };
                answers::answer(core, peer, Kind::Fin, sid, &fin.body());
                ends::finish(core, key, Err(Error::Cancelled));
                return Ok(());
            }
            select::select(core, peer, key, (sid, Rts { tag: id.into(), ..rts }), None)
        }
        Verb::Failed | Verb::Tagged => Err(Violation("it wrote a message of no known use")),
    }
}
