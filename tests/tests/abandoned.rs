//! Receives that are given up, in every way and at every stage: each message is received exactly
//! once, in order.

#[path = "abandoned/donated.rs"]
mod donated;

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use pinfold::{
    Arena, Builder, DonatedBuf, Endpoint, Error, Path, PathSet, PeerId, Progress, Source, TagMatch,
};
use pinfold_tests::{
    block_on, pair, progress_until,
    role::PATIENCE,
    stamp::{self, Random},
};

const TAG: u64 = 7;
const MIB: usize = 1 << 20;

fn builder() -> Builder {
    Endpoint::builder()
}

fn ring_only() -> Builder {
    builder().paths(PathSet::only(&[Path::Inline, Path::Eager]))
}

/// Two endpoints that stay on their TCP connection, as on different hosts.
fn tcp() -> (Endpoint, PeerId, Endpoint, PeerId) {
    connected(builder(), builder())
}

/// The same between endpoints of these builders.
fn connected(ours: Builder, theirs: Builder) -> (Endpoint, PeerId, Endpoint, PeerId) {
    let one = ours.local_shortcut(false).listen("tcp:127.0.0.1:0").build().unwrap();
    let two = theirs.local_shortcut(false).build().unwrap();
    let address = one.listens_at().unwrap();
    let (to_two, to_one) = thread::scope(|scope| {
        let there = scope.spawn(|| two.connect(&address).unwrap());
        (one.accept().unwrap(), there.join().unwrap())
    });
    (one, to_two, two, to_one)
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn donation(arena: &Arena, len: usize, seed: u64) -> DonatedBuf {
    let mut buf = arena.alloc(len).unwrap();
    stamp::fill(&mut buf, seed);
    buf.into()
}

fn take_turns(endpoint: &Endpoint, turns: u64) {
    for _ in 0..turns {
        endpoint.progress().unwrap();
    }
}

/// Has an endpoint make progress until nothing more comes of it.
fn settle(endpoint: &Endpoint) {
    let mut quiet = 0;
    while quiet < 100 {
        quiet = if endpoint.progress().unwrap() { 0 } else { quiet + 1 };
    }
}

// Races: a receive against another future that a program may select on.

const MESSAGES: u64 = 20_000;

fn len_of(number: u64) -> usize {
    match number {
        _ if number.is_multiple_of(500) => 3 * MIB,
        _ if number % 50 == 1 => 100_000,
        _ if number % 10 == 3 => 20_000,
        _ if number % 10 == 5 => 1500,
        _ => 8,
    }
}

/// Runs a receive against another future, which wins or not. Returns the message, if it was taken.
fn select<R: Future + Unpin>(
    endpoint: &Endpoint,
    random: &mut Random,
    turns: u64,
    mut request: R,
    cancel: impl Fn(&mut R) -> bool,
) -> Option<R::Output> {
    if random.below(2) == 0
        && let Poll::Ready(done) = poll_once(&mut request)
    {
        return Some(done);
    }
    take_turns(endpoint, turns);
    match random.below(4) {
        0 => return Some(block_on(request)),
        1 => {
            if let Poll::Ready(done) = poll_once(&mut request) {
                return Some(done);
            }
        }
        2 if cancel(&mut request) => {
            // It is withdrawn, and ends with that error.
            assert!(poll_once(&mut request).is_ready());
            return None;
        }
        _ => {}
    }
    None
}

/// Receives everything in order, though most receives are given up.
fn receive_all(endpoint: &Endpoint, peer: PeerId, seed: u64) {
    let mut random = Random::new(seed);
    let mut number = 0;
    let mut abandoned = 0;
    while number < MESSAGES {
        let turns = random.pick(&[0, 0, 1, 1, 2, 5, 30, 300]);
        let turn = || take_turns(endpoint, turns);
        let waits = random.below(4) == 0;
        let len = len_of(number).max(len_of(number + 1));
        let came = match random.below(8) {
            0 => {
                let request = endpoint.recv_request(peer, TAG);
                let done = select(endpoint, &mut random, turns, request, |it| it.cancel());
                done.map(|message| stamp::check(&message.unwrap(), number))
            }
            1 | 2 => {
                let request = endpoint.recv_owned(peer, TAG, vec![0; len]);
                let done = select(endpoint, &mut random, turns, request, |it| it.cancel());
                done.map(|(received, bytes)| {
                    stamp::check(&bytes[..received.unwrap().len as usize], number);
                })
            }
            3 => {
                let request = endpoint.recv_view_request(Source::Any, TAG);
                let done = select(endpoint, &mut random, turns, request, |it| it.cancel());
                done.map(|view| stamp::check(&view.unwrap().to_vec().unwrap(), number))
            }
            4 => match endpoint.recv_timeout(peer, TAG, Duration::from_micros(turns)) {
                Ok(message) => {
                    stamp::check(&message, number);
                    Some(())
                }
                Err(Error::Timeout(_)) => None,
                Err(error) => panic!("{number}: {error}"),
            },
            5 => match endpoint.recv_view_timeout(peer, TAG, Duration::from_micros(turns)) {
                Ok(view) => {
                    stamp::check(&view.to_vec().unwrap(), number);
                    Some(())
                }
                Err(Error::Timeout(_)) => None,
                Err(error) => panic!("{number}: {error}"),
            },
            6 => {
                // Two receives, given up in either order.
                let mut one = endpoint.recv_owned(peer, TAG, vec![0; len]);
                let mut two = endpoint.recv_request(peer, TagMatch::any());
                if random.below(2) == 0 {
                    one.cancel();
                }
                turn();
                if random.below(2) == 0 {
                    two.cancel();
                }
                let (first, second): (Box<dyn Send>, Box<dyn Send>) =
                    (Box::new(one), Box::new(two));
                if random.below(2) == 0 {
                    drop(first);
                    drop(second);
                } else {
                    drop(second);
                    drop(first);
                }
                None
            }
            _ => {
                let (mut one, mut two) = (vec![0; len], vec![0; len]);
                endpoint.scope(|scope| {
                    let first = scope.recv_into(peer, TAG, &mut one).unwrap();
                    let second = scope.recv_into(peer, TAG, &mut two).unwrap();
                    turn();
                    let done = waits.then(|| {
                        let (received, bytes) = first.wait();
                        stamp::check(&bytes[..received.unwrap().len as usize], number);
                    });
                    drop(second);
                    done
                })
            }
        };
        match came {
            Some(()) => number += 1,
            None => abandoned += 1,
        }
    }
    assert!(abandoned > MESSAGES / 4, "{abandoned}");
    assert!(endpoint.try_probe(peer, TagMatch::any()).unwrap().is_none(), "none comes twice");
    println!("{abandoned} receives were given up");
}

fn race(seed: u64, (one, to_two, two, to_one): (Endpoint, PeerId, Endpoint, PeerId)) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let arena = Arena::new().unwrap();
            for number in 0..MESSAGES {
                let len = len_of(number);
                if len > 1000 && number.is_multiple_of(3) {
                    two.give(to_one, TAG, donation(&arena, len, number)).unwrap();
                } else {
                    two.send(to_one, TAG, &stamp::bytes(len, number)).unwrap();
                }
            }
            // Until the last is taken.
            two.recv_timeout(to_one, 1, 2 * PATIENCE).unwrap();
        });
        receive_all(&one, to_two, seed);
        one.send(to_two, 1, b"").unwrap();
        let received = one.counters().received;
        let all: u64 = received.iter().map(|count| count.messages).sum();
        assert_eq!(all, MESSAGES, "each is counted once: {received:?}");
    });
}

