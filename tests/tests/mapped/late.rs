//! Receivers that give up a transfer into an arena which peers may write, and peers that go in the
//! midst of one: no peer is left that writes to memory that means something else.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Error, OwnedBuf, Path, SharedArena, SharedBuf};
use pinfold_tests::{
    Args, Baseline, Stage,
    host::peek,
    role::{self, PATIENCE, await_go, go, hear, say},
    stamp::{self, Random},
};

use super::{MIB, UNTOUCHED};

const LEN: usize = 6 * MIB;
const PAGE: usize = 4096;
const ROUNDS: u64 = 60;
const KILLED: u32 = 40;
const FINAL: u64 = u64::MAX - 9;

/// New memory like that which was just let go of, marked.
fn marked(arena: &SharedArena) -> SharedBuf {
    let buf = arena.alloc(LEN).expect("memory");
    buf.fill(UNTOUCHED);
    buf
}

#[track_caller]
fn is_untouched(buf: &SharedBuf, what: &str) {
    let at = buf.to_vec().iter().position(|byte| *byte != UNTOUCHED);
    assert_eq!(at, None, "{what}: somebody wrote to memory that was let go of");
}

/// Lets some progress happen.
fn linger(endpoint: &Endpoint, us: u64) {
    let end = Instant::now() + Duration::from_micros(us);
    while Instant::now() < end {
        endpoint.progress().unwrap();
    }
}

#[test]
fn requests_that_are_dropped() {
    for paths in ["inline,eager,cma,mapped", "inline,eager,mapped"] {
        let stage = Stage::new(60);
        stage.play(["dropping", "pouring"].map(|role| stage.role(role).with("paths", paths)));
    }
}

pub fn dropping(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "drop");
    let arena = SharedArena::builder().build_shared().unwrap();
    let mut random = Random::new(3);
    for round in 0..ROUNDS {
        let request = endpoint.recv_owned(peer, round, arena.alloc(LEN).unwrap());
        go(&endpoint, peer);
        linger(&endpoint, random.below(1500));
        drop(request);
        let kept = marked(&arena);
        // A message that was not matched before the receive was dropped is still there.
        go(&endpoint, peer);
        while endpoint.try_probe(peer, FINAL).unwrap().is_none() {
            if endpoint.try_probe(peer, round).unwrap().is_some() {
                stamp::check(&endpoint.recv(peer, round).unwrap(), round);
            }
        }
        endpoint.recv(peer, FINAL).unwrap();
        is_untouched(&kept, "a request was dropped");
    }
}

pub fn pouring(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "drop");
    for round in 0..ROUNDS {
        let bytes = stamp::bytes(LEN, round);
        await_go(&endpoint, peer);
        let request = endpoint.send_owned(peer, round, bytes);
        await_go(&endpoint, peer);
        request.wait().0.unwrap();
        endpoint.send(peer, FINAL, b"").unwrap();
    }
}

#[test]
fn connections_that_are_cut() {
    for paths in ["inline,eager,cma,mapped", "inline,eager,mapped"] {
        let stage = Stage::new(60);
        stage.play(["cutting", "cut_off"].map(|role| stage.role(role).with("paths", paths)));
    }
}

pub fn cutting(args: &Args) {
    let endpoint = args.builder().listen("local:cut").build().unwrap();
    say("ready");
    let arena = SharedArena::builder().build_shared().unwrap();
    let mut random = Random::new(4);
    let mut before = None;
    for round in 0..ROUNDS {
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        let buf = arena.alloc(LEN).unwrap();
        let last = OwnedBuf::bytes(&buf).0.addr() + LEN - 8;
        let request = endpoint.recv_owned(peer, 1, buf);
        go(&endpoint, peer);
        // Until the sender has begun, at the end, and a little longer.
        let end = Instant::now() + Duration::from_millis(20);
        while peek(last) == 0 && Instant::now() < end {
            endpoint.progress().unwrap();
        }
        linger(&endpoint, random.below(400));
        endpoint.disconnect(peer);
        let (result, buf) = request.wait();
        // A word of each page, which is faster than any copy: the rest of a chunk would be seen.
        let words = || (0..LEN / PAGE).map(|page| buf.word64(page * PAGE).expect("inside"));
        let sample = || words().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<u64>>();
        let first = sample();
        std::thread::sleep(Duration::from_millis(4));
        assert!(sample() == first, "it is written after its receive has ended");
        if result.is_ok() {
            stamp::check(&buf.to_vec(), round);
        }
        drop(buf);
        let kept = marked(&arena);
        // The other side has heard of it.
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        endpoint.recv(peer, FINAL).unwrap();
        is_untouched(&kept, "the connection was cut");
        endpoint.disconnect(peer);
        drop(kept);
        if round == 2 {
            before = Some(Baseline::now());
        }
    }
    before.expect("some rounds").returns(PATIENCE);
}

