//! Memory that is given away: sending it, and its return.
//!
//! Memory that is given for good (`Endpoint::give`) goes without an operation: it is kept in the
//! account of its peer until the count of returns ends it. It becomes an operation like any other
//! only if its receiver wants more than a view.

use super::{account, admission, collect, frames, returns, state::Fate};
use crate::{
    Path, PeerId, Result,
    endpoint::DonatedBuf,
    failpoint::{self, Point},
    memory::scatter::{Part, Scatter},
    wire::{
        descriptor::{Header, Kind},
        rendezvous::{Exported, Rts},
    },
    worker::{
        answers,
        core::Core,
        engine::Engine,
        fast_path, gauges,
        op::{Keeps, Op, OpKey, OpKind, SendOp},
        op_table::OpTable,
        peer::Peer,
        post,
    },
};

/// Posts a send of memory that the caller gives away, at `exported`. It ends when the receiver
/// has finished with its view, or has copied the memory.
#[inline]
pub(crate) fn hand_off(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    donation: &DonatedBuf,
) -> Result<OpKey> {
    let (memory, exported) = (donation.part(), donation.exported());
    if let Some((peer, core)) = open_way(engine, id, exported, memory.len()) {
        let send =
            OpKind::Send(charged(&mut core.ops, collect::donation_send(id, tag, memory, exported)));
        let keeps = Some(Keeps::DonatedBuf { donation: donation.clone() });
        let key = core.ops.insert(Op { keeps, ..Op::new(send) });
        announce_donation(core, peer, key.index, rts(tag, memory, exported, 0));
        return Ok(key);
    }
    post_donation(engine, id, tag, donation)
}

/// Gives memory away for good, if nothing stands in its way; otherwise returns it. Wakes no
/// thread. `is_frame`: only the newest of its kind counts.
#[inline]
pub(crate) fn give_at_once(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    donation: DonatedBuf,
    is_frame: bool,
) -> Option<DonatedBuf> {
    let (memory, exported) = (donation.part(), donation.exported());
    let Some((peer, core)) = open_way(engine, id, exported, memory.len()) else {
        return Some(donation);
    };
    // The receiver starts on the buffer while this side keeps its accounts.
    let number = peer.given.next();
    core.ops.given.charge(id, account::cost(memory.len()));
    announce_donation(core, peer, returns::stream(number), rts(tag, memory, exported, number));
    peer.given.add(Fate::Out { donation, tag, is_frame });
    core.donations_out += 1;
    if peer.given.is_long() {
        collect::collect_from(core, peer);
    }
    None
}

fn post_donation(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    donation: &DonatedBuf,
) -> Result<OpKey> {
    let send = admission::charge_early(engine, frames::fresh(id, tag, donation));
    post::post(engine, send, Some(Keeps::DonatedBuf { donation: donation.clone() }))
}

/// The peer, if it has the extent that a donated buffer lies in and nothing stands before the
/// donated buffer.
#[inline]
fn open_way(
    engine: &mut Engine,
    id: PeerId,
    exported: Exported,
    len: u64,
) -> Option<(&mut Peer, &mut Core)> {
    if !fast_path::is_usable(engine) {
        return None;
    }
    let (peer, core) = (engine.peers.get_mut(id)?, &mut engine.core);
    let cost = account::cost(len);
    if peer.waiting >= peer.waiting_max || !core.ops.given.admits(id, cost) {
        collect::collect_from(core, peer);
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

/// Charges a send of memory that is given.
fn charged(ops: &mut OpTable, send: SendOp) -> SendOp {
    let charge = account::cost(send.memory.len());
    ops.given.charge(send.peer, charge);
    SendOp { charge, ..send }
}

#[inline]
fn announce_donation(core: &mut Core, peer: &mut Peer, sid: u32, rts: Rts) {
    failpoint::hit(Point::BeforeAnnounce);
    peer.tx.push(Header::new(Kind::Rts, 0, sid), &rts.body());
    failpoint::hit(Point::AfterAnnounce);
    peer.waiting += 1;
    peer.update_waiting_gauges();
    gauges::update_given_gauges(&core.ops, peer);
    answers::ring(core, peer);
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
