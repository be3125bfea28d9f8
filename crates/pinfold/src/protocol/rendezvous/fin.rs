//! The receiver's last word about memory of a sender: it is not read any more.

use crate::{
    failpoint::{self, Point},
    memory::imported_extents::Loan,
    wire::{
        descriptor::Kind,
        rendezvous::{By, Fin},
    },
    worker::{answers, core::Core, peer::Peer},
};

/// Tells the peer that its memory is no longer in use.
#[inline]
pub(crate) fn end_loan(core: &mut Core, peer: &mut Peer, loan: &Loan) {
    core.imported.give_back(loan);
    if loan.number != 0 && peer.returns.end(loan.number) {
        say_returned(core, peer);
    } else {
        fin(core, peer, loan.sid, 0, 0, By::View);
    }
}

pub(crate) fn fin(core: &mut Core, peer: &mut Peer, sid: u32, errno: u32, took_ns: u64, by: By) {
    failpoint::hit(Point::BeforeFin);
    let fin = Fin { errno, took_ns, cancelled: false, by };
    answers::answer(core, peer, Kind::Fin, sid, &fin.body());
    failpoint::hit(Point::AfterFin);
    copied(core, peer, sid);
}

/// Notes that a message of the peer has been copied, and that its end was reported.
#[inline]
pub(crate) fn copied(core: &mut Core, peer: &mut Peer, sid: u32) {
    if peer.returns.ended(sid) {
        say_returned(core, peer);
    }
}

/// Tells the peer how many of its numbered donated buffers are back.
#[inline]
fn say_returned(core: &mut Core, peer: &mut Peer) {
    if peer.rx.say_returned(peer.returns.count()) {
        answers::ring_now(core, peer);
    }
}
