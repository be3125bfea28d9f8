//! The messages and gifts of an endpoint after it is gone, and waiting until nothing is
//! outstanding.

use std::{
    process::exit,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Arena, DonatedBuf, Endpoint, Error, Gone, Path, PeerId, SharedArena, View};
use pinfold_tests::{
    Args, Stage,
    baseline::arenas,
    host::{Ended, fork},
    pair,
    role::{self, PATIENCE, hear, say},
    stage::all_end_well,
    stamp, tcp_pair,
};

pinfold_tests::roles!(giver, taker, holder, closer, idler, drainer);

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
// No more than a ring has descriptors for, while the receiver takes none.
const FRAMES: u64 = 8;
const TAKERS: u64 = 3;

fn donation(arena: &Arena, len: usize, seed: u64) -> DonatedBuf {
    let mut buf = arena.alloc_aligned(len, PAGE).unwrap();
    stamp::fill(&mut buf, seed);
    buf.into()
}

fn check(view: &View<'_>, seed: u64) {
    stamp::check(&view.to_vec().unwrap(), seed);
}

fn len_of(frame: u64) -> usize {
    [100, 5000, 70_000, 3 * MIB][frame as usize % 4]
}

/// The messages that follow a frame: one goes as a piece, the others in their descriptors, for
/// which there is always room.
fn after(frame: u64) -> Vec<u8> {
    vec![frame as u8; if frame == 0 { 2000 } else { 40 }]
}

/// Waits until an arena has nothing in use.
fn await_empty(arena: &Arena) {
    let end = Instant::now() + PATIENCE;
    while arena.stats().buffers > 0 {
        assert!(Instant::now() < end, "not back: {:?}", arena.stats());
        thread::sleep(Duration::from_millis(1));
    }
}

fn the_giver_goes(how: &str) {
    let stage = Stage::new(120);
    let mut takers: Vec<_> =
        (0..TAKERS).map(|me| stage.role("taker").with("me", me).spawn()).collect();
    for taker in &mut takers {
        taker.expect("ready");
    }
    let mut giver = stage.role("giver").with("how", how).spawn();
    giver.expect("has given");
    if how == "killed" {
        giver.kill();
        assert!(giver.was_killed());
    } else {
        giver.say("go");
        giver.end_well();
    }
    // Two of the takers have not looked at their sockets since.
    for taker in &mut takers {
        taker.say("it is gone");
    }
    all_end_well(&mut takers);
}

#[test]
fn what_was_given_outlives_a_giver_that_closes() {
    the_giver_goes("closes");
}

#[test]
fn what_was_given_outlives_a_giver_that_ends_at_once() {
    the_giver_goes("ends");
}

#[test]
fn what_was_given_outlives_a_giver_that_is_killed() {
    the_giver_goes("killed");
}

fn giver(args: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let peers: Vec<PeerId> = (0..TAKERS)
        .map(|taker| endpoint.connect_wait(&format!("local:taker-{taker}"), PATIENCE).unwrap())
        .collect();
    let arena = Arena::new().unwrap();
    for frame in 0..FRAMES {
        let memory = donation(&arena, len_of(frame), frame);
        for &peer in &peers {
            // A copied message is among them, in order.
            endpoint.send(peer, frame, &frame.to_ne_bytes()).unwrap();
            endpoint.give(peer, frame, memory.clone()).unwrap();
            endpoint.send(peer, frame, &after(frame)).unwrap();
        }
    }
    for &peer in &peers {
        let parts =
            [donation(&arena, 2 * MIB, 1), donation(&arena, 3 * MIB, 2), donation(&arena, MIB, 3)];
        endpoint.give_vectored(peer, FRAMES, parts.clone()).unwrap();
        endpoint.give_vectored(peer, FRAMES, parts).unwrap();
    }
    say("has given");
    hear();
    match args.text("how") {
        "closes" => {
            let counters = endpoint.counters();
            drop(endpoint);
            assert_eq!(counters.undelivered, 0);
        }
        _ => exit(0),
    }
}

