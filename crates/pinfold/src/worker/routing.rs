//! The path of a message: what it costs, what it requires, and whether its lane has room.

use crate::{
    Error, Path, Receipt, Refusal, Result,
    failpoint::{self, Point},
    memory::scatter::Part,
    policy::route,
    protocol::handoff::offers,
    sync::Ordering,
    transport::shm::{budget::Budget, fragment::FragmentSize, ring::Violation},
    wire::{
        active::{ACTIVE_MAX, Verb},
        descriptor::{Header, INLINE_MAX, INLINE_WIDE_MAX, Kind, Piece},
    },
    worker::{
        core::Core,
        extent_exchange,
        op::SendOp,
        peer::{MESSAGE_COST, Peer},
        room::SAID_FROM,
    },
};

/// Messages up to this long go as one piece.
pub(crate) const PIECE_WHOLE: u64 = 4 << 10;

/// The longest message that goes through the ring instead of by the kernel while processors are
/// short. It is there as a whole once this side sleeps and the peer runs; by the kernel this side
/// would have to run once more before it goes on, to hear that the peer has it.
const SHORT_WHOLE: u64 = 32 << 10;

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

/// Chooses the path of a message that could not go at once.
pub(crate) fn route_active(core: &mut Core, peer: &mut Peer, op: &SendOp) -> Result<Receipt> {
    let len = op.memory.len();
    // There is less room in the descriptor, beside the label.
    let too_long = len > ACTIVE_MAX as u64;
    let as_if = if too_long { len.max(INLINE_MAX as u64 + 1) } else { len };
    // A requester must not wait in vain for its answer.
    let strict = core.strict;
    core.strict &= !op.verb.is_answer();
    let chosen = choose(core, peer, as_if, op.memory.part());
    core.strict = strict;
    let mut receipt = chosen?;
    receipt.bytes = len;
    Ok(receipt)
}

/// The bytes of the next piece.
pub(crate) fn piece_len(at: u64, end: u64, fragment: FragmentSize) -> u32 {
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
    lane_budget: &mut Budget,
    peer: &mut Peer,
    tag: u64,
    len: usize,
    word: impl Fn(usize) -> u64,
) -> Result<bool, Violation> {
    debug_assert!(len <= INLINE_MAX);
    if !peer.tx.has_room(lane_budget)? || !peer.has_credit(len as u64) {
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
        if !peer.tx.has_room(lane_budget)? {
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

pub(crate) fn lend(
    lane_budget: &mut Budget,
    peer: &mut Peer,
    len: u32,
) -> Result<Option<Piece>, Violation> {
    if len == 0 {
        return Ok(Some(Piece { offset: 0, len: 0, sample: 0 }));
    }
    peer.tx.lend(len, len.min(1 << 10), lane_budget)
}

/// The path of a fresh send, and the refusals of the others.
pub(crate) fn route(core: &mut Core, peer: &mut Peer, op: &SendOp) -> Result<Receipt> {
    let len = op.memory.len();
    if op.given {
        return route_donation(core, peer, op);
    }
    if op.verb != Verb::Tagged {
        return route_active(core, peer, op);
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
        (None, None) if in_parts => match offers::route_parts(peer, op) {
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
    let mut choice =
        choose(len, shareable, &peer.permissions, &mut peer.times.learner).map_err(refused)?;
    if core.is_short && choice.receipt.path == Path::Cma && len <= SHORT_WHOLE {
        choice = route::choose_ring(len, &peer.permissions).unwrap_or(choice);
    }
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
