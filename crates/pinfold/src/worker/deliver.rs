//! Messages that are given to their receives.

use crate::{
    PeerId, Receipt,
    status::Tally,
    wire::descriptor::INLINE_MAX,
    worker::{
        core::Core,
        ends,
        op::{Arrived, Bytes, OpKey},
        prefault::PREFAULT_FROM,
    },
};

/// The first `len` bytes of words copied out of a descriptor.
pub(crate) fn bytes_of(words: &[u64]) -> [u8; INLINE_MAX] {
    let mut bytes = [0; INLINE_MAX];
    for (out, word) in bytes.chunks_exact_mut(8).zip(words) {
        out.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// Ends a receive with bytes that the library holds.
pub(crate) fn deliver(
    core: &mut Core,
    key: OpKey,
    peer: PeerId,
    tag: u64,
    bytes: &[u8],
    mut receipt: Receipt,
) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let len = bytes.len() as u64;
    let bytes = if op.as_message {
        receipt.bytes = len;
        Some(Box::new(Bytes::from_slice(bytes)))
    } else {
        receipt.bytes = op.memory.write(&mut core.store, 0, bytes);
        receipt.note_copies(core.copied_by(receipt.bytes));
        None
    };
    receipt.copied_user += receipt.bytes;
    arrive(core, key, Arrived { peer, tag, len, receipt, bytes, loan: None });
}

/// The same with bytes that were stored.
pub(crate) fn deliver_stored(
    core: &mut Core,
    key: OpKey,
    peer: PeerId,
    tag: u64,
    bytes: Bytes,
    mut receipt: Receipt,
) {
    let Some(op) = core.ops.recv_mut(key) else { return };
    let len = bytes.len();
    // The bytes were copied into our memory when they came, and perhaps now once more.
    receipt.copied_user = len;
    let bytes = if op.as_message {
        receipt.bytes = len;
        Some(Box::new(bytes))
    } else {
        receipt.bytes = bytes.write_to(&op.memory, &mut core.store);
        receipt.note_copies(core.copied_by(receipt.bytes));
        receipt.copied_user += receipt.bytes;
        None
    };
    arrive(core, key, Arrived { peer, tag, len, receipt, bytes, loan: None });
}

/// Ends a receive, with an error if the message was longer than the room.
pub(crate) fn arrive(core: &mut Core, key: OpKey, mut arrived: Arrived) {
    if let Some(op) = core.ops.recv_mut(key)
        && !op.as_message
        && op.memory.len() >= PREFAULT_FROM
    {
        arrived.receipt.note_prefaulted(op.prefaulted);
        core.prefault.came(arrived.peer, arrived.len.min(op.memory.len()));
    }
    let receipt = arrived.receipt;
    core.status.record_of(arrived.peer).count_received(receipt.path, receipt.bytes);
    core.status.copied_user.add(receipt.copied_user);
    core.status.copied_kernel.add(receipt.copied_kernel);
    ends::conclude(core, key, arrived);
}