#[test]
fn races_by_all_paths() {
    race(1, pair("abandoned-all", builder(), builder()));
}

#[test]
fn races_through_the_ring() {
    race(2, pair("abandoned-ring", ring_only(), ring_only()));
}

#[test]
fn races_beside_a_thread_that_drives() {
    let dedicated = || builder().progress(Progress::Dedicated);
    race(3, pair("abandoned-driven", dedicated(), dedicated()));
}

#[test]
fn races_over_a_connection() {
    race(4, tcp());
}

#[test]
fn races_over_an_encrypted_connection() {
    let encrypted = || builder().key(&[7; 32]).encrypt(true);
    race(5, connected(encrypted(), encrypted()));
}

// Kinds of receives, one after the other.

/// Checks that a message whose receive is given up is there for the next receive.
fn next_has(endpoint: &Endpoint, peer: PeerId, len: usize, seed: u64) {
    let found = endpoint.try_probe(peer, TAG).unwrap().expect("it is there for the next");
    assert_eq!((found.len, found.peer, found.tag), (len as u64, peer, TAG));
    stamp::check(&endpoint.recv(peer, TAG).unwrap(), seed);
    assert!(endpoint.try_probe(peer, TAG).unwrap().is_none());
}

#[test]
fn results_that_nobody_took() {
    let (a, to_b, b, to_a) = pair("abandoned-results", ring_only(), ring_only());
    for len in [0, 8, 56, 300, 4000, 60_000] {
        let bytes = stamp::bytes(len, 1);
        let others = stamp::bytes(len, 2);
        let send = || {
            for message in [&bytes, &others] {
                let mut sent = b.send_owned(to_a, TAG, message.clone());
                progress_until(&[&a, &b], "sent", || sent.try_wait().is_some());
            }
            settle(&a);
        };
        // Posted before.
        let request = a.recv_request(to_b, TAG);
        send();
        drop(request);
        stamp::check(&a.recv(to_b, TAG).unwrap(), 1);
        next_has(&a, to_b, len, 2);
        let request = a.recv_owned(to_b, TAG, vec![0; 100_000]);
        send();
        drop(request);
        stamp::check(&a.recv(to_b, TAG).unwrap(), 1);
        next_has(&a, to_b, len, 2);
        // Found there already.
        send();
        drop(a.recv_owned(to_b, TAG, vec![0; 100_000]));
        drop(a.recv_request(to_b, TAG));
        drop(a.recv_view_request(to_b, TAG));
        stamp::check(&a.recv(to_b, TAG).unwrap(), 1);
        next_has(&a, to_b, len, 2);
        // Two receives, the later of which is given up first.
        let first = a.recv_owned(to_b, TAG, vec![0; 100_000]);
        let second = a.recv_request(to_b, TAG);
        send();
        drop(second);
        drop(first);
        stamp::check(&a.recv(to_b, TAG).unwrap(), 1);
        next_has(&a, to_b, len, 2);
        // Another receive waits already.
        let first = a.recv_owned(to_b, TAG, vec![0; 100_000]);
        let mut sent = b.send_owned(to_a, TAG, bytes.clone());
        progress_until(&[&a, &b], "sent", || sent.try_wait().is_some());
        settle(&a);
        let mut waits = a.recv_owned(to_b, TAG, vec![0; 100_000]);
        assert!(waits.try_wait().is_none());
        drop(first);
        let (received, buffer) = waits.try_wait().expect("it has it at once");
        stamp::check(&buffer[..received.unwrap().len as usize], 1);
    }
}

