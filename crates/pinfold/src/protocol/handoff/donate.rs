//! Memory that is given away: sending it, and its return.
//!
//! Memory that is given for good (`Endpoint::give`) goes without an operation: it is kept in the
//! account of its peer until the count of returns ends it. It becomes an operation like any other
//! only if its receiver wants more than a view.

use super::{account, returns, state::Fate};
use crate::{
    Path, PeerId, Receipt, Result,
    endpoint::DonatedBuf,
    failpoint::{self, Point},
    memory::scatter::{Part, Scatter},
    transport::shm::ring::Violation,
    wire::{
        descriptor::{Header, Kind},
        rendezvous::{Exported, Rts},
    },
    worker::{
        Engine,
        core::Core,
        op::{Keeps, Op, OpKey, OpKind, SendOp, SendStage},
        peer::Peer,
    },
};

impl Engine {
    /// Posts a send of memory that the caller gives away, at `exported`. It ends when the receiver
    /// has finished with its view, or has copied the memory.
    #[inline]
    pub(crate) fn hand_off(
        &mut self,
        id: PeerId,
        tag: u64,
        donation: &DonatedBuf,
    ) -> Result<OpKey> {
        let (memory, exported) = (donation.part(), donation.exported());
        if let Some((peer, core)) = self.open_way(id, exported, memory.len()) {
            let send = OpKind::Send(core.charged(donation_send(id, tag, memory, exported)));
            let keeps = Some(Keeps::DonatedBuf { donation: donation.clone() });
            let key = core.ops.insert(Op { keeps, ..Op::new(send) });
            core.announce_donation(peer, key.index, rts(tag, memory, exported, 0));
            return Ok(key);
        }
        self.post_donation(id, tag, donation)
    }

    /// Gives memory away for good, if nothing stands in its way; otherwise returns it. Wakes no
    /// thread. `is_frame`: only the newest of its kind counts.
    #[inline]
    pub(crate) fn give_at_once(
        &mut self,
        id: PeerId,
        tag: u64,
        donation: DonatedBuf,
        is_frame: bool,
    ) -> Option<DonatedBuf> {
        let (memory, exported) = (donation.part(), donation.exported());
        let Some((peer, core)) = self.open_way(id, exported, memory.len()) else {
            return Some(donation);
        };
        // The receiver starts on the buffer while this side keeps its accounts.
        let number = peer.given.next();
        core.ops.given.charge(id, account::cost(memory.len()));
        core.announce_donation(peer, returns::stream(number), rts(tag, memory, exported, number));
        peer.given.add(Fate::Out { donation, tag, is_frame });
        core.donations_out += 1;
        if peer.given.is_long() {
            core.collect_donations(peer);
        }
        None
    }

    fn post_donation(&mut self, id: PeerId, tag: u64, donation: &DonatedBuf) -> Result<OpKey> {
        let send = self.charge_early(fresh(id, tag, donation));
        self.post(send, Some(Keeps::DonatedBuf { donation: donation.clone() }))
    }

    /// The peer, if it has the extent that a donated buffer lies in and nothing stands before the
    /// donated buffer.
    #[inline]
    fn open_way(
        &mut self,
        id: PeerId,
        exported: Exported,
        len: u64,
    ) -> Option<(&mut Peer, &mut Core)> {
        if !self.is_usable() {
            return None;
        }
        let (peer, core) = (self.peers.get_mut(id)?, &mut self.core);
        let cost = account::cost(len);
        if peer.waiting >= peer.waiting_max || !core.ops.given.admits(id, cost) {
            core.collect_donations(peer);
        }
        let goes = peer.is_clear()
            && core.ops.given.admits(id, cost)
            && peer.permissions.may(Path::Handoff)
            && peer.exported_extents.has(exported.extent)
            && peer.waiting < peer.waiting_max
            && peer.tx.has_room(&mut core.lane_budget) == Ok(true)
            && peer.exported_extents.may_offer();
        goes.then_some((peer, core))
    }
}

