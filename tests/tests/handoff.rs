//! Memory that is given away: looked at where it is, copied where it cannot be, and always back in
//! its arena in the end.

use std::{thread, time::Duration};

use pinfold::{
    Arena, Builder, DonatedBuf, Endpoint, Error, Path, PathSet, PeerId, Refusal, SharedArena,
    Source, TagMatch, View,
};
use pinfold_tests::{
    Args, Baseline, Stage, block_on,
    host::{Ended, fork},
    pair,
    role::{self, PATIENCE, hear, note, say},
    stage::all_end_well,
    stamp, wait_for_empty,
};

pinfold_tests::roles!(giver, looker, short_of_space, crowd_giver, holder, forgets, leaver, keeper);

const MIB: usize = 1 << 20;
const SIZES: [usize; 9] = [0, 1, 8, 57, 4096, 65_537, MIB, 9 * MIB + 5, 200 * MIB];

fn builder() -> Builder {
    Endpoint::builder()
}

fn donation(arena: &Arena, len: usize, seed: u64) -> DonatedBuf {
    let mut buf = arena.alloc(len).unwrap();
    stamp::fill(&mut buf, seed);
    buf.into()
}

fn check(view: &View<'_>, seed: u64) {
    stamp::check(&view.to_vec().unwrap(), seed);
}

#[test]
fn every_size_in_every_way() {
    let stage = Stage::new(120);
    stage.play([stage.role("looker"), stage.role("giver")]);
}

const COPY: u64 = 1 << 40;
const MESSAGE: u64 = 2 << 40;
const FUTURE: u64 = 3 << 40;
const LATE: u64 = 4 << 40;

fn giver(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(Endpoint::builder(), "handoff");
    let arena = Arena::new().unwrap();
    for (seed, &len) in SIZES.iter().enumerate() {
        let seed = seed as u64;
        // Gifts that are looked at, and back with their bytes.
        let (receipt, donation_back) =
            endpoint.handoff(peer, seed, donation(&arena, len, seed)).wait();
        let receipt = receipt.unwrap();
        assert_eq!((receipt.path, receipt.bytes), (Path::Handoff, len as u64), "{receipt}");
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}");
        let buf = donation_back.into_arena_buf().expect("nobody has a clone");
        stamp::check(&buf, seed);
        drop(buf);
        // Gifts copied by receives that want them elsewhere.
        for way in [COPY, MESSAGE] {
            let (receipt, _) =
                endpoint.handoff(peer, way | seed, donation(&arena, len, seed)).wait();
            let receipt = receipt.unwrap();
            assert_eq!(receipt.path, Path::Mapped, "{receipt}");
            assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::Declined), "{receipt}");
        }
        // Gifts without a handle, and one with a handle that is dropped.
        endpoint.give(peer, FUTURE | seed, donation(&arena, len, seed)).unwrap();
        drop(endpoint.handoff(peer, LATE | seed, donation(&arena, len, seed)));
        let handoff = endpoint.handoff(peer, seed, donation(&arena, len, seed));
        let (receipt, _) = block_on(handoff);
        assert_eq!(receipt.unwrap().path, Path::Handoff);
        wait_for_empty(&endpoint, &arena);
    }
    // Taken back before the receiver looked.
    let mut unwanted = endpoint.handoff(peer, 999, donation(&arena, 100, 1));
    assert!(unwanted.wait_timeout(Duration::from_millis(5)).is_none());
    assert!(unwanted.cancel());
    let (result, back) = unwanted.wait();
    assert!(matches!(result, Err(Error::Cancelled)));
    stamp::check(&back.into_arena_buf().unwrap(), 1);
    assert_eq!(arena.stats().buffers, 0);
    endpoint.send(peer, 1000, b"").unwrap();
    drop(arena);
    endpoint.recv(peer, 1000).unwrap();
    drop(endpoint);
    before.returns(PATIENCE);
}

