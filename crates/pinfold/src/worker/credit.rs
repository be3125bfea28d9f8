//! Credit: how much a peer may send before any receive has asked for it.
//!
//! A message sent unasked may have to be stored, so each peer is granted its share of one budget
//! when it joins, and no more is accepted. The grant begins small, so that peers that send much do
//! not take from those that do not, and it doubles in two cases:
//!
//! - Messages are announced that [lacked nothing but credit](Rts::unasked), since those before them
//!   wait here for their receives. Such a message is stored like those before it, as long as the
//!   budget has room: its sender goes on. Once the budget has none, the message stays where it is
//!   until its receive is posted.
//! - A peer on another host streams. A stream keeps more in the buffers of two sockets than can be
//!   set aside for each peer that joins: messages are announced for want of credit although their
//!   receives are there already.

use super::{
    core::{Core, Unexpected},
    inbound_stream::{Inbound, Sink},
    peer::{MESSAGE_COST, Peer},
    streams,
};
use crate::{
    memory::store::Kept,
    status::Tally,
    transport::{
        local::Limits,
        shm::{budget::Budget, ring::Violation},
    },
    wire::{
        layout::{BULK_BYTES_MAX, RING_SLOTS_MAX},
        rendezvous::Rts,
    },
};

/// Credit for eager messages that a peer is granted at most when it joins: more than a full lane
/// holds, so that credit is only ever short while messages really are unexpected.
const BYTES_MAX: u64 = 512 << 10;
const _: () =
    assert!(BYTES_MAX >= BULK_BYTES_MAX as u64 + RING_SLOTS_MAX as u64 * (MESSAGE_COST + 56));
/// The same for a peer that joins whose memory is apart, and for its share of the rest.
const APART_BYTES_MAX: u64 = 2 << 20;
const APART_SHARE: u64 = 64;
/// The most that a grant may grow to for a stream. A stream of 1 MiB over the loopback gains up to
/// here.
const WIDE_BYTES_MAX: u64 = 16 << 20;
/// The least that a first step goes to.
const WIDE_BYTES_MIN: u64 = 64 << 10;
/// The share of the budget that no grant grows into: it is for peers that join late.
const LATE_SHARE: usize = 4;
/// The most announced messages that a peer is granted.
const MESSAGES_MAX: u64 = 1 << 17;

/// The grant of the next peer, whose memory is `apart` from this side's or not, out of `left` bytes
/// of the budget for unexpected messages.
///
/// An eighth of the rest, up to a ceiling, half of it for bytes and half for announcements, and for
/// a peer whose memory is apart a 64th for bytes where that is more: the sum of all grants never
/// exceeds the budget, and late peers get less, not nothing.
fn first(left: usize, apart: bool) -> Limits {
    let left = left as u64;
    let share = (left / 8).max(MESSAGE_COST);
    let messages = (share / MESSAGE_COST / 2).min(MESSAGES_MAX);
    let bytes = (share / 2).min(BYTES_MAX);
    let on_the_way = (left / APART_SHARE).min(APART_BYTES_MAX);
    Limits {
        unexpected_bytes: if apart { bytes.max(on_the_way) } else { bytes },
        rendezvous_max: messages.max(1) as u32,
    }
}

/// The further grant to a peer on another host, which was `granted` so many bytes, when it has
/// announced a message of `len` bytes whose receive was there.
///
/// As much again, up to a ceiling, as long as there is plenty left of the budget. A message that is
/// announced however much credit there is (`routing::fits_eager`) says nothing.
fn more(budget: &Budget, granted: u64, len: u64) -> u64 {
    let wide = (granted * 2).clamp(WIDE_BYTES_MIN, WIDE_BYTES_MAX);
    let more = wide.saturating_sub(granted);
    let plenty = budget.left().saturating_sub(budget.limit() / LATE_SHARE);
    if len <= WIDE_BYTES_MAX / 2 && more <= plenty as u64 { more } else { 0 }
}

/// The further grant to a peer that was `granted` so many bytes, of which `owed` are in use, for a
/// message that costs `cost` and lacked nothing but credit; 0 if there is no room for that.
///
/// The message is paid for by the addition, for its sender may use all of its old credit before it
/// hears of more. As long as the old credit really is short, as much again is added, or what is
/// left.
fn unasked(budget: &Budget, granted: u64, owed: u64, cost: u64) -> u64 {
    let plenty = budget.left().saturating_sub(budget.limit() / LATE_SHARE) as u64;
    let wide = if is_short(granted, owed, cost) { granted.max(WIDE_BYTES_MIN) } else { 0 };
    if cost > plenty { 0 } else { wide.max(cost).min(plenty) }
}

