//! The receiver's words about one of our messages: how it should come, or that all of it has come.

use pinfold_sys::cpu::clock;

use super::{get_end::is_fault, put};
use crate::{
    Error, Path, Refusal,
    protocol::{
        active::receive::not_fetched,
        handoff::{collect, offers, returns},
        rma::cma::{Way, is_denial},
    },
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        descriptor::{Body, Kind},
        layout::REQUESTS,
        rendezvous::{By, Cts, Fin, Wrote},
    },
    worker::{
        answers,
        core::Core,
        ends,
        op::{Copied, Done, OpKey, SendStage},
        op_table::OpTable,
        outbound,
        peer::Peer,
        peer_times::TOOK_NS_MAX,
    },
};

/// Takes the receiver's word how one of our messages should come.
pub(crate) fn answered(
    core: &mut Core,
    peer: &mut Peer,
    sid: u32,
    body: &Body,
) -> Result<(), Violation> {
    let cts = Cts::read(body).ok_or(Violation("it answered in no known way"))?;
    let Some(key) = our_send(&mut core.ops, peer, sid)? else { return Ok(()) };
    let Some(op) = core.ops.send_mut(key) else { return Ok(()) };
    match (&op.stage, cts) {
        (SendStage::Waiting { .. }, _) => peer.waiting = peer.waiting.saturating_sub(1),
        // The part of the message to be written, or read, could not be.
        (SendStage::PutDone(_), Cts::Stream { .. }) => {}
        (SendStage::TakenOver { .. }, Cts::Stream { request: None, .. }) => {}
        // It was taken over, and could not be read either.
        (SendStage::Streaming { request: Some(_), .. }, Cts::Stream { request: None, .. }) => {
            peer.asked.retain(|other| *other != key);
        }
        // No chunk of the message was claimed here, and none can be.
        (SendStage::Putting(putting), Cts::Stream { .. }) if !putting.is_lent() => {
            core.puts.retain(|other| *other != key)
        }
        _ => return Err(Violation("it answered a message twice")),
    }
    let len = op.memory.len();
    match cts {
        Cts::Stream { want, credit, errno, stored, request } => {
            peer.widened(credit);
            if stored {
                peer.stored(want.min(len));
            }
            if is_denial(errno) {
                peer.withdraw(Way::PeerReads, errno);
            }
            let errno = if op.errno == 0 { errno } else { op.errno };
            if errno != 0
                && let Some(error) = why_not_stream(core, peer, key, want, errno)
            {
                let by = By::Kernel;
                let wrote = Wrote { errno, chunks: 0, by, short: false };
                answers::answer(core, peer, Kind::Wrote, sid, &wrote.body());
                ends::finish(core, key, Err(error));
                return Ok(());
            }
            let Some(op) = core.ops.send_mut(key) else { return Ok(()) };
            if let Some(id) = op.offered.take() {
                offers::offer_failed(peer, id, &op.memory);
                op.receipt.refuse(Path::Mapped, Refusal::NotMapped);
            }
            let end = want.min(len);
            if request.is_some_and(|request| request.word >= REQUESTS) {
                return Err(Violation("it asked for a message in a word that is none"));
            }
            op.stage = SendStage::Streaming { at: 0, end, announced: true, cut: None, request };
            peer.asked.push_back(key);
            outbound::pump(core, peer)
        }
        Cts::Put(push) => put::begin_put(core, peer, key, push),
    }
}

/// The error if a message that the kernel did not copy, for the reason `errno`, cannot go
/// through the ring either.
#[cold]
fn why_not_stream(
    core: &mut Core,
    peer: &Peer,
    key: OpKey,
    want: u64,
    errno: u32,
) -> Option<Error> {
    let strict = core.strict;
    let op = core.ops.send_mut(key)?;
    op.errno = errno;
    let why = Refusal::Denied(errno as i32);
    if is_fault(errno) && !op.memory.may_be_touched(want, false) {
        let source = std::io::Error::from_raw_os_error(errno as i32);
        return Some(Error::Transfer { peer: peer.info.name.clone(), source });
    }
    let insists = op.required.is_some_and(|path| path != Path::Eager) || strict;
    insists.then_some(Error::PathRefused { path: Path::Cma, why })
}

