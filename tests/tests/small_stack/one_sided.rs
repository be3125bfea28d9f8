//! Regions and spaces: by mapping, by the kernel, and by their owner.
#![allow(unsafe_code)]
// Invariant: exposed memory is not touched until the exposure has ended.

use pinfold::{
    AtomicChange, AtomicWord, Builder, CompletionQueue, Endpoint, Path, PathSet, PeerId, RegionKey,
    RemoteRegion, Rights,
    copy::engine::{CopyEngine, EngineConfig},
};
use pinfold_tests::stamp;

use super::both;

const LEN: usize = 4 << 20;

/// The ways to reach memory: by mapping, by the kernel, and by asking the owner.
fn ways() -> [(&'static str, Builder); 3] {
    let only = |paths: &[Path]| Endpoint::builder().paths(PathSet::only(paths));
    [
        ("mapped", Endpoint::builder()),
        ("kernel", only(&[Path::Inline, Path::Eager, Path::Cma])),
        ("owner", only(&[Path::Inline, Path::Eager])),
    ]
}

fn key_from(endpoint: &Endpoint, peer: PeerId) -> RegionKey {
    RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap()).unwrap()
}

fn words<W: AtomicWord + PartialEq + std::fmt::Debug>(remote: &RemoteRegion, one: W, two: W) {
    let mut own = one;
    // SAFETY: a word of this function's own.
    let old = unsafe { AtomicChange::Replace(one, two).apply(&raw mut own) };
    assert_eq!((old, own), (one, two));
    if remote.path() == Path::Cma {
        // The kernel changes no words.
        return assert!(remote.swap(64, one).is_err());
    }
    remote.swap(64, one).unwrap();
    assert_eq!(remote.compare_swap(64, one, two).unwrap(), one);
    remote.fetch_add(64, one).unwrap();
    remote.fetch_and(64, two).unwrap();
    remote.fetch_or(64, one).unwrap();
    remote.fetch_xor(64, two).unwrap();
    remote.fetch_min(64, one).unwrap();
    remote.fetch_max(64, two).unwrap();
}

/// Every operation on a region of a peer's.
pub fn use_region(endpoint: &Endpoint, peer: PeerId) {
    let key = key_from(endpoint, peer);
    let remote = endpoint.open_region(peer, &key).unwrap();
    assert_eq!((remote.len(), remote.is_empty(), remote.peer()), (LEN as u64, false, peer));
    assert_eq!(remote.rights(), Rights::ReadWrite);
    let _ = (remote.path(), remote.why_not_mapped());
    super::queues::use_queue(endpoint, peer, &remote);
    for len in [8, 1000, 100_000, 2 << 20] {
        let (bytes, mut back) = (stamp::bytes(len, 7), vec![0; len]);
        assert!(!remote.write(128, &bytes).unwrap().to_string().is_empty());
        remote.fence();
        remote.flush().unwrap();
        remote.read(128, &mut back).unwrap();
        assert_eq!(bytes, back);
        remote.write_vectored(&[(128, &bytes[..len / 2]), (LEN as u64 / 2, &bytes)]).unwrap();
        let (head, tail) = back.split_at_mut(len / 2);
        remote.read_vectored(&mut [(128, head), (LEN as u64 / 2, tail)]).unwrap();
        let engine = CopyEngine::new(EngineConfig::default());
        remote.write_request(&engine, 128, bytes.clone()).wait().unwrap().0.unwrap();
        let mut request = remote.read_request(&engine, 128, vec![0; len]);
        let mut done = request.try_wait();
        while done.is_none() {
            done = request.try_wait();
        }
        assert!(!request.cancel());
        assert_eq!(done.unwrap().1, bytes);
        assert!(!format!("{:?}", engine.counts()).is_empty());
    }
    words::<u32>(&remote, 5, 9);
    words::<u64>(&remote, 5, 9);
    assert!(endpoint.region_bytes_kept() < u64::MAX);
    endpoint.send(peer, 2, b"over").unwrap();
}

/// Every operation on a region of one's own.
pub fn have_region(endpoint: &Endpoint, peer: PeerId) {
    let mut region = endpoint.region(LEN, Rights::ReadWrite).unwrap();
    assert_eq!((region.len(), region.is_empty(), region.rights()), (LEN, false, Rights::ReadWrite));
    region.write(0, &stamp::bytes(64, 7)).unwrap();
    let mut bytes = [0; 64];
    region.read(0, &mut bytes).unwrap();
    stamp::check(&bytes, 7);
    assert!(region.word32(0).is_some() && region.word64(8).is_some());
    let key = region.key().unwrap();
    endpoint.send(peer, 1, &key.to_bytes()).unwrap();
    endpoint.recv(peer, 2).unwrap();
    assert_eq!(region.to_vec().unwrap().len(), LEN);
    region.revoke().unwrap();
    region.expose().unwrap();
}

