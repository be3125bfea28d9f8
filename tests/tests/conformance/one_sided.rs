//! One-sided operations: the same bytes and the same errors on every transport; receipts say by
//! which path they went.

use pinfold::{
    AtomicChange, Completed, CompletionQueue, Error, Path, Receipt, Refusal, RegionKey,
    RemoteRegion, Rights,
};
use pinfold_tests::{role::PATIENCE, stamp};

use crate::pair::{End, LENGTHS, Pair, Transport};

/// Bytes of a region.
const LEN: usize = (6 << 20) + 123;
const KEY: u64 = 1;
/// Additions of each end to a word of the other's region.
const ADDITIONS: u64 = 40;

pub fn holds(on: Transport) {
    let pair = Pair::new(on);
    pair.both(|end| lend_and_borrow(end, on));
    assert!(pair.one.endpoint.counters().one_sided.atomics >= 2 * ADDITIONS);
}

/// Both ends lend a region and use the other's.
fn lend_and_borrow(end: &End, on: Transport) {
    let (endpoint, peer) = (&end.endpoint, end.peer);
    let mut region = endpoint.region(LEN, Rights::ReadWrite).unwrap();
    endpoint.send(peer, end.out(KEY), &region.key().unwrap().to_bytes()).unwrap();
    let key = endpoint.recv(peer, end.into(KEY)).unwrap();
    let remote = endpoint.open_region(peer, &RegionKey::from_bytes(&key).unwrap()).unwrap();
    assert_eq!(
        (remote.len(), remote.rights(), remote.peer()),
        (LEN as u64, Rights::ReadWrite, peer)
    );
    copies(&remote, on);
    outside(&remote);
    atomics(&remote);
    // The last write is in the other's memory before the word of it.
    remote.write(0, &stamp::bytes(LEN, end.out(0))).unwrap();
    end.meet();
    stamp::check(&region.to_vec().unwrap(), end.into(0));
    end.meet();
    region.revoke().unwrap();
    end.meet();
    let errors = [
        remote.write(0, b"late").map(drop),
        remote.read(0, &mut [0]).map(drop),
        remote.fetch_add(0, 1u64).map(drop),
        remote.write_owned(0, vec![1; 100_000]).wait().0.map(drop),
    ];
    for error in errors {
        assert!(matches!(error, Err(Error::Revoked)), "{error:?}");
    }
    end.meet();
    stamp::check(&region.to_vec().unwrap(), end.into(0));
}

fn went(receipt: &Receipt, len: usize, on: Transport) {
    assert_eq!(receipt.bytes, len as u64, "{receipt}");
    if on.shares_memory() {
        assert_eq!(receipt.path, Path::Mapped, "{receipt}");
    } else {
        assert_eq!(receipt.path, Path::Eager, "{receipt}");
        assert_eq!(receipt.refused(Path::Mapped), Some(Refusal::OtherHost), "{receipt}");
    }
}

/// Every length at several places, by every kind of call, against a model.
fn copies(remote: &RemoteRegion, on: Transport) {
    let queue = CompletionQueue::new().unwrap();
    let mut model = vec![0; LEN];
    for (seed, len) in (1..).zip(LENGTHS) {
        for (turn, at) in [0, 4097, LEN - len].into_iter().enumerate() {
            let bytes = stamp::bytes(len, seed << 8 | turn as u64);
            model[at..at + len].copy_from_slice(&bytes);
            let (offset, cut) = (at as u64, len / 3);
            match turn {
                0 => went(&remote.write(offset, &bytes).unwrap(), len, on),
                1 => {
                    let parts = [(offset, &bytes[..cut]), (offset + cut as u64, &bytes[cut..])];
                    went(&remote.write_vectored(&parts).unwrap(), len, on);
                }
                _ => {
                    queue.add(seed, remote.write_owned(offset, bytes));
                    queued(&queue, len, on);
                }
            }
            let mut back = vec![0xee; len];
            match turn {
                0 => {
                    queue.add(seed, remote.read_owned(offset, back));
                    back = queued(&queue, len, on);
                }
                1 => went(&remote.read(offset, &mut back).unwrap(), len, on),
                _ => {
                    let (first, second) = back.split_at_mut(cut);
                    let mut parts = [(offset, first), (offset + cut as u64, second)];
                    went(&remote.read_vectored(&mut parts).unwrap(), len, on);
                }
            }
            stamp::check(&back, seed << 8 | turn as u64);
        }
    }
    let mut all = vec![0; LEN];
    remote.read(0, &mut all).unwrap();
    assert!(all == model, "something else was written, too");
}

/// The buffer of the only operation.
fn queued(queue: &CompletionQueue, len: usize, on: Transport) -> Vec<u8> {
    let mut ended = Vec::new();
    assert_eq!(queue.wait(&mut ended, 2, Some(PATIENCE)).unwrap(), 1);
    let Ok(Completed::Copied(receipt)) = &ended[0].result else { panic!("{:?}", ended[0]) };
    went(receipt, len, on);
    ended[0].take_buffer().unwrap()
}

/// Operations outside the region, or on no word of it, are refused, and nothing is changed.
fn outside(remote: &RemoteRegion) {
    let (mut before, mut after) = (vec![0; 4096], vec![0; 4096]);
    let end = LEN as u64 - 4096;
    remote.read(end, &mut before).unwrap();
    for (offset, len) in [(LEN as u64, 1), (LEN as u64 - 3, 4), (u64::MAX, 2), (1, LEN)] {
        let errors = [
            remote.write(offset, &vec![1; len]).map(drop),
            remote.read(offset, &mut vec![1; len]).map(drop),
            remote.write_vectored(&[(end, &[1; 8]), (offset, &vec![1; len])]).map(drop),
            remote.read_owned(offset, vec![1; len]).wait().0.map(drop),
        ];
        for error in errors {
            assert!(matches!(error, Err(Error::OutOfBounds { .. })), "{offset} {len}: {error:?}");
        }
    }
    let beyond = remote.fetch_add(LEN as u64 + 5, 1u64);
    assert!(matches!(beyond, Err(Error::OutOfBounds { .. })), "{beyond:?}");
    let misaligned = remote.fetch_add(end / 8 * 8 + 3, 1u64);
    assert!(matches!(misaligned, Err(Error::Misaligned { .. })), "{misaligned:?}");
    remote.read(end, &mut after).unwrap();
    assert!(before == after);
}

/// Atomic operations, of which those in a queue are done in their order.
fn atomics(remote: &RemoteRegion) {
    let queue = CompletionQueue::new().unwrap();
    remote.write(0, &[0; 16]).unwrap();
    for number in 0..ADDITIONS {
        assert_eq!(remote.fetch_add(0, 1u64).unwrap(), number);
        queue.add(number, remote.atomic(0, AtomicChange::Add(0u64)));
    }
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        assert!(queue.wait(&mut ended, 5, Some(PATIENCE)).unwrap() > 0);
    }
    for completion in ended {
        let Ok(Completed::Was(was)) = completion.result else { panic!("{completion:?}") };
        assert_eq!(was, completion.context + 1);
    }
    assert_eq!(remote.compare_swap(8, 0u32, 7).unwrap(), 0);
    assert_eq!(remote.compare_swap(8, 0u32, 9).unwrap(), 7);
    assert_eq!(remote.swap(8, 5u32).unwrap(), 7);
    let mut words = [0; 16];
    remote.read(0, &mut words).unwrap();
    assert_eq!(words[..8], ADDITIONS.to_ne_bytes());
    assert_eq!(words[8..], [5u32.to_ne_bytes(), [0; 4]].concat());
}
