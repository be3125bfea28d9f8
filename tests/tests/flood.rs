//! A flood of unexpected messages, from many senders at once: the senders are slowed, the receiver
//! stays within the memory that the system lets it have, nothing is lost, and each sender's
//! messages come in their order.

use std::{
    collections::VecDeque,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use pinfold::{Endpoint, Path, PathSet, PeerId, Progress, SendRequest, Source, TagMatch};
use pinfold_tests::{
    Args, Stage,
    baseline::status_bytes,
    role::{self, PATIENCE, hear, say},
    stage::{Player, all_end_well},
    stamp::{self, Random, mix},
};
use rustix::process::{Resource, Rlimit, setrlimit};

pinfold_tests::roles!(basin, spring, weir);

/// A receiver that takes messages in their order gets them all, one by one, though its credit is
/// long spent: the messages that it asks for do not queue up behind sends that wait for credit.
#[test]
fn messages_in_order_through_little_credit() {
    let stage = Stage::new(30);
    let mut weir = stage.role("weir").spawn();
    weir.expect("spent");
    weir.say("go on");
    weir.end_well();
}

fn weir(_: &Args) {
    // Without cma, announced messages come through the ring when they are asked for.
    let paths = || Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager]));
    let below = paths().unexpected_bytes_max(90_000).listen("local:weir").build().unwrap();
    let above = paths().build().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let from = below.accept_timeout(PATIENCE).unwrap();
            assert_eq!(hear(), "go on");
            for number in 0..200 {
                stamp::check(&below.recv(from, number).unwrap(), number);
            }
        });
        let to = above.connect("local:weir").unwrap();
        let sends: Vec<_> =
            (0..200).map(|n| above.send_owned(to, n, stamp::bytes(1000, n))).collect();
        // More messages than may be announced, so some are not even that.
        assert!(above.counters().credit_stalls < 150);
        say("spent");
        for send in sends {
            send.wait().0.unwrap();
        }
    });
}

const SPRINGS: u64 = 8;
const EACH: u64 = 3000;
/// The budget of the receiver for messages that wait, bytes.
const BUDGET: usize = 4 << 20;
/// The memory that the system allows it beside its memory at the beginning, bytes. The flood is
/// twenty times that.
const DATA: u64 = 16 << 20;
/// Sends under way at a time that own their bytes.
const WINDOW: usize = 32;

const LENGTHS: [usize; 9] = [0, 8, 50, 57, 500, 3000, 8192, 20_000, 90_000];

fn seed(spring: u64, number: u64) -> u64 {
    mix(spring << 32 | number)
}

fn length(seed: u64) -> usize {
    Random::new(seed).pick(&LENGTHS)
}

fn flood(how: &str) {
    let stage = Stage::new(120);
    let mut basin = stage.role("basin").with("how", how).spawn();
    basin.expect("ready");
    let mut springs: Vec<Player> =
        (0..SPRINGS).map(|me| stage.role("spring").with("me", me).spawn()).collect();
    basin.expect("knows all");
    for spring in &mut springs {
        spring.say("flood");
    }
    // Each sender comes to a stop, long before it is through.
    let mut let_in = 0;
    for spring in &mut springs {
        let sent: u64 = spring.expect("has come to a stop after").parse().expect("a number");
        assert!(sent < EACH, "{sent} messages of {EACH} went to a receiver that takes none");
        let_in += sent;
    }
    println!("{let_in} messages of {} went before anybody asked for one", SPRINGS * EACH);
    basin.say("receive");
    for spring in &mut springs {
        spring.expect("is through");
    }
    basin.end_well();
    all_end_well(&mut springs);
}

#[test]
fn the_receiver_stands_it() {
    flood("inline");
}

#[test]
fn the_receiver_stands_it_by_a_thread_that_drives() {
    flood("dedicated");
}

