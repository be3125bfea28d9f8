//! The sending side: from a posted send to descriptors in the lane.
//!
//! Per peer there is a queue of sends with something to write. A send leaves it when its last piece
//! is out, or when it is announced and the receiver's answer is awaited. The order of first
//! descriptors is the order of posting, which keeps messages in order. Sends that the receiver has
//! asked for are in a queue of their own, before the other.

use pinfold_sys::cpu::clock;

use super::{
    core::{self, Core},
    extent_exchange, gauges,
    op::{Done, OpKey, SendOp, SendStage},
    peer::{MESSAGE_COST, Peer},
    transport_progress,
};
use crate::{
    Error, Path, Receipt, Refusal, Result,
    failpoint::{self, Point},
    memory::scatter::{Part, Scatter},
    policy::route,
    protocol::{
        active::send,
        handoff::{latest, vectored},
        rendezvous::{announce, select::SAID_FROM},
        rma::{
            served::{self, owner},
            way::{Begun, Served},
        },
    },
    status::Tally,
    sync::Ordering,
    transport::shm::{
        claim,
        fragment::{Cut, FragmentSize},
        ring::Violation,
    },
    wire::{
        active::{Label, Verb},
        descriptor::{Eager, Header, INLINE_MAX, INLINE_WIDE_MAX, Kind, Piece},
        rendezvous::Request,
    },
};

/// Messages up to this long go as one piece.
pub(crate) const PIECE_WHOLE: u64 = 4 << 10;
/// Messages shorter than this tell nothing about the speed of copying.
const LEARN_FROM: u64 = 8 << 10;

/// The result of one step of a send.
pub(crate) enum Step {
    /// It has ended.
    Ended(Result<Receipt>),
    /// It is announced and leaves the queue.
    Announced,
    /// It waits for room, or for credit.
    Stuck,
    /// Its memory is to be given away, and so much memory is with the peer already that it waits.
    Held,
}

/// The bytes of the next piece.
fn piece_len(at: u64, end: u64, fragment: FragmentSize) -> u32 {
    let left = end - at;
    let len = if left <= PIECE_WHOLE {
        left
    } else if at == 0 {
        // The first piece is short, so that the receiver starts early.
        (left / 4).clamp(1 << 10, FragmentSize::SHORT.bytes()) & !63
    } else {
        fragment.next(left)
    };
    len as u32
}

/// Sends a message of up to 56 bytes at once, if no other message is queued before it.
///
/// `word(i)` is the i-th eight bytes of the message. `Ok(false)`: it has to be queued.
pub(crate) fn send_inline(
    core: &mut Core,
    peer: &mut Peer,
    tag: u64,
    len: usize,
    word: impl Fn(usize) -> u64,
) -> Result<bool, Violation> {
    debug_assert!(len <= INLINE_MAX);
    if !peer.tx.has_room(&mut core.lane_budget)? || !peer.has_credit(len as u64) {
        return Ok(false);
    }
    let high = (tag >> 32) as u32;
    let low = tag as u32;
    let words = len.div_ceil(8);
    if high != peer.tag_high_tx {
        peer.tag_high_tx = high;
        if len <= INLINE_WIDE_MAX {
            let mut body = [0; 7];
            body[0] = tag;
            for (i, slot) in body[1..][..words].iter_mut().enumerate() {
                *slot = word(i);
            }
            peer.tx.push(Header::new(Kind::InlineWide, len as u8, 0), &body[..1 + words]);
            peer.sent_cost += MESSAGE_COST + len as u64;
            return Ok(true);
        }
        peer.send_tag_high(tag);
        if !peer.tx.has_room(&mut core.lane_budget)? {
            return Ok(false);
        }
    }
    failpoint::hit(Point::BeforeInline);
    for (i, place) in peer.tx.next_body().iter().enumerate().take(words) {
        place.store(word(i), Ordering::Relaxed);
    }
    peer.tx.publish(Header::new(Kind::Inline, len as u8, low));
    failpoint::hit(Point::AfterInline);
    peer.sent_cost += MESSAGE_COST + len as u64;
    Ok(true)
}

/// Returns whether a message of `len` bytes may go without asking.
pub(crate) fn fits_eager(peer: &mut Peer, len: u64) -> bool {
    // Half the window at most, so that one message does not stop all others.
    len <= peer.window / 2 && peer.has_credit(len)
}

