//! Ends of calls that do not come about: silence, closing, limits, children.

use std::{
    future::Future,
    net::TcpListener,
    pin::pin,
    task::{Context, Waker},
    thread,
    time::Duration,
};

use pinfold::{ConnectRequest, Endpoint, Error, Progress};
use pinfold_tests::{
    Args, Baseline, Stage, block_on,
    host::{Ended, fork},
    role::PATIENCE,
};

use super::{Link, builder, meet, name, pass, peers, talk, until};

/// Somebody who takes calls and never says a word, and the address.
struct Silent(#[expect(dead_code, reason = "it is there")] Box<dyn std::any::Any>, String);

impl Silent {
    fn new(link: Link) -> Silent {
        match link {
            Link::Local => {
                let (endpoint, address) = link.listen(builder());
                Silent(Box::new(endpoint), address)
            }
            Link::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = format!("tcp:{}", listener.local_addr().unwrap());
                Silent(Box::new(listener), address)
            }
        }
    }
}

#[test]
fn who_never_answers_is_given_up_in_time() {
    for link in Link::ALL {
        let silent = Silent::new(link);
        let caller = builder().connect_timeout(Duration::from_millis(80)).build().unwrap();
        let mut by_turns = caller.connect_request(&silent.1);
        // Once an endpoint is there it has its time, not what the caller has.
        let mut patient = caller.connect_wait_request(&silent.1, Duration::MAX);
        let error = until(&[&caller], || by_turns.try_wait()).unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
        let error = until(&[&caller], || patient.try_wait()).unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
        let mut in_parts = caller.connect_request(&silent.1);
        assert!(in_parts.wait_timeout(Duration::from_millis(1)).is_none());
        assert!(matches!(in_parts.wait(), Err(Error::NoAnswer { .. })));
        let error = block_on(caller.connect_request(&silent.1)).unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{error}");
    }
}

#[test]
fn closing_ends_what_is_out() {
    for link in Link::ALL {
        for progress in [Progress::Inline, Progress::Dedicated] {
            let silent = Silent::new(link);
            let builder = builder().progress(progress);
            let endpoint = builder.listen(&name()).build().unwrap();
            let request = endpoint.connect_request(&silent.1);
            let resting = endpoint.connect_wait_request(&name(), PATIENCE);
            let accepts = endpoint.accept_request();
            let polled = endpoint.accept_request();
            let mut polled = pin!(polled);
            let mut context = Context::from_waker(Waker::noop());
            assert!(polled.as_mut().poll(&mut context).is_pending());
            thread::scope(|threads| {
                let blocks = threads.spawn(|| endpoint.connect(&silent.1));
                let waits = threads.spawn(|| endpoint.accept());
                // Some have begun, others have not.
                thread::sleep(Duration::from_millis(5));
                endpoint.close();
                assert!(matches!(blocks.join().unwrap(), Err(Error::Closed)));
                assert!(matches!(waits.join().unwrap(), Err(Error::Closed)));
            });
            assert!(matches!(request.wait(), Err(Error::Closed)));
            assert!(matches!(resting.wait(), Err(Error::Closed)));
            assert!(matches!(accepts.wait(), Err(Error::Closed)));
            assert!(matches!(block_on(polled), Err(Error::Closed)));
            let mut late = endpoint.connect_request(&silent.1);
            assert!(!late.cancel());
            assert!(matches!(late.try_wait(), Some(Err(Error::Closed))));
            assert!(late.try_wait().is_none());
            assert!(matches!(endpoint.accept_request().wait(), Err(Error::Closed)));
        }
    }
}

/// A request keeps no endpoint open, and ends with it.
#[test]
fn the_last_handle_ends_what_is_out() {
    let silent = Silent::new(Link::Local);
    let address = name();
    let endpoint = builder().listen(&address).build().unwrap();
    let (request, accepts) = (endpoint.connect_request(&silent.1), endpoint.accept_request());
    drop(endpoint);
    builder().listen(&address).build().unwrap();
    assert!(matches!(request.wait(), Err(Error::Closed)));
    assert!(matches!(accepts.wait(), Err(Error::Closed)));
}

#[test]
fn what_cannot_be_begun_is_told_by_the_request() {
    let endpoint = builder().build().unwrap();
    let error = |request: ConnectRequest| request.wait().unwrap_err();
    for address in ["", "local:", "tcp:127.0.0.1:0", "tcp:nowhere", "elsewhere:7"] {
        let refused = error(endpoint.connect_request(address));
        assert!(matches!(refused, Error::BadAddress { .. }), "{address}: {refused}");
        let refused = error(endpoint.connect_wait_request(address, PATIENCE));
        assert!(matches!(refused, Error::BadAddress { .. }), "{address}: {refused}");
    }
    assert!(matches!(error(endpoint.connect_request(&name())), Error::NameGone { .. }));
    assert!(matches!(endpoint.accept_request().wait(), Err(Error::NotListening)));
    // Its own port it cannot call.
    let (endpoint, address) = Link::Tcp.listen(builder());
    let mut request = endpoint.connect_request(&address);
    let refused = until(&[&endpoint], || request.try_wait()).unwrap_err().to_string();
    assert!(refused.contains("both ends are one endpoint"), "{refused}");
}

