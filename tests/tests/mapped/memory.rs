//! Memory of arenas that are gone goes back, although peers had it mapped.

use std::{thread, time::Duration, time::Instant};

use pinfold::{Arena, Endpoint, Path, PeerId, Progress};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{arenas, status_bytes},
    role::{self, PATIENCE, await_go, go, hear, say},
    stage::Player,
    stamp,
};

use super::{MIB, filled, offer, take};

const LEN: usize = 8 * MIB;

/// Waits until nothing of an arena is mapped here.
#[track_caller]
fn none_is_mapped() {
    let end = Instant::now() + PATIENCE;
    while !arenas().is_empty() {
        assert!(Instant::now() < end, "still mapped: {:?}", arenas());
        thread::sleep(Duration::from_millis(1));
    }
}

fn goes_back(giver: &str, keeper: &str) {
    let stage = Stage::new(60);
    let mut keeping = stage.role("keeping").with("is", keeper).spawn();
    keeping.expect("ready");
    let mut giving = stage.role("giving").with("is", giver).spawn();
    keeping.expect("has it");
    giving.expect("has sent it");
    let next = |player: &mut Player, word: &str| {
        player.say("go on");
        player.expect(word);
    };
    next(&mut giving, "is rid of it");
    next(&mut keeping, "is rid of it");
    giving.say("leave");
    giving.end_well();
    keeping.end_well();
}

#[test]
fn a_receiver_that_calls_lets_go() {
    goes_back("calling", "calling");
}

#[test]
fn a_receiver_that_waits_lets_go() {
    goes_back("calling", "waiting");
}

#[test]
fn a_thread_that_drives_the_receiver_lets_go() {
    goes_back("calling", "driven");
}

#[test]
fn a_sender_that_waits_says_so() {
    goes_back("waiting", "waiting");
}

#[test]
fn a_thread_that_drives_the_sender_says_so() {
    goes_back("driven", "driven");
}

fn builder(args: &Args) -> pinfold::Builder {
    let driven = args.text("is") == "driven";
    Endpoint::builder().progress(if driven { Progress::Dedicated } else { Progress::Inline })
}

pub fn giving(args: &Args) {
    let (endpoint, peer) = role::connect(builder(args), "memory");
    await_go(&endpoint, peer);
    let before = Baseline::now();
    let arena = Arena::new().unwrap();
    let buf = filled(&arena, LEN, 1);
    assert!(offer(&endpoint, peer, &buf, 1));
    assert_eq!(endpoint.send_by(Path::Mapped, peer, 2, &buf).unwrap().path, Path::Mapped);
    say("has sent it");
    let waits = args.text("is") == "waiting";
    let waiting = waits.then(|| {
        let endpoint = endpoint.clone();
        thread::spawn(move || endpoint.recv(peer, 9).map(drop))
    });
    hear();
    // Long enough to fall asleep.
    thread::sleep(Duration::from_millis(5));
    drop((buf, arena));
    before.returns(PATIENCE);
    if args.text("is") == "calling" {
        // Any call does; this one waits.
        endpoint.recv_timeout(peer, 7, Duration::from_millis(2)).unwrap_err();
    }
    say("is rid of it");
    hear();
    endpoint.send(peer, 8, b"").unwrap();
    if let Some(waiting) = waiting {
        waiting.join().expect("no panic").unwrap();
    }
}

pub fn keeping(args: &Args) {
    let (endpoint, peer) = role::listen(builder(args), "memory");
    let before = Baseline::now();
    go(&endpoint, peer);
    assert_eq!(take(&endpoint, peer, LEN, 1).path, Path::Mapped);
    stamp::check(&endpoint.recv(peer, 2).unwrap(), 1);
    assert_eq!(arenas().len(), 1);
    say("has it");
    match args.text("is") {
        "calling" => {
            hear();
            // The mapping is left alone as long as no call is made.
            assert_eq!(arenas().len(), 1);
            let end = Instant::now() + PATIENCE;
            while !arenas().is_empty() {
                endpoint.progress().unwrap();
                assert!(Instant::now() < end, "still mapped: {:?}", arenas());
            }
            say("is rid of it");
        }
        "waiting" => {
            thread::spawn(move || {
                hear();
                none_is_mapped();
                before.returns(PATIENCE);
                say("is rid of it");
            });
        }
        _ => {
            hear();
            none_is_mapped();
            before.returns(PATIENCE);
            say("is rid of it");
        }
    }
    endpoint.recv(peer, 8).unwrap();
    let _ = endpoint.send(peer, 9, b"");
    if args.text("is") != "waiting" {
        none_is_mapped();
    }
}

