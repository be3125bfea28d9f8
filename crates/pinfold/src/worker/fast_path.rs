//! The fast path: a short message in one call, when nothing stands in its way.
//!
//! Nothing here fails. Any unusual state (a peer that is gone, no room, no credit, a queue, a
//! posted receive that takes the message, a descriptor that makes no sense) is left as it is for
//! the ordinary way, which finds it again and reports the error. Nothing here wants a thread woken,
//! either.

use pinfold_sys::cpu::clock;

use super::{
    answers::{self, PUBLISH_AFTER},
    core::Core,
    engine::Engine,
    inbound,
    matching::{Source, TagMatch},
    next_message::head_of_any,
    peer::{MESSAGE_COST, Peer},
    progress::POLLS_A_CLOCK,
    routing::{self, PIECE_WHOLE},
    transport_progress,
};
use crate::{
    Path, PeerId, Receipt, Result,
    copy::Largest,
    endpoint::received::Received,
    failpoint::{self, Point},
    memory::scatter::Part,
    policy::route::{Why, ring_is_settled},
    status::Tally,
    sync::Ordering,
    wire::descriptor::{Eager, Header, INLINE_MAX, INLINE_TWO_MAX, INLINE_WIDE_MAX, Kind, Piece},
};

/// Looks at a lane before a receive is posted: a message that is about to come needs no entry.
const LOOKS: u32 = 200;
/// The same at a connection.
const CONNECTION_POLLS: u32 = 20;
/// The same at lanes, while connections are polled as well: these are not looked at meanwhile.
const POLLS_WITH_TCP: u32 = 4;

/// How a message was sent.
pub(crate) struct Sent {
    pub path: Path,
    pub why: Why,
    pub by: Largest,
}

/// How a message was received.
pub(crate) struct Took {
    pub peer: PeerId,
    pub tag: u64,
    pub len: u64,
    /// Bytes that the memory has room for.
    pub bytes: u64,
    pub path: Path,
    pub why: Why,
    pub by: Largest,
}

impl Took {
    /// The result as the caller gets it.
    #[inline(always)]
    pub(crate) fn received(self) -> Result<Received> {
        let Took { peer, tag, len, bytes, path, why, by } = self;
        Received { peer, tag, len, receipt: Receipt::copied(path, bytes, why, by) }.checked()
    }
}

#[inline(always)]
pub(crate) fn is_usable(engine: &Engine) -> bool {
    !engine.core.closed
}

/// Returns whether the head of a lane is for the next receive, and no caller waits on the
/// descriptor.
#[inline(always)]
pub(super) fn may_recv_fast(engine: &Engine) -> bool {
    is_usable(engine) && engine.core.matcher.stores_none() && (engine.driven || !engine.armed)
}

/// The same for a receive that waits for it a moment, unless it is time for the ordinary way.
#[inline(always)]
pub(super) fn may_wait_fast(engine: &mut Engine) -> bool {
    if !may_recv_fast(engine) {
        return false;
    }
    engine.polls += 1;
    if engine.driven {
        engine.waits.note();
    }
    engine.polls <= POLLS_A_CLOCK || !must_look_around(engine)
}

/// Returns whether the ordinary way has something to do other than to receive: now and then it
/// looks at the sockets, and operations in flight with other peers go on.
#[cold]
#[inline(never)]
fn must_look_around(engine: &mut Engine) -> bool {
    let must = engine.has_chores() || clock::now_ns() >= engine.events_at;
    if !must {
        engine.polls = 0;
    }
    must
}

/// Sends a message that fits its descriptor, if room and credit are known to be there.
///
/// There are as few steps here as can be, stores above all: the processor makes stores visible
/// in their order, so those behind the one to the ring wait for its cache line to come over,
/// and once the store queue is full (64 entries, say), so does the next message.
#[inline(always)]
pub(crate) fn send_at_once(engine: &mut Engine, id: PeerId, tag: u64, memory: Part) -> bool {
    let (core, Some(peer)) = (&mut engine.core, engine.peers.get_mut(id)) else { return false };
    !core.closed && send_to(core, peer, tag, memory)
}

