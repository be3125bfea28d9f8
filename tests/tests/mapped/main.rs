//! Messages that are copied out of the receiver's mapping of the sender's arena, or into the
//! sender's of the receiver's: the end of the memory, mappings that cannot be had, and all ways to
//! send and to receive.

mod denied;
mod into;
mod late;
mod limits;
mod memory;
mod ways;

use pinfold::{Arena, ArenaBuf, Endpoint, Path, PeerId, Receipt, Refusal};
use pinfold_tests::{role, stamp};

use self::{
    denied::{reader, writer},
    into::{cramped, hoping, landing, putting},
    late::{cut_off, cutting, doomed, dropping, heir, pouring},
    limits::{narrow, offering},
    memory::{churning, giving, keeping, sweeping},
    ways::{forking, many_ways, mirror, of_many_ways, owner, twin},
};

pinfold_tests::roles!(
    giving,
    keeping,
    churning,
    sweeping,
    offering,
    narrow,
    writer,
    reader,
    many_ways,
    of_many_ways,
    twin,
    mirror,
    owner,
    forking,
    landing,
    putting,
    dropping,
    pouring,
    cutting,
    cut_off,
    heir,
    doomed,
    cramped,
    hoping,
);

const MIB: usize = 1 << 20;

/// The bytes beside a message, and in memory that no side may write.
const UNTOUCHED: u8 = 0xa5;

/// The tag of a receiver's account of a message.
const ACCOUNT: u64 = 1 << 40;

/// A buffer filled with the contents of `seed`.
fn filled(arena: &Arena, len: usize, seed: u64) -> ArenaBuf {
    let mut buf = arena.alloc(len).expect("memory");
    stamp::fill(&mut buf, seed);
    buf
}

/// Receives a message of `len` bytes and tells its sender by which path it came.
fn take(endpoint: &Endpoint, peer: PeerId, len: usize, seed: u64) -> Receipt {
    let message = endpoint.recv_timeout(peer, seed, role::PATIENCE).expect("a message");
    assert_eq!(message.len(), len);
    stamp::check(&message, seed);
    let receipt = message.receipt();
    let refused = receipt.refused(Path::Mapped) == Some(Refusal::NotMapped);
    endpoint.send(peer, ACCOUNT, &[receipt.path as u8, u8::from(refused)]).expect("the sender");
    receipt
}

/// Sends `buf` by its mapping if the peer has one. Returns whether it had; both sides say the same.
fn offer(endpoint: &Endpoint, peer: PeerId, buf: &ArenaBuf, seed: u64) -> bool {
    let receipt = endpoint.send_by(Path::Mapped, peer, seed, buf).expect("the receiver");
    let account = endpoint.recv_timeout(peer, ACCOUNT, role::PATIENCE).expect("an account");
    let refused = receipt.refused(Path::Mapped) == Some(Refusal::NotMapped);
    assert_eq!(&*account, [receipt.path as u8, u8::from(refused)], "{receipt}; the sides differ");
    assert_eq!(refused, receipt.path != Path::Mapped, "{receipt}");
    assert_eq!(receipt.bytes, buf.len() as u64);
    !refused
}
