//! Memory that is given away: sending it, and its return.
//!
//! What is given for good (`Endpoint::give`) goes without an operation: it is kept in the account of
//! its peer until the count of returns ends it. Only if its receiver wants anything else than to look
//! at it, it becomes an operation like any other.

use super::{
    Engine,
    core::Core,
    given,
    op::{Keeps, Op, OpKey, OpKind, SendOp, SendStage},
    peer::Peer,
    returns,
};
use crate::{
    Path, PeerId, Receipt, Result,
    endpoint::{
        Gift,
        scatter::{Part, Scatter},
    },
    failpoint::{self, Point},
    link::shm::ring::Violation,
    wire::{
        descriptor::{Header, Kind},
        waiting::{Rts, Shelf},
    },
};

/// What became of a counted gift.
pub(crate) enum Fate {
    /// It is on its way, or looked at.
    Out { gift: Gift, tag: u64, is_frame: bool },
    /// It is a send.
    Op(OpKey),
}

impl Engine {
    /// Posts a send of memory that the caller gives away, at `shelf`. It ends when the receiver has
    /// looked at it, or has copied it.
    #[inline]
    pub(crate) fn hand_off(&mut self, id: PeerId, tag: u64, gift: &Gift) -> Result<OpKey> {
        let (memory, shelf) = (gift.part(), gift.shelf());
        if let Some((peer, core)) = self.open_way(id, shelf, memory.len()) {
            let send = OpKind::Send(core.charged(gift_send(id, tag, memory, shelf)));
            let keeps = Some(Keeps::Gift { gift: gift.clone() });
            let key = core.ops.insert(Op { keeps, ..Op::new(send) });
            core.announce_gift(peer, key.index, rts(tag, memory, shelf, 0));
            return Ok(key);
        }
        self.post_gift(id, tag, gift)
    }

    /// Gives memory away for good, if nothing stands in its way; if something does, it comes back.
    /// Wants nobody woken. `is_frame`: the newest of its kind counts.
    #[inline]
    pub(crate) fn give_at_once(
        &mut self,
        id: PeerId,
        tag: u64,
        gift: Gift,
        is_frame: bool,
    ) -> Option<Gift> {
        let (memory, shelf) = (gift.part(), gift.shelf());
        let Some((peer, core)) = self.open_way(id, shelf, memory.len()) else { return Some(gift) };
        // The receiver goes to work on it while this side keeps its accounts.
        let number = peer.given.next();
        core.ops.given.charge(id, given::cost(memory.len()));
        core.announce_gift(peer, returns::stream(number), rts(tag, memory, shelf, number));
        peer.given.add(Fate::Out { gift, tag, is_frame });
        core.gifts_out += 1;
        if peer.given.is_long() {
            core.collect_gifts(peer);
        }
        None
    }

    fn post_gift(&mut self, id: PeerId, tag: u64, gift: &Gift) -> Result<OpKey> {
        let send = self.charge_early(fresh(id, tag, gift));
        self.post(send, Some(Keeps::Gift { gift: gift.clone() }))
    }

    /// The peer, if it has the extent that a gift lies in and nothing stands before the gift.
    #[inline]
    fn open_way(&mut self, id: PeerId, shelf: Shelf, len: u64) -> Option<(&mut Peer, &mut Core)> {
        if !self.is_usable() {
            return None;
        }
        let (peer, core) = (self.peers.get_mut(id)?, &mut self.core);
        let cost = given::cost(len);
        if peer.waiting >= peer.waiting_max || !core.ops.given.admits(id, cost) {
            core.collect_gifts(peer);
        }
        let goes = peer.is_clear()
            && core.ops.given.admits(id, cost)
            && peer.permissions.may(Path::Handoff)
            && peer.exports.has(shelf.extent)
            && peer.waiting < peer.waiting_max
            && peer.tx.has_room(&mut core.lane_budget) == Ok(true)
            && peer.exports.may_offer();
        goes.then_some((peer, core))
    }
}