pub(crate) fn lend(core: &mut Core, peer: &mut Peer, len: u32) -> Result<Option<Piece>, Violation> {
    if len == 0 {
        return Ok(Some(Piece { offset: 0, len: 0, sample: 0 }));
    }
    peer.tx.lend(len, len.min(1 << 10), &mut core.lane_budget)
}

/// Writes the sends that are queued for the peer, as far as there is room.
pub(crate) fn pump(core: &mut Core, peer: &mut Peer) -> Result<(), Violation> {
    let before = peer.tx.produced();
    let result = pump_quietly(core, peer);
    gauges::update_peer_gauges(core, peer);
    if peer.tx.produced() != before || !peer.transport.is_sent() {
        core::ring(core, peer);
    }
    result
}

fn pump_quietly(core: &mut Core, peer: &mut Peer) -> Result<(), Violation> {
    loop {
        served::drop_served(core, peer);
        while peer.controls() > 0 {
            if !peer.tx.has_room(&mut core.lane_budget)? {
                core.block(peer);
                return Ok(());
            }
            if let Some(control) = peer.next_control() {
                peer.tx.push(control.header, &control.body[..control.words]);
            }
        }
        let Some(key) = peer.next_send() else {
            match latest::next_frame(core, peer) {
                true => continue,
                false => return Ok(()),
            }
        };
        // The operation is taken out while it is worked on: both it and the rest of the core
        // are needed.
        let Some(op) = core.ops.send_mut(key) else {
            peer.pass_send();
            continue;
        };
        let memory = std::mem::replace(&mut op.memory, Scatter::empty());
        let stage = std::mem::replace(&mut op.stage, SendStage::Fresh);
        let served = op.served.take();
        let mut work = SendOp { memory, stage, served, ..*op };
        let step = step(core, peer, key, &mut work);
        if let Some(op) = core.ops.send_mut(key) {
            *op = work;
        }
        match step? {
            Step::Ended(result) => {
                peer.pass_send();
                core::finish(core, key, result.map(Done::Sent));
            }
            Step::Announced => {
                peer.pass_send();
            }
            Step::Held => {
                core.block(peer);
                return Ok(());
            }
            Step::Stuck => {
                peer.record.room_stalls.add(1);
                core.block(peer);
                return Ok(());
            }
        }
    }
}

/// Takes a send as far as room and credit allow.
fn step(core: &mut Core, peer: &mut Peer, key: OpKey, op: &mut SendOp) -> Result<Step, Violation> {
    if matches!(op.stage, SendStage::Fresh) {
        if op.given && !latest::is_charged(core, peer, op) {
            return Ok(Step::Held);
        }
        if !peer.tx.has_room(&mut core.lane_budget)? {
            return Ok(Step::Stuck);
        }
        if let Some(served) = op.served.take() {
            let begun = served::begin_served(core, peer, key, op, &served);
            op.served = Some(served);
            return match begun {
                Begun::Streams => stream(core, peer, key, op),
                Begun::AllOut => Ok(Step::Announced),
                Begun::Ended => Ok(Step::Ended(Ok(op.receipt))),
            };
        }
        if op.verb == Verb::Failed {
            let label = Label::from_tag(op.verb, op.tag);
            return Ok(match send::send_active(core, peer, label, 0, &[])? {
                true => Step::Ended(Ok(op.receipt)),
                false => Step::Stuck,
            });
        }
        if !op.routed {
            match route(core, peer, op) {
                Err(error) => return Ok(Step::Ended(Err(error))),
                Ok(receipt) => op.receipt = receipt,
            }
            op.routed = true;
        }
        let len = op.memory.len();
        match op.receipt.path {
            Path::Inline => {
                let words = op.memory.read_words::<7>();
                let goes = match op.verb {
                    Verb::Tagged => send_inline(core, peer, op.tag, len as usize, |i| words[i]),
                    verb => {
                        let label = Label::from_tag(verb, op.tag);
                        send::send_active(core, peer, label, len as usize, &words)
                    }
                };
                if goes? {
                    op.receipt.copied_user = len;
                    peer.record.count_sent(Path::Inline, len);
                    return Ok(Step::Ended(Ok(op.receipt)));
                }
                let insists = op.required == Some(Path::Inline);
                if insists || !peer.tx.has_room(&mut core.lane_budget)? {
                    return Ok(Step::Stuck);
                }
                return announce::announce(core, peer, key, op);
            }
            Path::Eager if fits_eager(peer, len) => {
                let (at, end) = (0, len);
                op.stage =
                    SendStage::Streaming { at, end, announced: false, cut: None, request: None };
                op.started = clock::ticks();
            }
            Path::Eager | Path::Cma | Path::Mapped | Path::Handoff => {
                return announce::announce(core, peer, key, op);
            }
        }
    }
    stream(core, peer, key, op)
}

