#![allow(unsafe_code)]
//! Memory that was given away, beyond the end of the connection.
//!
//! A giver that closes in good order leaves the memory as it is ([`leave_donations`]); so
//! does one that dies. The receiver takes over messages that were announced and not received yet
//! ([`take_over`]): they can be received like any other message that had come, and their
//! views, like those that exist already, stay valid.
//!
//! **Invariant.** A [`Left::One`] is a loan that has not been given back; code that takes it apart
//! gives it back, or hands it to a view, which does.

use std::sync::Arc;

use pinfold_sys::fork::ForkMark;

use super::{
    account, collect, frames, lists,
    parts::Parts,
    state::{Fate, Left},
};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    copy::Copier,
    endpoint::DonatedBuf,
    memory::{
        arena::after_close::{self, Holder},
        imported_extents::ImportedExtents,
        scatter::Scatter,
    },
    protocol::rma::cma::CmaAccess,
    transport::shm::{claim, lane},
    worker::{
        core::{Core, Unexpected},
        deliver, ends,
        extent_exchange::{self, Exchanged},
        op::{
            Arrived, Done, Get, Keeps, Lending, OpKey, OpKind, RecvStage, SendOp, SendStage,
            SharedGet, There,
        },
        outbound,
        peer::Peer,
        room,
    },
};

/// Number of reads of the socket of a peer that is gone; its queue holds fewer messages.
const LAST_TURNS: u32 = 64;

/// The receiver of memory that this side has left.
struct Receiver {
    lane: lane::Left,
    cma_access: Arc<CmaAccess>,
    mark: ForkMark,
}

impl Holder for Receiver {
    fn has_let_go(&self) -> bool {
        self.lane.is_let_go() || self.cma_access.has_ended()
    }

    fn is_forked(&self) -> bool {
        self.mark.is_child()
    }
}

/// Returns whether the receiver uses the memory of a send, or may do so.
pub(crate) fn is_out(send: &SendOp) -> bool {
    let goes = !matches!(send.stage, SendStage::Fresh | SendStage::Streaming { .. });
    send.given && send.receipt.path == Path::Handoff && goes
}

/// Closes the connection from this side in good order: memory that was given to the peer and is
/// not back stays as it is.
pub(crate) fn leave_donations(core: &mut Core, peer: &mut Peer) {
    collect::collect_from(core, peer);
    let mut donations: Vec<DonatedBuf> = Vec::new();
    while let Some(fate) = peer.given.pop(u64::MAX) {
        core.donations_out -= 1;
        if let Fate::Out { donation, .. } = fate {
            donations.push(donation);
        }
    }
    for (_, op) in core.ops.open() {
        match (&op.kind, &op.keeps) {
            (OpKind::Send(send), Some(keeps)) if send.peer == peer.id && is_out(send) => {
                match keeps {
                    Keeps::DonatedBuf { donation } => donations.push(donation.clone()),
                    Keeps::DonatedBufs { donations: several } => {
                        donations.extend_from_slice(several)
                    }
                    Keeps::Buffer(_) | Keeps::Act(_) | Keeps::Part(_) => {}
                }
            }
            _ => {}
        }
    }
    if donations.is_empty() {
        return peer.tx.say_left();
    }
    let bytes = donations.iter().map(|donation| donation.len() as u64).sum();
    let (lane, cma_access) = (peer.tx.left(), Arc::clone(&peer.cma_access));
    let kept = match ForkMark::new() {
        Ok(mark) => after_close::leave(Receiver { lane, cma_access, mark }, donations, bytes),
        Err(_) => Err(donations),
    };
    match kept {
        Ok(()) => peer.tx.say_left(),
        Err(donations) => {
            // The peer has to see this before any of the memory is used again.
            peer.tx.say_closed();
            drop(donations);
        }
    }
}