/// Sends a message of one part that fits a descriptor or one piece. `None`: it has to be
/// posted, with the receipt that the cost model chose, if it was asked.
pub(crate) fn send_fast(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    memory: Part,
    chosen: &mut Option<Receipt>,
) -> Option<Sent> {
    if !is_usable(engine) {
        return None;
    }
    let (peer, core) = (engine.peers.get_mut(id)?, &mut engine.core);
    let has_room = peer.is_clear() && peer.tx.has_room(&mut core.lane_budget) == Ok(true);
    if !has_room || !peer.has_credit(memory.len()) {
        return None;
    }
    if memory.len() > INLINE_MAX as u64 {
        return send_piece(core, peer, tag, memory, chosen);
    }
    let sent = if (tag >> 32) as u32 == peer.tag_high_tx {
        send_at_once(engine, id, tag, memory)
    } else if !peer.permissions.may(Path::Inline) {
        false
    } else if memory.len() <= INLINE_WIDE_MAX as u64 {
        send_wide(core, peer, tag, memory);
        true
    } else {
        peer.tx.has_room_for_two() && {
            peer.send_tag_high(tag);
            send_at_once(engine, id, tag, memory)
        }
    };
    sent.then_some(Sent { path: Path::Inline, why: Why::NOT_ASKED, by: Largest::NONE })
}

/// Receives the next message of a lane into one part, if it matches, is whole and short, no
/// receive that was posted before takes it, and nothing is stored. Waits for it a few
/// microseconds.
#[inline(always)]
pub(crate) fn recv_fast(
    engine: &mut Engine,
    from: Source,
    tag: TagMatch,
    memory: Part,
) -> Option<Took> {
    if !may_wait_fast(engine) {
        return None;
    }
    at_head(engine, from, |core, peer, header| take_head(core, peer, header, tag, memory))
}

/// Waits a moment for the next descriptor of a lane that a source names, and takes it.
#[inline(always)]
pub(super) fn at_head<T>(
    engine: &mut Engine,
    from: Source,
    take: impl FnOnce(&mut Core, &mut Peer, Header) -> Option<T>,
) -> Option<T> {
    match from {
        Source::Peer(id) => {
            let peer = engine.peers.get_mut(id).filter(|peer| !peer.is_leaving())?;
            let header = await_head(&mut engine.core, peer)?;
            take(&mut engine.core, peer, header)
        }
        Source::Any => {
            let looks = match engine.poll_set.any() {
                _ if engine.core.may_hold_up_a_peer() => 1,
                true => POLLS_WITH_TCP,
                false => LOOKS,
            };
            for _ in 0..looks {
                if let Some((peer, header)) = head_of_any(&engine.hot, &mut engine.peers) {
                    return take(&mut engine.core, peer, header);
                }
                clock::relax();
            }
            None
        }
    }
}

/// [`send_at_once`], to a peer of which no more than its hot lines are touched.
#[inline(always)]
pub(crate) fn send_to(core: &mut Core, peer: &mut Peer, tag: u64, memory: Part) -> bool {
    debug_assert!(memory.len() <= INLINE_MAX as u64);
    let sent_cost = peer.sent_cost + MESSAGE_COST + memory.len();
    let goes = peer.is_clear_inline()
        && (tag >> 32) as u32 == peer.tag_high_tx
        && sent_cost <= peer.credit_end
        && peer.tx.has_room_known();
    if !goes {
        return false;
    }
    failpoint::hit(Point::BeforeInline);
    peer.sent_cost = sent_cost;
    peer.record.count_sent(Path::Inline, memory.len());
    let header = Header::new(Kind::Inline, memory.len() as u8, tag as u32);
    memory.read_words(peer.tx.next_body());
    peer.tx.publish(header);
    failpoint::hit(Point::AfterInline);
    answers::ring(core, peer);
    true
}

/// Sends a message as one piece, if the cost model says so. The peer has room and credit.
fn send_piece(
    core: &mut Core,
    peer: &mut Peer,
    tag: u64,
    memory: Part,
    chosen: &mut Option<Receipt>,
) -> Option<Sent> {
    let len = memory.len();
    let is_settled = !core.strict && ring_is_settled(len, &peer.permissions, &peer.times.learner);
    if !is_settled {
        let receipt = routing::choose(core, peer, len, Some(memory)).ok()?;
        *chosen = Some(receipt);
        if receipt.path != Path::Eager {
            return None;
        }
    }
    if len > PIECE_WHOLE || !routing::fits_eager(peer, len) {
        return None;
    }
    if !(len <= INLINE_TWO_MAX as u64 && send_two(core, peer, tag, memory)) {
        send_range(core, peer, tag, memory)?;
    }
    let why = chosen.map_or(peer.permissions.ring_why(), |receipt| receipt.why());
    Some(Sent { path: Path::Eager, why, by: core.copied_by(len) })
}