/// Returns whether credit of `granted` bytes, of which `owed` are in use, does not cover `cost`
/// more.
fn is_short(granted: u64, owed: u64, cost: u64) -> bool {
    owed + cost > granted
}

/// The least that is granted: one announcement at a time, which fits any budget and takes nothing
/// of it. For a peer that joins when the budget is spent, and for one that comes back and still has
/// the grant of its first joining.
pub(crate) const LEAST: Limits = Limits { unexpected_bytes: 0, rendezvous_max: 1 };

/// The part of the budget that a grant takes.
fn cost(granted: Limits) -> usize {
    if granted == LEAST {
        return 0;
    }
    (granted.unexpected_bytes + u64::from(granted.rendezvous_max) * MESSAGE_COST) as usize
}

/// Sets credit aside for a peer that may be about to join, whose memory is `apart` from this
/// side's or not.
pub(crate) fn grant(grants: &mut Budget, apart: bool) -> Limits {
    let granted = first(grants.left(), apart);
    if grants.take(cost(granted)) { granted } else { LEAST }
}

/// Takes back the credit that was set aside.
pub(crate) fn ungrant(grants: &mut Budget, granted: Limits) {
    grants.give(cost(granted));
}

/// Counts an unmatched eager message against the peer's grant.
pub(crate) fn owe(peer: &mut Peer, cost: u64) -> Result<(), Violation> {
    peer.owed += cost;
    peer.record.unexpected.add(1);
    if peer.owed > peer.granted {
        return Err(Violation("it sent more than its credit"));
    }
    Ok(())
}

/// A peer has announced a message whose receive was there: it may have lacked nothing but
/// credit. The answer carries its credit (`Cts::Stream`).
pub(crate) fn widen(grants: &mut Budget, peer: &mut Peer, rts: &Rts) {
    let more = match (peer.shares_memory(), rts.unasked) {
        (false, _) => more(grants, peer.granted, rts.len),
        // The cost of the message does not matter, for it is not stored, as long as the old
        // credit is short.
        (true, true) if is_short(peer.granted, peer.owed, MESSAGE_COST + rts.len) => {
            unasked(grants, peer.granted, peer.owed, MESSAGE_COST + rts.len)
        }
        (true, _) => 0,
    };
    grant_more(grants, peer, more);
}

/// Grants a peer `more` bytes of credit, if the budget has them. Returns whether it did.
fn grant_more(grants: &mut Budget, peer: &mut Peer, more: u64) -> bool {
    let granted = Limits { unexpected_bytes: peer.granted, rendezvous_max: peer.announced_max };
    let wide = peer.granted.saturating_add(more);
    // Where the peer had no credit, the announcements it may make are paid for as well.
    let takes = cost(Limits { unexpected_bytes: wide, ..granted }) - cost(granted);
    if more == 0 || !grants.take(takes) {
        return false;
    }
    peer.granted = wide;
    peer.record.note_granted(wide);
    true
}

/// Has a message sent that was announced for want of credit alone and whose receive is not
/// posted: it is stored like the ones before it. Returns whether there is room for it.
pub(crate) fn store_unasked(
    core: &mut Core,
    peer: &mut Peer,
    sid: u32,
    rts: &Rts,
) -> Result<bool, Violation> {
    let &Rts { tag, len, .. } = rts;
    let cost = MESSAGE_COST + len;
    let more = unasked(&core.grants, peer.granted, peer.owed, cost);
    if !rts.unasked || more == 0 {
        return Ok(false);
    }
    if peer.inbound_at(sid).is_some() || peer.announced.contains_key(&sid) {
        return Err(Violation("it announced a stream twice"));
    }
    let Some(kept) = Kept::new(len, core.moves) else { return Ok(false) };
    if !grant_more(&mut core.grants, peer, more) {
        return Ok(false);
    }
    owe(peer, cost)?;
    let key = core.matcher.keep(peer.id, tag, Unexpected::Arriving { sid, len });
    core.wakes.any = true;
    let new = Inbound::new(sid, tag, len, Sink::Keep(key, kept));
    streams::ask_for(core, peer, Inbound { cost, ..new }, true);
    Ok(true)
}

