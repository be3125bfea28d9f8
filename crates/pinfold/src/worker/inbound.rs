//! The receiving side: the effect of each descriptor of a lane.
//!
//! A descriptor is copied out once and checked before it is acted on; any fault in it is a
//! [`Violation`], and the peer that wrote it is cut off. Nothing else is harmed.

use pinfold_sys::cpu::clock;

use super::{
    core::{self, Core, Unexpected},
    credit,
    inbound_stream::{Came, Inbound, Sink},
    multi_recv,
    op::{Arrived, Bytes, Done, OpKey, RecvStage},
    peer::{MESSAGE_COST, Peer},
    prefault::PREFAULT_FROM,
    progress,
};
use crate::{
    Path, PeerId, Receipt, Received, Refusal,
    copy::Largest,
    failpoint::{self, Point},
    memory::store::Kept,
    policy::route::{TOLD_FROM, halves},
    protocol::{
        active::receive,
        handoff::{donate, vectored},
        rendezvous::{ack, get, request, select},
        rma::{
            open,
            served::{self, owner},
        },
    },
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        active::Verb,
        descriptor::{Eager, Header, INLINE_MAX, INLINE_TWO_MAX, INLINE_WIDE_MAX, Kind, Piece},
        region::{Open, Opened},
        rendezvous::{By, Fin, Rts, Wrote},
        sample,
    },
};

/// Answers that a peer may leave waiting: it asks for no more until it takes them.
pub(crate) const ANSWERS_MAX: usize = 4096;

const NO_VERB: Violation = Violation("it wrote a message of no known use");

/// The first `len` bytes of words copied out of a descriptor.
pub(crate) fn bytes_of(words: &[u64]) -> [u8; INLINE_MAX] {
    let mut bytes = [0; INLINE_MAX];
    for (out, word) in bytes.chunks_exact_mut(8).zip(words) {
        out.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

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
            small(core, peer, tag, &bytes_of(&body)[..len], Path::Inline)?;
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
            small(core, peer, body[0], &bytes_of(&body[1..])[..len], Path::Inline)?;
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
            donate::collect_from(core, peer);
        }
        Kind::Wrote => get::wrote(core, peer, header.aux(), Wrote::read(&body))?,
        Kind::Cancel => taken_back(core, peer, header.aux())?,
        Kind::Open => open::asked(core, peer, header.aux(), Open::read(&body))?,
        Kind::Opened => open::opened(core, peer, header.aux(), Opened::read(&body))?,
        Kind::Use if !peer.shares_memory() => owner::serve_for(core, peer, header, &body)?,
        Kind::Used if !peer.shares_memory() => served::used(core, peer, header, &body)?,
        Kind::Use | Kind::Used => {
            return Err(Violation("it wrote what goes between hosts"));
        }
        Kind::Active => receive::active_whole(core, peer, header, &body)?,
    }
    peer.rx.advance(header)?;
    peer.tx.passed(header, peer.rx.consumed());
    if holds_bulk {
        progress::publish(core, peer);
    }
    Ok(())
}