/// Takes the extents that a peer that is gone had sent over its socket.
pub(crate) fn take_last_extents(imported: &mut ImportedExtents, peer: &mut Peer) {
    let mut ends = 0;
    for _ in 0..LAST_TURNS {
        match extent_exchange::take_extents(imported, peer) {
            Ok(Exchanged::Some) => {}
            // A reset of the connection is reported before the messages sent earlier.
            Ok(Exchanged::Closed) if ends == 0 => ends += 1,
            Ok(Exchanged::Closed | Exchanged::None) | Err(_) => break,
        }
    }
}

/// Takes over the memory that a peer that is gone had given: messages that are being copied out
/// of it are copied to the end, and unexpected messages stay.
pub(crate) fn take_over(core: &mut Core, peer: &mut Peer) {
    for key in core.gets.clone() {
        let Some(op) = core.ops.recv_mut(key) else { continue };
        let RecvStage::Getting(get) = &mut op.stage else { continue };
        if get.peer != peer.id || !get.given || !get.is_mapped {
            continue;
        }
        if get.is_lent() {
            end_claims(peer, get.shared);
            get.is_left = true;
            core.gets.retain(|other| *other != key);
            continue;
        }
        let RecvStage::Getting(get) = std::mem::replace(&mut op.stage, RecvStage::Moving) else {
            continue;
        };
        core.gets.retain(|other| *other != key);
        end_alone(core, peer, key, *get);
    }
    let mut waiting = Vec::new();
    core.matcher.each_unexpected_of(peer.id, |unexpected| {
        if let Unexpected::Waiting { sid, rts, list } = unexpected
            && rts.given
        {
            waiting.push((*sid, *rts, list.clone()));
        }
    });
    let mut left = Vec::with_capacity(waiting.len());
    for (sid, rts, list) in waiting {
        left.push(match (list, rts.exported) {
            (Some(list), _) => {
                let exported_parts =
                    lists::find_parts(&mut core.wakes, &mut core.imported, peer, &list, rts.len)
                        .ok()
                        .flatten();
                exported_parts.map(|exported_parts| Left::Parts {
                    exported_parts,
                    sid,
                    tie: peer.rx.tie(),
                })
            }
            (None, Some(exported)) => {
                let loan = core.imported.lend(peer.id, exported, rts.len, sid);
                loan.map(|loan| Left::One(Box::new(loan)))
            }
            (None, None) => None,
        });
    }
    let mut left = left.into_iter();
    core.matcher.each_unexpected_of(peer.id, |unexpected| {
        if let Unexpected::Waiting { rts, .. } = unexpected
            && rts.given
            && let Some(memory) = left.next().flatten()
        {
            *unexpected = Unexpected::Left { len: rts.len, memory };
        }
    });
}

/// Ends a pull whose sender helps no more: the chunks that the sender had claimed are copied
/// here, too.
fn end_alone(core: &mut Core, peer: &mut Peer, key: OpKey, get: Get) {
    end_claims(peer, get.shared);
    let Get { tag, len, want, source, .. } = get;
    room::op_stage(&mut core.ops, key, RecvStage::Streaming { peer: peer.id });
    copy_left(core, key, (peer.id, tag, len), want, &source);
}

/// Nothing of a pull can be claimed any more.
fn end_claims(peer: &mut Peer, shared: Option<SharedGet>) {
    if let Some(shared) = shared {
        if shared.theirs.is_none() {
            claim::close(peer.rx.claim_word(shared.claim), shared.generation);
        }
        peer.claims.give_claim(shared.claim);
    }
}

/// Ends a pull whose sender has left its memory here, and of which a part was lent then.
pub(crate) fn end_left(core: &mut Core, key: OpKey, source: There) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let RecvStage::Getting(get) = std::mem::replace(&mut op.stage, RecvStage::Moving) else {
        return;
    };
    let Get { peer, tag, len, want, .. } = *get;
    copy_left(core, key, (peer, tag, len), want, &source);
}

