//! Floods, and messages that lead to messages.

use std::{
    cell::Cell,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use pinfold::{Active, Endpoint, Source, TagMatch};
use pinfold_tests::{
    Args, Stage,
    baseline::status_bytes,
    role::{self, hear, say},
    stamp,
};

use super::{BYE, ECHO, PATIENCE, SINK, WAYS, driven, until};

// Back and forth.

const BALL: u32 = 5;
const BALLS: u64 = 800;
const HOPS: u64 = 40;

#[test]
fn balls_go_back_and_forth_between_handlers() {
    let stage = Stage::new(120);
    for len in [8, 200, 3000] {
        for way in WAYS {
            stage.play(
                ["listens", "calls"]
                    .map(|who| driven(stage.role("player"), way).with("len", len).with(who, 1)),
            );
        }
    }
}

/// Throws its balls, and throws back the balls that come, until all its own have come to rest.
pub fn player(args: &Args) {
    let len: usize = args.number("len");
    let rested = Arc::new(AtomicU64::new(0));
    // Credit for a handful: nearly every ball has to wait somewhere.
    let builder = args.builder().unexpected_bytes_max(128 << 10).handle(BALL, {
        let rested = Arc::clone(&rested);
        move |active: Active<'_>| {
            let mut ball = active.payload().to_vec();
            assert_eq!(ball.len(), len);
            let hops = u64::from_le_bytes(ball[..8].try_into().unwrap());
            if hops == 0 {
                rested.fetch_add(1, Ordering::Relaxed);
                return;
            }
            ball[..8].copy_from_slice(&(hops - 1).to_le_bytes());
            active.call(active.peer(), BALL, &ball).unwrap();
        }
    });
    let (endpoint, peer) = match args.has("listens") {
        true => role::listen(builder, "court"),
        false => role::connect(builder, "court"),
    };
    let mut ball = vec![0; len];
    ball[..8].copy_from_slice(&(2 * HOPS - 1).to_le_bytes());
    for _ in 0..BALLS {
        endpoint.call(peer, BALL, &ball).unwrap();
    }
    // The balls come to rest where they were thrown.
    until(&endpoint, || rested.load(Ordering::Relaxed) == BALLS);
    // The other's last ones still have to be thrown back.
    endpoint.send(peer, BYE, b"").unwrap();
    endpoint.recv(peer, BYE).unwrap();
    until(&endpoint, || endpoint.counters().handled == 2 * BALLS * HOPS);
}

// A flood.

const DROPS: u64 = 30_000;

#[test]
fn a_flood_slows_its_senders_and_nobody_else() {
    let stage = Stage::new(120);
    for way in WAYS {
        let mut flooded = driven(stage.role("flooded"), way).spawn();
        flooded.expect("ready");
        let mut dripping = stage.role("dripping").spawn();
        let stopped: u64 = dripping.expect("has come to a stop after").parse().unwrap();
        assert!(stopped < DROPS, "all {DROPS} went to a handler that blocks");
        println!("{stopped} of {DROPS} went before the handler let any through");
        flooded.say("open");
        dripping.end_well();
        flooded.end_well();
    }
}

fn drop_len(number: u64) -> usize {
    [8, 40, 100, 1000, 5000, 40_000][(stamp::mix(number) % 6) as usize]
}

pub fn flooded(args: &Args) {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let next = Arc::new(AtomicU64::new(0));
    let builder = args.builder().unexpected_bytes_max(2 << 20).handle(SINK, {
        let (gate, next) = (Arc::clone(&gate), Arc::clone(&next));
        move |active: Active<'_>| {
            let open = gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap();
            drop(open);
            let number = next.load(Ordering::Relaxed);
            assert_eq!(active.payload().len(), drop_len(number));
            stamp::check(active.payload(), number);
            next.store(number + 1, Ordering::Relaxed);
        }
    });
    let (endpoint, peer) = role::listen(builder, "basin");
    let before = status_bytes("RssAnon");
    let opener = thread::spawn({
        let gate = Arc::clone(&gate);
        move || {
            assert_eq!(hear(), "open");
            let grown = status_bytes("RssAnon").saturating_sub(before);
            assert!(grown < 8 << 20, "{grown} bytes wait for a handler");
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
        }
    });
    endpoint.recv(peer, BYE).unwrap();
    opener.join().expect("memory is bounded");
    assert_eq!(next.load(Ordering::Relaxed), DROPS);
}

pub fn dripping(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "basin");
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for number in 0..DROPS {
                endpoint.call(peer, SINK, &stamp::bytes(drop_len(number), number)).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        role::say_when_still(&sent, &flood);
    });
    // Behind the last one.
    let _ = endpoint.request(peer, ECHO, b"").wait().unwrap_err();
    endpoint.send(peer, BYE, b"").unwrap();
    assert!(endpoint.recv(peer, BYE).unwrap_err().is_peer_gone());
}

