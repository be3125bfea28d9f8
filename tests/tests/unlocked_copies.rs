//! Bulk copies beside those of rings and mappings: out of the store, to and from regions, out of
//! views, of payloads that are kept. All are counted, by the algorithm that was asked for.

use std::thread;

use pinfold::{
    Active, Arena, Endpoint, Error, Path, PathSet, PeerId, Receipt, RegionKey, RemoteRegion,
    Rights, SharedArena,
    copy::{
        self, Algorithm,
        engine::{CopyEngine, EngineConfig},
    },
    status,
};
use pinfold_tests::{
    Args, Stage, block_on,
    role::{self, await_go, go},
    stamp,
};

pinfold_tests::roles!(owner, user);

const ALGORITHM: &str = "word";
const STORED: usize = 40_000;
const LONG: usize = 300_001;
const SHORT: usize = 2047;
const PART: usize = 5000;
const DONATION: usize = 100_000;
const PAYLOAD: usize = 200_000;
const REGION: usize = 1 << 20;

/// Short ends of messages that go in pieces.
const ENDS: u64 = 10_000;

#[test]
fn all_of_them_count_and_go_by_the_algorithm_that_was_asked_for() {
    let stage = Stage::new(60);
    stage.play([stage.role("owner"), stage.role("user")]);
}

fn builder() -> pinfold::Builder {
    copy::insist(ALGORITHM.parse().unwrap()).unwrap();
    let paths = [Path::Inline, Path::Eager, Path::Mapped, Path::Handoff];
    Endpoint::builder().paths(PathSet::only(&paths)).handle(7, |active: Active<'_>| {
        stamp::check(active.payload(), 5);
        active.reply(b"had it").unwrap();
    })
}

/// Bytes that an endpoint has copied in bulk.
fn bulk(endpoint: &Endpoint) -> u64 {
    let counts = endpoint.copies();
    let algorithm: Algorithm = ALGORITHM.parse().unwrap();
    let all: u64 = counts.copied.iter().map(|count| count.bytes).sum();
    let by_size: u64 = counts.by_size.iter().map(|count| count.bytes).sum();
    assert_eq!(counts.copied[usize::from(algorithm.id())].bytes, all, "not all by {algorithm}");
    assert_eq!((by_size, endpoint.counters().copied_bulk), (all, all));
    assert_eq!(endpoint.counters().copied_streamed, 0);
    let seen = status::endpoints_of(std::process::id()).unwrap();
    let [seen] = &seen.endpoints[..] else { panic!("{seen:?}") };
    assert_eq!((&seen.copies, seen.counters.copied_bulk), (&counts, all));
    all
}

fn owner(_: &Args) {
    let (endpoint, peer) = role::listen(builder(), "aside");
    // The whole message is here before it is asked for.
    while endpoint.counters().unexpected == 0 || bulk(&endpoint) < STORED as u64 - 2048 {
        endpoint.progress().unwrap();
    }
    let before = bulk(&endpoint);
    let mut memory = vec![0; STORED];
    let received = endpoint.recv_into(peer, 1, &mut memory).unwrap();
    stamp::check(&memory, 1);
    assert_eq!(received.receipt.copied_user, 2 * STORED as u64, "{}", received.receipt);
    assert_eq!(received.receipt.copied_by(), Some(ALGORITHM.parse().unwrap()));
    assert_eq!(bulk(&endpoint) - before, STORED as u64, "out of the store");
    // The same as a message of its own: only the part that was stored was copied.
    go(&endpoint, peer);
    while bulk(&endpoint) < before + 2 * STORED as u64 - 2048 {
        endpoint.progress().unwrap();
    }
    let message = endpoint.recv(peer, 1).unwrap();
    stamp::check(&message, 1);
    assert_eq!(message.receipt().copied_by(), Some(ALGORITHM.parse().unwrap()));

    // Memory that the sender writes.
    let open = SharedArena::builder().build_shared().unwrap().alloc(LONG).unwrap();
    let request = endpoint.recv_owned(peer, 8, open);
    go(&endpoint, peer);
    let (received, open) = request.wait();
    assert_eq!((received.unwrap().receipt.copied_user, open.to_vec().len()), (0, LONG));
    stamp::check(&open.to_vec(), 8);

    let mut region = endpoint.region(REGION, Rights::ReadWrite).unwrap();
    endpoint.send(peer, 2, &region.key().unwrap().to_bytes()).unwrap();
    await_go(&endpoint, peer);
    let mut written = vec![0; LONG];
    region.read(64, &mut written).unwrap();
    stamp::check(&written, 2);
    for (at, seed) in [(500_000, 3), (600_000, 4)] {
        region.read(at, &mut written[..PART]).unwrap();
        stamp::check(&written[..PART], seed);
    }

    let arena = Arena::new().unwrap();
    let mut donation = arena.alloc(DONATION).unwrap();
    stamp::fill(&mut donation, 6);
    endpoint.give(peer, 3, donation).unwrap();
    await_go(&endpoint, peer);
    region.revoke().unwrap();
    go(&endpoint, peer);
    region.read(64, &mut written).unwrap();
    stamp::check(&written, 2);
    await_go(&endpoint, peer);
}