/// Sends a message as one piece in bulk bytes. `None`: they are not free. The peer has room and
/// credit.
///
/// Between the first byte of the piece and the header, nothing is read back in another width than
/// it was written: that would wait for all stores before it, and so for the lines that the peer
/// has read to come over.
#[inline(always)]
fn send_range(core: &mut Core, peer: &mut Peer, tag: u64, memory: Part) -> Option<()> {
    let len = memory.len();
    let piece = match peer.tx.lend_at_once(len as u32) {
        Some(piece) => piece,
        None => match routing::lend(&mut core.lane_budget, peer, len as u32) {
            Ok(Some(piece)) if u64::from(piece.len) == len => piece,
            // A shorter range goes back when the next is lent.
            _ => return None,
        },
    };
    let sample = memory.fill(&mut peer.tx, piece).ok()?;
    let piece = Piece { sample, ..piece };
    failpoint::hit(Point::BeforeEager);
    let body = Eager { tag, len, piece }.body();
    peer.tx.push(Header::new(Kind::Eager, 0, u32::MAX), &body);
    failpoint::hit(Point::AfterPiece);
    peer.sent_cost += MESSAGE_COST + len;
    answers::ring(core, peer);
    peer.record.count_sent(Path::Eager, len);
    core.status.copied_user.add(len);
    Some(())
}

/// Sends a message of up to 48 bytes whose tag has another high half than the last one. The
/// peer has room and credit.
fn send_wide(core: &mut Core, peer: &mut Peer, tag: u64, memory: Part) {
    failpoint::hit(Point::BeforeInline);
    peer.tag_high_tx = (tag >> 32) as u32;
    peer.sent_cost += MESSAGE_COST + memory.len();
    peer.record.count_sent(Path::Inline, memory.len());
    let body = peer.tx.next_body();
    body[0].store(tag, Ordering::Relaxed);
    memory.read_words(&body[1..]);
    peer.tx.publish(Header::new(Kind::InlineWide, memory.len() as u8, 0));
    failpoint::hit(Point::AfterInline);
    answers::ring(core, peer);
}

/// Sends a message of 57 to 112 bytes in two descriptors, if they fit and its tag does. The
/// peer has credit.
#[inline(always)]
fn send_two(core: &mut Core, peer: &mut Peer, tag: u64, memory: Part) -> bool {
    let goes =
        (tag >> 32) as u32 == peer.tag_high_tx && peer.tx.has_room_for_two() && !peer.is_turned();
    if !goes {
        return false;
    }
    let len = memory.len();
    failpoint::hit(Point::BeforeEager);
    peer.sent_cost += MESSAGE_COST + len;
    let rest = len - INLINE_MAX as u64;
    let first = Header::new(Kind::InlineFirst, rest as u8, tag as u32);
    let headers = [first, Header::new(Kind::InlineRest, 0, 0)];
    peer.tx.publish_two(headers, |bodies| memory.read_two(bodies));
    failpoint::hit(Point::AfterPiece);
    answers::ring(core, peer);
    peer.record.count_sent(Path::Eager, len);
    core.status.copied_user.add(len);
    true
}

/// Waits a moment for the next descriptor of a lane.
#[inline(always)]
fn await_head(core: &mut Core, peer: &mut Peer) -> Option<Header> {
    if let Some(header) = peer.rx.head() {
        return Some(header);
    }
    peer.tx.nothing_on_the_way();
    // There is time to report the descriptors taken so far.
    if peer.rx.unpublished() > 0 {
        answers::publish(core, peer);
    }
    if peer.is_turned() {
        return await_frame(core, peer);
    }
    let looks = if core.may_hold_up_a_peer() { 0 } else { LOOKS };
    for _ in 0..looks {
        // Between two looks the sender gets the line for itself.
        clock::relax();
        peer.rx.bring_behind();
        if let Some(header) = peer.rx.head() {
            return Some(header);
        }
    }
    None
}