impl Peer {
    /// Returns whether the receiver's credit covers one more eager message of `len` bytes.
    #[inline(always)]
    pub(crate) fn has_credit(&mut self, len: u64) -> bool {
        let after = self.sent_cost + MESSAGE_COST + len;
        if after <= self.credit_end {
            return true;
        }
        self.refresh_credit();
        after <= self.credit_end
    }

    /// Reads how much the receiver has released. A cursor that makes no sense is not believed.
    pub(crate) fn refresh_credit(&mut self) {
        let released = self.tx.released();
        if released > self.released && released <= self.sent_cost {
            self.released = released;
            self.note_credit_end();
            self.record.note_credit(self.sent_cost - released);
        }
    }

    fn note_credit_end(&mut self) {
        self.credit_end = self.released.saturating_add(self.window);
    }

    /// The receiver stores a message of `len` bytes that was announced for want of credit alone: it
    /// costs as much as an eager one.
    pub(crate) fn stored(&mut self, len: u64) {
        self.sent_cost += MESSAGE_COST + len;
    }

    /// The receiver grants `credit` bytes by now. It never takes any back.
    pub(crate) fn widened(&mut self, credit: u64) {
        if credit > self.window {
            self.window = credit;
            self.note_credit_end();
            self.record.note_credit_max(credit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_never_exceed_the_budget_and_never_end() {
        for apart in [false, true] {
            let mut budget = Budget::new(1 << 20);
            let mut served = 0;
            for _ in 0..2000 {
                let granted = first(budget.left(), apart);
                assert!(granted.rendezvous_max >= 1);
                if budget.take(cost(granted)) {
                    served += 1;
                }
            }
            assert!(served > 30);
            assert!(budget.used() <= 1 << 20);
        }
    }

    #[test]
    fn peers_whose_memory_is_apart_are_granted_more_of_what_is_plenty() {
        let bytes = |left: usize, apart| first(left, apart).unexpected_bytes;
        assert_eq!([false, true].map(|apart| bytes(64 << 20, apart)), [512 << 10, 1 << 20]);
        assert_eq!([false, true].map(|apart| bytes(1 << 30, apart)), [512 << 10, 2 << 20]);
        // Where little is left, the grant is the same for all.
        assert_eq!([false, true].map(|apart| bytes(1 << 20, apart)), [64 << 10; 2]);
    }

    #[test]
    fn what_is_stored_unasked_has_room_beside_what_is_left_for_others() {
        let budget = Budget::new(1 << 20);
        let plenty = (1 << 20) - (1 << 20) / LATE_SHARE as u64;
        assert_eq!(unasked(&budget, 0, 0, plenty), plenty);
        assert_eq!(unasked(&budget, 0, 0, plenty + 1), 0);
        // As much again as was granted where that is short, or else the cost of the message.
        assert_eq!(unasked(&budget, 128 << 10, 128 << 10, 100), 128 << 10);
        assert_eq!(unasked(&budget, 128 << 10, 0, 100), 100);
    }

    #[test]
    fn a_grant_doubles_up_to_its_ceiling() {
        let plenty = Budget::new(1 << 30);
        let mut granted = 0;
        let mut steps = Vec::new();
        loop {
            match more(&plenty, granted, 1 << 20) {
                0 => break,
                more => granted += more,
            }
            steps.push(granted >> 10);
        }
        assert_eq!(steps, [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]);
        // A larger grant stays as it is; and such a message is announced in any case.
        assert_eq!(more(&plenty, 64 << 20, 8), 0);
        assert_eq!(more(&plenty, 1 << 20, WIDE_BYTES_MAX / 2), 1 << 20);
        assert_eq!(more(&plenty, 1 << 20, WIDE_BYTES_MAX / 2 + 1), 0);
    }

    #[test]
    fn who_streams_leaves_something_for_who_comes_late() {
        let mut budget = Budget::new(128 << 20);
        let mut ends = Vec::new();
        for _ in 0..40 {
            let granted = first(budget.left(), true);
            let mut bytes = granted.unexpected_bytes;
            assert!(budget.take(cost(granted)));
            loop {
                let more = more(&budget, bytes, 1 << 20);
                assert!(budget.take(more as usize));
                bytes += more;
                if more == 0 {
                    break;
                }
            }
            ends.push(bytes >> 10);
        }
        assert_eq!(ends[..4], [16 << 10; 4], "{ends:?}");
        assert!(ends[20] >= 100, "{ends:?}");
    }
}
