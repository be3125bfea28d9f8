//! Handles that are of no use any more, or not here: of an endpoint that was closed, of the process
//! this one was forked from, of peers that are gone or were never known; and messages that do not
//! fit. Each has an error of its own that names the fault and the remedy.

use std::{
    io::IoSlice,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use pinfold::{Counters, Endpoint, Error, Gone, PeerId, Source, TagMatch};
use pinfold_tests::{
    Args, Baseline, Stage,
    host::{Ended, fork},
    role::{self, PATIENCE},
    stamp,
};

pinfold_tests::roles!(
    closer,
    other_side,
    leaves_early,
    in_mid_sentence,
    forker,
    forks_in_mid_call,
    loner,
    short,
    long,
    generous
);

const SOON: Duration = Duration::from_millis(50);

/// An operation's name, and its error.
type Failed = (&'static str, Option<Error>);

/// Every operation, with or without a peer.
fn all_operations(endpoint: &Endpoint, peer: PeerId) -> Vec<Failed> {
    let mut all = vec![
        ("connect", endpoint.connect("local:other").err()),
        ("connect_wait", endpoint.connect_wait("local:other", SOON).err()),
        ("accept", endpoint.accept().err()),
        ("accept_timeout", endpoint.accept_timeout(SOON).err()),
        ("recv, any", endpoint.recv(Source::Any, 1).err()),
        ("progress", endpoint.progress().err()),
        ("arm", endpoint.arm().err()),
    ];
    all.extend(operations_with(endpoint, peer));
    all
}

/// Every operation with a peer.
fn operations_with(endpoint: &Endpoint, peer: PeerId) -> Vec<Failed> {
    let mut room = [0; 8];
    vec![
        ("send, short", endpoint.send(peer, 1, b"x").err()),
        ("send", endpoint.send(peer, 1, &[1; 100]).err()),
        ("send, long", endpoint.send(peer, 1, &vec![1; 1 << 20]).err()),
        ("send_by", endpoint.send_by(pinfold::Path::Eager, peer, 1, b"x").err()),
        ("send_vectored", endpoint.send_vectored(peer, 1, &[IoSlice::new(b"x")]).err()),
        ("recv_into", endpoint.recv_into(peer, 1, &mut room).err()),
        ("recv_vectored", endpoint.recv_vectored(peer, 1, &mut []).err()),
        ("recv", endpoint.recv(peer, 1).err()),
        ("recv_timeout", endpoint.recv_timeout(peer, 1, SOON).err()),
        ("send_owned", endpoint.send_owned(peer, 1, vec![1; 9]).wait().0.err()),
        ("recv_owned", endpoint.recv_owned(peer, 1, vec![1; 9]).wait().0.err()),
        ("recv_request", endpoint.recv_request(peer, 1).wait().err()),
        ("future", pinfold_tests::block_on(endpoint.recv_request(peer, 1)).err()),
        ("call, short", endpoint.call(peer, 1, b"x").err()),
        ("call", endpoint.call(peer, 1, &[1; 1000]).err()),
        ("call, long", endpoint.call(peer, 1, &vec![1; 1 << 20]).err()),
        ("call_owned", endpoint.call_owned(peer, 1, vec![1; 9]).wait().0.err()),
        ("request", endpoint.request(peer, 1, b"x").wait().err()),
        ("request, long", endpoint.request(peer, 1, &vec![1; 1 << 20]).wait().err()),
        ("request_owned", endpoint.request_owned(peer, 1, vec![1; 9]).wait().err()),
        ("try_probe", endpoint.try_probe(peer, 1).err()),
        ("probe", endpoint.probe(peer, 1).err()),
        ("scope", endpoint.scope(|s| s.send(peer, 1, b"x").and_then(|send| send.wait())).err()),
    ]
}

// Closed.

#[test]
fn a_closed_endpoint_says_so() {
    let stage = Stage::new(60);
    stage.play([stage.role("other_side"), stage.role("closer")]);
}

fn closer(_: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::connect(Endpoint::builder().label("closer"), "other");
    let handle = endpoint.clone();
    // Under way when it closes: a posted receive, one that another thread waits for, and a future.
    let posted = endpoint.recv_owned(peer, 1, vec![7; 100]);
    let message = endpoint.recv_request(Source::Any, 2);
    let blocked = thread::spawn({
        let endpoint = endpoint.clone();
        move || endpoint.recv(peer, 3).map(drop)
    });
    let awaited = thread::spawn({
        let request = endpoint.recv_request(peer, 4);
        move || pinfold_tests::block_on(request).map(drop)
    });
    thread::sleep(SOON);
    endpoint.close();
    let closed = |what: &str, error: Option<Error>| match error {
        Some(Error::Closed) => {}
        other => panic!("{what}: {other:?}"),
    };
    let (result, buffer) = posted.wait();
    closed("a posted receive", result.err());
    assert_eq!(buffer, vec![7; 100]);
    closed("a posted receive from anybody", message.wait().err());
    closed("a thread that waits", blocked.join().expect("no panic").err());
    closed("a future", awaited.join().expect("no panic").err());
    for (what, error) in all_operations(&handle, peer) {
        closed(what, error);
    }
    assert_eq!(Error::Closed.to_string(), "the endpoint is closed");
    assert!(handle.peers().is_empty() && handle.peer(peer).is_none());
    handle.disconnect(peer);
    handle.close();
    assert_eq!(handle.counters().peers_joined, 1);
    drop((endpoint, handle));
    before.returns(PATIENCE);
}

fn other_side(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "other");
    let gone = endpoint.recv(peer, 9).unwrap_err();
    let text = gone.to_string();
    let Error::PeerGone { peer: name, how: Gone::Closed } = gone else { panic!("{gone:?}") };
    assert!(name.starts_with("closer (pid "), "{name}");
    assert_eq!(text, format!("{name} is gone: it closed the connection"));
}

#[test]
fn closing_in_the_middle_of_a_message_says_so() {
    let stage = Stage::new(60);
    stage.play([stage.role("leaves_early"), stage.role("in_mid_sentence")]);
}

const EARLY_LEAVES: u32 = 24;

fn leaves_early(_: &Args) {
    let builder = || Endpoint::builder().progress(pinfold::Progress::Dedicated);
    let mut closed = 0;
    for round in 0..EARLY_LEAVES {
        let (endpoint, peer) = role::listen(builder(), &format!("early-{round}"));
        let posted = endpoint.recv_owned(peer, 1, vec![0; LONG]);
        while endpoint.try_probe(peer, 2).unwrap().is_none() {}
        thread::sleep(Duration::from_micros(200) * round);
        endpoint.close();
        let (result, bytes) = posted.wait();
        match result {
            Ok(received) => {
                assert_eq!(received.len, LONG as u64);
                stamp::check(&bytes, 1);
            }
            Err(Error::Closed) => closed += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    role::note(format_args!("closed {closed} times in the middle of a message"));
}

const LONG: usize = 24 << 20;

fn in_mid_sentence(_: &Args) {
    let bytes = stamp::bytes(LONG, 1);
    for round in 0..EARLY_LEAVES {
        let (endpoint, peer) = role::connect(Endpoint::builder(), &format!("early-{round}"));
        let result = endpoint.scope(|s| {
            let first = s.send(peer, 2, b"")?;
            let sent = s.send(peer, 1, &bytes)?.wait().map(drop);
            first.wait().map(drop).and(sent)
        });
        match result {
            Ok(()) | Err(Error::PeerGone { how: Gone::Closed, .. } | Error::Transfer { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

// Forked.

#[test]
fn a_forked_child_is_told_and_does_no_harm() {
    let stage = Stage::new(60);
    stage.play([stage.role("generous"), stage.role("forker")]);
}

fn forker(_: &Args) {
    let builder = Endpoint::builder().label("forker").listen("local:forker");
    let (endpoint, peer) = role::connect(builder, "generous");
    let posted = endpoint.recv_owned(peer, 50, vec![0; 100_000]);
    let talk = |tag: u64| {
        let bytes = stamp::bytes(70_000, tag);
        endpoint.send(peer, tag, &bytes).unwrap();
        stamp::check(&endpoint.recv(peer, tag).unwrap(), tag);
    };
    talk(1);
    let ended = fork(|| {
        for (what, error) in all_operations(&endpoint, peer) {
            match error {
                Some(Error::Forked) => {}
                other => panic!("{what}: {other:?}"),
            }
        }
        assert_eq!(
            Error::Forked.to_string(),
            "this endpoint or arena belongs to the process this one was forked from; make a new one here"
        );
        // The error's advice holds: a new endpoint works, even to the same peer.
        let new = Endpoint::new().unwrap();
        let peer = new.connect("local:generous").unwrap();
        new.send(peer, 2, b"child").unwrap();
        assert_eq!(&*new.recv(peer, 2).unwrap(), b"child");
        new.close();
        // None of this reaches the parent's peer, nor takes the parent's name away.
        endpoint.disconnect(peer);
        endpoint.close();
        drop(endpoint.clone());
        0
    });
    assert_eq!(ended, Ended::Code(0));
    talk(3);
    // A child that ends as any process does ends nothing of its parent's either.
    let ended = fork(|| std::process::exit(4));
    assert_eq!(ended, Ended::Code(4));
    // A child that is killed ends nothing either.
    let ended = fork(|| {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
            .expect("kill");
        5
    });
    assert_eq!(ended, Ended::Signal(libc::SIGKILL));
    talk(4);
    thread::scope(|scope| {
        scope.spawn(|| endpoint.accept_timeout(PATIENCE).expect("the newcomer"));
        let newcomer = Endpoint::new().unwrap();
        newcomer.connect("local:forker").expect("the name is still the parent's");
    });
    endpoint.send(peer, 9, b"").unwrap();
    let (received, bytes) = posted.wait();
    assert_eq!(received.unwrap().len, 100_000);
    stamp::check(&bytes, 50);
}

#[test]
fn a_fork_in_the_middle_of_another_threads_call_hangs_no_child() {
    let stage = Stage::new(120);
    stage.play([stage.role("generous"), stage.role("forks_in_mid_call")]);
}

/// Forks at any moment of the calls of another thread.
const FORKS: u32 = 150;

fn forks_in_mid_call(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "generous");
    // The lock knows two kinds of entry: the entry of the thread that made the endpoint, and
    // others'.
    for the_owner_forks in [true, false] {
        let done = AtomicBool::new(false);
        let calls = || {
            let mut bytes = [0; 300];
            while !done.load(Ordering::Relaxed) {
                endpoint.send(peer, 1, &bytes).expect("send");
                endpoint.recv_into(peer, 1, &mut bytes).expect("recv");
            }
        };
        let forks = || {
            for _ in 0..FORKS {
                fork_once(&endpoint, peer);
            }
            done.store(true, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            if the_owner_forks {
                scope.spawn(calls);
                forks();
            } else {
                scope.spawn(forks);
                calls();
            }
        });
    }
    endpoint.send(peer, 9, b"").unwrap();
    endpoint.recv(peer, 50).unwrap();
}

fn fork_once(endpoint: &Endpoint, peer: PeerId) {
    let posted = endpoint.recv_owned(peer, 77, vec![0; 100]);
    let handle = endpoint.clone();
    let ended = fork(|| {
        assert!(handle.peers().is_empty() && handle.peer(peer).is_none());
        assert_eq!(handle.counters(), Counters::default());
        assert!(matches!(handle.send(peer, 1, b"child"), Err(Error::Forked)));
        assert!(matches!(handle.recv(Source::Any, 1), Err(Error::Forked)));
        handle.scope(|s| assert!(matches!(s.send(peer, 1, b"child"), Err(Error::Forked))));
        handle.disconnect(peer);
        handle.close();
        let (result, buffer) = posted.wait();
        assert!(matches!(result, Err(Error::Forked)) && buffer == [0; 100]);
        0
    });
    assert_eq!(ended, Ended::Code(0));
}

/// Sends back the messages of all peers, until it is told to end.
fn generous(_: &Args) {
    let (endpoint, first) = role::listen(Endpoint::builder(), "generous");
    loop {
        let message = endpoint.recv(Source::Any, TagMatch::any()).unwrap();
        if message.tag() == 9 {
            endpoint.send(first, 50, &stamp::bytes(100_000, 50)).unwrap();
            break;
        }
        endpoint.send(message.peer(), message.tag(), &message).unwrap();
    }
    assert!(endpoint.recv(first, 9).unwrap_err().is_peer_gone());
}

// Unknown and gone.

#[test]
fn peers_that_are_not_there() {
    let stage = Stage::new(60);
    stage.role("loner").spawn().end_well();
}

fn loner(_: &Args) {
    let alone = Endpoint::new().unwrap();
    for error in [alone.accept().unwrap_err(), alone.accept_timeout(PATIENCE).unwrap_err()] {
        assert_eq!(
            error.to_string(),
            "this endpoint does not listen, so nobody can connect to it; give it a name with \
             Builder::listen"
        );
        assert!(matches!(error, Error::NotListening), "{error:?}");
    }

    let there = Endpoint::builder().label("there").listen("local:there").build().unwrap();
    match there.accept_timeout(SOON) {
        Err(Error::Timeout(patience)) => assert_eq!(patience, SOON),
        other => panic!("{other:?}"),
    }
    let here = Endpoint::builder().label("here").build().unwrap();
    let peer = {
        let there = there.clone();
        let accepted = thread::spawn(move || there.accept_timeout(PATIENCE));
        let peer = here.connect("local:there").unwrap();
        accepted.join().expect("no panic").unwrap();
        peer
    };
    // An identifier of another endpoint's, in an endpoint that has met no peer.
    for (what, error) in operations_with(&alone, peer) {
        match error {
            Some(Error::UnknownPeer { peer: said }) => assert_eq!(said, peer),
            other => panic!("{what}: {other:?}"),
        }
    }
    let text = alone.send(peer, 1, b"x").unwrap_err().to_string();
    assert!(text.starts_with("no such peer at this endpoint: PeerId"), "{text}");

    // Disconnected by this side, and by the other.
    here.disconnect(peer);
    match here.send(peer, 1, b"x").unwrap_err() {
        Error::PeerGone { peer, how: Gone::Disconnected } => assert!(peer.starts_with("there")),
        other => panic!("{other:?}"),
    }
    let last = here.recv(Source::Any, 1).unwrap_err();
    let text = last.to_string();
    assert!(matches!(last, Error::NobodyLeft { how: Gone::Disconnected, .. }), "{last:?}");
    assert!(text.starts_with("no peer is left that could send: there (pid "), "{text}");
    // A listening endpoint can still be connected to.
    match there.recv_timeout(Source::Any, 1, SOON) {
        Err(Error::Timeout(_)) => {}
        other => panic!("{other:?}"),
    }
    let text = there.recv_timeout(Source::Any, 1, SOON).unwrap_err().to_string();
    assert_eq!(text, "nothing happened within 50ms");
    assert!(there.peers().is_empty());
}

// Too long for the buffer.

#[test]
fn a_short_buffer_hears_the_true_length() {
    let stage = Stage::new(60);
    stage.play([stage.role("short"), stage.role("long")]);
}

const LENGTHS: [usize; 4] = [40, 5000, 100_000, 3 << 20];

fn short(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "short");
    for (tag, len) in LENGTHS.into_iter().enumerate() {
        let tag = tag as u64;
        let mut room = vec![0; len - 1];
        let error = endpoint.recv_into(peer, tag, &mut room).unwrap_err();
        let text = error.to_string();
        match error {
            Error::Truncated { len: true_len, capacity, peer: from, tag: which, receipt } => {
                assert_eq!((true_len, capacity), (len as u64, len as u64 - 1));
                assert_eq!((from, which, receipt.bytes), (peer, tag, len as u64 - 1));
            }
            other => panic!("{other:?}"),
        }
        let says = format!("the message is {len} bytes long, the buffer {}", len - 1);
        assert!(text.starts_with(&says), "{text}");
        assert!(text.ends_with("holds its beginning, the rest is dropped"), "{text}");
        stamp::check(&room, tag);
    }
}

fn long(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder(), "short");
    for (tag, len) in LENGTHS.into_iter().enumerate() {
        // The sender is not told: the room of the receiver is the receiver's affair.
        let receipt = endpoint.send(peer, tag as u64, &stamp::bytes(len, tag as u64)).unwrap();
        assert_eq!(receipt.bytes, len as u64);
    }
    assert!(endpoint.recv(peer, 9).unwrap_err().is_peer_gone());
}
