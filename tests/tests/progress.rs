//! Waiting and progress: on the endpoint's descriptor, many threads at one endpoint, the thread
//! that drives.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Arena, DonatedBuf, Endpoint, Error, Path, PeerId, Source, TagMatch};
use pinfold_tests::{
    Args, Stage, pair,
    role::{self, say},
    stamp::{self, Random},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

pinfold_tests::roles!(dozing, tapping, threaded, echoing, computing, feeding);

/// Lengths that go by every path.
const LENGTHS: [usize; 7] = [8, 56, 1500, 20_000, 100_000, 700_000, 6 << 20];

/// The tag of a word that the other side may go on.
const GO: u64 = 1 << 40;

/// The longest time that any step may take.
const PATIENCE: Duration = Duration::from_secs(20);

// A caller that never has to wait.

#[test]
fn messages_that_are_always_there_do_not_keep_others_out() {
    let address = format!("local:busy-{}", std::process::id());
    let a = Endpoint::builder().listen(&address).build().unwrap();
    let b = Endpoint::new().unwrap();
    let (from, to) = thread::scope(|scope| {
        let calls = scope.spawn(|| b.connect(&address).unwrap());
        (a.accept().unwrap(), calls.join().unwrap())
    });
    let donation = DonatedBuf::from(Arena::new().unwrap().alloc(64).unwrap());
    let caller = thread::spawn(move || {
        let endpoint = Endpoint::new().unwrap();
        // Until its caller's thread has the lock for itself again.
        thread::sleep(Duration::from_millis(50));
        endpoint.connect_wait(&address, PATIENCE).map(|_| ())
    });
    let mut rounds = 0u64;
    while !caller.is_finished() {
        for tag in 0..1000 {
            b.send(to, tag, &tag.to_le_bytes()).unwrap();
            let mut bytes = [0; 8];
            a.recv_into(from, tag, &mut bytes).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), tag);
            b.give(to, tag, donation.clone()).unwrap();
            assert_eq!(a.recv_view(from, tag).unwrap().len(), 64);
        }
        rounds += 1;
    }
    caller.join().unwrap().unwrap_or_else(|error| panic!("after {rounds} rounds: {error}"));
}

/// A waker that counts, when it is woken, the other messages that have come to an endpoint.
struct Counts {
    endpoint: Endpoint,
    unexpected: mpsc::Sender<u64>,
}

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        let _ = self.unexpected.send(self.endpoint.counters().unexpected);
    }
}

/// Descriptors that are taken from a peer at once.
const TURN: u64 = 64;

#[test]
fn what_came_is_told_before_more_is_taken_from_who_goes_on_and_on() {
    for round in 0..20 {
        let (a, from, b, to) =
            pair(&format!("torrent-{round}"), Endpoint::builder(), Endpoint::builder());
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Counts { endpoint: a.clone(), unexpected: tell }));
        let mut awaited = pin!(a.recv_request(from, 1));
        assert!(awaited.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        b.send(to, 1, b"awaited").unwrap();
        let torrent: Vec<_> = (0..10 * TURN).map(|_| b.send_owned(to, 2, vec![7; 8])).collect();
        let unexpected = loop {
            b.progress().unwrap();
            if let Ok(unexpected) = told.try_recv() {
                break unexpected;
            }
        };
        // One turn, and one more that may have begun before the look.
        assert!(unexpected < 2 * TURN, "told of it after {unexpected} more");
        drop(torrent);
    }
}

// The descriptor.

const TAPS: u64 = 10_000;

#[test]
fn the_descriptor_loses_no_wake_up() {
    let stage = Stage::new(90);
    stage.play([stage.role("dozing"), stage.role("tapping")]);
}

#[test]
fn the_descriptor_beside_a_thread_that_drives() {
    let stage = Stage::new(90);
    stage.play([stage.role("dozing").with("dedicated", 1), stage.role("tapping")]);
}

#[test]
fn the_descriptor_with_all_that_copies() {
    let stage = Stage::new(90);
    stage.play(["dozing", "tapping"].map(|role| stage.role(role).with("long", 1)));
}

/// The length of a tap's message: mostly short; by all paths if the play is about those.
fn tap_len(args: &Args, tap: u64) -> usize {
    let mut random = Random::new(tap);
    if args.has("long") { random.pick(&LENGTHS) } else { random.below(64) as usize }
}

fn taps(args: &Args) -> u64 {
    if args.has("long") { TAPS / 20 } else { TAPS }
}

/// Sleeps on the endpoint's descriptor until `done` has an answer.
fn doze<T>(endpoint: &Endpoint, mut done: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = done() {
            return value;
        }
        if !endpoint.arm().unwrap() {
            endpoint.progress().unwrap();
            continue;
        }
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let came = poll(&mut [PollFd::new(endpoint, PollFlags::IN)], Some(&patience)).unwrap();
        assert!(came > 0, "asleep for {PATIENCE:?}: a wake-up is lost, or never came");
    }
}

fn dozing(args: &Args) {
    let endpoint = args.builder().listen("local:doze").build().unwrap();
    say("ready");
    // Even the first peer comes by the descriptor.
    let peer = doze(&endpoint, || match endpoint.accept_timeout(Duration::ZERO) {
        Ok(peer) => Some(peer),
        Err(Error::Timeout(_)) => None,
        Err(error) => panic!("{error}"),
    });
    let mut random = Random::new(1);
    for tap in 0..taps(args) {
        let message = if random.below(2) == 0 {
            let mut request = endpoint.recv_request(peer, tap);
            doze(&endpoint, || request.try_wait()).unwrap()
        } else {
            doze(&endpoint, || endpoint.try_probe(peer, tap).unwrap());
            endpoint.recv(peer, tap).unwrap()
        };
        assert_eq!(message.len(), tap_len(args, tap));
        stamp::check(&message, tap);
        let mut answer = endpoint.send_owned(peer, tap, message.into_vec());
        doze(&endpoint, || answer.try_wait()).0.unwrap();
    }
}

