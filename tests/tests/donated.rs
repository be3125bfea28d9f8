//! The limit on gifts to a peer that is slow: waiting, and messages of which the newest counts.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Arena, ArenaBuf, Builder, DonatedBuf, Endpoint, Error, Path, PeerId, Progress};
use pinfold_tests::{
    Args, Stage, block_on, pair,
    role::{self, PATIENCE, hear, say},
    stage::all_end_well,
    tcp_pair,
};
use rustix::process::Signal;

pinfold_tests::roles!(giver, taker, camera, watcher, server, client);

const MIB: usize = 1 << 20;
const FRAME: usize = 3 * MIB;
/// Room for four frames.
const LIMIT: usize = 4 * (FRAME + 1024);

fn builder() -> Builder {
    Endpoint::builder().given_bytes_max(LIMIT)
}

fn frame(arena: &Arena, len: usize, number: u64) -> ArenaBuf {
    let mut buf = arena.alloc(len).unwrap();
    buf[..8].copy_from_slice(&number.to_ne_bytes());
    buf[len - 8..].copy_from_slice(&(!number).to_ne_bytes());
    buf
}

/// The number of a frame, which has to be whole.
fn number(bytes: &[u8]) -> u64 {
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), !word(bytes.len() - 8));
    word(0)
}

fn await_empty(endpoint: &Endpoint, arena: &Arena) {
    let end = Instant::now() + PATIENCE;
    while arena.stats().buffers > 0 {
        assert!(Instant::now() < end, "not back: {:?}", arena.stats());
        endpoint.progress().unwrap();
    }
}

// Waiting.

const FRAMES: u64 = 60;

/// A receiver that is slow, and stopped for a while: the arena does not grow, and nothing is lost.
#[test]
fn who_gives_waits_for_a_slow_receiver() {
    let stage = Stage::new(120);
    let mut taker = stage.role("taker").spawn();
    taker.expect("ready");
    let mut giver = stage.role("giver").spawn();
    taker.expect("has some");
    taker.signal(Signal::STOP);
    giver.expect("waits");
    giver.say("go on");
    thread::sleep(Duration::from_millis(100));
    taker.signal(Signal::CONT);
    taker.say("go on");
    all_end_well(&mut [taker, giver]);
}

fn giver(_: &Args) {
    let (endpoint, peer) = role::connect(builder().progress(Progress::Dedicated), "taker");
    let arena = Arena::new().unwrap();
    for frame in 0..8 {
        endpoint.give(peer, 0, self::frame(&arena, FRAME, frame)).unwrap();
    }
    endpoint.send(peer, 1, b"").unwrap();
    // The receiver is stopped, or about to be, and takes nothing more.
    let mut next = 8;
    let not_given = loop {
        let buf = frame(&arena, FRAME, next);
        match endpoint.give_timeout(peer, 0, buf, Duration::from_millis(300)) {
            Ok(()) => next += 1,
            Err(not_given) => break not_given,
        }
    };
    let text = not_given.to_string();
    assert!(
        matches!(not_given.error, Error::LimitReached { limit, .. } if limit == LIMIT as u64),
        "{text}"
    );
    assert!(text.contains("Builder::given_bytes_max"), "{text}");
    assert_eq!(number(&not_given.donation.into_arena_buf().expect("it is the caller's")), next);
    say("waits");
    hear();
    for frame in next..FRAMES {
        endpoint.give(peer, 0, self::frame(&arena, FRAME, frame)).unwrap();
    }
    endpoint.drain(PATIENCE).unwrap();
    // Four are out, one waits, and the memory that was allocated before that had come back.
    let stats = arena.stats();
    assert_eq!(stats.buffers, 0);
    assert!(stats.bytes_live_peak <= 5 * FRAME as u64, "{stats:?}");
    let counters = endpoint.counters();
    assert!(counters.given_stalls > 0 && counters.given_stalls < FRAMES, "{counters:?}");
    assert_eq!((counters.undelivered, counters.replaced), (0, 0));
    assert_eq!(counters.sent[Path::Handoff as usize].messages, FRAMES);
}