// Handlers that wait.

const DEEP: u32 = 6;
const VISITORS: usize = 3;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[test]
fn a_handler_that_waits_is_not_interrupted_by_another() {
    let stage = Stage::new(90);
    for way in WAYS {
        let host = driven(stage.role("host"), way);
        let visitors = (0..VISITORS).map(|_| driven(stage.role("visitor"), way));
        stage.play(std::iter::once(host).chain(visitors));
    }
}

/// Asks each visitor back before it answers.
pub fn host(args: &Args) {
    let builder = args.builder().handle(DEEP, |active: Active<'_>| {
        assert!(!INSIDE.replace(true), "a handler within a handler");
        let endpoint = active.endpoint();
        let back = endpoint.request(active.peer(), ECHO, active.payload()).wait().unwrap();
        // Tagged messages come meanwhile, too.
        endpoint.send(active.peer(), 3, b"?").unwrap();
        endpoint.recv(active.peer(), 4).unwrap();
        active.reply(&back).unwrap();
        INSIDE.set(false);
    });
    let endpoint = builder.listen("local:host").build().unwrap();
    say("ready");
    let visitors = (0..VISITORS).map(|_| endpoint.accept_timeout(PATIENCE).unwrap());
    for visitor in visitors.collect::<Vec<_>>() {
        endpoint.recv(visitor, BYE).unwrap();
    }
    assert_eq!(endpoint.counters().handlers_panicked, 0);
}

pub fn visitor(args: &Args) {
    let builder =
        args.builder().handle(ECHO, |active: Active<'_>| active.reply(active.payload()).unwrap());
    let (endpoint, peer) = role::connect(builder, "host");
    for round in 0..300 {
        let bytes = stamp::bytes([8, 3000, 100_000][round as usize % 3], round);
        let asked: Vec<_> = (0..3).map(|_| endpoint.request(peer, DEEP, &bytes)).collect();
        for _ in 0..3 {
            endpoint.recv(peer, 3).unwrap();
            endpoint.send(peer, 4, b"!").unwrap();
        }
        for mut reply in asked {
            let answer = reply.wait_timeout(PATIENCE).expect("it ends").unwrap();
            assert!(*answer == *bytes);
        }
    }
    endpoint.send(peer, BYE, b"").unwrap();
}

// Answers while there is no credit.

const UNASKED: u64 = 200;

#[test]
fn answers_do_not_wait_for_credit() {
    let stage = Stage::new(60);
    for paths in ["inline,eager", "cma", "inline,eager,cma"] {
        stage.play(["spender", "patient"].map(|role| stage.role(role).with("paths", paths)));
    }
}

/// Sends far more than the other has asked for, and then has to answer.
pub fn spender(args: &Args) {
    let builder =
        args.builder().handle(ECHO, |active: Active<'_>| active.reply(active.payload()).unwrap());
    let (endpoint, peer) = role::listen(builder, "spender");
    let stuck: Vec<_> =
        (0..UNASKED).map(|tag| endpoint.send_owned(peer, tag, vec![1; 100])).collect();
    for request in stuck {
        request.wait().0.unwrap();
    }
    endpoint.recv(peer, BYE).unwrap();
}

pub fn patient(args: &Args) {
    let builder = args.builder().unexpected_bytes_max(16 << 10);
    let (endpoint, peer) = role::connect(builder, "spender");
    for round in 0..30 {
        thread::sleep(Duration::from_millis(2));
        for len in [8, 2000, 200_000] {
            let bytes = stamp::bytes(len, round);
            let mut reply = endpoint.request(peer, ECHO, &bytes);
            let answer = reply.wait_timeout(PATIENCE).expect("it needs no credit").unwrap();
            assert!(*answer == *bytes);
        }
    }
    assert!(endpoint.counters().unexpected < UNASKED);
    // Messages that are received then come, too, though others wait for credit.
    for tag in 0..UNASKED {
        endpoint.recv(peer, tag).unwrap();
    }
    endpoint.send(peer, BYE, b"").unwrap();
}

// A handler that blocks.

#[test]
fn a_handler_that_blocks_holds_up_one_thread() {
    let stage = Stage::new(60);
    let mut blocked = stage.role("blocked").spawn();
    blocked.expect("ready");
    let mut blocking = stage.role("blocking").spawn();
    blocked.expect("blocked");
    let mut other = stage.role("other").spawn();
    other.end_well();
    blocked.say("go on");
    blocking.end_well();
    blocked.end_well();
}

pub fn blocked(_: &Args) {
    let builder = Endpoint::builder()
        .handle(ECHO, |active: Active<'_>| active.reply(active.payload()).unwrap())
        .handle(SINK, |_: Active<'_>| {
            say("blocked");
            assert_eq!(hear(), "go on");
        });
    let (endpoint, first) = role::listen(builder, "blocked");
    thread::scope(|scope| {
        // One of three handlers gets stuck.
        for tag in [1, 2] {
            let endpoint = &endpoint;
            scope.spawn(move || {
                let from = if tag == 1 { Source::Peer(first) } else { Source::Any };
                while endpoint.recv(from, TagMatch::from(tag)).unwrap().len() == 1 {}
            });
        }
        endpoint.recv(first, BYE).unwrap();
        endpoint.send(first, BYE, b"").unwrap();
    });
}

pub fn blocking(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "blocked");
    endpoint.call(peer, SINK, b"wait").unwrap();
    // Behind it.
    endpoint.request(peer, ECHO, b"still there?").wait().unwrap();
    for tag in [1, 2, BYE] {
        endpoint.send(peer, tag, b"the end").unwrap();
    }
    endpoint.recv(peer, BYE).unwrap();
}

/// Is served as if nothing were the matter.
pub fn other(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "blocked");
    for round in 0..2000 {
        let bytes = stamp::bytes([8, 500, 100_000][round % 3], 1);
        let mut reply = endpoint.request(peer, ECHO, &bytes);
        let answer = reply.wait_timeout(PATIENCE).expect("it is answered").unwrap();
        assert!(*answer == *bytes);
        endpoint.send(peer, 2, b"1").unwrap();
    }
    endpoint.send(peer, BYE, b"").unwrap();
}