impl Core {
    /// Charges a send of memory that is given.
    fn charged(&mut self, send: SendOp) -> SendOp {
        let charge = given::cost(send.memory.len());
        self.ops.given.charge(send.peer, charge);
        SendOp { charge, ..send }
    }

    #[inline]
    fn announce_gift(&mut self, peer: &mut Peer, sid: u32, rts: Rts) {
        failpoint::hit(Point::BeforeAnnounce);
        peer.tx.push(Header::new(Kind::Rts, 0, sid), &rts.body());
        failpoint::hit(Point::AfterAnnounce);
        peer.waiting += 1;
        peer.note_waiting();
        self.note_given(peer);
        self.ring(peer);
    }

    /// Ends the gifts that the peer says it has given back.
    #[inline]
    pub(crate) fn collect_gifts(&mut self, peer: &mut Peer) {
        if peer.given.is_empty() {
            return;
        }
        let count = peer.tx.returned();
        while let Some(fate) = peer.given.pop(count) {
            self.gifts_out -= 1;
            // One that is a send ends as such, or has.
            let Fate::Out { gift, tag, is_frame } = fate else { continue };
            let frame = is_frame.then_some(tag);
            self.ops.given.end(peer.id, given::cost(gift.len() as u64), frame);
            peer.waiting = peer.waiting.saturating_sub(1);
            peer.exports.worked();
            peer.record.count_sent(Path::Handoff, gift.len() as u64);
        }
        peer.note_waiting();
        self.note_given(peer);
    }

    /// The operation that counted gift `sid` is, from now on. `None`: the count has ended it, and
    /// what the peer says of it was said before.
    #[cold]
    pub(super) fn gift_op(
        &mut self,
        peer: &mut Peer,
        sid: u32,
    ) -> Result<Option<OpKey>, Violation> {
        let Some(fate) = peer.given.at_mut(sid) else {
            return match peer.given.has_ended(sid) {
                true => Ok(None),
                false => Err(Violation("it answered a gift that it was not given")),
            };
        };
        let (gift, tag, is_frame) = match fate {
            Fate::Out { gift, tag, is_frame } => (gift.clone(), *tag, *is_frame),
            Fate::Op(key) => {
                let open = self.ops.send_mut(*key).is_some();
                return open.then_some(Some(*key)).ok_or(Violation("it ended a gift twice"));
            }
        };
        let send = gift_send(peer.id, tag, gift.part(), gift.shelf());
        let charge = given::cost(gift.len() as u64);
        let send = OpKind::Send(SendOp { stream: Some(sid), charge, is_frame, ..send });
        let key = self.ops.insert(Op::kept(Some(Keeps::Gift { gift }), send));
        *fate = Fate::Op(key);
        Ok(Some(key))
    }
}

/// A send of memory that is to be given away.
pub(super) fn fresh(peer: PeerId, tag: u64, gift: &Gift) -> SendOp {
    let memory = gift.part();
    let receipt = Receipt::new(Path::Handoff, memory.len());
    SendOp { given: true, ..SendOp::new(peer, tag, memory.into(), receipt) }
}

/// A send of memory that was given away and is announced.
#[inline(always)]
fn gift_send(peer: PeerId, tag: u64, memory: Part, shelf: Shelf) -> SendOp {
    let receipt = Receipt::new(Path::Handoff, memory.len());
    SendOp {
        stage: SendStage::Waiting { cancelled: false },
        routed: true,
        offered: Some(shelf.extent),
        given: true,
        ..SendOp::new(peer, tag, memory.into(), receipt)
    }
}

#[inline(always)]
fn rts(tag: u64, memory: Part, shelf: Shelf, number: u64) -> Rts {
    let place = Scatter::from(memory).place();
    let (len, shelf) = (memory.len(), Some(shelf));
    Rts { tag, len, place, stream: false, unasked: false, given: true, shelf, list: None, number }
}
