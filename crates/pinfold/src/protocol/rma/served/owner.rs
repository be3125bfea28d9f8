#![allow(unsafe_code)]
//! The owner of a region does what its peers ask for over connections.
//!
//! **Invariant.** The owner touches a region's memory under the engine's lock, and only while the
//! region stands: once a region is removed, nothing is written there any more. Bytes that are read
//! and still in flight keep the memory alive ([`Act::Served`]).

use std::{slice, sync::Arc};

use pinfold_sys::process::Segment;

use super::{
    super::way::Served,
    landing::{Landed, Landing},
};
use crate::{
    Path, Receipt, SharedBuf,
    endpoint::rma::atomics,
    memory::scatter::Scatter,
    protocol::active::act::Act,
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        descriptor::{Header, Piece},
        served_rma::{BYTES_MAX, Use, Used, What},
        space::Refused,
    },
    worker::{
        core::{self, Core},
        inbound::{ANSWERS_MAX, bytes_of},
        inbound_stream::{Came, Inbound, Sink},
        op::{Keeps, Op, OpKind, SendOp},
        outbound,
        peer::Peer,
    },
};

/// Reads in flight that one peer may have. A read ends for the peer before it ends for the owner,
/// which may have to wait until the kernel has finished with the memory; these are bounded, too.
const SERVED_MAX: usize = 128;

/// Begins an operation on a region that a peer asks for.
pub(crate) fn serve_for(
    core: &mut Core,
    peer: &mut Peer,
    header: Header,
    body: &[u64; 7],
) -> Result<(), Violation> {
    let Use { claim, offset, what } =
        Use::read(header, body).ok_or(Violation("it asked for no known operation"))?;
    let number = header.aux();
    if peer.controls() > ANSWERS_MAX {
        return Err(Violation("it asks on without taking the answers"));
    }
    let regions = &mut core.registry;
    let used = match what {
        What::Brief { len, words } => {
            regions.usable(&claim, offset, len as u64, true).map(|memory| {
                memory.write(offset as usize, &bytes_of(&words)[..len]);
                Used::Written
            })
        }
        What::Change(change) => {
            let size = change.word.size();
            let memory = regions.usable(&claim, offset, size, true);
            memory.and_then(|memory| match offset.is_multiple_of(size) {
                // SAFETY: a word of the region, at a multiple of its size: the region is at one
                // of 64. It is reached atomically only.
                true => Ok(Used::Was(unsafe {
                    atomics::by_number(memory.as_ptr().add(offset as usize), change)
                })),
                false => Err(Refused::Misaligned),
            })
        }
        What::Read { len } if len <= BYTES_MAX as u64 => {
            regions.usable(&claim, offset, len, false).map(|memory| {
                let (len, mut bytes) = (len as usize, [0; BYTES_MAX]);
                memory.read(offset as usize, &mut bytes[..len]);
                let word = |at| u64::from_ne_bytes(std::array::from_fn(|b| bytes[8 * at + b]));
                Used::Bytes { len, words: std::array::from_fn(word) }
            })
        }
        What::Read { len } => match regions.usable(&claim, offset, len, false).cloned() {
            Ok(memory) => {
                let served =
                    Served::Answer { number, region: claim.id, offset: offset as usize, memory };
                return serve(core, peer, served, len as usize);
            }
            Err(why) => Err(why),
        },
        What::Write { len } => {
            let verdict = regions.usable(&claim, offset, len, true).map(|_| ());
            return await_bytes(peer, number, len, Landing { region: claim.id, offset, verdict });
        }
    };
    say_used(core, peer, number, used.unwrap_or_else(Used::Refused));
    Ok(())
}

fn say_used(core: &mut Core, peer: &mut Peer, number: u32, used: Used) {
    let header = used.header(number);
    let words = Used::words(header).unwrap_or(0);
    core::answer_by(core, peer, header, &used.body()[..words]);
}

/// Sends the bytes that a peer reads, in its turn.
fn serve(core: &mut Core, peer: &mut Peer, served: Served, len: usize) -> Result<(), Violation> {
    let Served::Answer { offset, memory, .. } = &served else { return Ok(()) };
    if !core.registry.serve(peer.id, SERVED_MAX) {
        return Err(Violation("it reads on without taking what it has read"));
    }
    let (at, buffer) = (memory.as_ptr().wrapping_add(*offset), Arc::clone(memory));
    // SAFETY: inside the region's memory, which the operation keeps until it has ended.
    let parts = unsafe { Scatter::one(at, len) };
    let receipt = Receipt::new(Path::Eager, len as u64);
    let send = SendOp { served: Some(Box::new(served)), ..SendOp::new(peer.id, 0, parts, receipt) };
    let keeps = Keeps::Act(Act::Served { peer: peer.id, memory: buffer });
    let key = core.ops.insert(Op::kept(Some(keeps), OpKind::Send(send)));
    peer.asked.push_back(key);
    outbound::pump(core, peer)
}

/// Copies the bytes from `at` on of a peer's read to a piece of the lane.
pub(crate) fn fill_served(
    peer: &mut Peer,
    served: &Served,
    piece: Piece,
    at: u64,
) -> Result<bool, Violation> {
    let Served::Answer { offset, memory, .. } = served else { return Ok(false) };
    let to = peer.tx.place(piece)?;
    // SAFETY: a range that was lent, of a lane whose both ends are in this process: no other
    // thread reaches it.
    let to = unsafe { slice::from_raw_parts_mut(to, piece.len as usize) };
    memory.read(offset + at as usize, to);
    Ok(true)
}

/// Prepares for the bytes that a peer writes.
fn await_bytes(peer: &mut Peer, number: u32, len: u64, landing: Landing) -> Result<(), Violation> {
    if len == 0 || len > i64::MAX as u64 {
        return Err(Violation("it writes nothing, or more than memory has"));
    }
    // The writes of one peer come one after the other.
    let one_by_one = !peer.inbound.iter().any(|stream| matches!(stream.sink, Sink::Write(_)));
    if !one_by_one || peer.inbound_at(number).is_some() {
        return Err(Violation("it began a write within another"));
    }
    peer.inbound.push(Inbound::new(number, 0, len, Sink::Write(Box::new(landing))));
    Ok(())
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