#[test]
fn what_ends_as_it_is_posted() {
    let (a, to_b, b, to_a) = pair("abandoned-early", builder(), builder());
    for _ in 0..2 {
        for seed in 1..4 {
            b.send(to_a, TAG, &stamp::bytes(40, seed)).unwrap();
        }
        // Nothing else is posted, nothing stored: it is taken out of the lane as the receive is
        // posted.
        let first = a.recv_owned(to_b, TAG, vec![0; 40]);
        let second = a.recv_owned(to_b, TAG, vec![0; 40]);
        drop(second);
        drop(first);
        for seed in 1..3 {
            stamp::check(&a.recv(to_b, TAG).unwrap(), seed);
        }
        next_has(&a, to_b, 40, 3);
    }
    // The same in scopes, waited for and not.
    for seed in 1..4 {
        b.send(to_a, TAG, &stamp::bytes(40, seed)).unwrap();
    }
    let (mut one, mut two, mut three) = ([0; 40], [0; 40], [0; 40]);
    a.scope(|scope| {
        drop(scope.recv_into(to_b, TAG, &mut one).unwrap());
        let (received, bytes) = scope.recv_into(to_b, TAG, &mut two).unwrap().wait();
        assert_eq!(received.unwrap().len, 40);
        stamp::check(bytes, 2);
        std::mem::forget(scope.recv_into(to_b, TAG, &mut three).unwrap());
    });
    stamp::check(&a.recv(to_b, TAG).unwrap(), 1);
    next_has(&a, to_b, 40, 3);
}