/// The receive that takes a message of `len` bytes which has come, if one is posted.
#[inline]
fn match_posted(core: &mut Core, peer: PeerId, tag: u64, len: u64) -> Option<OpKey> {
    let key = core.matcher.arrive(peer, tag)?;
    Some(multi_recv::taken_by(core, key, (peer, tag, len), core.matcher.matched()))
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
    match match_posted(core, peer.id, tag, bytes.len() as u64) {
        Some(key) => {
            peer.rx.release(cost);
            let receipt = peer.receipt(path, 0, bytes.len() as u64);
            deliver(core, key, peer.id, tag, bytes, receipt);
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

/// Ends a receive with bytes that the library holds.
pub(crate) fn deliver(
    core: &mut Core,
    key: OpKey,
    peer: PeerId,
    tag: u64,
    bytes: &[u8],
    mut receipt: Receipt,
) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let len = bytes.len() as u64;
    let bytes = if op.as_message {
        receipt.bytes = len;
        Some(Box::new(Bytes::from_slice(bytes)))
    } else {
        receipt.bytes = op.memory.write(&mut core.store, 0, bytes);
        receipt.note_copies(core.copied_by(receipt.bytes));
        None
    };
    receipt.copied_user += receipt.bytes;
    arrive(core, key, Arrived { peer, tag, len, receipt, bytes, loan: None });
}

/// The same with bytes that were stored.
pub(crate) fn deliver_stored(
    core: &mut Core,
    key: OpKey,
    peer: PeerId,
    tag: u64,
    bytes: Bytes,
    mut receipt: Receipt,
) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let len = bytes.len();
    // The bytes were copied into our memory when they came, and perhaps now once more.
    receipt.copied_user = len;
    let bytes = if op.as_message {
        receipt.bytes = len;
        Some(Box::new(bytes))
    } else {
        receipt.bytes = bytes.write_to(&op.memory, &mut core.store);
        receipt.note_copies(core.copied_by(receipt.bytes));
        receipt.copied_user += receipt.bytes;
        None
    };
    arrive(core, key, Arrived { peer, tag, len, receipt, bytes, loan: None });
}

/// Ends a receive, with an error if the message was longer than the room.
pub(crate) fn arrive(core: &mut Core, key: OpKey, mut arrived: Arrived) {
    if let Some(op) = core.ops.recv_mut(key)
        && !op.as_message
        && op.memory.len() >= PREFAULT_FROM
    {
        arrived.receipt.note_prefaulted(op.prefaulted);
        core.prefault.came(arrived.peer, arrived.len.min(op.memory.len()));
    }
    let receipt = arrived.receipt;
    core.status.record_of(arrived.peer).count_received(receipt.path, receipt.bytes);
    core.status.copied_user.add(receipt.copied_user);
    core.status.copied_kernel.add(receipt.copied_kernel);
    conclude(core, key, arrived);
}

/// The same of a message that was counted before.
pub(crate) fn conclude(core: &mut Core, key: OpKey, arrived: Arrived) {
    let result = match arrived.receipt.bytes < arrived.len {
        true => Received::from(&arrived).checked().map(Done::from),
        false => Ok(Done::Arrived(arrived)),
    };
    core::finish(core, key, result);
}

/// The first piece of a message that came without asking.
fn first_piece(core: &mut Core, peer: &mut Peer, sid: u32, eager: Eager) -> Result<(), Violation> {
    check_first(peer, sid, &eager)?;
    let Eager { tag, len, piece } = eager;
    let cost = MESSAGE_COST + len;
    let (sink, cost) = match match_posted(core, peer.id, tag, len) {
        Some(key) => {
            failpoint::hit(Point::Matched);
            peer.rx.release(cost);
            select::make_room(core, key, len);
            select::note_room(core, peer, key, len);
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
    take_piece(core, peer, stream, piece)
}

/// A further piece.
fn next_piece(core: &mut Core, peer: &mut Peer, sid: u32, piece: Piece) -> Result<(), Violation> {
    let at = peer.inbound_at(sid).ok_or(Violation("it sent a piece of no stream"))?;
    let stream = peer.inbound.swap_remove(at);
    take_piece(core, peer, stream, piece)
}

/// Copies a piece to where it belongs; ends the stream or puts it back.
pub(crate) fn take_piece(
    core: &mut Core,
    peer: &mut Peer,
    mut stream: Inbound,
    piece: Piece,
) -> Result<(), Violation> {
    if u64::from(piece.len) > stream.end - stream.got {
        return Err(Violation("it sent more of a message than it announced"));
    }
    if stream.got == 0 && stream.end >= TOLD_FROM {
        stream.started = clock::ticks();
        stream.sample_number =
            Some(piece.sample_number()).filter(|sample_number| *sample_number != 0);
    }
    match &mut stream.sink {
        Sink::Op(key) | Sink::Read(key) => {
            if let Some(op) = core.ops.recv_mut(*key) {
                stream.came.copied += op.memory.drain(&mut peer.rx, piece, stream.got)?;
            }
        }
        Sink::Keep(_, kept) => {
            kept.append(&mut peer.rx, piece)?;
            stream.came.copied += u64::from(piece.len);
        }
        Sink::Write(landing) => {
            stream.came.copied += owner::land_piece(core, peer, landing, piece, stream.got)?;
        }
    }
    stream.came.by = stream.came.by.and(core.copied_by(piece.len.into()));
    stream.got += u64::from(piece.len);
    peer.pieces += u64::from(stream.request.is_some());
    if stream.got < stream.end {
        peer.inbound.push(stream);
    } else if let (Some(request), Sink::Op(key)) = (stream.request, &stream.sink) {
        if !request::take_over_rest(core, peer, *key, &stream)? {
            peer.claims.give_request(request);
            all_came(core, peer, stream);
        }
    } else {
        all_came(core, peer, stream);
    }
    Ok(())
}

/// All bytes of a message that were to come have come.
pub(crate) fn all_came(core: &mut Core, peer: &mut Peer, stream: Inbound) {
    measure(peer, &stream);
    let (tag, len, came) = (stream.tag, stream.len, stream.came);
    if let Sink::Op(_) | Sink::Keep(..) = stream.sink {
        select::copied(core, peer, stream.sid);
    }
    match stream.sink {
        Sink::Read(key) => served::read_whole(core, peer, key, came),
        Sink::Write(landing) => owner::landed(core, peer, stream.sid, *landing, came),
        Sink::Op(key) => complete(core, key, peer, (tag, len), came, stream.offered, stream.errno),
        Sink::Keep(key, kept) => {
            if let Some(entry) = core.matcher.unexpected_mut(key) {
                let bytes = kept.into_bytes();
                let (cost, by) = (stream.cost, came.by);
                *entry = Unexpected::Whole { bytes, cost, inline: false, by };
            }
        }
    }
}

/// Ends a receive whose bytes are all in its memory, some of them having been stored before;
/// `offered`: its sender took the message to be mapped here; `errno`: the kernel did not copy
/// it.
pub(crate) fn complete(
    core: &mut Core,
    key: OpKey,
    peer: &Peer,
    (tag, len): (u64, u64),
    Came { copied, stored, cma, by }: Came,
    offered: bool,
    errno: u32,
) {
    let mut receipt = peer.receipt(Path::Eager, copied, len);
    if errno != 0 {
        receipt.refuse(Path::Cma, Refusal::Denied(errno as i32));
    }
    if offered {
        receipt.refuse(Path::Mapped, Refusal::NotMapped);
    }
    receipt.copied_user = copied + stored - cma;
    receipt.copied_kernel = cma;
    receipt.note_copies(by);
    let bytes = select::own_bytes(core, key, copied);
    arrive(core, key, Arrived { peer: peer.id, tag, len, receipt, bytes, loan: None });
}

/// Tells the sender of a message through the ring the time that it took here.
fn measure(peer: &mut Peer, stream: &Inbound) {
    if stream.started == 0 || stream.end < TOLD_FROM {
        return;
    }
    if let Some(number) = stream.sample_number {
        peer.rx.say_fragment_sample(
            number,
            clock::ns_of(clock::ticks().saturating_sub(stream.started)),
        );
    }
    let ns = peer.times.arrival_lap_ns(stream.started);
    let number = halves::number(stream.sid, stream.len);
    peer.rx.say_took(sample::answer(number, ns));
}

/// A message is announced that lies in its sender's memory.
fn announced(core: &mut Core, peer: &mut Peer, sid: u32, rts: Rts) -> Result<(), Violation> {
    if rts.len > i64::MAX as u64 {
        return Err(Violation("it announced a message longer than memory"));
    }
    let list = vectored::read_list(peer, &rts)?;
    match match_posted(core, peer.id, rts.tag, rts.len) {
        Some(key) => {
            failpoint::hit(Point::Matched);
            credit::widen(core, peer, &rts);
            select::select(core, peer, key, (sid, rts), list.as_deref())
        }
        None if credit::store_unasked(core, peer, sid, &rts)? => Ok(()),
        None => {
            if peer.announced.len() >= peer.announced_max as usize {
                return Err(Violation("it announced more messages than it may"));
            }
            peer.record.unexpected.add(1);
            let list = vectored::kept(peer, list);
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
                vectored::taken(peer, list.as_deref());
            }
        }
        Some(None) => core.active.take_back(peer.id, sid),
        None => return Ok(()),
    }
    let fin = Fin { errno: 0, took_ns: 0, cancelled: true, by: By::Kernel };
    core::answer(core, peer, Kind::Fin, sid, &fin.body());
    Ok(())
}

/// Gives a stored message that is still coming in to a receive.
pub(crate) fn redirect(core: &mut Core, peer: &mut Peer, sid: u32, key: OpKey) {
    let Some(at) = peer.inbound_at(sid) else { return };
    let len = peer.inbound[at].len;
    select::make_room(core, key, len);
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

/// Checks the first piece of a message.
pub(crate) fn check_first(peer: &Peer, sid: u32, eager: &Eager) -> Result<(), Violation> {
    let piece = u64::from(eager.piece.len);
    if piece > eager.len || eager.len > peer.granted {
        return Err(Violation("it sent a piece that does not fit its message"));
    }
    if piece != eager.len && peer.inbound_at(sid).is_some() {
        return Err(Violation("it began a stream twice"));
    }
    Ok(())
}
