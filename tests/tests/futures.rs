//! Requests, futures and scopes that are dropped, leaked or interrupted at any stage.

use std::{
    future::Future,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use pinfold::{Endpoint, Error, Message, PeerId, Source};
use pinfold_tests::{
    Args, Stage,
    host::{Mortal, bytes_in_graves, check_graves},
    role::{self, say},
    stamp::{self, Random},
};

pinfold_tests::roles!(fickle, steady, quitter, left, scoping, scoped);

/// Lengths that go by every path.
const LENGTHS: [usize; 7] = [8, 56, 1500, 20_000, 100_000, 700_000, 6 << 20];

/// The longest time that any step may take.
const PATIENCE: Duration = Duration::from_secs(20);

// Dropped and leaked.

const ROUNDS: u64 = 1200;

/// The choices of the fickle side in a round: its operation is a send or not, is dropped or leaked,
/// after so many turns, and has been polled as a future or not.
#[derive(Clone, Copy, Debug)]
struct Whim {
    sends: bool,
    leaks: bool,
    message: bool,
    polled: bool,
    turns: u64,
    len: usize,
    awaited: bool,
}

fn whim(round: u64) -> Whim {
    let mut random = Random::new(round);
    let mut flip = || random.below(2) == 0;
    let (sends, leaks, message, polled, awaited) = (flip(), flip(), flip(), flip(), flip());
    let turns = random.pick(&[0, 0, 1, 2, 5, 20, 100, 1000]);
    Whim {
        sends,
        leaks: leaks && round.is_multiple_of(4),
        message,
        polled,
        awaited,
        turns,
        len: random.pick(&LENGTHS),
    }
}

/// Tags above those of the rounds.
const GO: u64 = 1 << 40;
const AFTER: u64 = 2 << 40;

#[test]
fn dropped_and_leaked() {
    let stage = Stage::new(90);
    stage.play([stage.role("steady"), stage.role("fickle")]);
}

#[test]
fn dropped_and_leaked_without_cma() {
    let stage = Stage::new(90);
    stage.play(["steady", "fickle"].map(|role| stage.role(role).with("paths", "inline,eager")));
}

#[test]
fn dropped_and_leaked_beside_a_thread_that_drives() {
    let stage = Stage::new(90);
    stage.play(["steady", "fickle"].map(|role| stage.role(role).with("dedicated", 1)));
}

fn poll_once(future: impl Future) {
    let mut context = Context::from_waker(Waker::noop());
    let _ = pin!(future).poll(&mut context);
}

/// Takes some turns and abandons an operation.
fn abandon<R: Future + Unpin>(endpoint: &Endpoint, mut request: R, whim: Whim) {
    if whim.polled {
        poll_once(&mut request);
    }
    for _ in 0..whim.turns {
        endpoint.progress().unwrap();
    }
    if whim.leaks { mem::forget(request) } else { drop(request) }
}

fn fickle(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "whims");
    for round in 0..ROUNDS {
        let whim = whim(round);
        let stamp = round;
        if whim.sends {
            if whim.awaited {
                endpoint.recv(peer, GO).unwrap();
            }
            let bytes = Mortal::new(stamp::bytes(whim.len, stamp));
            abandon(&endpoint, endpoint.send_owned(peer, round, bytes), whim);
            endpoint.send(peer, AFTER | round, b"").unwrap();
            // Dropped memory is not read any more once the other side says so.
            endpoint.recv(peer, AFTER | round).unwrap();
        } else {
            let came = |message: Result<Message, Error>| stamp::check(&message.unwrap(), stamp);
            let ask = || endpoint.send(peer, GO, b"").unwrap();
            if !whim.awaited {
                ask();
                endpoint.probe(peer, round).unwrap();
            }
            if whim.message {
                let request = endpoint.recv_request(peer, round);
                if whim.awaited {
                    ask();
                }
                abandon(&endpoint, request, whim);
            } else {
                let request = endpoint.recv_owned(peer, round, Mortal::new(vec![0; whim.len]));
                if whim.awaited {
                    ask();
                }
                abandon(&endpoint, request, whim);
            }
            // The message went with the request, or is still there; the sender is done either way.
            loop {
                if endpoint.try_probe(peer, round).unwrap().is_some() {
                    came(endpoint.recv(peer, round));
                }
                if endpoint.try_probe(peer, AFTER | round).unwrap().is_some() {
                    endpoint.recv(peer, AFTER | round).unwrap();
                    break;
                }
            }
        }
        if bytes_in_graves() > 32 << 20 {
            check_graves();
        }
    }
    endpoint.send(peer, GO, b"").unwrap();
    endpoint.recv(peer, GO).unwrap();
    check_graves();
}

