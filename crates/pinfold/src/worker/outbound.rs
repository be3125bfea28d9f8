//! The sending side: from a posted send to descriptors in the lane.
//!
//! Per peer there is a queue of sends with something to write. A send leaves it when its last piece
//! is out, or when it is announced and the receiver's answer is awaited. The order of first
//! descriptors is the order of posting, which keeps messages in order. Sends that the receiver has
//! asked for are in a queue of their own, before the other.

use pinfold_sys::cpu::clock;

use super::{
    answers,
    core::Core,
    ends, gauges,
    op::{Done, OpKey, SendOp, SendStage},
    peer::{MESSAGE_COST, Peer},
    routing::{self, Step},
    transport_sends,
};
use crate::{
    Path, Refusal, Result,
    failpoint::{self, Point},
    memory::scatter::Scatter,
    protocol::{
        active::calls,
        handoff::{admission, frames},
        rendezvous::announce,
        rma::{
            served::sending,
            way::{Begun, Served},
        },
    },
    status::Tally,
    transport::shm::{claim, fragment::Cut, ring::Violation},
    wire::{
        active::{Label, Verb},
        descriptor::{Eager, Header, Kind},
        rendezvous::Request,
    },
};

/// Messages shorter than this tell nothing about the speed of copying.
const LEARN_FROM: u64 = 8 << 10;

/// Writes the sends that are queued for the peer, as far as there is room.
pub(crate) fn pump(core: &mut Core, peer: &mut Peer) -> Result<(), Violation> {
    let before = peer.tx.produced();
    let result = pump_quietly(core, peer);
    gauges::update_peer_gauges(&core.ops, peer);
    if peer.tx.produced() != before || !peer.transport.is_sent() {
        answers::ring(core, peer);
    }
    result
}

fn pump_quietly(core: &mut Core, peer: &mut Peer) -> Result<(), Violation> {
    loop {
        sending::drop_served(core, peer);
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
            match frames::next_frame(core, peer) {
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
                ends::finish(core, key, result.map(Done::Sent));
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
        if op.given && !admission::is_charged(core, peer, op) {
            return Ok(Step::Held);
        }
        if !peer.tx.has_room(&mut core.lane_budget)? {
            return Ok(Step::Stuck);
        }
        if let Some(served) = op.served.take() {
            let begun = sending::begin_served(&mut core.registry, peer, key, op, &served);
            op.served = Some(served);
            return match begun {
                Begun::Streams => stream(core, peer, key, op),
                Begun::AllOut => Ok(Step::Announced),
                Begun::Ended => Ok(Step::Ended(Ok(op.receipt))),
            };
        }
        if op.verb == Verb::Failed {
            let label = Label::from_tag(op.verb, op.tag);
            return Ok(match calls::send_active(&mut core.lane_budget, peer, label, 0, &[])? {
                true => Step::Ended(Ok(op.receipt)),
                false => Step::Stuck,
            });
        }
        if !op.routed {
            match routing::route(core, peer, op) {
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
                    Verb::Tagged => routing::send_inline(
                        &mut core.lane_budget,
                        peer,
                        op.tag,
                        len as usize,
                        |i| words[i],
                    ),
                    verb => {
                        let label = Label::from_tag(verb, op.tag);
                        calls::send_active(&mut core.lane_budget, peer, label, len as usize, &words)
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
                return announce::announce(&mut core.ops, &mut core.lane_budget, peer, key, op);
            }
            Path::Eager if routing::fits_eager(peer, len) => {
                let (at, end) = (0, len);
                op.stage =
                    SendStage::Streaming { at, end, announced: false, cut: None, request: None };
                op.started = clock::ticks();
            }
            Path::Eager | Path::Cma | Path::Mapped | Path::Handoff => {
                return announce::announce(&mut core.ops, &mut core.lane_budget, peer, key, op);
            }
        }
    }
    stream(core, peer, key, op)
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
    if at == 0 && transport_sends::hand_to_connection(peer, key, op, end, announced)? {
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
        let times = (op.started, op.first_out);
        peer.times.learn_eager((op.sid(key), len), times, announced, took_there);
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
        let Some(mut piece) =
            routing::lend(&mut core.lane_budget, peer, routing::piece_len(*at, *end, fragment))?
        else {
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
            Some(served) => sending::fill_served(peer, served, piece, *at)?,
            None => false,
        };
        if !shared {
            piece.sample = op.memory.fill(&mut peer.tx, piece, *at)?;
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
        if *at == 0 && len >= LEARN_FROM {
            op.first_out = clock::ticks();
        }
        *at += u64::from(piece.len);
        // A sleeper is woken by the first piece, not by the last, unless it would take this
        // processor.
        if *at < *end && !core.is_short {
            answers::ring(core, peer);
        }
    }
    Ok(true)
}
