//! Falling asleep and being woken: no side sleeps through a message for long, however the two are
//! scheduled, and no processor is interrupted for it while messages go on.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, PeerId, Progress};
use pinfold_sys::cpu::affinity;
use pinfold_tests::{
    Args, Stage, block_on,
    role::{self, hear, note, say},
    skip::{again, is_long, skip},
    stage::all_end_well,
    stamp::Random,
};
use rustix::process::Signal;

pinfold_tests::roles!(asker, answerer, streamer, sink, neighbour);

/// The ways in which a side waits.
const WAYS: [&str; 3] = ["calls", "thread", "futures"];

/// Rounds in which either side falls asleep, or is about to, as the other rings; and the number of
/// times that the asker falls asleep in them at least. Over both sides and all ways the long test
/// has ten million sleeps.
fn rounds() -> (u64, u64) {
    if is_long() { (u64::MAX, 10_000_000 / 2 / WAYS.len() as u64) } else { (again(20_000), 0) }
}

/// The time that two messages may take when one of them was not rung for: a look is a second away
/// at most.
const BOUND: Duration = Duration::from_secs(5);

#[test]
fn nobody_sleeps_through_a_message() {
    for way in WAYS {
        let stage = Stage::new(if is_long() { 1_800 } else { 60 });
        let (rounds, sleeps) = rounds();
        let mut answerer = stage.role("answerer").with("way", way).spawn();
        answerer.expect("ready");
        let asker = stage.role("asker").with("way", way).with("rounds", rounds);
        let mut asker = asker.with("sleeps", sleeps).spawn();
        asker.expect("asking");
        asker.expect("asked");
        asker.say("end");
        all_end_well(&mut [asker, answerer]);
    }
}

/// Either side is stopped at any moment, and goes on later.
#[test]
fn nobody_sleeps_through_a_message_that_was_sent_while_it_stood_still() {
    let stage = Stage::new(60);
    let mut answerer = stage.role("answerer").with("way", "calls").spawn();
    answerer.expect("ready");
    // More rounds than there is time for.
    let asker = stage.role("asker").with("way", "calls").with("rounds", u64::MAX);
    let mut asker = asker.with("sleeps", u64::MAX).spawn();
    asker.expect("asking");
    let mut random = Random::new(3);
    for _ in 0..200 {
        let one = if random.below(2) == 0 { &asker } else { &answerer };
        one.signal(Signal::STOP);
        thread::sleep(Duration::from_micros(random.below(5_000)));
        one.signal(Signal::CONT);
        thread::sleep(Duration::from_micros(random.below(5_000)));
    }
    asker.say("end");
    asker.expect("asked");
    asker.say("end");
    all_end_well(&mut [asker, answerer]);
}

/// Where others want all processors, a side that waits gives its own away, so that its peer runs.
#[test]
fn who_shares_its_processor_sleeps_at_each_message() {
    let stage = Stage::new(120);
    let processors = affinity::current_cpus().len();
    if affinity::online_cpus() != Some(processors) {
        return skip("this process has not all processors: who wants the others is not known");
    }
    let mut neighbour = stage.role("neighbour").with("threads", processors).spawn();
    neighbour.expect("computing");
    let mut sink = stage.role("sink").with("way", "sharing").spawn();
    sink.expect("ready");
    let streamer = stage.role("streamer").with("way", "sharing").spawn();
    all_end_well(&mut [streamer, sink]);
    neighbour.say("end");
    all_end_well(&mut [neighbour]);
}

/// Processors are interrupted once a second, and when two meet, both if the two sleep at each
/// message and if they never do.
#[test]
fn who_is_busy_interrupts_nobody() {
    for way in ["sleeping", "spinning", "streaming"] {
        let stage = Stage::new(60);
        let mut sink = stage.role("sink").with("way", way).spawn();
        sink.expect("ready");
        let streamer = stage.role("streamer").with("way", way).spawn();
        all_end_well(&mut [streamer, sink]);
    }
}

fn builder(args: &Args) -> pinfold::Builder {
    match args.text("way") {
        "thread" => Endpoint::builder().progress(Progress::Dedicated),
        _ => Endpoint::builder(),
    }
}

/// The next message of this tag, received in this side's way of waiting.
fn next(endpoint: &Endpoint, peer: PeerId, tag: u64, way: &str) -> u64 {
    let message = match way {
        "futures" => block_on(endpoint.recv_request(peer, tag)).unwrap(),
        _ => endpoint.recv_timeout(peer, tag, BOUND).expect("it was sent"),
    };
    u64::from_ne_bytes(message[..].try_into().expect("a number"))
}

/// Lets some time pass, often about as long as the other spins.
fn pass(random: &mut Random) {
    let most = random.pick(&[100, 3_000, 30_000, 150_000]);
    let end = Instant::now() + Duration::from_nanos(random.below(most));
    while Instant::now() < end {
        hint::spin_loop();
    }
}