fn taker(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "taker");
    for frame in 0..8 {
        let view = endpoint.recv_view(peer, 0).unwrap();
        assert_eq!(number(&view.to_vec().unwrap()), frame);
    }
    endpoint.recv(peer, 1).unwrap();
    say("has some");
    hear();
    let mut held = Vec::new();
    for frame in 8..FRAMES {
        if frame % 8 == 0 {
            thread::sleep(Duration::from_millis(5));
        }
        // Some views come back out of turn.
        held.push(endpoint.recv_view(peer, 0).unwrap());
        let view = &held[held.len() - 1];
        assert_eq!(number(&view.to_vec().unwrap()), frame);
        if held.len() == 3 {
            held.swap_remove(frame as usize % 3);
            held.pop();
        }
    }
    drop(held);
    assert!(endpoint.recv(peer, 0).unwrap_err().is_peer_gone());
}

#[test]
fn trying_gives_the_memory_back() {
    let (a, to_b, b, from_a) = pair("given-try", builder(), builder());
    let arena = Arena::new().unwrap();
    let mut given = 0;
    let refused = loop {
        match a.try_give(to_b, 0, frame(&arena, FRAME, given)) {
            Ok(()) => given += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((given, arena.stats().buffers), (4, 5));
    assert!(matches!(refused.error, Error::LimitReached { .. }), "{refused}");
    assert_eq!(number(&refused.donation.into_arena_buf().unwrap()), 4);
    assert!(a.counters().given_stalls >= 1);
    // Another kind of error carries the buffer, too.
    let wrong = a.try_give(from_a, 0, frame(&arena, 100, 9)).unwrap_err();
    assert!(matches!(wrong.error, Error::UnknownPeer { .. }) || from_a == to_b, "{wrong}");
    drop(wrong);
    // One more gift may go for each that is back, in any order.
    let held: Vec<_> = (0..4).map(|_| b.recv_view(from_a, 0).unwrap().into_owned()).collect();
    for view in held.into_iter().rev() {
        assert!(a.try_give(to_b, 0, frame(&arena, FRAME, given)).is_err());
        drop(view);
        a.try_give(to_b, 0, frame(&arena, FRAME, given)).unwrap();
        given += 1;
    }
    for number in 4..given {
        assert_eq!(self::number(&b.recv(from_a, 0).unwrap()), number);
    }
    await_empty(&a, &arena);
    // A gift that is longer than the limit goes alone.
    a.try_give(to_b, 0, frame(&arena, 2 * LIMIT, 1)).unwrap();
    assert!(a.try_give(to_b, 0, frame(&arena, 8, 2)).is_err());
    drop(b.recv_view(from_a, 0).unwrap());
    a.try_give(to_b, 0, frame(&arena, 8, 2)).unwrap();
    // Small gifts are counted as well.
    let mut small = 0;
    while a.try_give(to_b, 0, frame(&arena, 64, small)).is_ok() {
        small += 1;
    }
    assert!(small < LIMIT as u64 / 1024, "{small}");
}

/// Futures are pending meanwhile, and messages that are sent after them come after them.
#[test]
fn what_is_handed_off_waits_its_turn() {
    let (a, to_b, b, from_a) = pair("given-off", builder(), builder());
    let arena = Arena::new().unwrap();
    let mut all = Vec::new();
    for number in 0..6 {
        all.push(a.handoff(to_b, 0, frame(&arena, FRAME, number)));
    }
    let parts = [frame(&arena, FRAME, 6), frame(&arena, FRAME, 7)].map(DonatedBuf::from);
    let vectored = a.handoff_vectored(to_b, 0, parts);
    let mut last = a.send_owned(to_b, 0, vec![1; 8]);
    assert!(last.try_wait().is_none());
    let mut dropped = a.handoff(to_b, 0, frame(&arena, FRAME, 99));
    assert!(dropped.cancel());
    assert!(matches!(dropped.wait().0, Err(Error::Cancelled)));
    // So many gifts have come, and no more.
    while b.try_probe(from_a, 0).unwrap().is_none() {}
    let held: Vec<_> = (0..4).map(|_| b.recv_view(from_a, 0).unwrap().into_owned()).collect();
    for _ in 0..1000 {
        a.progress().unwrap();
        assert!(b.try_probe(from_a, 0).unwrap().is_none());
    }
    assert!(all.iter_mut().all(|handoff| handoff.try_wait().is_none()));
    drop(held);
    thread::scope(|scope| {
        let takes = scope.spawn(|| {
            for expected in 4..6 {
                assert_eq!(number(&b.recv_view(from_a, 0).unwrap().to_vec().unwrap()), expected);
            }
            let row = b.recv_view(from_a, 0).unwrap().to_vec().unwrap();
            assert_eq!((number(&row[..FRAME]), number(&row[FRAME..])), (6, 7));
            assert_eq!(*b.recv(from_a, 0).unwrap(), [1; 8]);
        });
        for (expected, handoff) in (0..).zip(all) {
            let (receipt, donation) = block_on(handoff);
            assert_eq!(receipt.unwrap().path, Path::Handoff);
            assert_eq!(number(&donation.into_arena_buf().unwrap()), expected);
        }
        assert!(vectored.wait().0.is_ok());
        last.wait().0.unwrap();
        takes.join().unwrap();
    });
}

/// A peer that goes ends the wait.
#[test]
fn a_wait_ends_with_its_peer() {
    for closes in [true, false] {
        let (a, to_b, b, _) = pair("given-gone", builder(), builder());
        let arena = Arena::new().unwrap();
        while a.try_give(to_b, 0, frame(&arena, FRAME, 0)).is_ok() {}
        let error = thread::scope(|scope| {
            let waits = scope.spawn(|| a.give(to_b, 0, frame(&arena, FRAME, 1)));
            thread::sleep(Duration::from_millis(50));
            if closes {
                b.close()
            } else {
                a.close()
            }
            waits.join().unwrap().unwrap_err()
        });
        assert!(error.is_peer_gone() == closes, "{error}");
        drop(b);
        assert_eq!(arena.stats().buffers, 0);
    }
}

/// One receiver never gives anything back; the others get every frame.
#[test]
fn one_that_keeps_all_does_not_stop_the_others() {
    let stage = Stage::new(120);
    let mut server = stage.role("server").spawn();
    server.expect("ready");
    let clients = (0..4).map(|me| stage.role("client").with("me", me).spawn());
    let mut players: Vec<_> = clients.collect();
    let mut keeper = players.remove(0);
    server.end_well();
    keeper.kill();
    all_end_well(&mut players);
}

fn server(_: &Args) {
    let endpoint = builder().listen("local:given-server").build().unwrap();
    say("ready");
    let mut peers: Vec<(PeerId, u8)> = Vec::new();
    for _ in 0..4 {
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        peers.push((peer, endpoint.recv(peer, 1).unwrap()[0]));
    }
    let arena = Arena::new().unwrap();
    let mut refused = 0;
    for number in 0..FRAMES {
        // All receivers share it.
        let donation = DonatedBuf::from(frame(&arena, FRAME, number));
        for (peer, me) in &peers {
            match me {
                0 => refused += u64::from(endpoint.try_give(*peer, 0, donation.clone()).is_err()),
                _ => endpoint.give(*peer, 0, donation.clone()).unwrap(),
            }
        }
    }
    assert_eq!(refused, FRAMES - 4);
    let stats = arena.stats();
    // Four for each, and one to be given.
    assert!(stats.bytes_live_peak <= 17 * FRAME as u64, "{stats:?}");
    let end = Instant::now() + PATIENCE;
    let left = loop {
        let error = endpoint.drain(Duration::from_millis(50)).unwrap_err();
        let Error::Undelivered { left, .. } = error else { panic!("{error}") };
        if left.len() == 1 {
            break left;
        }
        assert!(Instant::now() < end, "{left:?}");
    };
    assert_eq!((left[0].sends, left[0].given), (0, 4), "{left:?}");
}

fn client(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "given-server");
    let me: u8 = args.number("me");
    endpoint.send(peer, 1, &[me]).unwrap();
    if me == 0 {
        // The receiver never asks for anything.
        hear();
        return;
    }
    for expected in 0..FRAMES {
        let view = endpoint.recv_view(peer, 0).unwrap();
        assert_eq!(number(&view.to_vec().unwrap()), expected);
    }
    assert!(endpoint.recv(peer, 0).unwrap_err().is_peer_gone());
}

// The newest counts.

const PICTURES: u64 = 400;

/// A camera, and a viewer that looks at few of its pictures and is stopped for a while.
#[test]
fn the_newest_picture_comes_and_memory_is_bounded() {
    let stage = Stage::new(120);
    let mut watcher = stage.role("watcher").spawn();
    watcher.expect("ready");
    let mut camera = stage.role("camera").spawn();
    watcher.expect("watches");
    watcher.signal(Signal::STOP);
    camera.say("go on");
    camera.expect("half");
    watcher.signal(Signal::CONT);
    camera.say("go on");
    all_end_well(&mut [watcher, camera]);
}

fn camera(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "watcher");
    let arena = Arena::new().unwrap();
    let (mut replaced, mut spare) = (0, None::<ArenaBuf>);
    let mut shoot = |number: u64| {
        let mut buf = spare.take().unwrap_or_else(|| arena.alloc(FRAME).unwrap());
        buf[..8].copy_from_slice(&number.to_ne_bytes());
        buf[FRAME - 8..].copy_from_slice(&(!number).to_ne_bytes());
        // The memory of a picture that will never be seen is used for the next.
        if let Some(old) = endpoint.give_latest(peer, 0, buf).unwrap() {
            replaced += 1;
            let old = old.into_arena_buf().expect("nobody has it");
            assert!(self::number(&old) < number);
            spare = Some(old);
        }
    };
    (0..10).for_each(&mut shoot);
    hear();
    // The viewer is stopped.
    (10..PICTURES / 2).for_each(&mut shoot);
    say("half");
    hear();
    for picture in PICTURES / 2..PICTURES {
        shoot(picture);
        thread::sleep(Duration::from_micros(200));
    }
    endpoint.drain(PATIENCE).unwrap();
    drop(spare);
    let stats = arena.stats();
    assert_eq!(stats.buffers, 0);
    // Two frames are out, one waits, one is filled.
    assert!(stats.bytes_live_peak <= 4 * FRAME as u64, "{stats:?}");
    let counters = endpoint.counters();
    assert_eq!(counters.replaced, replaced);
    assert!(replaced >= PICTURES / 2 - 20, "{replaced}");
    endpoint.send(peer, 1, &(PICTURES - replaced).to_ne_bytes()).unwrap();
}