fn taker(args: &Args) {
    let me: u64 = args.number("me");
    let (endpoint, peer) = role::listen(Endpoint::builder(), &format!("taker-{me}"));
    // One taker holds a view already, one has seen that there is a message, one has done nothing.
    let early = match me {
        0 => {
            endpoint.recv(peer, 0).unwrap();
            Some(endpoint.recv_view(peer, 0).unwrap().into_owned())
        }
        1 => {
            endpoint.probe(peer, 0).unwrap();
            None
        }
        _ => None,
    };
    hear();
    let mut held = Vec::new();
    for frame in 0..FRAMES {
        let is_early = frame == 0 && early.is_some();
        if !is_early {
            assert_eq!(&*endpoint.recv(peer, frame).unwrap(), frame.to_ne_bytes());
            match frame % 3 {
                0 => {
                    let view = endpoint.recv_view(peer, frame).unwrap().into_owned();
                    assert_eq!(view.receipt().path, Path::Handoff, "{}", view.receipt());
                    check(&view, frame);
                    held.push((frame, view));
                }
                1 => {
                    let mut buf = vec![0; len_of(frame)];
                    let received = endpoint.recv_into(peer, frame, &mut buf).unwrap();
                    assert_eq!(received.receipt.path, Path::Mapped, "{}", received.receipt);
                    stamp::check(&buf, frame);
                }
                _ => stamp::check(&endpoint.recv(peer, frame).unwrap(), frame),
            }
        }
        assert_eq!(&*endpoint.recv(peer, frame).unwrap(), after(frame));
    }
    let parts = endpoint.recv_view(peer, FRAMES).unwrap().into_owned();
    let message = endpoint.recv(peer, FRAMES).unwrap();
    for bytes in [&parts.to_vec().unwrap(), &*message] {
        let (mut at, lens) = (0, [2 * MIB, 3 * MIB, MIB]);
        for (seed, len) in (1..).zip(lens) {
            stamp::check(&bytes[at..at + len], seed);
            at += len;
        }
        assert_eq!(at, bytes.len());
    }
    assert!(endpoint.recv(peer, FRAMES).unwrap_err().is_peer_gone());
    // Much later they are the same, also for a child.
    thread::sleep(Duration::from_millis(200));
    let views = held.iter().map(|(frame, view)| (*frame, view));
    for (frame, view) in views.chain(early.iter().map(|view| (0, view))) {
        check(view, frame);
    }
    let ended = fork(|| {
        held.clear();
        0
    });
    assert_eq!(ended, Ended::Code(0));
    drop((held, early, parts, message));
    drop(endpoint);
    assert!(arenas().is_empty(), "it has let go of all");
}

/// The arena of a closed endpoint goes on, and no memory that receivers look at is used again.
#[test]
fn an_arena_that_goes_on_leaves_alone_what_is_looked_at() {
    let arena = Arena::builder().bytes_max(256 * MIB).build().unwrap();
    let (a, to_b, b, from_a) = pair("left-one", Endpoint::builder(), Endpoint::builder());
    for frame in 0..4 {
        a.give(to_b, frame, donation(&arena, 4 * MIB, frame)).unwrap();
    }
    let handoff = a.handoff(to_b, 4, donation(&arena, 4 * MIB, 4));
    let parts = [donation(&arena, 2 * MIB, 5), donation(&arena, 2 * MIB, 6)];
    let vectored = a.handoff_vectored(to_b, 5, parts);
    // Two gifts are looked at, the third is given back out of turn, the others have not been
    // received.
    let first = b.recv_view(from_a, 0).unwrap();
    let second = b.recv_view(from_a, 1).unwrap();
    drop(b.recv_view(from_a, 2).unwrap());
    drop(a);
    let (result, back) = handoff.wait();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    assert!(back.into_arena_buf().is_none(), "it is with its receiver");
    let (result, back) = vectored.wait();
    assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    drop(back);
    // Another endpoint writes to all the memory there is.
    let (c, to_d, d, from_c) = pair("left-two", Endpoint::builder(), Endpoint::builder());
    let write_all = |round| {
        let mut all = Vec::new();
        while let Ok(mut buf) = arena.alloc(2 * MIB) {
            buf.fill(round);
            all.push(buf);
        }
        assert!(all.len() > 50);
        c.give(to_d, 1, all.pop().unwrap()).unwrap();
        assert_eq!(d.recv(from_c, 1).unwrap()[..9], [round; 9]);
    };
    write_all(0xaa);
    check(&first, 0);
    check(&second, 1);
    check(&b.recv_view(from_a, 3).unwrap(), 3);
    let late = b.recv_view(from_a, 4).unwrap();
    let row = b.recv_view(from_a, 5).unwrap();
    write_all(0x55);
    check(&late, 4);
    let row_bytes = row.to_vec().unwrap();
    stamp::check(&row_bytes[..2 * MIB], 5);
    stamp::check(&row_bytes[2 * MIB..], 6);
    check(&first, 0);
    assert!(b.recv_view(from_a, 6).unwrap_err().is_peer_gone());
    drop((late, row, first));
    assert!(arena.stats().buffers >= 7, "one is still looked at: {:?}", arena.stats());
    check(&second, 1);
    drop(second);
    drop((c, d));
    await_empty(&arena);
    drop(b);
}