#[test]
fn regions() {
    // On this host the owner does nothing for others.
    for (way, user) in ways().into_iter().filter(|(way, _)| *way != "owner") {
        let address = format!("local:small-regions-{way}-{}", std::process::id());
        both(&address, [Endpoint::builder(), user], have_region, use_region);
    }
}

#[test]
fn registered_buffers() {
    for (way, user) in ways() {
        let address = format!("local:small-registered-{way}-{}", std::process::id());
        both(
            &address,
            [Endpoint::builder(), user],
            |one, peer| {
                let registered = one.register(vec![3; LEN], Rights::ReadWrite).unwrap();
                assert_eq!((registered.len(), registered.is_empty()), (LEN, false));
                assert_eq!(registered.rights(), Rights::ReadWrite);
                assert!(registered.word32(0).is_some() && registered.word64(8).is_some());
                registered.write(0, &[4; 64]).unwrap();
                registered.read(0, &mut [0; 64]).unwrap();
                one.send(peer, 1, &registered.key().to_bytes()).unwrap();
                one.recv(peer, 2).unwrap();
                let addresses = registered.addresses();
                let buffer = registered.into_inner().unwrap();
                assert_eq!((buffer.as_ptr() as usize, buffer[64]), (addresses.start, 5));
            },
            |two, peer| {
                let remote = two.open_region(peer, &key_from(two, peer)).unwrap();
                let mut bytes = [0; 128];
                remote.read(0, &mut bytes).unwrap();
                assert_eq!((bytes[63], bytes[64]), (4, 3));
                remote.write(64, &[5; 8]).unwrap();
                two.send(peer, 2, b"over").unwrap();
            },
        );
    }
}

#[test]
fn spaces() {
    for (way, user) in ways() {
        let address = format!("local:small-spaces-{way}-{}", std::process::id());
        both(
            &address,
            [Endpoint::builder(), user],
            |one, peer| {
                // Half of the memory is not there yet.
                let mut memory = vec![0u8; LEN];
                stamp::fill(&mut memory[..LEN / 2], 8);
                let at = memory.as_mut_ptr() as usize;
                // SAFETY: no thread touches it until the exposure has ended.
                let exposed = unsafe { one.expose(at..at + LEN, Rights::ReadWrite) }.unwrap();
                assert_eq!(
                    (exposed.addresses(), exposed.rights()),
                    (at..at + LEN, Rights::ReadWrite)
                );
                one.send(peer, 1, &exposed.key().to_bytes()).unwrap();
                one.recv(peer, 2).unwrap();
                exposed.revoke().unwrap();
                assert_eq!(memory[LEN - 1], 9);
            },
            |two, peer| {
                let space = two.open_space(peer, &key_from(two, peer)).unwrap();
                let from = space.addresses().start;
                assert_eq!((space.peer(), space.rights()), (peer, Rights::ReadWrite));
                let _ = space.path();
                let mut bytes = vec![0; LEN / 2];
                space.read(from, &mut bytes).unwrap();
                stamp::check(&bytes, 8);
                for len in [8, 5000, 300_000] {
                    space.read(from + LEN as u64 / 2, &mut bytes[..len]).unwrap();
                    space.write(from + (LEN - len) as u64, &vec![9; len]).unwrap();
                }
                let (head, tail) = bytes.split_at_mut(100_000);
                space.write_vectored(&[(from + LEN as u64 / 2, head), (from, tail)]).unwrap();
                space.read_vectored(&mut [(from, tail), (from + LEN as u64 / 2, head)]).unwrap();
                space.fence();
                space.flush().unwrap();
                let queue = CompletionQueue::new().unwrap();
                queue.add(1, space.write_owned(from, bytes.clone()));
                queue.add(2, space.read_owned(from + LEN as u64 / 2, bytes));
                queue.add(3, space.atomic(from.next_multiple_of(8), AtomicChange::Max(9u64)));
                let mut ended = Vec::new();
                while queue.outstanding() > 0 {
                    queue.wait(&mut ended, 8, None).unwrap();
                }
                // Valgrind lets no process change words of another.
                let changed = space.fetch_add(from.next_multiple_of(4), 1u32);
                assert!(changed.is_ok() || ended.iter().any(|it| it.result.is_err()));
                two.send(peer, 2, b"over").unwrap();
            },
        );
    }
}