fn tapping(args: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder().paths(args.paths("paths")), "doze");
    let mut random = Random::new(2);
    for tap in 0..taps(args) {
        // Just before, just as, and just after the other side falls asleep.
        let end = Instant::now() + Duration::from_nanos(random.below(30_000));
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        endpoint.send(peer, tap, &stamp::bytes(tap_len(args, tap), tap)).unwrap();
        let back = endpoint.recv_timeout(peer, tap, PATIENCE).unwrap();
        stamp::check(&back, tap);
    }
}

// Threads.

const THREADS: u64 = 4;
const WORDS: u64 = 3000;

#[test]
fn four_threads_share_an_endpoint() {
    let stage = Stage::new(90);
    stage.play([stage.role("echoing"), stage.role("threaded")]);
}

#[test]
fn four_threads_and_one_that_drives() {
    let stage = Stage::new(90);
    stage.play(["echoing", "threaded"].map(|role| stage.role(role).with("dedicated", 1)));
}

/// Talks as one of the threads, with tags of its own.
fn chat(endpoint: &Endpoint, peer: PeerId, thread: u64, begins: bool) {
    let mut random = Random::new(thread);
    for word in 0..WORDS {
        let tag = thread << 32 | word;
        let len = match random.below(50) {
            0 => 500_000,
            1..5 => 30_000,
            5..10 => 3000,
            _ => random.below(80) as usize,
        };
        if begins {
            match word % 3 {
                0 => drop(endpoint.send_owned(peer, tag, stamp::bytes(len, tag)).wait().0.unwrap()),
                _ => drop(endpoint.send(peer, tag, &stamp::bytes(len, tag)).unwrap()),
            }
        }
        let message = match word % 4 {
            0 => endpoint.recv(peer, tag).unwrap(),
            1 => endpoint.recv(Source::Any, TagMatch::masked(tag, 0xffff_ffff)).unwrap(),
            2 => endpoint.recv_request(peer, tag).wait().unwrap(),
            _ => pinfold_tests::block_on(endpoint.recv_request(peer, tag)).unwrap(),
        };
        assert_eq!((message.tag(), message.len()), (tag, len));
        stamp::check(&message, tag);
        if !begins {
            endpoint.send(peer, tag, &message).unwrap();
        }
    }
}

fn threads(endpoint: &Endpoint, peer: PeerId, begins: bool) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || chat(endpoint, peer, thread, begins));
        }
    });
}

fn threaded(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "threads");
    threads(&endpoint, peer, true);
}

fn echoing(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "threads");
    threads(&endpoint, peer, false);
    assert!(endpoint.recv(peer, u64::MAX).is_err(), "nothing is left");
}

// The thread that drives.

#[test]
fn messages_move_while_the_program_computes() {
    let stage = Stage::new(60);
    let mut computing = stage.role("computing").with("dedicated", 1).spawn();
    computing.expect("ready");
    let mut feeding = stage.role("feeding").spawn();
    for _ in LENGTHS.into_iter().chain(LENGTHS).chain(LENGTHS) {
        // The feeder says when its side is through; until then the other calls nothing.
        feeding.expect("through");
        computing.say("stop computing");
    }
    feeding.end_well();
    computing.end_well();
}

fn computing(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "compute");
    // Receives posted before the message comes.
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let tag = i as u64;
        let mut request = endpoint.recv_owned(peer, tag, vec![0; len]);
        endpoint.send(peer, GO, b"").unwrap();
        assert_eq!(role::hear(), "stop computing");
        let (result, bytes) = request.wait_timeout(PATIENCE).expect("it has come");
        result.unwrap();
        stamp::check(&bytes, tag);
    }
    // Receives posted after the message was announced.
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let tag = i as u64;
        endpoint.send(peer, GO, b"").unwrap();
        endpoint.probe(peer, tag).unwrap();
        let request = endpoint.recv_owned(peer, tag, vec![0; len]);
        assert_eq!(role::hear(), "stop computing");
        let (result, bytes) = request.wait();
        result.unwrap();
        stamp::check(&bytes, tag);
    }
    // Sends.
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let request = endpoint.send_owned(peer, i as u64, stamp::bytes(len, i as u64));
        assert_eq!(role::hear(), "stop computing");
        request.wait().0.unwrap();
    }
}

fn feeding(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "compute");
    for by in [None, Some(Path::Eager)] {
        for (i, len) in LENGTHS.into_iter().enumerate() {
            endpoint.recv(peer, GO).unwrap();
            let bytes = stamp::bytes(len, i as u64);
            match by {
                None => endpoint.send(peer, i as u64, &bytes).unwrap(),
                Some(path) => endpoint.send_by(path, peer, i as u64, &bytes).unwrap(),
            };
            say("through");
        }
    }
    for (i, len) in LENGTHS.into_iter().enumerate() {
        let message = endpoint.recv(peer, i as u64).unwrap();
        assert_eq!(message.len(), len);
        stamp::check(&message, i as u64);
        say("through");
    }
}