/// A gift that has not been received comes back when the receiver closes.
#[test]
fn what_nobody_asked_for_comes_back() {
    for disconnects in [false, true] {
        let arena = Arena::new().unwrap();
        let (a, to_b, b, from_a) = pair("left-back", Endpoint::builder(), Endpoint::builder());
        for frame in 0..3 {
            a.give(to_b, frame, donation(&arena, 100, frame)).unwrap();
        }
        if disconnects {
            a.disconnect(to_b);
        } else {
            a.close();
        }
        assert!(b.recv(from_a, 9).unwrap_err().is_peer_gone());
        check(&b.recv_view(from_a, 1).unwrap(), 1);
        assert_eq!(arena.stats().buffers, 3);
        b.close();
        await_empty(&arena);
    }
}

/// An endpoint that closes as well has let go of the gifts that it still looked at.
#[test]
fn what_is_looked_at_comes_back_when_its_receiver_closes_too() {
    let arena = Arena::new().unwrap();
    let (a, to_b, b, from_a) = pair("left-both", Endpoint::builder(), Endpoint::builder());
    a.give(to_b, 1, donation(&arena, MIB, 1)).unwrap();
    let view = b.recv_view(from_a, 1).unwrap().into_owned();
    a.close();
    check(&view, 1);
    assert_eq!(arena.stats().buffers, 1);
    b.close();
    await_empty(&arena);
    let withdrawn = view.to_vec();
    assert!(matches!(withdrawn, Err(Error::Withdrawn)), "{withdrawn:?}");
}

/// A peer that never mapped a gift has nothing to let go of.
#[test]
fn what_was_never_mapped_comes_back() {
    let arena = Arena::new().unwrap();
    let (a, to_b, b, from_a) = pair("left-never", Endpoint::builder(), Endpoint::builder());
    b.give(from_a, 1, donation(&arena, 5000, 1)).unwrap();
    drop(b);
    // It learns of the end before it looks for any message.
    assert!(a.recv(to_b, 2).unwrap_err().is_peer_gone());
    assert_eq!(arena.stats().buffers, 1, "it can still be received");
    check(&a.recv_view(to_b, 1).unwrap(), 1);
    await_empty(&arena);
}

/// A message that is being copied out of memory that was given is copied to the end.
#[test]
fn a_copy_in_progress_is_finished() {
    let arena = SharedArena::builder().build_shared().unwrap();
    let ours = Arena::new().unwrap();
    for round in 0..4 {
        let (a, to_b, b, from_a) = pair("left-copy", Endpoint::builder(), Endpoint::builder());
        a.give(to_b, 1, donation(&ours, 24 * MIB, round)).unwrap();
        // From 2 MiB on both sides copy.
        let mut request = b.recv_owned(from_a, 1, arena.alloc(24 * MIB).unwrap());
        for _ in 0..round {
            a.progress().unwrap();
            assert!(request.try_wait().is_none());
        }
        a.close();
        let (received, buf) = request.wait();
        let received = received.unwrap();
        assert_eq!((received.len, received.receipt.path), (24 << 20, Path::Mapped));
        let mut bytes = vec![0; 24 * MIB];
        buf.read(0, &mut bytes);
        stamp::check(&bytes, round);
        drop(b);
        await_empty(&ours);
    }
}