/// Gives a message that was left behind to a receive.
pub(crate) fn hand_out(
    core: &mut Core,
    key: OpKey,
    (id, tag, len): (PeerId, u64, u64),
    left: Left,
) {
    let as_view = core.ops.recv_mut(key).is_some_and(|op| op.as_view);
    let receipt = Receipt::new(Path::Handoff, len);
    let arrived = Arrived { peer: id, tag, len, receipt, bytes: None, loan: None };
    match left {
        Left::One(loan) if as_view => {
            deliver::arrive(core, key, Arrived { loan: Some(Lending::One(loan)), ..arrived });
        }
        Left::Parts { exported_parts, sid, tie } if as_view => {
            let parts = Box::new(Parts { parts: exported_parts.lent(), sid, tie });
            let loan = Some(Lending::Parts(parts));
            // The message is counted once it is known how it came.
            ends::finish(core, key, Ok(Done::Arrived(Arrived { loan, ..arrived })));
        }
        Left::One(loan) => {
            // SAFETY: the loan is given back below.
            let mapping = Arc::clone(&unsafe { loan.held() }.mapping);
            let source = There::Mapped { mapping, offset: loan.offset };
            copy_stored(core, key, (id, tag, len), &source);
            drop(source);
            core.imported.give_back(&loan);
        }
        Left::Parts { exported_parts, tie, .. } => {
            copy_stored(core, key, (id, tag, len), &There::ExportedParts(exported_parts));
            core.imported.settle();
            drop(tie);
        }
    }
}

/// Drops a message that no receive will ask for.
pub(crate) fn let_go_of(imported: &mut ImportedExtents, left: Left) {
    match left {
        Left::One(loan) => imported.give_back(&loan),
        Left::Parts { exported_parts, tie, .. } => {
            drop(exported_parts);
            imported.settle();
            drop(tie);
        }
    }
}

fn copy_stored(core: &mut Core, key: OpKey, (id, tag, len): (PeerId, u64, u64), source: &There) {
    room::make_room(core, key, len);
    let Some(op) = core.ops.recv_mut(key) else { return };
    let want = len.min(op.memory.len());
    copy_left(core, key, (id, tag, len), want, source);
}

/// Ends a receive with a copy, made under the lock: that happens once in the life of a peer.
fn copy_left(
    core: &mut Core,
    key: OpKey,
    (id, tag, len): (PeerId, u64, u64),
    want: u64,
    source: &There,
) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let memory = std::mem::replace(&mut op.memory, Scatter::empty());
    let copied = copy_whole(&mut core.store, &memory, want, source);
    if let Some(op) = core.ops.recv_mut(key) {
        op.memory = memory;
    }
    match copied {
        Ok(()) => {
            let mut receipt = Receipt::new(Path::Mapped, want);
            receipt.copied_user = want;
            receipt.note_copies(core.copies.take_largest());
            let bytes = room::own_bytes(&mut core.ops, key, want);
            deliver::arrive(core, key, Arrived { peer: id, tag, len, receipt, bytes, loan: None });
        }
        Err(error) => ends::finish(core, key, Err(error)),
    }
}

fn copy_whole(store: &mut Copier, memory: &Scatter, want: u64, source: &There) -> Result<()> {
    let mut done = 0;
    while done < want {
        let len = want - done;
        let copied = match source {
            There::Mapped { mapping, offset } => {
                memory.copy_out_of(store, mapping, offset + done, done, len)
            }
            There::ExportedParts(exported_parts) => {
                exported_parts.copy((memory, done), store, done, len)
            }
            There::Remote(_) | There::Lent => Err(rustix::io::Errno::SRCH.into()),
        };
        done +=
            copied.map_err(|error| Error::os("madvise", "memory that a peer left", error))?.max(1);
    }
    Ok(())
}

/// Sends the frames that wait, however many are out, because this side closes in good order.
pub(crate) fn let_frames_go(core: &mut Core, peer: &mut Peer) {
    let cost = |donation: &DonatedBuf| account::cost(donation.len() as u64);
    let mut any = false;
    while let Some((tag, donation)) = core.ops.given.next(peer.id, cost, true) {
        frames::queue_frame(&mut core.ops, peer, tag, donation);
        any = true;
    }
    if any {
        // A frame that finds no room, or makes no sense to the peer, is lost with it.
        let _ = outbound::pump(core, peer);
    }
}