/// The same for a connection: a look is a system call.
#[inline(never)]
fn await_frame(core: &mut Core, peer: &mut Peer) -> Option<Header> {
    for _ in 0..CONNECTION_POLLS {
        // The end of a connection is found again by the ordinary way.
        transport_progress::turn(core, peer, false).ok()?;
        if let Some(header) = peer.rx.head() {
            return Some(header);
        }
    }
    None
}

/// Takes notices that memory of this side is no longer read, which come before or after most
/// messages, and goes on to the next descriptor of another kind.
#[inline(never)]
pub(super) fn pass_ends(core: &mut Core, peer: &mut Peer, mut header: Header) -> Option<Header> {
    while header.kind() == Some(Kind::Fin) {
        inbound::receive(core, peer, header).ok()?;
        header = await_head(core, peer)?;
    }
    Some(header)
}

/// Receives the message that the descriptor at the head of a lane brings.
#[inline(always)]
pub(super) fn take_head(
    core: &mut Core,
    peer: &mut Peer,
    header: Header,
    tag: TagMatch,
    memory: Part,
) -> Option<Took> {
    let (got_tag, len, bytes, path, why);
    let mut header = header;
    if header.is_inline() {
        got_tag = u64::from(peer.tag_high_rx) << 32 | u64::from(header.aux());
        // A length that no honest peer writes is for the ordinary way to judge.
        let inline = header.inline_len(INLINE_MAX).filter(|_| tag.matches(got_tag))?;
        if core.matcher.would_take(peer.id, got_tag) {
            return None;
        }
        len = inline as u64;
        bytes = memory.write_words(inline, |i| peer.rx.word(i));
        (path, why) = (Path::Inline, Why::NOT_ASKED);
    } else if header.kind() == Some(Kind::InlineWide) {
        got_tag = peer.rx.word(0);
        let inline = header.inline_len(INLINE_WIDE_MAX).filter(|_| tag.matches(got_tag))?;
        if core.matcher.would_take(peer.id, got_tag) {
            return None;
        }
        peer.tag_high_rx = (got_tag >> 32) as u32;
        len = inline as u64;
        bytes = memory.write_words(inline, |i| peer.rx.word(1 + i));
        (path, why) = (Path::Inline, Why::NOT_ASKED);
    } else if header.is_inline_first() {
        got_tag = u64::from(peer.tag_high_rx) << 32 | u64::from(header.aux());
        let (rest, two) = peer.rx.rest(header).filter(|_| tag.matches(got_tag))?;
        if core.matcher.would_take(peer.id, got_tag) {
            return None;
        }
        len = two as u64;
        bytes = memory.write_words(two, |i| peer.rx.word_of_two(header, i));
        (path, why) = (Path::Eager, peer.receipt(Path::Eager, bytes, len).why());
        peer.rx.advance(header).ok()?;
        peer.tx.passed(header, peer.rx.consumed());
        header = rest;
    } else if header.begins_tagged(Kind::Eager) {
        let eager = Eager::read(&peer.rx.body());
        if !tag.matches(eager.tag)
            || u64::from(eager.piece.len) != eager.len
            || eager.len > peer.granted
            || core.matcher.would_take(peer.id, eager.tag)
        {
            return None;
        }
        (got_tag, len) = (eager.tag, eager.len);
        bytes = memory.drain(&mut peer.rx, eager.piece).ok()?;
        (path, why) = (Path::Eager, peer.receipt(Path::Eager, bytes, len).why());
    } else {
        return None;
    }
    // If that fails, the ordinary way finds the same and cuts the peer off.
    peer.rx.advance(header).ok()?;
    peer.tx.passed(header, peer.rx.consumed());
    peer.rx.release(MESSAGE_COST + len);
    // The sender hears of slots with our next message, or when we wait; of bulk bytes at once: they
    // are few, and it may be waiting to use them again.
    if header.begins_tagged(Kind::Eager) || peer.rx.unpublished() >= PUBLISH_AFTER {
        answers::publish(core, peer);
    }
    peer.record.count_received(path, bytes);
    core.status.copied_user.add(bytes);
    // Inline ones are short.
    let by = core.copied_by(bytes);
    Some(Took { peer: peer.id, tag: got_tag, len, bytes, path, why, by })
}