/// The path of a fresh send, and the refusals of the others.
pub(crate) fn route(core: &mut Core, peer: &mut Peer, op: &SendOp) -> Result<Receipt> {
    let len = op.memory.len();
    if op.given {
        return route_donation(core, peer, op);
    }
    if op.verb != Verb::Tagged {
        return send::route_active(core, peer, op);
    }
    if let Some(path) = op.required {
        // Before anything is handed over.
        if let Some(why) = peer.permissions.refusal(path) {
            return Err(Error::PathRefused { path, why });
        }
        let refusal = match path {
            Path::Inline => (len > INLINE_MAX as u64).then_some(Refusal::TooLong),
            Path::Mapped => match op.memory.part() {
                Some(memory) if memory.locate().is_some() => {
                    let exported = extent_exchange::export_part(peer, memory);
                    exported.is_none().then_some(Refusal::NotMapped)
                }
                _ if peer.tx.goes_to_open_memory() => None,
                _ => Some(Refusal::NotShareable),
            },
            Path::Handoff => Some(Refusal::Kept),
            Path::Eager | Path::Cma => None,
        };
        return match refusal {
            Some(why) => Err(Error::PathRefused { path, why }),
            None => Ok(Receipt::new(path, len)),
        };
    }
    choose(core, peer, len, op.memory.part())
}

/// The path of memory that is given away; where it cannot be, a copy of it goes.
fn route_donation(core: &mut Core, peer: &mut Peer, op: &SendOp) -> Result<Receipt> {
    let (len, memory) = (op.memory.len(), op.memory.part());
    let in_parts = op.memory.parts() > 1;
    let why = match (peer.permissions.refusal(Path::Handoff), memory) {
        (Some(why), _) => why,
        (None, None) if in_parts => match vectored::route_parts(peer, op) {
            Ok(receipt) => return Ok(receipt),
            Err(why) => why,
        },
        (None, Some(memory))
            if peer.exported_extents.may_offer()
                && extent_exchange::export_part(peer, memory).is_some() =>
        {
            return Ok(Receipt::new(Path::Handoff, len));
        }
        _ => Refusal::NotMapped,
    };
    let mut receipt = choose(core, peer, len, memory)?;
    receipt.refuse(Path::Handoff, why);
    Ok(receipt)
}

/// The choice of the cost model for a message of `len` bytes; `memory` if it lies in one part.
pub(crate) fn choose(
    core: &mut Core,
    peer: &mut Peer,
    len: u64,
    memory: Option<Part>,
) -> Result<Receipt> {
    let choose = if core.strict { route::choose_strict } else { route::choose };
    let refused = |(path, why)| Error::PathRefused { path, why };
    let may_pay =
        len >= peer.times.learner.from(Path::Mapped) || !peer.permissions.may(Path::Eager);
    let may_map = may_pay && peer.permissions.may(Path::Mapped);
    let place = memory.filter(|_| may_map).and_then(Part::locate);
    // Either side can map the other's memory.
    let goes_to_open = may_map && len >= SAID_FROM && peer.tx.goes_to_open_memory();
    let place = place.filter(|_| peer.exported_extents.may_offer());
    let shareable = place.is_some() || goes_to_open;
    let choice =
        choose(len, shareable, &peer.permissions, &mut peer.times.learner).map_err(refused)?;
    if choice.receipt.path != Path::Mapped
        || goes_to_open
        || place.is_some_and(|(extent, at)| extent_exchange::export_at(peer, &extent, at).is_some())
    {
        return Ok(choice.receipt);
    }
    let choice = choose(len, false, &peer.permissions, &mut peer.times.learner).map_err(refused)?;
    let mut receipt = choice.receipt;
    receipt.refuse(Path::Mapped, Refusal::NotMapped);
    Ok(receipt)
}