fn steady(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "whims");
    let (mut came, mut withdrawn) = (0, 0);
    for round in 0..ROUNDS {
        let whim = whim(round);
        if whim.sends {
            let early = whim.awaited.then(|| endpoint.recv_request(peer, round));
            if whim.awaited {
                endpoint.send(peer, GO, b"").unwrap();
            }
            endpoint.recv(peer, AFTER | round).unwrap();
            // A message that was sent before this has come by now, if it comes at all.
            let mut request = early.unwrap_or_else(|| endpoint.recv_request(peer, round));
            if request.cancel() {
                assert!(!whim.leaks, "{round}: a leaked send is still a send: {whim:?}");
                withdrawn += 1;
            } else {
                match request.wait() {
                    Ok(message) => {
                        stamp::check(&message, round);
                        came += 1;
                    }
                    Err(error) => panic!("{round}: {whim:?}: {error}"),
                }
            }
            endpoint.send(peer, AFTER | round, b"").unwrap();
        } else {
            endpoint.recv(peer, GO).unwrap();
            let sent = Mortal::new(stamp::bytes(whim.len, round));
            let (result, sent) = endpoint.send_owned(peer, round, sent).wait();
            result.unwrap_or_else(|error| panic!("{round}: {whim:?}: {error}"));
            stamp::check(sent.get(), round);
            endpoint.send(peer, AFTER | round, b"").unwrap();
        }
        if bytes_in_graves() > 32 << 20 {
            check_graves();
        }
    }
    endpoint.recv(peer, GO).unwrap();
    endpoint.send(peer, GO, b"").unwrap();
    role::note(format_args!("{came} abandoned sends came, {withdrawn} were withdrawn"));
    assert!(came > 0 && withdrawn > 0, "{came} came, {withdrawn} withdrawn");
    check_graves();
}

// An endpoint that goes while requests are alive.

const PARTINGS: u64 = 120;
/// Bytes of its messages, or half of them.
const PART: usize = 3 << 20;

#[test]
fn an_endpoint_goes_in_mid_transfer() {
    let stage = Stage::new(90);
    stage.play([stage.role("left"), stage.role("quitter")]);
}

/// Ends the endpoint in the quitter's way.
fn part(endpoint: Endpoint, peer: PeerId, round: u64) {
    match round % 3 {
        0 => endpoint.disconnect(peer),
        1 => endpoint.close(),
        _ => drop(endpoint),
    }
}

fn quitter(_: &Args) {
    for round in 0..PARTINGS {
        let mut random = Random::new(round);
        let (endpoint, peer) = role::connect(Endpoint::builder(), "left");
        let other = endpoint.clone();
        // Messages both ways, long enough to be caught in the middle.
        let from = endpoint.send_owned(peer, 1, Mortal::new(stamp::bytes(PART, round)));
        let into = endpoint.recv_owned(peer, 2, Mortal::new(vec![0; 2 * PART]));
        let more = endpoint.recv_owned(Source::Any, 3, Mortal::new(vec![0; 2 * PART]));
        let dropped = endpoint.recv_owned(peer, 4, Mortal::new(vec![0; 2 * PART]));
        for _ in 0..random.below(30) {
            endpoint.progress().unwrap();
        }
        drop(dropped);
        for _ in 0..random.below(30) {
            endpoint.progress().unwrap();
        }
        part(endpoint, peer, round);
        let (mut from, mut into, mut more) = (from, into, more);
        // Each operation has ended, or ends, and gives its buffer back; from then on the library
        // does not touch it.
        let in_time = "an operation of a closed endpoint goes on";
        drop(from.wait_timeout(PATIENCE).expect(in_time));
        let (result, buffer) = into.wait_timeout(PATIENCE).expect(in_time);
        if result.is_ok() {
            stamp::check(buffer.get(), round);
        }
        drop(buffer);
        if round % 3 == 0 {
            // A receive from any source, with no source left.
            assert!(matches!(
                more.wait_timeout(PATIENCE),
                Some((Ok(_) | Err(Error::PeerGone { .. } | Error::NobodyLeft { .. }), _))
            ));
            assert!(matches!(other.send(peer, 1, b"x"), Err(Error::PeerGone { .. })));
            assert!(other.peers().is_empty());
        } else {
            drop(more.wait_timeout(PATIENCE).expect(in_time));
            if round % 3 == 1 {
                assert!(matches!(other.send(peer, 1, b"x"), Err(Error::Closed)));
            }
        }
        drop((from, into, more, other));
        // A copy that still goes on has time to be caught.
        thread::sleep(Duration::from_millis(20));
        check_graves();
    }
}