/// A receiver that dies lets go as well.
#[test]
fn a_receiver_that_is_killed_has_let_go() {
    let stage = Stage::new(60);
    let mut holder = stage.role("holder").spawn();
    holder.expect("ready");
    let mut closer = stage.role("closer").spawn();
    holder.expect("holds");
    closer.say("close");
    closer.expect("has closed");
    holder.kill();
    closer.say("it is dead");
    closer.end_well();
}

fn holder(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "holder");
    let view = endpoint.recv_view(peer, 1).unwrap();
    say("holds");
    hear();
    drop(view);
}

fn closer(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "holder");
    let arena = Arena::new().unwrap();
    for tag in 1..=2 {
        endpoint.give(peer, tag, donation(&arena, MIB, tag)).unwrap();
    }
    hear();
    drop(endpoint);
    assert_eq!(arena.stats().buffers, 2);
    say("has closed");
    hear();
    await_empty(&arena);
}

// Waiting until all is delivered.

#[test]
fn draining_names_who_does_not_receive() {
    let stage = Stage::new(60);
    let mut idler = stage.role("idler").spawn();
    idler.expect("ready");
    let mut drainer = stage.role("drainer").spawn();
    drainer.expect("knows");
    idler.say("receive");
    all_end_well(&mut [idler, drainer]);
}

fn idler(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder().label("idler"), "idler");
    hear();
    let mut views = Vec::new();
    for tag in 0..5 {
        views.push(endpoint.recv_view(peer, tag).unwrap());
    }
    let mut buf = vec![0; 8 * MIB];
    endpoint.recv_into(peer, 5, &mut buf).unwrap();
    stamp::check(&buf, 5);
    // While it sleeps.
    thread::sleep(Duration::from_millis(100));
    drop(views);
    assert_eq!(&*endpoint.recv(peer, 6).unwrap(), b"short");
    // Every message has come; the other side closes now.
    assert!(endpoint.recv(peer, 7).unwrap_err().is_peer_gone());
}

fn drainer(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "idler");
    endpoint.drain(Duration::ZERO).unwrap();
    let arena = Arena::new().unwrap();
    for tag in 0..4 {
        endpoint.give(peer, tag, donation(&arena, 10_000, tag)).unwrap();
    }
    let handoff = endpoint.handoff(peer, 4, donation(&arena, 30_000, 4));
    let long = endpoint.send_owned(peer, 5, stamp::bytes(8 * MIB, 5));
    endpoint.send(peer, 6, b"short").unwrap();
    for patience in [0, 20] {
        let patience = Duration::from_millis(patience);
        let error = endpoint.drain(patience).unwrap_err();
        let text = error.to_string();
        let Error::Undelivered { left, patience: waited, .. } = error else { panic!("{text}") };
        assert_eq!((left.len(), waited), (1, patience));
        assert_eq!((left[0].peer, left[0].gone), (peer, None));
        assert_eq!((left[0].sends, left[0].given, left[0].given_bytes), (1, 5, 70_000), "{text}");
        assert!(left[0].name.starts_with("idler (pid "), "{text}");
        assert!(text.contains(&left[0].name) && text.contains("5 given (70000 bytes)"), "{text}");
    }
    say("knows");
    endpoint.drain(PATIENCE).unwrap();
    // The handoff is the caller's: that is the meaning of the call.
    assert_eq!(arena.stats().buffers, 1, "the handoff is the caller's");
    assert_eq!(handoff.wait().0.unwrap().path, Path::Handoff);
    assert!(long.wait().0.is_ok());
}