impl Core {
    /// Charges a send of memory that is given.
    fn charged(&mut self, send: SendOp) -> SendOp {
        let charge = account::cost(send.memory.len());
        self.ops.given.charge(send.peer, charge);
        SendOp { charge, ..send }
    }

    #[inline]
    fn announce_donation(&mut self, peer: &mut Peer, sid: u32, rts: Rts) {
        failpoint::hit(Point::BeforeAnnounce);
        peer.tx.push(Header::new(Kind::Rts, 0, sid), &rts.body());
        failpoint::hit(Point::AfterAnnounce);
        peer.waiting += 1;
        peer.update_waiting_gauges();
        self.update_given_gauges(peer);
        self.ring(peer);
    }

    /// Ends the donated buffers that the peer says it has given back.
    #[inline]
    pub(crate) fn collect_donations(&mut self, peer: &mut Peer) {
        if peer.given.is_empty() {
            return;
        }
        let count = peer.tx.returned();
        while let Some(fate) = peer.given.pop(count) {
            self.donations_out -= 1;
            // A buffer that is a send ends as such, or has ended.
            let Fate::Out { donation, tag, is_frame } = fate else { continue };
            let frame = is_frame.then_some(tag);
            self.ops.given.end(peer.id, account::cost(donation.len() as u64), frame);
            peer.waiting = peer.waiting.saturating_sub(1);
            peer.exported_extents.worked();
            peer.record.count_sent(Path::Handoff, donation.len() as u64);
        }
        peer.update_waiting_gauges();
        self.update_given_gauges(peer);
    }

    /// The operation that counted donated buffer `sid` is from now on. `None` if the count has
    /// ended the buffer: the peer's word about it is older than the count.
    #[cold]
    pub(crate) fn donation_op(
        &mut self,
        peer: &mut Peer,
        sid: u32,
    ) -> Result<Option<OpKey>, Violation> {
        let Some(fate) = peer.given.at_mut(sid) else {
            return match peer.given.has_ended(sid) {
                true => Ok(None),
                false => Err(Violation("it answered a donated buffer that it was not given")),
            };
        };
        let (donation, tag, is_frame) = match fate {
            Fate::Out { donation, tag, is_frame } => (donation.clone(), *tag, *is_frame),
            Fate::Op(key) => {
                let open = self.ops.send_mut(*key).is_some();
                return open.then_some(Some(*key)).ok_or(Violation("it ended a donation twice"));
            }
        };
        let send = donation_send(peer.id, tag, donation.part(), donation.exported());
        let charge = account::cost(donation.len() as u64);
        let send = OpKind::Send(SendOp { stream: Some(sid), charge, is_frame, ..send });
        let key = self.ops.insert(Op::kept(Some(Keeps::DonatedBuf { donation }), send));
        *fate = Fate::Op(key);
        Ok(Some(key))
    }
}

/// A send of memory that is to be given away.
pub(crate) fn fresh(peer: PeerId, tag: u64, donation: &DonatedBuf) -> SendOp {
    let memory = donation.part();
    let receipt = Receipt::new(Path::Handoff, memory.len());
    SendOp { given: true, ..SendOp::new(peer, tag, memory.into(), receipt) }
}

/// A send of memory that was given away and is announced.
#[inline(always)]
fn donation_send(peer: PeerId, tag: u64, memory: Part, exported: Exported) -> SendOp {
    let receipt = Receipt::new(Path::Handoff, memory.len());
    SendOp {
        stage: SendStage::Waiting { cancelled: false },
        routed: true,
        offered: Some(exported.extent),
        given: true,
        ..SendOp::new(peer, tag, memory.into(), receipt)
    }
}

#[inline(always)]
fn rts(tag: u64, memory: Part, exported: Exported, number: u64) -> Rts {
    let place = Scatter::from(memory).place();
    let (len, exported) = (memory.len(), Some(exported));
    Rts {
        tag,
        len,
        place,
        stream: false,
        prefers_ring: false,
        unasked: false,
        given: true,
        exported,
        list: None,
        number,
        head: None,
    }
}
