//! Long parts of messages are lent: the thread that came to them copies them outside of the engine,
//! and then gives them back ([`copying`](crate::worker::copying)).
//!
//! Where one thread alone comes to the endpoint, it copies inside: nobody waits for it.
//!
//! Meanwhile other threads go on with all other operations. Nothing that ends an operation ends it
//! before its part is back ([`lent`](crate::worker::lent)), and a peer whose memory is written is
//! not told that this side is gone (`teardown::remove_peer`): it would use that memory otherwise.

use std::sync::Arc;

use super::{
    copy_job::{CopyJob, Direction},
    transfer::There,
};
use crate::{
    memory::scatter::Scatter,
    worker::{core::Core, op_key::OpKey, peer::Peer},
};

/// Parts at least this long are lent. To leave the engine and to come back takes a hundredth of the
/// time of the copy.
const LENT_FROM: u64 = 128 << 10;
/// Memory in shorter pieces than this, on average, is not lent: a list of them would have to be
/// made for each part.
const PIECE_MIN: u64 = 4 << 10;

/// Returns whether a part of `len` bytes is lent, to or from `memory` of this side.
#[inline]
pub(crate) fn is_lent(memory: &Scatter, len: u64) -> bool {
    len >= LENT_FROM && memory.part_len() >= PIECE_MIN
}

/// Lends the `len` bytes at `at` of a message. The thread that leaves the engine next copies them.
pub(crate) fn lend(
    core: &mut Core,
    peer: &mut Peer,
    (key, there): (OpKey, There),
    (at, len): (u64, u64),
    direction: Direction,
) {
    let Some(memory) = core.ops.lend(key).map(|memory| memory.slice(at, len)) else { return };
    if let Direction::Put { .. } = direction {
        peer.lent_puts += 1;
    }
    let cma_access = Arc::clone(&peer.cma_access);
    let part = (at, len);
    core.lent.push(CopyJob { key, peer: peer.id, memory, there, cma_access, part, direction });
}
