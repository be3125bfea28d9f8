//! The receiving side: the effect of each descriptor of a lane.
//!
//! A descriptor is copied out once and checked before it is acted on; any fault in it is a
//! [`Violation`], and the peer that wrote it is cut off. Nothing else is harmed.

use super::{
    answers::{self, ANSWERS_MAX},
    core::{Core, Unexpected},
    credit, deliver,
    inbound_stream::{Inbound, Sink},
    op::{Bytes, RecvStage},
    peer::{MESSAGE_COST, Peer},
    pieces, posted, room,
};
use crate::{
    Path,
    copy::Largest,
    failpoint::{self, Point},
    memory::store::Kept,
    protocol::{
        active::receive,
        handoff::{collect, lists},
        rendezvous::{ack, get, select},
        rma::{
            open,
            served::{owner, results},
        },
    },
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        active::Verb,
        descriptor::{Eager, Header, INLINE_MAX, INLINE_TWO_MAX, INLINE_WIDE_MAX, Kind, Piece},
        region::{Open, Opened},
        rendezvous::{By, Fin, Rts, Wrote},
    },
};

const NO_VERB: Violation = Violation("it wrote a message of no known use");

/// Acts on the descriptor at the head of the peer's lane and goes past it.
#[inline]
pub(crate) fn receive(core: &mut Core, peer: &mut Peer, header: Header) -> Result<(), Violation> {
    let body = peer.rx.body();
    let mut header = header;
    // Bulk bytes are few, and the sender may be waiting to use them again.
    let mut holds_bulk = false;
    match header.kind().ok_or(Violation("it wrote a descriptor of no known kind"))? {
        Kind::Inline => {
            let len = header.inline_len(INLINE_MAX);
            let len = len.ok_or(Violation("it wrote an inline message that is too long"))?;
            let tag = u64::from(peer.tag_high_rx) << 32 | u64::from(header.aux());
            small(core, peer, tag, &deliver::bytes_of(&body)[..len], Path::Inline)?;
        }
        Kind::InlineFirst => {
            let rest = peer.rx.rest(header);
            let (rest, len) = rest.ok_or(Violation("it wrote half a message"))?;
            let mut bytes = [0; INLINE_TWO_MAX];
            for (i, out) in bytes.chunks_exact_mut(8).enumerate() {
                out.copy_from_slice(&peer.rx.word_of_two(header, i).to_ne_bytes());
            }
            let tag = u64::from(peer.tag_high_rx) << 32 | u64::from(header.aux());
            small(core, peer, tag, &bytes[..len], Path::Eager)?;
            peer.rx.advance(header)?;
            peer.tx.passed(header, peer.rx.consumed());
            header = rest;
        }
        Kind::InlineRest => return Err(Violation("it wrote the rest of no message")),
        Kind::InlineWide => {
            let len = header.inline_len(INLINE_WIDE_MAX);
            let len = len.ok_or(Violation("it wrote an inline message that is too long"))?;
            peer.tag_high_rx = (body[0] >> 32) as u32;
            small(core, peer, body[0], &deliver::bytes_of(&body[1..])[..len], Path::Inline)?;
        }
        Kind::TagHigh => peer.tag_high_rx = header.aux(),
        Kind::Eager => {
            holds_bulk = true;
            match header.verb().ok_or(NO_VERB)? {
                Verb::Tagged => first_piece(core, peer, header.aux(), Eager::read(&body))?,
                verb => receive::active_piece(core, peer, header.aux(), verb, Eager::read(&body))?,
            }
        }
        Kind::Data => {
            holds_bulk = true;
            next_piece(core, peer, header.aux(), Piece::read(&body))?;
        }
        Kind::Rts => {
            let rts = Rts::read(&body);
            holds_bulk = rts.list.is_some();
            match header.verb().ok_or(NO_VERB)? {
                Verb::Tagged => announced(core, peer, header.aux(), rts)?,
                verb => receive::active_announced(core, peer, header.aux(), verb, rts)?,
            }
        }
        Kind::Cts => ack::answered(core, peer, header.aux(), &body)?,
        Kind::Fin => {
            ack::fetched(core, peer, header.aux(), Fin::read(&body))?;
            // Donated buffers that were given back before this descriptor are back, too.
            collect::collect_from(core, peer);
        }
        Kind::Wrote => get::wrote(core, peer, header.aux(), Wrote::read(&body))?,
        Kind::Cancel => taken_back(core, peer, header.aux())?,
        Kind::Open => open::asked(core, peer, header.aux(), Open::read(&body))?,
        Kind::Opened => open::opened(core, peer, header.aux(), Opened::read(&body))?,
        Kind::Use if !peer.shares_memory() => owner::serve_for(core, peer, header, &body)?,
        Kind::Used if !peer.shares_memory() => results::used(core, peer, header, &body)?,
        Kind::Use | Kind::Used => {
            return Err(Violation("it wrote what goes between hosts"));
        }
        Kind::Active => receive::active_whole(core, peer, header, &body)?,
    }
    peer.rx.advance(header)?;
    peer.tx.passed(header, peer.rx.consumed());
    if holds_bulk {
        answers::publish(core, peer);
    }
    Ok(())
}

