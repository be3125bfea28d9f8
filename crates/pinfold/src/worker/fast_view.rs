//! The fast path of memory that is given away: a view in one call, and its memory back by a number,
//! when nothing stands in the way. As in [`fast_path`](super::fast_path), nothing here fails.

use super::{
    answers::{self, PUBLISH_AFTER},
    core::Core,
    engine::Engine,
    fast_path::{at_head, may_wait_fast, pass_ends},
    matching::{Source, TagMatch},
    peer::Peer,
};
use crate::{
    Path, PeerId,
    memory::imported_extents::Loan,
    wire::{
        descriptor::{Header, Kind},
        rendezvous::Rts,
    },
};

/// A message that is read where it lies.
pub(crate) struct Lent {
    pub peer: PeerId,
    pub tag: u64,
    pub len: u64,
    pub loan: Loan,
}

/// Receives the next message of a peer's lane where it lies, if its sender gave the memory away
/// the message matches, no other receive takes it, and nothing is stored. Waits for it a few
/// microseconds.
#[inline(always)]
pub(crate) fn view_fast(engine: &mut Engine, from: Source, tag: TagMatch) -> Option<Lent> {
    if !may_wait_fast(engine) {
        return None;
    }
    at_head(engine, from, |core, peer, header| lend_head(core, peer, header, tag))
}

/// Lends the memory that the descriptor at the head of a lane gives away.
#[inline(always)]
fn lend_head(core: &mut Core, peer: &mut Peer, mut header: Header, tag: TagMatch) -> Option<Lent> {
    let id = peer.id;
    if header.kind() == Some(Kind::Fin) {
        header = pass_ends(core, peer, header)?;
    }
    if !header.begins_tagged(Kind::Rts) {
        return None;
    }
    let Rts { tag: got_tag, len, given: true, exported: Some(exported), number, .. } =
        Rts::read(&peer.rx.body())
    else {
        return None;
    };
    if !tag.matches(got_tag) || core.matcher.would_take(id, got_tag) {
        return None;
    }
    let mut loan = core.imported.lend(id, exported, len, header.aux())?;
    loan.number = number;
    if peer.rx.advance(header).is_err() {
        core.imported.give_back(&loan);
        return None;
    }
    peer.tx.passed(header, peer.rx.consumed());
    if peer.rx.unpublished() >= PUBLISH_AFTER {
        answers::publish(core, peer);
    }
    peer.record.count_received(Path::Handoff, len);
    Some(Lent { peer: id, tag: got_tag, len, loan })
}

/// Gives memory of a view back, if no other thread is wanted for that, and if its turn has
/// come: then the notice is one number that the sender finds. Returns whether it did; if not,
/// nothing happened.
#[inline(always)]
pub(crate) fn give_back_fast(engine: &mut Engine, id: PeerId, loan: &Loan) -> bool {
    let Some(peer) = engine.peers.get_mut(id).filter(|peer| !peer.is_leaving()) else {
        return false;
    };
    if !peer.returns.is_next(loan.number) || !engine.core.imported.give_recent_back(loan) {
        return false;
    }
    peer.returns.end(loan.number);
    if peer.rx.say_returned(loan.number) {
        answers::ring_now(&mut engine.core, peer);
    }
    true
}