/// The bytes copied in bulk during `what`.
fn added<T>(endpoint: &Endpoint, what: impl FnOnce() -> T) -> u64 {
    let before = bulk(endpoint);
    what();
    bulk(endpoint) - before
}

fn user(_: &Args) {
    let (endpoint, peer) = role::connect(builder(), "aside");
    let mut memory = vec![0; LONG];
    stamp::fill(&mut memory[..STORED], 1);
    assert_eq!(endpoint.send(peer, 1, &memory[..STORED]).unwrap().path, Path::Eager);
    await_go(&endpoint, peer);
    assert_eq!(endpoint.send(peer, 1, &memory[..STORED]).unwrap().path, Path::Eager);
    await_go(&endpoint, peer);
    stamp::fill(&mut memory, 8);
    let put = added(&endpoint, || {
        let receipt = endpoint.send_by(Path::Mapped, peer, 8, &memory).unwrap();
        assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LONG as u64));
        assert_eq!(receipt.copied_by(), Some(ALGORITHM.parse().unwrap()));
    });
    assert_eq!(put, LONG as u64, "into the receiver's memory");
    let remote = one_sided(&endpoint, peer, &mut memory);
    go(&endpoint, peer);

    let view = endpoint.recv_view(peer, 3).unwrap();
    assert_eq!(view.receipt().path, Path::Handoff);
    let out = &mut memory[..DONATION];
    let copied = added(&endpoint, || {
        view.read(0, out).unwrap();
        view.read(DONATION - SHORT, &mut vec![0; SHORT]).unwrap();
    });
    assert_eq!(copied, DONATION as u64, "out of a view");
    stamp::check(out, 6);
    drop(view);

    stamp::fill(&mut memory[..PAYLOAD], 5);
    let copied = added(&endpoint, || {
        let answer = endpoint.request(peer, 7, &memory[..PAYLOAD]).wait().unwrap();
        assert_eq!(&*answer, b"had it");
    });
    // The payload is kept, and then goes into the ring.
    let twice = 2 * PAYLOAD as u64;
    assert!((twice - ENDS..=twice).contains(&copied), "{copied} of a request");
    started(&endpoint, &remote, || {
        go(&endpoint, peer);
        await_go(&endpoint, peer);
    });
    go(&endpoint, peer);
}

