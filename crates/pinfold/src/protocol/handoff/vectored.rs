//! Memory that is given away in several parts, as one message: its list, and the mappings of its
//! parts.
//!
//! The sender says in bulk bytes of the lane where each part lies in its arenas ([`list`]). The
//! receiver copies the list out once and checks it then. A receive that takes a view is handed all
//! parts at once, mapped, to bring them into a row outside of the lock
//! ([`Contiguous`](crate::endpoint::contiguous::Contiguous)); other receives copy out of the
//! mappings, part by part.

use crate::{
    Path, PeerId, Receipt, Result,
    endpoint::DonatedBuf,
    protocol::{handoff::admission, rendezvous::fin},
    status::{Status, Tally},
    wire::rendezvous::By,
    worker::{
        engine::Engine,
        op::{Keeps, OpKey, SendOp},
        post,
    },
};

/// Posts a send of memory in several parts that the caller gives away.
pub(crate) fn hand_off_parts(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    donations: &[DonatedBuf],
) -> Result<OpKey> {
    let memory = DonatedBuf::gather(donations);
    let receipt = Receipt::new(Path::Handoff, memory.len());
    let send = SendOp { given: true, ..SendOp::new(id, tag, memory, receipt) };
    let send = admission::charge_early(engine, send);
    post::post(engine, send, Some(Keeps::DonatedBufs { donations: donations.to_vec() }))
}

/// Counts a peer's message in parts that was brought into a row here, `copied` bytes of it by
/// copying.
pub(crate) fn count_contiguous(status: &Status, id: PeerId, path: Path, len: u64, copied: u64) {
    status.record_of(id).count_received(path, len);
    status.copied_user.add(copied);
}

/// Tells the peer that parts of its memory are no longer in use, and how their message was
/// taken, or the `errno` that prevented it. Nothing is mapped for them any more.
pub(crate) fn give_parts_back(engine: &mut Engine, id: PeerId, sid: u32, by: By, errno: u32) {
    engine.core.imported.settle();
    if let Some(peer) = engine.peers.get_mut(id).filter(|peer| !peer.is_leaving()) {
        fin::fin(&mut engine.core, peer, sid, errno, 0, by);
        engine.kick_if_needed();
    }
}