fn looker(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "handoff");
    for (seed, &len) in SIZES.iter().enumerate() {
        let seed = seed as u64;
        let view = endpoint.recv_view(peer, seed).unwrap();
        assert_eq!((view.peer(), view.tag(), view.len()), (peer, seed, len));
        let receipt = view.receipt();
        assert_eq!((receipt.path, receipt.bytes), (Path::Handoff, len as u64), "{receipt}");
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}");
        assert!(view.bytes().is_none() && !view.is_writable());
        check(&view, seed);
        let mut some = vec![0; len.min(10)];
        view.read(len - some.len(), &mut some).unwrap();
        assert_eq!(some, view.to_vec().unwrap()[len - some.len()..]);
        let beyond = view.read(len, &mut [0]);
        assert!(matches!(beyond, Err(Error::OutOfBounds { len: 1, .. })), "{beyond:?}");
        assert!(matches!(view.read(usize::MAX, &mut [0]), Err(Error::OutOfBounds { .. })));
        assert!(matches!(view.write(0, b""), Err(Error::ReadOnly)));
        drop(view);
        let mut buf = vec![0; len];
        let received = endpoint.recv_into(peer, COPY | seed, &mut buf).unwrap();
        assert_eq!(received.receipt.path, Path::Mapped, "{}", received.receipt);
        stamp::check(&buf, seed);
        let message = endpoint.recv(peer, MESSAGE | seed).unwrap();
        stamp::check(&message, seed);
        // It may outlive the handle that received it, go to other threads, and wait.
        let view = block_on(endpoint.recv_view_request(peer, FUTURE | seed)).unwrap();
        let late = endpoint.recv_view(peer, LATE | seed).unwrap().into_owned();
        thread::spawn(move || {
            check(&late, seed);
            check(&view, seed);
        })
        .join()
        .unwrap();
        // Posted before it comes, dropped before it is asked for: it is the next one's.
        let request = endpoint.recv_view_request(peer, seed);
        while endpoint.counters().received[Path::Handoff as usize].messages < 4 * (seed + 1) {
            endpoint.progress().unwrap();
        }
        drop(request);
        check(&endpoint.recv_view(peer, seed).unwrap(), seed);
    }
    endpoint.recv(peer, 1000).unwrap();
    endpoint.send(peer, 1000, b"").unwrap();
    assert!(endpoint.recv(peer, 1).unwrap_err().is_peer_gone());
    drop(endpoint);
    before.returns(PATIENCE);
}

#[test]
fn where_it_is_switched_off_a_copy_goes() {
    let without = PathSet::all().without(Path::Handoff);
    for (ours, theirs, why) in [
        (without, PathSet::all(), Refusal::SwitchedOff),
        (PathSet::all(), without, Refusal::SwitchedOffByPeer),
    ] {
        let (a, to_b, b, from_a) = pair("off", builder().paths(ours), builder().paths(theirs));
        let arena = Arena::new().unwrap();
        for len in [8, 5000, MIB] {
            let sent = a.handoff(to_b, 1, donation(&arena, len, 5));
            let request = b.recv_view_request(from_a, 1);
            let view = loop {
                a.progress().unwrap();
                b.progress().unwrap();
                if b.try_probe(from_a, 1).unwrap().is_none() {
                    break request;
                }
            };
            let view = thread::scope(|s| {
                let waits = s.spawn(|| view.wait().unwrap());
                let (receipt, _) = sent.wait();
                let receipt = receipt.unwrap();
                assert_ne!(receipt.path, Path::Handoff, "{receipt}");
                assert_eq!(receipt.refused(Path::Handoff), Some(why), "{receipt}");
                waits.join().unwrap()
            });
            stamp::check(view.bytes().expect("a copy"), 5);
            check(&view, 5);
            assert_ne!(view.receipt().path, Path::Handoff);
        }
        assert_eq!(arena.stats().buffers, 0);
    }
}

#[test]
fn memory_that_both_may_write() {
    let (a, to_b, b, from_a) = pair("both", builder(), builder());
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(10_000).unwrap();
    buf.write(5000, b"from a");
    let mut handoff = a.handoff(to_b, 3, buf);
    let view = b.recv_view(from_a, 3).unwrap();
    assert!(view.is_writable());
    let mut six = [0; 6];
    view.read(5000, &mut six).unwrap();
    assert_eq!(&six, b"from a");
    view.write(7001, b"from b").unwrap();
    assert!(matches!(view.write(9999, b"xx"), Err(Error::OutOfBounds { .. })));
    assert!(handoff.try_wait().is_none());
    drop(view);
    let (receipt, donation) = handoff.wait();
    assert_eq!(receipt.unwrap().path, Path::Handoff);
    let buf = donation.into_shared_buf().unwrap();
    buf.read(7001, &mut six);
    assert_eq!(&six, b"from b");
}