/// Takes the receiver's word that it has all of one of our messages.
pub(crate) fn fetched(
    core: &mut Core,
    peer: &mut Peer,
    sid: u32,
    fin: Fin,
) -> Result<(), Violation> {
    let Some(key) = our_send(&mut core.ops, peer, sid)? else { return Ok(()) };
    let Some(op) = core.ops.send_mut(key) else { return Ok(()) };
    let len = op.memory.len();
    let mut taken_over = None;
    let result = match &op.stage {
        SendStage::Waiting { .. } => {
            peer.waiting = peer.waiting.saturating_sub(1);
            Ok(Copied::default())
        }
        SendStage::Putting(putting) => Ok(putting.copied),
        SendStage::PutDone(copied) => Ok(*copied),
        SendStage::TakenOver { copied } => {
            taken_over = Some(*copied);
            Ok(Copied::default())
        }
        // The receiver has taken over what this side has not claimed: all of it, or the rest.
        SendStage::Streaming { at, request: Some(_), .. } => {
            taken_over = Some(*at);
            peer.asked.retain(|other| *other != key);
            Ok(Copied::default())
        }
        _ => Err(Violation("it ended a message that it did not ask for")),
    };
    let copied = result?;
    let result = if fin.cancelled {
        Err(Error::Cancelled)
    } else if fin.errno != 0 {
        Err(not_fetched(peer, op, fin.errno))
    } else {
        let path = match fin.by {
            By::Mapping if op.offered.is_none() => {
                return Err(Violation("it read memory that it was not offered"));
            }
            By::View if op.receipt.path != Path::Handoff => {
                return Err(Violation("it kept memory that was not given away"));
            }
            // One of the two sides used a mapping of the other's memory.
            By::Mapping => Path::Mapped,
            By::View => Path::Handoff,
            _ if copied.user > 0 => Path::Mapped,
            By::Kernel | By::NoMapping => Path::Cma,
        };
        let mut why_not = match op.receipt.path {
            _ if op.given => Refusal::Declined,
            _ if taken_over.is_some() => Refusal::Stalled,
            // The memory could not be handed over after all.
            Path::Mapped => Refusal::NotMapped,
            Path::Cma => Refusal::Declined,
            _ => Refusal::NoCredit,
        };
        if let Some(id) = op.offered {
            match fin.by {
                By::Mapping | By::View => peer.exported_extents.worked(),
                By::Kernel => {}
                By::NoMapping => {
                    offers::offer_failed(peer, id, &op.memory);
                    why_not = Refusal::NotMapped;
                }
            }
        }
        if taken_over.is_some() {
            // It was to go through the ring, and took that long.
            peer.times.learner.observe(Path::Eager, len, fin.took_ns.clamp(1, TOOK_NS_MAX));
        } else if path != Path::Handoff {
            peer.times.learn_rendezvous(path, len, op.started, fin.took_ns);
            peer.two_way.fetch(op.started, clock::ticks());
        }
        op.receipt.took(path, why_not);
        op.receipt.note_copies(copied.by);
        let user = copied.user + taken_over.unwrap_or(0);
        (op.receipt.copied_user, op.receipt.copied_kernel) = (user, copied.kernel);
        peer.record.count_sent(path, len);
        core.status.copied_user.add(user);
        core.status.copied_kernel.add(copied.kernel);
        Ok(Done::Sent(op.receipt))
    };
    ends::finish(core, key, result);
    Ok(())
}

/// Our open send with a peer's stream number; `None` if it has ended meanwhile.
fn our_send(ops: &mut OpTable, peer: &mut Peer, sid: u32) -> Result<Option<OpKey>, Violation> {
    if returns::is_counted(sid) {
        return collect::donation_op(ops, peer, sid);
    }
    let key = ops.at(sid).ok_or(Violation("it answered a message that is not open"))?;
    match ops.send_mut(key) {
        Some(op) if op.peer == peer.id && op.stream.is_none() => Ok(Some(key)),
        _ => Err(Violation("it answered a message that is not its own")),
    }
}