/// A long message of which a part has come, into all kinds of receives that are given up, and out
/// of all kinds.
fn in_the_middle(
    (a, to_b, b, to_a): (Endpoint, PeerId, Endpoint, PeerId),
    len: usize,
    send: impl Fn(&Endpoint, PeerId) -> pinfold::SendRequest<Vec<u8>>,
) {
    let shared = Arena::builder().build_shared().unwrap();
    // The turns of one side before the receive is given up.
    for turns in [1, 2, 3, 8] {
        for kind in 0..5 {
            let mut sent = send(&b, to_a);
            let after = b.send_owned(to_a, TAG, stamp::bytes(8, 99));
            match kind {
                0 => {
                    let request = a.recv_request(to_b, TAG);
                    work(&a, &b, turns);
                    drop(request);
                }
                1 => {
                    let request = a.recv_owned(to_b, TAG, vec![0; len]);
                    work(&a, &b, turns);
                    drop(request);
                }
                2 => {
                    let request = a.recv_owned(to_b, TAG, shared.alloc(len).unwrap());
                    work(&a, &b, turns);
                    drop(request);
                }
                3 => {
                    let request = a.recv_view_request(to_b, TAG);
                    work(&a, &b, turns);
                    drop(request);
                }
                _ => {
                    // Each receive follows the one before, and is given up too.
                    let one = a.recv_owned(to_b, TAG, vec![0; len]);
                    work(&a, &b, turns);
                    drop(one);
                    let two = a.recv_request(to_b, TAG);
                    let three = a.recv_owned(to_b, TAG, vec![0; 8]);
                    work(&a, &b, 1);
                    drop(three);
                    drop(two);
                }
            }
            let found = a.try_probe(to_b, TAG).unwrap().expect("the next may have it");
            assert_eq!(found.len, len as u64, "{kind} {turns}");
            let mut next = a.recv_owned(to_b, TAG, vec![0; len]);
            let mut last = a.recv_request(to_b, TAG);
            progress_until(&[&a, &b], "the sender is told", || sent.try_wait().is_some());
            let mut done = None;
            progress_until(&[&a, &b], "the next receive ends", || {
                done = next.try_wait();
                done.is_some()
            });
            let (received, bytes) = done.unwrap();
            let received = received.unwrap();
            assert_eq!((received.len, received.receipt.bytes), (len as u64, len as u64));
            stamp::check(&bytes, 1);
            let mut message = None;
            progress_until(&[&a, &b], "the last", || {
                message = last.try_wait();
                message.is_some()
            });
            stamp::check(&message.unwrap().unwrap(), 99);
            drop(after);
            assert!(a.try_probe(to_b, TAG).unwrap().is_none());
        }
    }
}

fn work(a: &Endpoint, b: &Endpoint, turns: u32) {
    for _ in 0..turns {
        b.progress().unwrap();
        a.progress().unwrap();
    }
}

fn plain(len: usize) -> impl Fn(&Endpoint, PeerId) -> pinfold::SendRequest<Vec<u8>> {
    move |endpoint, peer| endpoint.send_owned(peer, TAG, stamp::bytes(len, 1))
}

#[test]
fn streams_of_which_a_part_has_come() {
    // A message with credit for all of it, and one that is asked for piece by piece.
    in_the_middle(pair("abandoned-pieces", ring_only(), ring_only()), 200_000, plain(200_000));
    in_the_middle(pair("abandoned-stream", ring_only(), ring_only()), 3 * MIB, plain(3 * MIB));
}

#[test]
fn copies_out_of_the_sender_s_memory() {
    in_the_middle(pair("abandoned-pulls", builder(), builder()), 9 * MIB, plain(9 * MIB));
}

#[test]
fn streams_over_a_connection() {
    in_the_middle(tcp(), 200_000, plain(200_000));
    in_the_middle(tcp(), 24 * MIB, plain(24 * MIB));
}

#[test]
fn what_comes_into_a_scope_that_ends() {
    for (name, paths, len) in [
        ("abandoned-scope-ring", ring_only as fn() -> Builder, 3 * MIB),
        ("abandoned-scope-all", builder, 9 * MIB),
        ("abandoned-scope-short", builder, 300),
    ] {
        let (a, to_b, b, to_a) = pair(name, paths(), paths());
        thread::scope(|threads| {
            threads.spawn(|| {
                let sent = b.send_owned(to_a, TAG, stamp::bytes(len, 1));
                b.send(to_a, 3, b"").unwrap();
                sent.wait().0.unwrap();
                b.send(to_a, TAG, &stamp::bytes(8, 2)).unwrap();
                b.recv_timeout(to_a, 1, PATIENCE).unwrap();
            });
            let mut buffer = vec![0; len];
            a.scope(|scope| {
                let _leaked = std::mem::ManuallyDrop::new(scope.recv_into(to_b, TAG, &mut buffer));
                // It has matched, then, and some or all of it has come.
                a.recv(to_b, 3).unwrap();
            });
            buffer.fill(0);
            stamp::check(&a.recv_timeout(to_b, TAG, PATIENCE).unwrap(), 1);
            stamp::check(&a.recv_timeout(to_b, TAG, PATIENCE).unwrap(), 2);
            assert!(a.try_probe(to_b, TAG).unwrap().is_none());
            a.send(to_b, 1, b"").unwrap();
        });
    }
}