/// Writes pieces while there is room for them.
fn stream(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
) -> Result<Step, Violation> {
    let SendStage::Streaming { at, end, announced, .. } = op.stage else {
        return Ok(Step::Announced);
    };
    if at == 0 && announced {
        // Until now the send waited for its receiver, or this side received.
        op.started = peer.times.would_have_begun(op.started);
    }
    let len = op.memory.len();
    if at == 0 && transport_progress::hand_to_connection(peer, key, op, end, announced)? {
        return Ok(Step::Announced);
    }
    let all_out = write_pieces(core, peer, key, op)?;
    op.receipt.note_copies(core.copied_by(len));
    if let SendStage::TakenOver { .. } = op.stage {
        return Ok(Step::Announced);
    }
    if !all_out {
        return Ok(Step::Stuck);
    }
    if let Some(served) = &op.served {
        op.receipt.copied_user = end;
        core.status.copied_user.add(end);
        if let Served::Answer { .. } = **served {
            return Ok(Step::Ended(Ok(op.receipt)));
        }
        op.stage = SendStage::Asked;
        return Ok(Step::Announced);
    }
    if len >= LEARN_FROM {
        let took_there = peer.tx.took_there();
        peer.times.learn_eager((op.sid(key), len), op.started, announced, took_there);
    }
    let why_not = match op.receipt.path {
        // An inline message comes this way only when credit is short.
        Path::Inline => Refusal::NoCredit,
        Path::Mapped => Refusal::NotMapped,
        Path::Cma if op.errno != 0 => Refusal::Denied(op.errno as i32),
        _ => Refusal::Declined,
    };
    op.receipt.took(Path::Eager, why_not);
    if op.errno != 0 {
        op.receipt.refuse(Path::Cma, Refusal::Denied(op.errno as i32));
    }
    op.receipt.copied_user = end;
    peer.record.count_sent(Path::Eager, len);
    core.status.copied_user.add(end);
    Ok(Step::Ended(Ok(op.receipt)))
}

/// The same; returns whether all of them are out.
fn write_pieces(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
) -> Result<bool, Violation> {
    let sid = op.sid(key);
    let SendStage::Streaming { at, end, announced, cut, request } = &mut op.stage else {
        return Ok(true);
    };
    let (len, part_len) = (op.memory.len(), op.memory.part_len());
    peer.tx.may_try(peer.times.learner.uses(Path::Eager, len));
    let Cut { fragment, sample_number } = *cut.get_or_insert_with(|| peer.tx.cut(*end, part_len));
    let mut first = *at == 0 && !*announced;
    while first || *at < *end {
        if !peer.tx.has_room(&mut core.lane_budget)? {
            return Ok(false);
        }
        let Some(mut piece) = lend(core, peer, piece_len(*at, *end, fragment))? else {
            return Ok(false);
        };
        if let Some(Request { word, generation }) = *request {
            let word = peer.tx.request_word(word);
            if !claim::advance(word, generation, *at, *at + u64::from(piece.len)) {
                op.stage = SendStage::TakenOver { copied: *at };
                return Ok(false);
            }
        }
        let shared = match op.served.as_deref() {
            Some(served) => owner::fill_served(peer, served, piece, *at)?,
            None => false,
        };
        if !shared {
            op.memory.fill(&mut peer.tx, &mut piece, *at)?;
        }
        if *at == 0 && sample_number != 0 {
            // A sample taken of the same piece is not reported.
            piece.sample = sample_number;
        }
        if first {
            let body = Eager { tag: op.tag, len, piece }.body();
            failpoint::hit(Point::BeforeEager);
            peer.tx.push(Header::new(Kind::Eager, op.verb as u8, sid), &body);
            peer.sent_cost += MESSAGE_COST + len;
            first = false;
        } else {
            failpoint::hit(Point::BeforePiece);
            peer.tx.push(Header::new(Kind::Data, 0, sid), &piece.body());
        }
        failpoint::hit(Point::AfterPiece);
        *at += u64::from(piece.len);
        // A sleeper is woken by the first piece, not by the last.
        if *at < *end {
            core::ring(core, peer);
        }
    }
    Ok(true)
}