fn left(_: &Args) {
    let endpoint = Endpoint::listen("local:left").unwrap();
    say("ready");
    let mut whole = 0;
    for round in 0..PARTINGS {
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        let into = endpoint.recv_owned(peer, 1, Mortal::new(vec![0; PART]));
        let out = [2, 3, 4]
            .map(|tag| endpoint.send_owned(peer, tag, Mortal::new(stamp::bytes(2 * PART, round))));
        let in_time = "an operation with one who left goes on";
        let mut into = into;
        let (result, buffer) = into.wait_timeout(PATIENCE).expect(in_time);
        match result {
            Ok(_) => {
                stamp::check(buffer.get(), round);
                whole += 1;
            }
            Err(error) => {
                assert!(error.is_peer_gone() || matches!(error, Error::Transfer { .. }), "{error}")
            }
        }
        drop(buffer);
        for mut request in out {
            let (_, sent) = request.wait_timeout(PATIENCE).expect(in_time);
            stamp::check(sent.get(), round);
        }
        let gone = endpoint.recv_timeout(peer, 9, PATIENCE).unwrap_err();
        assert!(gone.is_peer_gone(), "{gone}");
        assert!(endpoint.peer(peer).is_none());
        check_graves();
    }
    role::note(format_args!("{whole} of {PARTINGS} messages were whole"));
}

// Scopes.

#[test]
fn scopes_that_leak_and_panic() {
    let stage = Stage::new(60);
    stage.play([stage.role("scoped"), stage.role("scoping")]);
}

fn scoping(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "scope");
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let tag = i as u64;
        let ours = stamp::bytes(len, tag);
        // Waited for, in any order.
        let mut theirs = vec![0; len];
        endpoint.scope(|s| {
            let received = s.recv_into(peer, tag, &mut theirs).unwrap();
            let sent = s.send(peer, tag, &ours).unwrap();
            let (received, bytes) = received.wait();
            assert_eq!(received.unwrap().len, len as u64);
            stamp::check(bytes, tag);
            assert_eq!(sent.wait().unwrap().bytes, len as u64);
        });
        // Left to the scope's end: sends are waited for; the message of a receive whose result was
        // not taken is the next one's.
        let mut theirs = vec![0; len];
        let mut never = vec![9; len];
        endpoint.scope(|s| {
            let _ = s.recv_into(peer, tag, &mut theirs).unwrap();
            let _ = s.recv_into(peer, 77, &mut never).unwrap();
            let _ = s.send(peer, tag, &ours).unwrap();
            // The earlier message has come for certain once this one has.
            let mark = endpoint.recv(peer, 78).unwrap();
            assert!(mark.is_empty());
        });
        theirs.fill(0);
        stamp::check(&endpoint.recv(peer, tag).unwrap(), tag);
        assert!(never.iter().all(|byte| *byte == 9), "nothing came for it");
        // Interrupted: the memory is ours again no matter what was under way.
        let mut theirs = vec![0; len];
        let panic = catch_unwind(AssertUnwindSafe(|| {
            endpoint.scope(|s| {
                let _ = s.recv_into(peer, tag, &mut theirs).unwrap();
                let _ = s.send(peer, 50 + tag, &ours).unwrap();
                for _ in 0..i {
                    endpoint.progress().unwrap();
                }
                panic!("on purpose");
            })
        }));
        assert_eq!(*panic.expect_err("it panics").downcast::<&str>().unwrap(), "on purpose");
        theirs.fill(0xee);
        endpoint.send(peer, 79, b"").unwrap();
        endpoint.recv(peer, 79).unwrap();
        assert!(theirs.iter().all(|byte| *byte == 0xee), "written after the scope");
        // The receive was withdrawn, or has left the message to this one.
        stamp::check(&endpoint.recv(peer, tag).unwrap(), tag);
        assert!(endpoint.try_probe(peer, tag).unwrap().is_none());
        endpoint.send(peer, 80, b"").unwrap();
    }
    // A scope by reference to values outside it, and one in another.
    let mut sum = 0;
    let mut bytes = [0; 4];
    endpoint.scope(|outer| {
        let received = outer.recv_into(peer, 90, &mut bytes).unwrap();
        endpoint.scope(|inner| inner.send(peer, 90, b"four").unwrap().wait().unwrap());
        sum += received.wait().1.len();
    });
    assert_eq!((sum, &bytes), (4, b"four"));
}

fn scoped(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "scope");
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let tag = i as u64;
        let ours = stamp::bytes(len, tag);
        for is_second in [false, true] {
            stamp::check(&endpoint.recv(peer, tag).unwrap(), tag);
            endpoint.send(peer, tag, &ours).unwrap();
            if is_second {
                endpoint.send(peer, 78, b"").unwrap();
            }
        }
        let request = endpoint.send_owned(peer, tag, ours);
        endpoint.recv(peer, 79).unwrap();
        endpoint.send(peer, 79, b"").unwrap();
        let (result, _) = request.wait();
        result.unwrap();
        endpoint.recv(peer, 80).unwrap();
        // Sent before the scope ended, or taken back as it did.
        if endpoint.try_probe(peer, 50 + tag).unwrap().is_some() {
            stamp::check(&endpoint.recv(peer, 50 + tag).unwrap(), tag);
        }
    }
    let four = endpoint.recv(peer, 90).unwrap();
    endpoint.send(peer, 90, &four).unwrap();
    // Until the other side has taken it and goes.
    assert!(endpoint.recv(peer, 91).is_err());
}