pub fn cut_off(args: &Args) {
    for round in 0..ROUNDS {
        let endpoint = args.builder().build().unwrap();
        let peer = endpoint.connect_wait("local:cut", PATIENCE).unwrap();
        let bytes = stamp::bytes(LEN, round);
        if endpoint.recv(peer, role::GO).is_ok() {
            let (result, _) = endpoint.send_owned(peer, 1, bytes).wait();
            if let Err(error) = result {
                assert!(error.is_peer_gone(), "{error}");
            }
        }
        drop(endpoint);
        let endpoint = args.builder().build().unwrap();
        let peer = endpoint.connect_wait("local:cut", PATIENCE).unwrap();
        endpoint.send(peer, FINAL, b"").unwrap();
        assert!(endpoint.recv(peer, 1).unwrap_err().is_peer_gone());
    }
}

#[test]
fn senders_that_are_killed() {
    let stage = Stage::new(120);
    // The sender copies all of it.
    let cast = |role: &str| stage.role(role).with("paths", "inline,eager,mapped");
    let mut heir = cast("heir").spawn();
    heir.expect("ready");
    let mut random = Random::new(5);
    for _ in 0..KILLED {
        let mut doomed = cast("doomed").spawn();
        doomed.expect("pours");
        heir.expect("has one");
        std::thread::sleep(Duration::from_micros(random.below(6000)));
        doomed.kill();
        assert!(doomed.was_killed());
        heir.expect("heard of it");
    }
    heir.say("enough");
    heir.end_well();
}

/// Pours out messages until it is killed.
pub fn doomed(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "heir");
    say("pours");
    let bytes = stamp::bytes(LEN, 1);
    while endpoint.send(peer, 1, &bytes).is_ok() {}
}

pub fn heir(args: &Args) {
    let endpoint = args.builder().listen("local:heir").build().unwrap();
    say("ready");
    let before = Baseline::now();
    let arena = SharedArena::builder().build_shared().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(hear()));
    let mut pushed = 0;
    while told.try_recv().is_err() {
        let peer = match endpoint.accept_timeout(Duration::from_millis(20)) {
            Ok(peer) => peer,
            Err(Error::Timeout(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        for number in 0.. {
            if number == 1 {
                say("has one");
            }
            let (result, buf) = endpoint.recv_owned(peer, 1, arena.alloc(LEN).unwrap()).wait();
            match result {
                Ok(received) => {
                    stamp::check(&buf.to_vec(), 1);
                    let receipt = received.receipt;
                    let alone = (Path::Mapped, 0, 0);
                    pushed += u32::from(
                        (receipt.path, receipt.copied_user, receipt.copied_kernel) == alone,
                    );
                }
                Err(error) => {
                    let right = error.is_peer_gone() || matches!(error, Error::Transfer { .. });
                    assert!(right, "{error}");
                    break;
                }
            }
        }
        // No peer writes any more.
        let kept = marked(&arena);
        endpoint.progress().unwrap();
        is_untouched(&kept, "its sender is dead");
        say("heard of it");
    }
    assert!(pushed >= KILLED, "{pushed} messages were written here by those that died later");
    drop(arena);
    before.returns(PATIENCE);
}
