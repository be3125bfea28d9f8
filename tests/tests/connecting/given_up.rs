//! Requests that are dropped, cancelled or leaked, at every stage.

use std::{
    mem,
    time::{Duration, Instant},
};

use pinfold::{AcceptRequest, Endpoint, Error, Gone, status};
use pinfold_tests::{Args, Baseline, Stage, role::PATIENCE};

use super::{Link, builder, label, meet, talk, until};

/// The most turns that either side takes before a call is given up.
const TURNS: u32 = 9;

/// One look at an endpoint's descriptors: those of polling threads are 50 µs apart.
fn turn(endpoint: &Endpoint) {
    let end = Instant::now() + Duration::from_micros(60);
    while Instant::now() < end {}
    for _ in 0..32 {
        endpoint.progress().unwrap();
    }
}

#[test]
fn nothing_is_left_of_a_call_that_is_dropped() {
    given_up("drop");
}

#[test]
fn nothing_is_left_of_a_call_that_is_cancelled() {
    given_up("cancel");
}

fn given_up(how: &str) {
    let stage = Stage::new(120);
    for link in ["local", "tcp", "name"] {
        stage.role("fickle").with("link", link).with("how", how).spawn().end_well();
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc").count()
}

/// Bytes of credit that the caller has granted.
fn granted() -> u64 {
    let status = status::endpoints_of(std::process::id()).unwrap();
    let caller = status.endpoints.iter().find(|endpoint| endpoint.label == "caller");
    caller.expect("its status").granted_bytes
}

/// Gives calls up after so many turns of both sides, each first.
pub(super) fn fickle(args: &Args) {
    let link = if args.text("link") == "local" { Link::Local } else { Link::Tcp };
    let builder = || builder().reconnect_timeout(Duration::from_millis(300));
    let (listener, mut address) = link.listen(builder());
    if args.text("link") == "name" {
        address = address.replace("127.0.0.1", "localhost");
    }
    let caller = builder().label("caller").build().unwrap();
    let both = [&caller, &listener];
    let goes = || {
        let is_quiet = || caller.peers().is_empty() && listener.peers().is_empty();
        until(&both, || is_quiet().then_some(()));
    };
    // Descriptors that are made once are there from the first time on.
    let (called, _) = meet(&caller, &listener, &address);
    caller.disconnect(called);
    goes();
    let (before, threads_before) = (Baseline::now(), threads());
    let (mut connected, mut cut_short) = (0, 0);
    for turns in 0..2 * TURNS {
        for orders in [[&caller, &listener], [&listener, &caller]] {
            let joined = caller.counters().peers_joined;
            let mut request = caller.connect_request(&address);
            for at in 0..turns {
                turn(orders[at as usize % 2]);
            }
            if args.text("how") == "cancel" {
                let cancelled = request.cancel();
                match request.wait() {
                    Err(Error::Cancelled) => assert!(cancelled),
                    Ok(peer) => {
                        assert!(!cancelled);
                        caller.disconnect(peer);
                    }
                    Err(error) => panic!("{error}"),
                }
            } else {
                drop(request);
            }
            match caller.counters().peers_joined - joined {
                0 => cut_short += 1,
                _ => connected += 1,
            }
            assert!(caller.peers().is_empty(), "{turns}");
            let joined = listener.peers();
            goes();
            for peer in joined {
                let gone = listener.send(peer.id, 1, b"late").unwrap_err();
                // The packet by which a connection knows may still be on its way.
                let is_told = matches!(gone, Error::PeerGone { how: Gone::Closed, .. });
                assert!(is_told || link == Link::Tcp, "{gone}");
            }
            until(&both, || {
                let now = Baseline::now();
                let is_same = (now.descriptors(), now.segments())
                    == (before.descriptors(), before.segments());
                (is_same && threads() == threads_before && granted() == 0).then_some(())
            });
        }
    }
    assert!(connected > 0 && cut_short > 2, "{connected} connected, {cut_short} not");
    let (called, is_called) = meet(&caller, &listener, &address);
    talk([(&caller, called), (&listener, is_called)]);
}

/// An endpoint that listens, and three that it has been called by, in order.
fn three_callers() -> (Endpoint, Vec<Endpoint>) {
    let (listener, address) = Link::Local.listen(builder());
    let callers = ["first", "second", "third"].map(|label| {
        let caller = builder().label(label).build().unwrap();
        let mut request = caller.connect_request(&address);
        until(&[&caller, &listener], || request.try_wait()).unwrap();
        let came = || listener.peers().iter().any(|peer| peer.name.starts_with(label));
        until(&[&listener], || came().then_some(()));
        caller
    });
    (listener, callers.into())
}

/// The labels of peers that are accepted, as they come.
fn accepted(listener: &Endpoint) -> Vec<String> {
    let mut labels = Vec::new();
    loop {
        match listener.accept_timeout(Duration::from_millis(5)) {
            Ok(peer) => labels.push(label(listener, peer)),
            Err(Error::Timeout(_)) => return labels,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn newcomers_of_requests_that_are_dropped_are_accepted_in_order() {
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let (listener, _callers) = three_callers();
        let mut requests: Vec<Option<AcceptRequest>> =
            (0..3).map(|_| Some(listener.accept_request())).collect();
        for at in order {
            drop(requests[at].take());
        }
        assert_eq!(accepted(&listener), ["first", "second", "third"], "{order:?}");
    }
}

#[test]
fn a_newcomer_goes_on_to_the_request_that_waits() {
    let (listener, _callers) = three_callers();
    let (one, two) = (listener.accept_request(), listener.accept_request());
    let (three, mut four) = (listener.accept_request(), listener.accept_request());
    assert!(four.try_wait().is_none());
    drop(two);
    let second = until(&[&listener], || four.try_wait()).unwrap();
    assert_eq!(label(&listener, second), "second");
    let one = one.wait().unwrap();
    assert_eq!(label(&listener, one), "first");
    drop(three);
    assert_eq!(accepted(&listener), ["third"]);
}

#[test]
fn a_newcomer_that_is_gone_goes_to_nobody() {
    let (listener, mut callers) = three_callers();
    let one = listener.accept_request();
    drop(callers.remove(0));
    until(&[&listener], || (listener.peers().len() == 2).then_some(()));
    drop(one);
    assert_eq!(accepted(&listener), ["second", "third"]);
}

#[test]
fn a_wait_that_is_cancelled_takes_nobody() {
    let (listener, address) = Link::Local.listen(builder());
    let (mut one, mut two) = (listener.accept_request(), listener.accept_request());
    assert!(one.cancel() && !one.cancel());
    assert!(matches!(one.wait(), Err(Error::Cancelled)));
    let caller = builder().build().unwrap();
    let mut calls = caller.connect_request(&address);
    until(&[&caller, &listener], || calls.try_wait()).unwrap();
    // A request that has ended cannot be cancelled any more.
    until(&[&listener], || (listener.peers().len() == 1).then_some(()));
    assert!(!two.cancel());
    assert!(listener.peer(two.wait().unwrap()).is_some());
}

/// The oldest is served first, whether it blocks or not.
#[test]
fn requests_and_calls_that_block_take_turns() {
    let (listener, address) = Link::Local.listen(builder());
    let request = listener.accept_request();
    let label_of = |peer| label(&listener, peer);
    std::thread::scope(|threads| {
        let blocks = threads.spawn(|| label_of(listener.accept_timeout(PATIENCE).unwrap()));
        let callers = ["first", "second"].map(|label| {
            let caller = builder().label(label).build().unwrap();
            caller.connect(&address).unwrap();
            caller
        });
        assert_eq!(label_of(request.wait().unwrap()), "first");
        assert_eq!(blocks.join().unwrap(), "second");
        drop(callers);
    });
}

#[test]
fn leaked_requests_keep_their_peers_and_harm_nobody() {
    for link in Link::ALL {
        let (listener, address) = link.listen(builder());
        let caller = builder().build().unwrap();
        mem::forget(caller.connect_request(&address));
        mem::forget(listener.accept_request());
        let both = [&caller, &listener];
        let met = || caller.peers().len() == 1 && listener.peers().len() == 1;
        until(&both, || met().then_some(()));
        talk([(&caller, caller.peers()[0].id), (&listener, listener.peers()[0].id)]);
        // Another goes its way.
        let (called, is_called) = meet(&caller, &listener, &address);
        talk([(&caller, called), (&listener, is_called)]);
        mem::forget(caller.connect_request(&address));
        mem::forget(caller.connect_wait_request(&link.free(), PATIENCE));
        mem::forget(listener.accept_request());
        caller.close();
        listener.close();
        assert!(matches!(caller.connect(&address), Err(Error::Closed)));
    }
}