/// A whole small message has come.
#[inline]
fn small(
    core: &mut Core,
    peer: &mut Peer,
    tag: u64,
    bytes: &[u8],
    path: Path,
) -> Result<(), Violation> {
    let cost = MESSAGE_COST + bytes.len() as u64;
    match posted::match_posted(&mut core.matcher, &mut core.ops, peer.id, tag, bytes.len() as u64) {
        Some(key) => {
            peer.rx.release(cost);
            let receipt = peer.receipt(path, 0, bytes.len() as u64);
            deliver::deliver(core, key, peer.id, tag, bytes, receipt);
        }
        None => {
            credit::owe(peer, cost)?;
            let bytes = Bytes::from_slice(bytes);
            core.matcher.keep(
                peer.id,
                tag,
                Unexpected::Whole { bytes, cost, inline: path == Path::Inline, by: Largest::NONE },
            );
            core.wakes.any = true;
        }
    }
    Ok(())
}

/// The first piece of a message that came without asking.
fn first_piece(core: &mut Core, peer: &mut Peer, sid: u32, eager: Eager) -> Result<(), Violation> {
    pieces::check_first(peer, sid, &eager)?;
    let Eager { tag, len, piece } = eager;
    let cost = MESSAGE_COST + len;
    let (sink, cost) =
        match posted::match_posted(&mut core.matcher, &mut core.ops, peer.id, tag, len) {
            Some(key) => {
                failpoint::hit(Point::Matched);
                peer.rx.release(cost);
                room::make_room(core, key, len);
                room::note_room(&mut core.ops, peer, key, len);
                if let Some(op) = core.ops.recv_mut(key) {
                    op.stage = RecvStage::Streaming { peer: peer.id };
                }
                (Sink::Op(key), 0)
            }
            None => {
                credit::owe(peer, cost)?;
                let unexpected = Unexpected::Arriving { sid, len };
                let key = core.matcher.keep(peer.id, tag, unexpected);
                core.wakes.any = true;
                let kept = Kept::new(len, core.moves)
                    .ok_or(Violation("there is no memory for its message"))?;
                (Sink::Keep(key, kept), cost)
            }
        };
    let stream = Inbound { cost, ..Inbound::new(sid, tag, len, sink) };
    pieces::take_piece(core, peer, stream, piece)
}

/// A further piece.
fn next_piece(core: &mut Core, peer: &mut Peer, sid: u32, piece: Piece) -> Result<(), Violation> {
    let at = peer.inbound_at(sid).ok_or(Violation("it sent a piece of no stream"))?;
    let stream = peer.inbound.swap_remove(at);
    pieces::take_piece(core, peer, stream, piece)
}

/// A message is announced that lies in its sender's memory.
fn announced(core: &mut Core, peer: &mut Peer, sid: u32, rts: Rts) -> Result<(), Violation> {
    if rts.len > i64::MAX as u64 {
        return Err(Violation("it announced a message longer than memory"));
    }
    let list = lists::read_list(peer, &rts)?;
    match posted::match_posted(&mut core.matcher, &mut core.ops, peer.id, rts.tag, rts.len) {
        Some(key) => {
            failpoint::hit(Point::Matched);
            credit::widen(&mut core.grants, peer, &rts);
            select::select(core, peer, key, (sid, rts), list.as_deref())
        }
        None if credit::store_unasked(core, peer, sid, &rts)? => Ok(()),
        None => {
            if peer.announced.len() >= peer.announced_max as usize {
                return Err(Violation("it announced more messages than it may"));
            }
            peer.record.unexpected.add(1);
            let list = lists::kept(peer, list);
            let unexpected = Unexpected::Waiting { sid, rts, list };
            let key = core.matcher.keep(peer.id, rts.tag, unexpected);
            core.wakes.any = true;
            match peer.announced.insert(sid, Some(key)) {
                Some(_) => Err(Violation("it announced a stream twice")),
                None => Ok(()),
            }
        }
    }
}

/// The sender takes an announced message back.
fn taken_back(core: &mut Core, peer: &mut Peer, sid: u32) -> Result<(), Violation> {
    // A sender that waits for the answers takes back no more than it has announced.
    if peer.controls() > peer.announced_max as usize + ANSWERS_MAX {
        return Err(Violation("it takes messages back without taking the answers"));
    }
    // Already matched: the message goes its way, and the sender hears the usual end.
    match peer.announced.remove(&sid) {
        Some(Some(key)) => {
            if let Some(Unexpected::Waiting { list, .. }) = core.matcher.remove_unexpected(key) {
                lists::taken(peer, list.as_deref());
            }
        }
        Some(None) => core.active.take_back(peer.id, sid),
        None => return Ok(()),
    }
    let fin = Fin { errno: 0, took_ns: 0, cancelled: true, by: By::Kernel };
    answers::answer(core, peer, Kind::Fin, sid, &fin.body());
    Ok(())
}
