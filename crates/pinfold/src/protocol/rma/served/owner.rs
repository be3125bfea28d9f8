#![allow(unsafe_code)]
//! The owner of a region does what its peers ask for over connections.
//!
//! **Invariant.** The owner touches a region's memory under the engine's lock, and only while the
//! region stands: once a region is removed, nothing is written there any more. Bytes that are read
//! and still in flight keep the memory alive ([`Act::Served`]).

use std::sync::Arc;

use super::{super::way::Served, landing::Landing, writes};
use crate::{
    Path, Receipt,
    endpoint::rma::atomics,
    memory::scatter::Scatter,
    protocol::active::act::Act,
    transport::shm::ring::Violation,
    wire::{
        descriptor::Header,
        served_rma::{BYTES_MAX, Use, Used, What},
        space::Refused,
    },
    worker::{
        answers::ANSWERS_MAX,
        core::Core,
        deliver,
        inbound_stream::{Inbound, Sink},
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
                memory.write(offset as usize, &deliver::bytes_of(&words)[..len]);
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
    writes::say_used(core, peer, number, used.unwrap_or_else(Used::Refused));
    Ok(())
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