/// Writes and reads by a copy engine, which are the region's all the same.
fn started(endpoint: &Endpoint, remote: &RemoteRegion, owner_ends: impl FnOnce()) {
    let config = EngineConfig { threads: 2, queue_max: 16, bytes_min: 1, part_bytes_min: 65_536 };
    let engine = CopyEngine::new(config);
    let mut data = vec![0; LONG];
    stamp::fill(&mut data, 2);
    let one_sided = endpoint.counters().one_sided;
    let copied = added(endpoint, || {
        let write = remote.write_request(&engine, 64, data);
        // It waits for the write, whose bytes it reads.
        let read = remote.read_request(&engine, 64, vec![0; LONG]);
        let (receipt, back) = read.wait().unwrap();
        let receipt = receipt.unwrap();
        stamp::check(&back, 2);
        assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LONG as u64));
        assert_eq!(receipt.copied_by(), Some(ALGORITHM.parse().unwrap()));
        let (receipt, data) = block_on(write);
        assert_eq!(receipt.unwrap().bytes, LONG as u64);
        stamp::check(&data, 2);
    });
    assert_eq!(copied, 2 * LONG as u64);
    let (queued, parts) = (engine.counts().queued, engine.counts().parts);
    assert!(queued == 2 && parts >= 4, "{queued} requests in {parts} parts");
    let counters = endpoint.counters().one_sided;
    assert_eq!((counters.writes, counters.reads), (one_sided.writes + 1, one_sided.reads + 1));
    assert_eq!(counters.written_bytes, one_sided.written_bytes + LONG as u64);
    // A short copy counts as no bulk copy, no matter which side makes it.
    let copied = added(endpoint, || {
        let (receipt, _) = remote.write_request(&engine, 900_000, vec![1; SHORT]).wait().unwrap();
        assert_eq!(receipt.unwrap().bytes, SHORT as u64);
    });
    assert_eq!(copied, 0);
    // An operation that cannot be begun ends at once, and gives the buffer back.
    let (result, back) = remote.write_request(&engine, REGION as u64, vec![1; 9]).wait().unwrap();
    assert!(matches!(result, Err(Error::OutOfBounds { .. })), "{result:?}");
    assert_eq!(back, [1; 9]);
    let mut write = remote.write_request(&engine, 64, back[..0].to_vec());
    assert!(write.try_wait().is_some() && write.try_wait().is_none());
    // The dropped request has ended one way or the other, and the memory is free to go.
    drop(remote.read_request(&engine, 0, vec![0; REGION]));
    owner_ends();
    let (result, _) = remote.read_request(&engine, 0, vec![0; LONG]).wait().unwrap();
    assert!(matches!(result, Err(Error::Revoked)), "{result:?}");
    assert_eq!(engine.counts().queued, 5);
}

fn one_sided(endpoint: &Endpoint, peer: PeerId, memory: &mut [u8]) -> RemoteRegion {
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 2).unwrap()).unwrap();
    let remote = endpoint.open_region(peer, &key).unwrap();
    assert_eq!(remote.path(), Path::Mapped);
    stamp::fill(memory, 2);
    let long = LONG as u64;
    assert_eq!(added(endpoint, || remote.write(64, memory).unwrap()), long);
    assert_eq!(added(endpoint, || remote.write(900_000, &memory[..SHORT]).unwrap()), 0);
    assert_eq!(added(endpoint, || remote.read(900_000, &mut memory[..SHORT]).unwrap()), 0);
    memory.fill(0);
    assert_eq!(added(endpoint, || remote.read(64, memory).unwrap()), long);
    stamp::check(memory, 2);
    // The receipts say so, too.
    let by = |receipt: Receipt| receipt.copied_by().map(|algorithm| algorithm.to_string());
    let named = [
        by(remote.write(64, memory).unwrap()),
        by(remote.read(64, memory).unwrap()),
        by(remote.write(900_000, &memory[..SHORT]).unwrap()),
        by(remote.read_vectored(&mut [(64, &mut [0; 8]), (72, &mut [0; PART])]).unwrap()),
        by(remote.write_vectored(&[(64, &memory[..PART]), (900_000, &memory[..8])]).unwrap()),
        by(remote.write(900_000, &[]).unwrap()),
    ];
    let named = named.each_ref().map(Option::as_deref);
    let (chosen, libc) = (Some(ALGORITHM), Some("libc"));
    assert_eq!(named, [chosen, chosen, libc, chosen, chosen, None]);
    let before = endpoint.counters().one_sided;
    // Another thread's count, too.
    let copied = added(endpoint, || {
        thread::scope(|s| {
            s.spawn(|| {
                let mut parts = [vec![0; PART], vec![0; PART]];
                stamp::fill(&mut parts[0], 3);
                stamp::fill(&mut parts[1], 4);
                let [a, b] = &parts;
                remote.write_vectored(&[(500_000, a), (600_000, b)]).unwrap();
                let mut back = [vec![0; PART], vec![0; PART]];
                let [c, d] = &mut back;
                remote.read_vectored(&mut [(500_000, c), (600_000, d)]).unwrap();
                assert_eq!(back, parts);
            });
        });
    });
    assert_eq!(copied, 4 * PART as u64);
    let counters = endpoint.counters().one_sided;
    assert_eq!(counters.written_bytes - before.written_bytes, 2 * PART as u64);
    assert_eq!(counters.read_bytes - before.read_bytes, 2 * PART as u64);
    remote
}
