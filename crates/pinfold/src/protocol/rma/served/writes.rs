#![allow(unsafe_code)]
//! Bytes of served writes that land in the owner's region.
//!
//! **Invariant.** They are written under the engine's lock, and only while the region stands: once
//! a region is removed, nothing is written there any more.

use std::{slice, sync::Arc};

use pinfold_sys::process::Segment;

use crate::{
    SharedBuf,
    protocol::rma::served::landing::{Landed, Landing},
    status::Tally,
    transport::shm::ring::Violation,
    wire::{descriptor::Piece, served_rma::Used, space::Refused},
    worker::{answers, core::Core, inbound_stream::Came, peer::Peer},
};

pub(super) fn say_used(core: &mut Core, peer: &mut Peer, number: u32, used: Used) {
    let header = used.header(number);
    let words = Used::words(header).unwrap_or(0);
    answers::answer_by(core, peer, header, &used.body()[..words]);
}

/// The memory that a write goes to, if the region still stands.
fn landing_buf<'a>(core: &'a Core, landing: &mut Landing) -> Option<&'a Arc<SharedBuf>> {
    landing.verdict.ok()?;
    let memory = core.registry.region(landing.region);
    if memory.is_none() {
        landing.verdict = Err(Refused::Unknown);
    }
    memory
}

/// The part of a region from byte `got` of a write on.
pub(crate) fn landing_part(
    core: &Core,
    landing: &mut Landing,
    got: u64,
    left: u64,
) -> Option<Landed> {
    let memory = landing_buf(core, landing)?;
    let at = (landing.offset + got) as usize;
    let len = usize::try_from(left).ok()?.min(memory.len() - at);
    let part = Segment { ptr: memory.as_ptr().wrapping_add(at), len };
    Some(Landed { part, memory: Arc::clone(memory), at })
}

/// Copies a piece of a write to its place. Returns how many of its bytes were written.
pub(crate) fn land_piece(
    core: &Core,
    peer: &Peer,
    landing: &mut Landing,
    piece: Piece,
    got: u64,
) -> Result<u64, Violation> {
    let from = peer.rx.place(piece)?;
    let Some(memory) = landing_buf(core, landing) else { return Ok(0) };
    // SAFETY: a piece that has come, of a lane whose both ends are in this process: it is not
    // written before it is given back.
    let from = unsafe { slice::from_raw_parts(from, piece.len as usize) };
    memory.write((landing.offset + got) as usize, from);
    Ok(piece.len.into())
}

/// Ends a write, all of whose bytes have come.
pub(crate) fn landed(
    core: &mut Core,
    peer: &mut Peer,
    number: u32,
    mut landing: Landing,
    came: Came,
) {
    core.status.copied_user.add(came.copied - came.cma);
    core.status.copied_kernel.add(came.cma);
    // The region may have been revoked since the last of them.
    landing_buf(core, &mut landing);
    let used = landing.verdict.map_or_else(Used::Refused, |()| Used::Written);
    say_used(core, peer, number, used);
}