/// A peer that goes meanwhile does not get the messages that had not come.
#[test]
fn draining_tells_of_those_who_went() {
    let (a, to_b, b, _) = pair("drain-gone", Endpoint::builder(), Endpoint::builder());
    let arena = Arena::new().unwrap();
    a.give(to_b, 1, donation(&arena, 1000, 1)).unwrap();
    let error = thread::scope(|scope| {
        let drained = scope.spawn(|| a.drain(PATIENCE));
        thread::sleep(Duration::from_millis(50));
        b.close();
        drained.join().unwrap().unwrap_err()
    });
    let Error::Undelivered { left, .. } = error else { panic!("{error}") };
    assert_eq!((left[0].peer, left[0].given), (to_b, 1));
    assert_eq!(left[0].gone, Some(Gone::Closed));
    a.drain(Duration::ZERO).unwrap();
    a.close();
    assert!(matches!(a.drain(PATIENCE), Err(Error::Closed)));
}

/// A thread sleeps at the endpoint; a gift that comes back wakes it.
#[test]
fn draining_beside_a_thread_that_sleeps() {
    let (a, to_b, b, from_a) = pair("drain-two", Endpoint::builder(), Endpoint::builder());
    let arena = Arena::new().unwrap();
    for round in 0..3 {
        a.give(to_b, 1, donation(&arena, 1000, round)).unwrap();
        let view = b.recv_view(from_a, 1).unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| a.recv(to_b, 9).unwrap());
            thread::sleep(Duration::from_millis(50));
            let drained = scope.spawn(|| a.drain(PATIENCE));
            thread::sleep(Duration::from_millis(50));
            drop(view);
            drained.join().unwrap().unwrap();
            b.send(from_a, 9, b"").unwrap();
            waits.join().unwrap();
        });
    }
}

// Other hosts.

fn tcp() -> (Endpoint, PeerId, Endpoint, PeerId) {
    let by = || Endpoint::builder().local_shortcut(false);
    tcp_pair(by(), by(), str::to_owned)
}

/// Closing waits for a gift that went as a copy.
#[test]
fn what_is_given_to_another_host_is_sent_before_the_end() {
    let (one, to_two, two, to_one) = tcp();
    let arena = Arena::new().unwrap();
    for frame in 0..12 {
        one.give(to_two, frame, donation(&arena, len_of(frame), frame)).unwrap();
    }
    let error = one.drain(Duration::from_millis(10)).unwrap_err();
    let Error::Undelivered { left, .. } = error else { panic!("{error}") };
    assert!(left[0].given >= 3, "the long ones wait: {left:?}");
    thread::scope(|scope| {
        let takes = scope.spawn(|| {
            for frame in 0..12 {
                check(&two.recv_view(to_one, frame).unwrap(), frame);
            }
        });
        one.close();
        takes.join().unwrap();
    });
    assert_eq!((one.counters().undelivered, arena.stats().buffers), (0, 0));
    assert!(two.recv(to_one, 0).unwrap_err().is_peer_gone());
}

#[test]
fn draining_waits_for_other_hosts() {
    let (one, to_two, two, to_one) = tcp();
    let arena = Arena::new().unwrap();
    for frame in 0..12 {
        one.give(to_two, frame, donation(&arena, len_of(frame), frame)).unwrap();
        one.send(to_two, frame, &[7; 100]).unwrap();
    }
    thread::scope(|scope| {
        let takes = scope.spawn(|| {
            for frame in 0..12 {
                check(&two.recv_view(to_one, frame).unwrap(), frame);
                assert_eq!(*two.recv(to_one, frame).unwrap(), [7; 100]);
            }
            // It sleeps: no message is left unsent.
            assert!(two.recv(to_one, 0).unwrap_err().is_peer_gone());
        });
        one.drain(PATIENCE).unwrap();
        assert_eq!(arena.stats().buffers, 0);
        one.close();
        takes.join().unwrap();
    });
}

/// A message that cannot be delivered is counted as such.
#[test]
fn what_is_lost_is_counted() {
    let (one, to_two, _two, _) = tcp();
    let arena = Arena::new().unwrap();
    for frame in 0..3 {
        one.give(to_two, frame, donation(&arena, 3 * MIB, frame)).unwrap();
    }
    one.close();
    assert_eq!((one.counters().undelivered, arena.stats().buffers), (3, 0));
}
