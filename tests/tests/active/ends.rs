//! Ends: of peers, endpoints, handlers, sleep; and forks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use pinfold::{Active, Endpoint, Error, Progress, Source};
use pinfold_tests::{
    Args, Baseline, Stage,
    host::{Ended, fork},
    role::{self, hear, say},
    stamp,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{BYE, ECHO, PATIENCE, SINK, until};

// A peer dies.

#[test]
fn requests_to_the_dead_end() {
    let stage = Stage::new(60);
    for how in ["kill", "close", "disconnect"] {
        let mut asked = stage.role("asked").with("how", how).spawn();
        asked.expect("ready");
        let mut dying = stage.role("dying").with("how", how).spawn();
        dying.expect("waits");
        if how == "kill" {
            asked.kill();
            assert!(asked.was_killed());
        } else {
            asked.say("end");
            asked.end_well();
        }
        dying.end_well();
    }
}

/// Never answers, and then ends.
pub fn asked(args: &Args) {
    let (tell, kept) = std::sync::mpsc::channel();
    let builder = Endpoint::builder()
        .handle(ECHO, move |active: Active<'_>| tell.send(active.reply_later()).unwrap());
    let (endpoint, peer) = role::listen(builder, "asked");
    let kept = (0..3).map(|_| {
        loop {
            endpoint.progress().unwrap();
            if let Ok(answer) = kept.try_recv() {
                break answer.expect("it is a request");
            }
        }
    });
    let kept = kept.collect::<Vec<_>>();
    endpoint.send(peer, BYE, b"").unwrap();
    hear();
    match args.text("how") {
        "close" => endpoint.close(),
        _ => endpoint.disconnect(peer),
    }
    for (i, answer) in kept.into_iter().enumerate() {
        // Too late, and no harm.
        assert!(i == 1 || answer.reply(&[1; 100]).is_err());
    }
}

/// Has asked in every way, and asks for more when the other side is dead.
pub fn dying(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(Endpoint::builder(), "asked");
    let waited = endpoint.request(peer, ECHO, b"?");
    let awaited = endpoint.request(peer, ECHO, &[1; 1000]);
    let dropped = endpoint.request(peer, ECHO, &[1; 200_000]);
    endpoint.recv(peer, BYE).unwrap();
    // A request that stays in this memory.
    let queued = endpoint.call_owned(peer, SINK, vec![1; 2 << 20]);
    let never = endpoint.request(peer, SINK, &vec![1; 2 << 20]);
    drop(dropped);
    say("waits");
    let gone = |error: Error| assert!(error.is_peer_gone(), "{error}");
    let future = thread::spawn(move || pinfold_tests::block_on(awaited).map(drop));
    gone(waited.wait().unwrap_err());
    gone(future.join().expect("no panic").unwrap_err());
    match queued.wait().0.unwrap_err() {
        // It had time to say that it has no such handler.
        Error::NotHandled { .. } => {}
        error => gone(error),
    }
    match never.wait().unwrap_err() {
        Error::NotHandled { .. } => {}
        error => gone(error),
    }
    for len in [1, 100, 1 << 20] {
        gone(endpoint.call(peer, SINK, &vec![0; len]).unwrap_err());
        gone(endpoint.call_owned(peer, SINK, vec![0; len]).wait().0.unwrap_err());
        gone(endpoint.request(peer, ECHO, &vec![0; len]).wait().unwrap_err());
        gone(endpoint.request_owned(peer, ECHO, vec![0; len]).wait().unwrap_err());
    }
    drop(endpoint);
    before.returns(Duration::from_secs(2));
}

// The memory that a peer has left.

#[test]
fn what_came_whole_is_seen_to_though_its_sender_is_gone_and_its_handler_another() {
    let stage = Stage::new(60);
    let mut heir = stage.role("heir").spawn();
    heir.expect("ready");
    let mut gone = stage.role("gone_early").spawn();
    // A peer that is gone before it has been accepted is never accepted.
    heir.expect("accepted");
    gone.say("go on");
    gone.end_well();
    heir.expect("alone");
    heir.say("go on");
    heir.end_well();
}

pub fn gone_early(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "heir");
    assert_eq!(hear(), "go on");
    for _ in 0..10 {
        endpoint.call(peer, SINK, b"short").unwrap();
        endpoint.call(peer, SINK, &[1; 500]).unwrap();
        endpoint.call(peer, ECHO, b"gone").unwrap();
    }
}

pub fn heir(_: &Args) {
    let (first, second) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let begun = Arc::new(AtomicBool::new(false));
    let endpoint = Endpoint::builder()
        .listen("local:heir")
        .progress(Progress::Dedicated)
        .handle(ECHO, |_: Active<'_>| panic!("removed before it was its turn"))
        .handle(SINK, {
            let (first, begun) = (Arc::clone(&first), Arc::clone(&begun));
            move |_: Active<'_>| {
                begun.store(true, Ordering::Relaxed);
                // Until the other has told all, and ended.
                assert_eq!(hear(), "go on");
                first.fetch_add(1, Ordering::Relaxed);
            }
        })
        .build()
        .unwrap();
    say("ready");
    endpoint.accept_timeout(PATIENCE).unwrap();
    say("accepted");
    until(&endpoint, || begun.load(Ordering::Relaxed) && endpoint.peers().is_empty());
    let count = Arc::clone(&second);
    let counting = move |_: Active<'_>| {
        count.fetch_add(1, Ordering::Relaxed);
    };
    endpoint.handle(SINK, counting).unwrap();
    assert!(endpoint.unhandle(ECHO) && !endpoint.unhandle(ECHO));
    say("alone");
    until(&endpoint, || {
        let counters = endpoint.counters();
        counters.handled + counters.unhandled == 30
    });
    assert_eq!((first.load(Ordering::Relaxed), second.load(Ordering::Relaxed)), (1, 19));
    assert_eq!(endpoint.counters().unhandled, 10);
    assert_eq!(Arc::strong_count(&first), 1, "a handler that is replaced is dropped");
}