fn asker(args: &Args) {
    let way = args.text("way");
    let (endpoint, peer) = role::connect(builder(args), "asked");
    let rounds: u64 = args.number("rounds");
    let sleeps: u64 = args.number("sleeps");
    let is_told = sleeps == u64::MAX;
    say("asking");
    let is_over = thread::spawn(|| (hear() == "end").then_some(()));
    let mut random = Random::new(1);
    let mut asked = 0;
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let is_over = if is_told {
            is_over.is_finished()
        } else {
            rounds == u64::MAX && round % 1024 == 0 && endpoint.counters().sleeps >= sleeps
        };
        if is_over {
            break;
        }
        pass(&mut random);
        let began = Instant::now();
        endpoint.send(peer, 1, &round.to_ne_bytes()).unwrap();
        assert_eq!(next(&endpoint, peer, 1, way), round);
        longest = longest.max(began.elapsed());
        asked = round + 1;
    }
    let counters = endpoint.counters();
    note(format_args!(
        "{way}: {asked} rounds, {} sleeps, {} rings, {} barriers, the longest {longest:?}",
        counters.sleeps, counters.doorbells_sent, counters.barriers
    ));
    assert!(counters.sleeps > asked / 1000, "{counters:?}");
    say("asked");
    endpoint.send(peer, 2, b"").unwrap();
    if is_told {
        hear();
    } else {
        is_over.join().expect("a thread");
    }
}

fn answerer(args: &Args) {
    let way = args.text("way");
    let (endpoint, peer) = role::listen(builder(args), "asked");
    let mut random = Random::new(2);
    loop {
        let message = match way {
            "futures" => block_on(endpoint.recv_request(peer, pinfold::TagMatch::any())).unwrap(),
            _ => endpoint.recv(peer, pinfold::TagMatch::any()).unwrap(),
        };
        if message.tag() == 2 {
            break;
        }
        pass(&mut random);
        endpoint.send(peer, 1, &message[..]).unwrap();
    }
    note(format_args!("{way}: the answerer slept {} times", endpoint.counters().sleeps));
    // The peer is not gone before that is read.
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}

/// Wants as many processors as it is told, until it hears that it is over.
fn neighbour(args: &Args) {
    for _ in 0..args.number("threads") {
        thread::spawn(|| {
            loop {
                hint::spin_loop();
            }
        });
    }
    say("computing");
    hear();
}

const MESSAGES: u64 = 100_000;
/// Messages beside a neighbour, and the part of them for which the two sides sleep at least: each
/// spins again now and then, to find out whether the neighbour is still there. Of two that share a
/// processor one may sleep, and the other find the answer there once it has yielded.
const SHARING: u64 = MESSAGES / 10;
const SLEPT_FOR: u64 = SHARING / 2;

fn streamer(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "sink");
    let (began, before) = (Instant::now(), endpoint.counters().barriers);
    let way = args.text("way");
    let messages = match way {
        "sleeping" => MESSAGES / 20,
        "sharing" => SHARING,
        _ => MESSAGES,
    };
    for number in 0..messages {
        endpoint.send(peer, 1, &number.to_ne_bytes()).unwrap();
        if way != "streaming" {
            assert_eq!(next(&endpoint, peer, 1, "calls"), number);
        }
    }
    endpoint.send(peer, 2, b"").unwrap();
    counted(&endpoint, before, began);
    let sleeps = endpoint.counters().sleeps;
    // The other side has counted, too.
    let theirs = endpoint.recv(peer, 3).unwrap();
    if way == "sharing" {
        let sleeps = sleeps + u64::from_ne_bytes(theirs[..].try_into().unwrap());
        assert!(sleeps >= SLEPT_FOR, "{sleeps} sleeps for {SHARING} messages");
    }
}

fn sink(args: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "sink");
    let (began, before) = (Instant::now(), endpoint.counters().barriers);
    let way = args.text("way");
    loop {
        let message = endpoint.recv(peer, pinfold::TagMatch::any()).unwrap();
        if message.tag() == 2 {
            break;
        }
        match way {
            "streaming" => continue,
            // Longer than any side spins.
            "sleeping" => thread::sleep(Duration::from_micros(600)),
            _ => {}
        }
        endpoint.send(peer, 1, &message[..]).unwrap();
    }
    counted(&endpoint, before, began);
    let sleeps = endpoint.counters().sleeps;
    endpoint.send(peer, 3, &sleeps.to_ne_bytes()).unwrap();
    assert!(endpoint.recv(peer, 4).unwrap_err().is_peer_gone());
}

fn counted(endpoint: &Endpoint, before: u64, began: Instant) {
    // A message that is put down as it looks around.
    endpoint.progress().unwrap();
    let counters = endpoint.counters();
    let (barriers, seconds) = (counters.barriers - before, began.elapsed().as_secs());
    note(format_args!("{barriers} barriers in {seconds} s, {} sleeps", counters.sleeps));
    assert!(barriers <= seconds + 1, "{barriers} in {seconds} s");
}