#[test]
fn a_deadline_that_passes_in_the_middle() {
    let (a, to_b, b, to_a) = pair("abandoned-deadline", ring_only(), ring_only());
    let mut sent = b.send_owned(to_a, TAG, stamp::bytes(3 * MIB, 1));
    // The sender does nothing more for now: some of the message is there, and the rest does not
    // come.
    for _ in 0..3 {
        let timed_out = a.recv_timeout(to_b, TAG, Duration::from_millis(5)).unwrap_err();
        assert!(matches!(timed_out, Error::Timeout(_)), "{timed_out}");
        b.progress().unwrap();
    }
    let mut next = a.recv_request(to_b, TAG);
    let mut message = None;
    progress_until(&[&a, &b], "the rest", || {
        message = message.take().or_else(|| next.try_wait());
        sent.try_wait();
        message.is_some()
    });
    stamp::check(&message.unwrap().unwrap(), 1);
}

#[test]
fn what_was_too_long_is_not_kept() {
    let (a, to_b, b, to_a) = pair("abandoned-long", builder(), builder());
    let request = a.recv_owned(to_b, TAG, vec![0; 10]);
    b.send(to_a, TAG, &[1; 20]).unwrap();
    b.send(to_a, TAG, &[2; 20]).unwrap();
    settle(&a);
    drop(request);
    assert_eq!(&*a.recv(to_b, TAG).unwrap(), &[2; 20]);
    assert!(a.try_probe(to_b, TAG).unwrap().is_none());
}

#[test]
fn senders_that_go() {
    // A message that is whole stays; one that is not is an error of the next receive.
    let (a, to_b, b, to_a) = pair("abandoned-goes", ring_only(), ring_only());
    let whole = a.recv_owned(to_b, TAG, vec![0; 64]);
    let broken = a.recv_request(to_b, TAG);
    b.send(to_a, TAG, &stamp::bytes(64, 1)).unwrap();
    let sent = b.send_owned(to_a, TAG, stamp::bytes(3 * MIB, 2));
    work(&a, &b, 2);
    drop(broken);
    drop(whole);
    let followed = a.recv_request(to_b, TagMatch::any());
    drop(followed);
    drop(b);
    drop(sent);
    settle(&a);
    stamp::check(&a.recv(to_b, TAG).unwrap(), 1);
    assert!(matches!(a.recv(to_b, TAG), Err(Error::PeerGone { .. })));
    // The memory that it gave away it has left here.
    let (a, to_b, b, to_a) = pair("abandoned-left", builder(), builder());
    let arena = Arena::new().unwrap();
    b.give(to_a, TAG, donation(&arena, 3 * MIB, 5)).unwrap();
    let view = a.recv_view_request(to_b, TAG);
    work(&a, &b, 5);
    drop(b);
    settle(&a);
    drop(view);
    stamp::check(&a.recv(to_b, TAG).unwrap(), 5);
    assert!(matches!(a.recv(to_b, TAG), Err(Error::PeerGone { .. })));
    // The same with an error of the receive that follows.
    let (a, to_b, b, to_a) = pair("abandoned-goes-too", ring_only(), ring_only());
    let broken = a.recv_request(to_b, TAG);
    let sent = b.send_owned(to_a, TAG, stamp::bytes(3 * MIB, 2));
    work(&a, &b, 2);
    drop(broken);
    let mut follows = a.recv_request(to_b, TAG);
    assert!(poll_once(&mut follows).is_pending());
    drop(b);
    drop(sent);
    settle(&a);
    assert!(matches!(follows.wait(), Err(Error::PeerGone { .. })));
    // Closing the receiver's own side leaves nothing behind that waits.
    let (a, to_b, b, to_a) = pair("abandoned-closes", ring_only(), ring_only());
    let request = a.recv_owned(to_b, TAG, vec![0; 3 * MIB]);
    let sent = b.send_owned(to_a, TAG, stamp::bytes(3 * MIB, 2));
    work(&a, &b, 2);
    drop(request);
    let follows = a.recv_request(to_b, TAG);
    a.close();
    assert!(matches!(follows.wait(), Err(Error::Closed)));
    drop(sent);
}