/// Gifts that come back out of order are told one by one, and counted later: a giver that looks at
/// the count first is told of the ends.
#[test]
fn in_any_order_while_their_giver_is_busy() {
    const DONATIONS: u64 = 40;
    let (ours, to_them, theirs, to_us) = pair("handoff-order", builder(), builder());
    let arena = Arena::new().unwrap();
    let mut random = stamp::Random::new(11);
    for round in 0..20 {
        for seed in 0..DONATIONS {
            ours.give(to_them, seed, donation(&arena, 100, seed)).unwrap();
        }
        let mut views = Vec::new();
        for seed in 0..DONATIONS {
            if (seed + round) % 7 == 6 {
                // Receives that are not views.
                stamp::check(&theirs.recv(to_us, seed).unwrap(), seed);
            } else {
                views.push((seed, theirs.recv_view(to_us, seed).unwrap()));
            }
        }
        // All views but the first, in any order; then that, so that the count passes them all at
        // once.
        while views.len() > 1 {
            let (seed, view) = views.swap_remove(1 + random.below(views.len() as u64 - 1) as usize);
            check(&view, seed);
        }
        views.clear();
        // The giver gives on without a look at the ends that it was told.
        for seed in 0..DONATIONS {
            ours.give(to_them, seed, donation(&arena, 100, seed)).unwrap();
        }
        (0..DONATIONS).for_each(|seed| check(&theirs.recv_view(to_us, seed).unwrap(), seed));
        theirs.send(to_us, 1, b"still there").unwrap();
        assert_eq!(&*ours.recv(to_them, 1).unwrap(), b"still there");
    }
    wait_for_empty(&ours, &arena);
}

/// Clones that were given before a handoff, and given back before it, are back when it is.
#[test]
fn what_came_back_before_is_back() {
    let (ours, to_them, theirs, to_us) = pair("handoff-before", builder(), builder());
    let arena = Arena::new().unwrap();
    let mut memory = arena.alloc(4096).unwrap();
    for round in 0..100 {
        stamp::fill(&mut memory, round);
        let donation = DonatedBuf::from(memory);
        for _ in 0..5 {
            ours.give(to_them, round, donation.clone()).unwrap();
            check(&theirs.recv_view(to_us, round).unwrap(), round);
        }
        let mut handoff = ours.handoff(to_them, round, donation);
        drop(theirs.recv_view(to_us, round).unwrap());
        let back = loop {
            if let Some((receipt, donation)) = handoff.try_wait() {
                receipt.unwrap();
                break donation;
            }
        };
        memory = back.into_arena_buf().expect("nobody looks at a clone any more");
    }
}

/// The two close in either order: the one that looks has no more views; the one that gave takes
/// nothing back.
#[test]
fn a_view_is_void_once_its_own_side_has_closed() {
    for theirs in [true, false] {
        let (a, to_b, b, from_a) = pair("void", builder(), builder());
        let arena = Arena::new().unwrap();
        a.give(to_b, 1, donation(&arena, 4096, 1)).unwrap();
        let view = b.recv_view(from_a, 1).unwrap().into_owned();
        check(&view, 1);
        if theirs {
            a.close();
            assert!(b.recv(from_a, 1).unwrap_err().is_peer_gone());
            check(&view, 1);
            assert_eq!(arena.stats().buffers, 1, "it is looked at");
        } else {
            b.disconnect(from_a);
            assert!(a.recv(to_b, 1).unwrap_err().is_peer_gone());
            assert_eq!(arena.stats().buffers, 0, "it is its owner's again");
            assert!(matches!(view.read(0, &mut [0]), Err(Error::Withdrawn)));
            assert!(matches!(view.to_vec(), Err(Error::Withdrawn)));
        }
        drop(view);
        assert_eq!(arena.stats().buffers, 0);
    }
}

// Many receivers.

const CROWD: u64 = 12;

#[test]
fn one_buffer_for_many() {
    let stage = Stage::new(60);
    let mut players = vec![stage.role("crowd_giver").spawn()];
    players[0].expect("listens");
    players.extend((0..CROWD).map(|me| stage.role("holder").with("me", me).spawn()));
    players[0].expect("has given");
    // Some receivers are killed while they hold it.
    for player in &mut players[1..] {
        player.expect("holds");
    }
    for player in &mut players[1..4] {
        player.kill();
    }
    for player in &mut players[4..] {
        player.say("let go");
    }
    players.drain(1..4);
    all_end_well(&mut players);
}