fn basin(args: &Args) {
    let progress =
        if args.text("how") == "dedicated" { Progress::Dedicated } else { Progress::Inline };
    let builder = Endpoint::builder().progress(progress).unexpected_bytes_max(BUDGET);
    let endpoint = builder.listen("local:basin").build().unwrap();
    say("ready");
    let mut peers = vec![None; SPRINGS as usize];
    for _ in 0..SPRINGS {
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        let info = endpoint.peer(peer).unwrap();
        let number = info.name.strip_prefix("spring-").and_then(|rest| rest.split(' ').next());
        peers[number.unwrap().parse::<usize>().unwrap()] = Some(peer);
    }
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(hear()));
    let (anon, data) = (status_bytes("RssAnon"), status_bytes("VmData"));
    let limit = Rlimit { current: Some(data + DATA), maximum: Some(data + DATA) };
    setrlimit(Resource::Data, limit).expect("setrlimit");
    // The limit is real; memory that lies about free already does not make up for so much.
    let is_limited = Vec::<u8>::new().try_reserve_exact(DATA as usize + (8 << 20)).is_err();
    assert!(is_limited, "RLIMIT_DATA does nothing here");
    say("knows all");

    // The receiver does look after its endpoint, but asks for nothing.
    while told.try_recv().is_err() {
        endpoint.progress().unwrap();
        thread::sleep(Duration::from_micros(100));
    }
    let waiting = status_bytes("RssAnon").saturating_sub(anon);
    let unexpected = endpoint.counters().unexpected;
    role::note(format_args!("{unexpected} messages wait in {waiting} bytes"));
    assert!(unexpected > SPRINGS, "what was the flood?");
    assert!(waiting <= BUDGET as u64 + (1 << 20), "{waiting} bytes, {BUDGET} are allowed");

    let mut next = vec![0; SPRINGS as usize];
    let mut random = Random::new(1);
    for _ in 0..SPRINGS * EACH {
        let (peer, tag, bytes) = receive(&endpoint, &peers, &next, &mut random);
        let from = peers.iter().position(|other| *other == Some(peer)).expect("a spring");
        assert_eq!(tag, next[from], "out of order");
        let seed = seed(from as u64, tag);
        assert_eq!(bytes.len(), length(seed));
        stamp::check(&bytes, seed);
        next[from] += 1;
    }
    assert_eq!(next, vec![EACH; SPRINGS as usize]);
    assert_eq!(endpoint.try_probe(Source::Any, TagMatch::any()).unwrap(), None);
}

fn receive(
    endpoint: &Endpoint,
    peers: &[Option<PeerId>],
    next: &[u64],
    random: &mut Random,
) -> (PeerId, u64, Vec<u8>) {
    let from = random.below(SPRINGS) as usize;
    if random.below(4) > 0 || next[from] == EACH {
        let message = endpoint.recv(Source::Any, TagMatch::any()).unwrap();
        return (message.peer(), message.tag(), message.into_vec());
    }
    let mut bytes = vec![0; 90_000];
    let peer = peers[from].expect("all are known");
    let received = endpoint.recv_into(peer, TagMatch::any(), &mut bytes).unwrap();
    bytes.truncate(received.len as usize);
    (peer, received.tag, bytes)
}

fn spring(args: &Args) {
    let me: u64 = args.number("me");
    let paths = if me.is_multiple_of(2) {
        pinfold::PathSet::all()
    } else {
        pinfold::PathSet::all().without(Path::Cma)
    };
    let builder = Endpoint::builder().label(&format!("spring-{me}")).paths(paths);
    let (endpoint, peer) = role::connect(builder, "basin");
    assert_eq!(hear(), "flood");
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        let flood = scope.spawn(|| pour(&endpoint, peer, me, &sent));
        role::say_when_still(&sent, &flood);
    });
    let counters = endpoint.counters();
    assert!(counters.credit_stalls + counters.room_stalls > 0, "{counters:?}");
    say("is through");
    assert!(endpoint.recv(peer, 0).unwrap_err().is_peer_gone());
}

/// Sends all messages, as fast as it goes: one after the other, or many at a time.
fn pour(endpoint: &Endpoint, peer: PeerId, me: u64, sent: &AtomicU64) {
    let mut under_way = VecDeque::<SendRequest<Vec<u8>>>::new();
    let end = |request: SendRequest<Vec<u8>>| {
        request.wait().0.expect("the basin listens");
        sent.fetch_add(1, Ordering::Relaxed);
    };
    for number in 0..EACH {
        let seed = seed(me, number);
        let bytes = stamp::bytes(length(seed), seed);
        if me % 4 < 2 {
            endpoint.send(peer, number, &bytes).expect("the basin listens");
            sent.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        under_way.push_back(endpoint.send_owned(peer, number, bytes));
        if under_way.len() == WINDOW
            && let Some(request) = under_way.pop_front()
        {
            end(request);
        }
    }
    under_way.into_iter().for_each(end);
}