#[test]
fn arenas_come_and_go() {
    let stage = Stage::new(120);
    stage.play([stage.role("sweeping"), stage.role("churning")]);
}

#[test]
fn arenas_come_and_go_while_another_thread_waits() {
    let stage = Stage::new(120);
    stage.play(["sweeping", "churning"].map(|role| stage.role(role).with("beside", 1)));
}

/// A tag that no message is matched with before the end.
const LAST: u64 = 1 << 41;

/// A thread that waits for the last message, and sleeps for all other waiting threads.
fn beside(args: &Args, endpoint: &Endpoint, peer: PeerId) -> Option<thread::JoinHandle<()>> {
    let endpoint = endpoint.clone();
    args.has("beside").then(|| thread::spawn(move || drop(endpoint.recv(peer, LAST).unwrap())))
}

/// Arenas, one after the other, and the number at a time.
const ARENAS: u64 = 600;
const AT_A_TIME: u64 = 30;

pub fn churning(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "churn");
    await_go(&endpoint, peer);
    let waits = beside(args, &endpoint, peer);
    let before = Baseline::now();
    let mut live = std::collections::VecDeque::new();
    for number in 0..ARENAS {
        let arena = Arena::new().unwrap();
        let buf = filled(&arena, 100_000 + number as usize, number);
        assert!(offer(&endpoint, peer, &buf, number), "arena {number}");
        // Some arenas are used again.
        live.push_back((arena, buf, number));
        if number % 7 == 0 {
            let (_, buf, seed) = &live[live.len() / 2];
            endpoint.send(peer, *seed, buf).unwrap();
        } else {
            endpoint.send(peer, number, b"").unwrap();
        }
        if live.len() as u64 == AT_A_TIME {
            live.drain(..random_part(number));
        }
    }
    drop(live);
    before.returns(PATIENCE);
    endpoint.send(peer, ARENAS, b"").unwrap();
    endpoint.recv(peer, ARENAS).unwrap();
    // Only a thread beside waits for it.
    let _ = endpoint.send(peer, LAST, b"");
    waits.into_iter().for_each(|thread| thread.join().expect("it hears"));
}

fn random_part(number: u64) -> usize {
    1 + (stamp::mix(number) % AT_A_TIME) as usize
}

pub fn sweeping(args: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "churn");
    let before = Baseline::now();
    go(&endpoint, peer);
    let waits = beside(args, &endpoint, peer);
    let mut most = 0;
    let resident = status_bytes("VmRSS");
    for number in 0..ARENAS {
        let receipt = take(&endpoint, peer, 100_000 + number as usize, number);
        assert_eq!((receipt.path, receipt.copied_kernel), (Path::Mapped, 0));
        let again = endpoint.recv(peer, pinfold::TagMatch::masked(0, (1 << 20) - 1)).unwrap();
        if !again.is_empty() {
            stamp::check(&again, again.tag());
        }
        most = most.max(arenas().len());
    }
    // A few more arenas than live ones are mapped, since the peer is told of ends now and then.
    role::note(format_args!("{most} arenas mapped at most, of {ARENAS}"));
    assert!((AT_A_TIME / 2..4 * AT_A_TIME).contains(&(most as u64)), "{most}");
    endpoint.recv(peer, ARENAS).unwrap();
    let end = Instant::now() + PATIENCE;
    while !arenas().is_empty() {
        endpoint.progress().unwrap();
        assert!(Instant::now() < end, "still mapped: {:?}", arenas());
    }
    before.returns(PATIENCE);
    let grown = status_bytes("VmRSS").saturating_sub(resident);
    assert!(grown < 64 << 20, "{grown} bytes of memory are left behind");
    endpoint.send(peer, ARENAS, b"").unwrap();
    // Only a thread beside waits for it.
    let _ = endpoint.send(peer, LAST, b"");
    waits.into_iter().for_each(|thread| thread.join().expect("it hears"));
}