fn watcher(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "watcher");
    let mut seen = Vec::new();
    while seen.last() != Some(&(PICTURES - 1)) {
        let view = endpoint.recv_view(peer, 0).unwrap();
        let first = number(&view.to_vec().unwrap());
        if seen.is_empty() {
            say("watches");
        }
        thread::sleep(Duration::from_millis(2));
        // The picture that it looks at is not touched.
        assert_eq!(number(&view.to_vec().unwrap()), first);
        seen.push(first);
    }
    assert!(seen.is_sorted());
    // No pictures but those that were replaced are missing.
    let sent = endpoint.recv(peer, 1).unwrap();
    assert_eq!(u64::from_ne_bytes(sent[..].try_into().unwrap()), seen.len() as u64);
    assert!(endpoint.recv(peer, 0).unwrap_err().is_peer_gone());
}

/// Each peer and each tag has frames of its own, and other messages pass those that wait.
#[test]
fn frames_wait_by_peer_and_tag() {
    let by = || Endpoint::builder().frames_in_flight(1);
    let (a, to_b, b, from_a) = pair("given-tags", by(), Endpoint::builder());
    let arena = Arena::new().unwrap();
    for number in 0..5 {
        for tag in [7, 8] {
            let replaced = a.give_latest(to_b, tag, frame(&arena, 5000, number)).unwrap();
            let replaced = replaced.map(|old| self::number(&old.into_arena_buf().unwrap()));
            assert_eq!(replaced, number.checked_sub(1).filter(|old| *old > 0));
        }
    }
    assert_eq!((arena.stats().buffers, a.counters().replaced), (4, 6));
    a.give(to_b, 9, frame(&arena, 5000, 50)).unwrap();
    a.send(to_b, 10, b"passes").unwrap();
    assert_eq!(&*b.recv(from_a, 10).unwrap(), b"passes");
    assert_eq!(number(&b.recv(from_a, 9).unwrap()), 50);
    for tag in [8, 7] {
        // Copied or looked at, the last one follows the first.
        assert_eq!(number(&b.recv(from_a, tag).unwrap()), 0);
        a.progress().unwrap();
        let view = b.recv_view(from_a, tag).unwrap();
        assert_eq!(number(&view.to_vec().unwrap()), 4);
        drop(view);
        a.progress().unwrap();
        assert!(b.try_probe(from_a, tag).unwrap().is_none());
    }
    await_empty(&a, &arena);
    // The end does not wait.
    for number in 0..3 {
        a.give_latest(to_b, 7, frame(&arena, 5000, number)).unwrap();
    }
    a.close();
    for expected in [0, 2] {
        assert_eq!(number(&b.recv_view(from_a, 7).unwrap().to_vec().unwrap()), expected);
    }
    assert!(b.recv(from_a, 7).unwrap_err().is_peer_gone());
    assert_eq!(arena.stats().buffers, 0);
    assert_eq!(a.counters().undelivered, 0);
    assert!(Endpoint::builder().frames_in_flight(0).build().is_err());
}