// An endpoint closes.

#[test]
fn closing_ends_requests_and_drops_handlers() {
    let stage = Stage::new(60);
    stage.play([stage.role("quitting"), stage.role("sleeping").with("name", "quitting")]);
    stage.play([
        stage.role("quitting").with("dedicated", 1),
        stage.role("sleeping").with("name", "quitting"),
    ]);
}

pub fn quitting(args: &Args) {
    let held = Arc::new(());
    let builder = args.builder().handle(SINK, {
        let held = Arc::clone(&held);
        move |_: Active<'_>| drop(Arc::clone(&held))
    });
    let (endpoint, peer) = role::listen(builder, "quitting");
    endpoint.recv(peer, BYE).unwrap();
    let asked = endpoint.request(peer, 77, &[1; 90]);
    let long = endpoint.request(peer, 77, &vec![1; 400_000]);
    let owned = endpoint.request_owned(peer, 77, vec![1; 400_000]);
    let blocked = thread::spawn({
        let reply = endpoint.request(peer, 77, b"");
        move || reply.wait().map(drop)
    });
    endpoint.close();
    for reply in [asked, long, owned] {
        assert!(matches!(reply.wait(), Err(Error::Closed)));
    }
    assert!(matches!(blocked.join().expect("no panic"), Err(Error::Closed)));
    assert_eq!(Arc::strong_count(&held), 1, "the handlers are gone");
    assert!(matches!(endpoint.handle(SINK, |_| {}), Err(Error::Closed)));
    assert!(matches!(endpoint.call(peer, SINK, b""), Err(Error::Closed)));
    assert!(matches!(endpoint.request(peer, SINK, &[0; 90]).wait(), Err(Error::Closed)));
}

// Sleep.

/// The ways to have nothing to do.
const SLEEPS: [&str; 4] = ["recv", "descriptor", "thread", "future"];

#[test]
fn a_sleeper_is_woken() {
    let stage = Stage::new(90);
    for way in SLEEPS {
        let mut sleeping = stage.role("sleeping").with("way", way);
        if way == "thread" {
            sleeping = sleeping.with("dedicated", 1);
        }
        stage.play([sleeping, stage.role("waking")]);
    }
}