// A flood that makes its victim ask.

const PROBE: u32 = 7;
const PROBED: u32 = 8;

/// Calls that each make the victim ask: their length and number. The payload comes back with the
/// request, so that the bytes of long ones count, and the requests of short ones.
const PROBES: [(usize, u64); 2] = [(8, 40_000), (100_000, 400)];

#[test]
fn a_peer_that_has_its_victim_ask_must_answer() {
    let stage = Stage::new(120);
    for (len, count) in PROBES {
        let mut probed = stage.role("probed").with("count", count).spawn();
        probed.expect("ready");
        let mut probing = stage.role("probing").with("len", len).with("count", count).spawn();
        let stopped: u64 = probing.expect("has come to a stop after").parse().unwrap();
        println!("{stopped} of {count} calls of {len} bytes had it ask before any was answered");
        assert!(stopped < count, "all {count} calls of {len} bytes had it ask");
        probed.say("look");
        probed.expect("looked");
        probing.say("answer");
        probing.end_well();
        probed.end_well();
    }
}

/// Asks back for each call, and waits for none of the answers.
pub fn probed(args: &Args) {
    let count: u64 = args.number("count");
    let builder = Endpoint::builder().handle(PROBE, |active: Active<'_>| {
        drop(active.endpoint().request(active.peer(), PROBED, active.payload()));
    });
    let (endpoint, peer) = role::listen(builder, "probed");
    let before = status_bytes("RssAnon");
    let looker = thread::spawn(move || {
        assert_eq!(hear(), "look");
        let grown = status_bytes("RssAnon").saturating_sub(before);
        say("looked");
        assert!(grown < 8 << 20, "{grown} bytes wait for answers");
    });
    endpoint.recv(peer, BYE).unwrap();
    looker.join().expect("memory is bounded");
    assert_eq!(endpoint.counters().handled, count);
}

/// Takes requests in and sees to none of them before it is told to.
pub fn probing(args: &Args) {
    let (len, count): (usize, u64) = (args.number("len"), args.number("count"));
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let answered = Arc::new(AtomicU64::new(0));
    let builder = Endpoint::builder()
        .progress(pinfold::Progress::Dedicated)
        // Credit for any request.
        .unexpected_bytes_max(1 << 30)
        .handle(PROBED, {
            let (gate, answered) = (Arc::clone(&gate), Arc::clone(&answered));
            move |active: Active<'_>| {
                let open = gate.1.wait_while(gate.0.lock().unwrap(), |open| !*open).unwrap();
                drop(open);
                assert_eq!(active.payload().len(), len);
                active.reply(b"").unwrap();
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    let (endpoint, peer) = role::connect(builder, "probed");
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for _ in 0..count {
                endpoint.call(peer, PROBE, &vec![1; len]).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        });
        role::say_when_still(&sent, &flood);
        assert_eq!(hear(), "answer");
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
    });
    until(&endpoint, || answered.load(Ordering::Relaxed) == count);
    endpoint.send(peer, BYE, b"").unwrap();
    assert!(endpoint.recv(peer, BYE).unwrap_err().is_peer_gone());
}