/// A waiting message goes when the receiver is ready, with no thread in a call of the sender's.
#[test]
fn frames_go_by_themselves() {
    let by = || Endpoint::builder().progress(Progress::Dedicated);
    let (a, to_b, b, from_a) = pair("given-self", by(), Endpoint::builder());
    let arena = Arena::new().unwrap();
    for number in 0..50 {
        a.give_latest(to_b, 7, frame(&arena, 100, number)).unwrap();
    }
    // The giver's thread sleeps.
    thread::sleep(Duration::from_millis(100));
    let mut last = 0;
    while last < 49 {
        let view = b.recv_view_timeout(from_a, 7, PATIENCE).unwrap();
        last = number(&view.to_vec().unwrap());
        thread::sleep(Duration::from_millis(20));
    }
    // To another host as well.
    let arena = Arena::new().unwrap();
    let by = || by().local_shortcut(false);
    let (one, to_two, two, to_one) = tcp_pair(by(), by(), str::to_owned);
    for number in 0..50 {
        one.give_latest(to_two, 7, frame(&arena, FRAME, number)).unwrap();
    }
    assert!(arena.stats().buffers <= 4);
    let mut last = 0;
    while last < 49 {
        let message = two.recv_timeout(to_one, 7, PATIENCE).unwrap();
        assert!(number(&message) >= last);
        last = number(&message);
    }
    one.drain(PATIENCE).unwrap();
    assert!(one.counters().replaced >= 40);
}

/// Threads give and look at the same time.
#[test]
fn threads_give_together() {
    let by = || builder().progress(Progress::Dedicated);
    let (a, to_b, b, from_a) = pair("given-threads", by(), by());
    let arena = Arena::new().unwrap();
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        for tag in 0..3 {
            let (a, b, arena, taken) = (&a, &b, &arena, &taken);
            scope.spawn(move || {
                for number in 0..40 {
                    a.give(to_b, tag, frame(arena, FRAME, number)).unwrap();
                }
            });
            scope.spawn(move || {
                for expected in 0..40 {
                    let view = b.recv_view(from_a, tag).unwrap();
                    assert_eq!(number(&view.to_vec().unwrap()), expected);
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while taken.load(Ordering::Relaxed) < 120 {
                assert!(arena.stats().bytes_live <= 7 * FRAME as u64);
                thread::sleep(Duration::from_millis(1));
            }
        });
    });
    a.drain(PATIENCE).unwrap();
}