fn crowd_giver(_: &Args) {
    let endpoint = Endpoint::listen("local:crowd").unwrap();
    say("listens");
    let peers: Vec<PeerId> =
        (0..CROWD).map(|_| endpoint.accept_timeout(PATIENCE).unwrap()).collect();
    let arena = Arena::new().unwrap();
    let whole = donation(&arena, 3 * MIB, 77);
    for peer in peers {
        endpoint.give(peer, 1, whole.clone()).unwrap();
    }
    assert_eq!(arena.stats().buffers, 1);
    drop(whole);
    say("has given");
    wait_for_empty(&endpoint, &arena);
}

fn holder(args: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let peer = endpoint.connect_wait("local:crowd", PATIENCE).unwrap();
    let view = endpoint.recv_view(Source::Any, TagMatch::any()).unwrap();
    assert_eq!(view.receipt().path, Path::Handoff);
    check(&view, 77);
    say("holds");
    hear();
    check(&view, 77);
    drop(view);
    note(format_args!("{} let go", args.number::<u64>("me")));
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
}

// Endpoints that leave.

#[test]
fn a_giver_that_is_killed_leaves_its_donation() {
    let stage = Stage::new(60);
    let mut keeper = stage.role("keeper").spawn();
    keeper.expect("listens");
    let mut leaver = stage.role("leaver").spawn();
    keeper.expect("holds");
    leaver.kill();
    keeper.say("it is dead");
    keeper.end_well();
}

fn leaver(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "keeper");
    let arena = Arena::new().unwrap();
    for tag in 1..=2 {
        endpoint.give(peer, tag, donation(&arena, 20 * MIB, tag)).unwrap();
    }
    loop {
        let _ = endpoint.recv_timeout(peer, 9, PATIENCE);
    }
}

fn keeper(_: &Args) {
    let before = Baseline::now();
    let endpoint = Endpoint::listen("local:keeper").unwrap();
    say("listens");
    let peer = endpoint.accept_timeout(PATIENCE).unwrap();
    let view = endpoint.recv_view(peer, 1).unwrap();
    endpoint.probe(peer, 2).unwrap();
    say("holds");
    hear();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    // A gift that was looked at is still there, and one that was not is to be had.
    check(&view, 1);
    let other = endpoint.recv_view(peer, 2).unwrap();
    assert_eq!(other.receipt().path, Path::Handoff);
    check(&other, 2);
    assert!(endpoint.recv_view(peer, 2).unwrap_err().is_peer_gone());
    drop((view, other));
    drop(endpoint);
    before.returns(PATIENCE);
}

#[test]
fn a_forked_child_has_no_part_in_it() {
    let stage = Stage::new(60);
    stage.role("forgets").spawn().end_well();
}

fn forgets(_: &Args) {
    let (a, to_b, b, from_a) = pair("fork", builder(), builder());
    let arena = Arena::new().unwrap();
    let mut sent = a.handoff(to_b, 1, donation(&arena, 5000, 1));
    let view = b.recv_view(from_a, 1).unwrap().into_owned();
    let ended = fork(|| {
        assert!(matches!(view.read(0, &mut [0]), Err(Error::Forked)));
        assert!(matches!(b.recv_view(from_a, 1), Err(Error::Forked)));
        // Dropped here, the loan and the donated buffer are still the parent's.
        drop(view);
        drop(sent);
        0
    });
    assert_eq!(ended, Ended::Code(0));
    // The closure took both along; in this process they were dropped, and all is back.
    wait_for_empty(&a, &arena);
    sent = a.handoff(to_b, 2, donation(&arena, 5000, 2));
    check(&b.recv_view(from_a, 2).unwrap(), 2);
    assert!(sent.wait().0.is_ok());
}

#[test]
fn a_receiver_without_address_space_gets_copies() {
    let stage = Stage::new(60);
    stage.role("short_of_space").spawn().end_well();
}

fn short_of_space(_: &Args) {
    let (b, from_a, a, to_b) = pair("short", builder().mapped_bytes_max(4096), builder());
    let arena = Arena::new().unwrap();
    let sent = a.handoff(to_b, 1, donation(&arena, 5000, 1));
    let view = thread::scope(|s| {
        let receives = s.spawn(|| b.recv_view(from_a, 1).unwrap().into_owned());
        let (receipt, _) = sent.wait();
        let receipt = receipt.unwrap();
        assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::NotMapped), "{receipt}");
        receives.join().unwrap()
    });
    check(&view, 1);
    assert_ne!(view.receipt().path, Path::Handoff);
    assert_eq!(arena.stats().buffers, 0);
}