#[test]
fn limits_are_told_and_pass() {
    let stage = Stage::new(120);
    stage.role("at_its_limits").spawn().end_well();
}

/// The most calls under way at a time.
const CALLS_MAX: usize = 1024;

pub(super) fn at_its_limits(_: &Args) {
    let (listener, address) = Link::Local.listen(builder());
    let caller = builder().peers_max(2).build().unwrap();
    let before = Baseline::now();
    // Nobody is there, so that they take no descriptors while they rest.
    let absent = Link::Local.free();
    let mut calls: Vec<ConnectRequest> =
        (0..CALLS_MAX).map(|_| caller.connect_wait_request(&absent, Duration::MAX)).collect();
    pass(&[&caller], Duration::from_millis(300));
    let refused = caller.connect_request(&address).wait().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the number of peers that this endpoint calls at a time is limited to 1024; wait for some \
         of them, or cancel some"
    );
    assert!(matches!(caller.connect(&address), Err(Error::LimitReached { limit: 1024, .. })));
    assert!(calls.iter_mut().all(|call| call.try_wait().is_none()));
    assert!(calls[500].cancel());
    let (called, is_called) = meet(&caller, &listener, &address);
    talk([(&caller, called), (&listener, is_called)]);
    caller.disconnect(called);
    drop(calls);
    until(&[&caller, &listener], || listener.peers().is_empty().then_some(()));
    before.returns(PATIENCE);
    // As many waits as one likes, of which the oldest are served first.
    let mut waits: Vec<_> = (0..2 * CALLS_MAX).map(|_| listener.accept_request()).collect();
    let both = [&caller, &listener];
    let called = vec![caller.connect_request(&address), caller.connect_request(&address)];
    let full = caller.connect_request(&address).wait().unwrap_err();
    assert!(matches!(full, Error::LimitReached { limit: 2, .. }), "{full}");
    peers(&both, called.into_iter().map(Into::into).collect());
    for wait in waits.drain(..2) {
        peers(&both, vec![wait.into()]);
    }
    assert!(waits.iter_mut().all(|wait| wait.try_wait().is_none()));
    drop(waits);
    assert_eq!((caller.peers().len(), listener.peers().len()), (2, 2));
}

#[test]
fn a_forked_child_has_no_part_in_calls() {
    let stage = Stage::new(60);
    stage.role("forks").spawn().end_well();
}

pub(super) fn forks(_: &Args) {
    for link in Link::ALL {
        let (listener, address) = link.listen(builder());
        let caller = builder().build().unwrap();
        let calls = || [caller.connect_request(&address), caller.connect_request(&address)];
        let ([one, two], [three, four]) = (calls(), calls());
        let (five, six) = (listener.accept_request(), listener.accept_request());
        // Some of them have ended when the child is made, and some have not.
        pass(&[&caller, &listener], Duration::from_millis(1));
        let mut mine = Some((one, three, five));
        let ended = fork(|| {
            let (mut one, three, five) = mine.take().expect("it is there");
            assert!(!one.cancel());
            assert!(matches!(one.try_wait(), Some(Err(Error::Forked))));
            assert!(matches!(three.wait(), Err(Error::Forked)));
            assert!(matches!(five.wait(), Err(Error::Forked)));
            assert!(matches!(caller.connect_request(&address).wait(), Err(Error::Forked)));
            assert!(matches!(caller.connect(&address), Err(Error::Forked)));
            assert!(matches!(listener.accept_request().wait(), Err(Error::Forked)));
            0
        });
        assert_eq!(ended, Ended::Code(0));
        let (one, three, five) = mine.expect("the parent's");
        let requests = [one, two, three, four].map(Into::into).into_iter();
        let requests = requests.chain([five, six].map(Into::into)).collect();
        let peers = peers(&[&caller, &listener], requests);
        for caller in &peers[4..] {
            assert!(listener.peer(*caller).is_some());
        }
        let newcomer = |_| listener.accept_timeout(PATIENCE).unwrap();
        let rest: Vec<_> = (0..2).map(newcomer).collect();
        assert!(rest.iter().all(|peer| !peers[4..].contains(peer)));
    }
}

/// Drops of endpoints with requests out, by both sides at once.
#[test]
fn calls_of_endpoints_that_go() {
    for round in 0..30u32 {
        let (listener, address) = Link::ALL[round as usize % 2].listen(builder());
        let caller = builder().build().unwrap();
        let (called, is_called) = (caller.connect_request(&address), listener.accept_request());
        for _ in 0..round * 20 {
            caller.progress().unwrap();
            listener.progress().unwrap();
        }
        let goes: [Endpoint; 1] = if round % 3 == 0 { [caller] } else { [listener] };
        drop(goes);
        drop((called, is_called));
    }
}
