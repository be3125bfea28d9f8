//! The sender announces a message: it stays in its memory until its receiver says how it should
//! come.

use pinfold_sys::cpu::clock;

use crate::{
    Path, Result,
    failpoint::{self, Point},
    memory::scatter::{Part, Scatter},
    protocol::handoff::offers,
    status::Tally,
    transport::shm::{budget::Budget, ring::Violation},
    wire::{
        active::Verb,
        descriptor::{Header, Kind, Piece},
        rendezvous::Rts,
    },
    worker::{
        extent_exchange, gauges,
        op::{OpKey, SendOp, SendStage},
        op_table::OpTable,
        peer::Peer,
        routing::{self, Step},
    },
};

/// Announces a message; it stays in its memory until the receiver asks for it.
pub(crate) fn announce(
    ops: &mut OpTable,
    lane_budget: &mut Budget,
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
) -> Result<Step, Violation> {
    // An answer always has a place.
    if peer.waiting >= peer.waiting_max && !op.verb.is_answer() {
        return Ok(Step::Stuck);
    }
    // A message that lacks only credit may come by any path that the pair has.
    let may_copy = [Path::Cma, Path::Mapped].iter().any(|path| peer.permissions.may(*path));
    let short = matches!(op.receipt.path, Path::Inline | Path::Eager);
    if short {
        peer.record.credit_stalls.add(1);
    }
    // No other credit would be enough for a longer message.
    let unasked = short && op.verb == Verb::Tagged && op.memory.len() <= peer.window / 2;
    let insists = op.receipt.path == Path::Eager && (op.required.is_some() || !may_copy);
    let stream = insists || short && op.timed;
    let prefers_ring = !stream
        && op.receipt.path == Path::Eager
        && peer.times.prefers_ring(op.memory.len(), peer.window);
    let exported = match (op.receipt.path, op.memory.part()) {
        (Path::Mapped | Path::Handoff, Some(memory)) => extent_exchange::export_part(peer, memory),
        _ => None,
    };
    let given = op.receipt.path == Path::Handoff;
    let list = match given && op.memory.parts() > 1 {
        true => match write_list(lane_budget, peer, &op.memory) {
            Ok(list) => list,
            Err(None) => return Ok(Step::Stuck),
            Err(Some(violation)) => return Err(violation),
        },
        false => None,
    };
    // Any of several extents will do to tell that there are some.
    let first = || op.memory.each_part().next().and_then(Part::locate);
    let listed = list.and_then(|_| first()).map(|(extent, _)| extent.id());
    op.offered = exported.map(|exported| exported.extent).or(listed);
    let (tag, len, place) = (op.tag, op.memory.len(), op.memory.place());
    // A part of its own in front is a head; of one long part the memory is left alone.
    let is_told = op.memory.parts() > 1 || len <= 8;
    let has_head = !given && op.verb == Verb::Tagged && is_told;
    let head = has_head.then(|| op.memory.read_words::<1>()[0]);
    let rts = Rts {
        tag,
        len,
        place,
        stream,
        prefers_ring,
        unasked,
        given,
        exported,
        list,
        number: 0,
        head,
    };
    failpoint::hit(Point::BeforeAnnounce);
    peer.tx.push(Header::new(Kind::Rts, op.verb as u8, op.sid(key)), &rts.body());
    failpoint::hit(Point::AfterAnnounce);
    op.started = clock::ticks();
    if !given {
        gauges::note_wait(ops, peer, key, op.started);
    }
    peer.waiting += 1;
    peer.two_way.announce(op.started);
    op.stage = SendStage::Waiting { cancelled: false };
    Ok(Step::Announced)
}

/// Writes the list of a message in several parts. Returns `Ok(None)` if the message cannot be
/// given in parts after all, `Err(None)` if there is no room just now.
pub(crate) fn write_list(
    lane_budget: &mut Budget,
    peer: &mut Peer,
    memory: &Scatter,
) -> Result<Option<Piece>, Option<Violation>> {
    let Some(bytes) = offers::shelve_parts(peer, memory) else { return Ok(None) };
    let piece = routing::lend(lane_budget, peer, bytes.len() as u32).map_err(Some)?.ok_or(None)?;
    // A lane whose budget is spent has no more. The piece that was lent goes back when the next
    // one is.
    if (piece.len as usize) < bytes.len() {
        return Ok(None);
    }
    peer.tx.write(piece, &bytes).map_err(Some)?;
    Ok(Some(piece))
}