pub fn sleeping(args: &Args) {
    let builder = args.builder().handle(ECHO, |active: Active<'_>| {
        active.reply(active.payload()).unwrap();
    });
    if args.has("name") {
        // Never answers, and sees the other go.
        let (endpoint, peer) = role::connect(Endpoint::builder(), args.text("name"));
        endpoint.handle(77, |active| std::mem::forget(active.reply_later())).unwrap();
        endpoint.send(peer, BYE, b"").unwrap();
        assert!(endpoint.recv(Source::Any, BYE).unwrap_err().is_peer_gone());
        return;
    }
    let (endpoint, peer) = role::listen(builder, "sleeper");
    match args.text("way") {
        "recv" => drop(endpoint.recv(peer, BYE).unwrap()),
        "future" => drop(pinfold_tests::block_on(endpoint.recv_request(peer, BYE)).unwrap()),
        "thread" => {
            let request = endpoint.recv_request(peer, BYE);
            thread::sleep(Duration::from_millis(700));
            request.wait().unwrap();
        }
        _ => {
            let mut request = endpoint.recv_request(peer, BYE);
            loop {
                if let Some(bye) = request.try_wait() {
                    break drop(bye.unwrap());
                }
                if endpoint.arm().unwrap() {
                    poll(&mut [PollFd::new(&endpoint, PollFlags::IN)], None).unwrap();
                }
                endpoint.progress().unwrap();
            }
        }
    }
    assert!(endpoint.counters().sleeps > 0 || args.text("way") == "descriptor");
}

pub fn waking(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "sleeper");
    for round in 0..2000u64 {
        let pause = stamp::mix(round) % 64;
        match pause {
            // Long enough to be asleep, or just about to.
            0 => thread::sleep(Duration::from_millis(5)),
            _ => {
                let end = Instant::now() + Duration::from_micros(pause);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
        }
        let bytes = stamp::bytes([8, 2000, 100_000][round as usize % 3], round);
        let mut reply = endpoint.request(peer, ECHO, &bytes);
        let answer = reply.wait_timeout(PATIENCE).expect("it wakes up").unwrap();
        assert!(*answer == *bytes);
    }
    endpoint.send(peer, BYE, b"").unwrap();
}

// Forks.

#[test]
fn a_forked_child_has_no_part_in_it() {
    let stage = Stage::new(60);
    stage.play([stage.role("sleeping").with("way", "recv"), stage.role("forking")]);
}

pub fn forking(_: &Args) {
    let builder = Endpoint::builder().handle(SINK, |_: Active<'_>| {});
    let (endpoint, peer) = role::connect(builder, "sleeper");
    let pending = endpoint.request(peer, ECHO, b"whose?");
    let dropped = endpoint.request(peer, ECHO, &[1; 5000]);
    let ended = fork(|| {
        assert!(matches!(endpoint.handle(1, |_| {}), Err(Error::Forked)));
        assert!(!endpoint.unhandle(SINK));
        for len in [1, 100, 1 << 20] {
            let bytes = vec![0; len];
            let error = endpoint.call(peer, SINK, &bytes).unwrap_err();
            assert!(matches!(error, Error::Forked), "{error}");
            let error = endpoint.request(peer, ECHO, &bytes).wait().unwrap_err();
            assert!(matches!(error, Error::Forked), "{error}");
        }
        assert!(matches!(pending.wait(), Err(Error::Forked)));
        drop(dropped);
        // An endpoint of its own works.
        let new = Endpoint::new().unwrap();
        let peer = new.connect("local:sleeper").unwrap();
        assert_eq!(&*new.request(peer, ECHO, b"child").wait().unwrap(), b"child");
        0
    });
    assert_eq!(ended, Ended::Code(0));
    let answer = endpoint.request(peer, ECHO, b"parent").wait().unwrap();
    assert_eq!(&*answer, b"parent");
    endpoint.send(peer, BYE, b"").unwrap();
}
