//! Peers that do not come back.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Error, Gone, Progress};
use pinfold_tests::{Stage, network::Way, stamp};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use super::{PATIENCE, Pair, builder, until};

fn how(error: Error) -> Gone {
    match error {
        Error::PeerGone { how, .. } => how,
        other => panic!("{other}"),
    }
}

/// The listening side waits for as long as it is told to, and so does a caller that is refused.
#[test]
fn who_is_killed_is_given_up() {
    for caller_dies in [true, false] {
        let stage = Stage::new(120);
        let short = |role: &str| stage.role(role).with("away_ms", 700);
        let mut called = short("idler").with("listen", "127.0.0.1:0").spawn();
        let to = called.hear();
        let mut caller = short("idler").with("to", to).spawn();
        called.expect("met");
        caller.expect("met");
        let (dies, stays) =
            if caller_dies { (&mut caller, &mut called) } else { (&mut called, &mut caller) };
        dies.kill();
        let said = stays.hear();
        assert!(said.contains("PeerGone") && said.contains("Lost"), "{said}");
        if !caller_dies {
            let refused = format!("Lost({})", Errno::CONNREFUSED.raw_os_error());
            assert!(said.contains(&refused), "{said}");
        }
        stays.end_well();
    }
}

/// The descriptor of an endpoint without a thread in its calls tells when it is time to call a peer
/// again, or to give it up.
#[test]
fn who_waits_on_the_descriptor_is_woken_for_that() {
    let short = || builder(Progress::Inline).reconnect_timeout(Duration::from_millis(700));
    let Pair { one, two, relay, .. } = Pair::new(short(), short());
    drop(relay);
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    for endpoint in [one, two] {
        while !endpoint.peers().is_empty() {
            if endpoint.arm().unwrap() {
                let mut waits = [PollFd::new(&endpoint, PollFlags::IN)];
                assert_eq!(poll(&mut waits, Some(&patience)).unwrap(), 1, "nothing is ever due");
            }
            endpoint.progress().unwrap();
        }
    }
}

/// Another process in the place of the one that had the session does not have it: the session ends
/// at once, however long the caller would wait.
#[test]
fn who_is_started_anew_is_another() {
    let stage = Stage::new(60);
    let patient = |role: &str| stage.role(role).with("away_ms", 3_600_000);
    let mut first = patient("idler").with("listen", "127.0.0.1:0").spawn();
    let to = first.hear();
    let mut caller = patient("idler").with("to", &to).spawn();
    first.expect("met");
    caller.expect("met");
    first.kill();
    first.end();
    let mut second = patient("idler").with("listen", to.strip_prefix("tcp:").unwrap()).spawn();
    assert_eq!(second.hear(), to);
    let said = caller.hear();
    assert!(said.contains("PeerGone") && said.contains("Died"), "{said}");
    caller.end_well();
}

/// A peer has the messages that the other had sent before, though the connection breaks and no
/// process comes back.
#[test]
fn operations_end_with_errors() {
    let away = Duration::from_millis(300);
    let of = |progress| builder(progress).reconnect_timeout(away);
    let mut pair = Pair::new(of(Progress::Dedicated), of(Progress::Dedicated));
    pair.relay.stall();
    let sends: Vec<_> = (0..80)
        .map(|tag| pair.one.send_owned(pair.to_two, tag, stamp::bytes(1 << 20, tag)))
        .collect();
    pair.relay.reset_after(Way::There, 0);
    thread::scope(|scope| {
        let two =
            scope.spawn(|| how(pair.two.recv_timeout(pair.to_one, 99, PATIENCE).unwrap_err()));
        let gone = how(pair.one.recv_timeout(pair.to_two, 99, PATIENCE).unwrap_err());
        assert!(matches!(gone, Gone::Lost(_)), "{gone}");
        let gone = two.join().unwrap();
        assert!(matches!(gone, Gone::Lost(_) | Gone::Forgot), "{gone}");
    });
    for (tag, send) in sends.into_iter().enumerate() {
        let (done, buffer) = send.wait();
        assert!(matches!(how(done.unwrap_err()), Gone::Lost(_)));
        stamp::check(&buffer, tag as u64);
    }
    assert!(pair.one.peers().is_empty() && pair.two.peers().is_empty());
    // Both can reach each other again.
    pair.relay.reset_never();
    pair.relay.resume();
    pair.to_one = pair.two.connect(&pair.relay.called_at()).unwrap();
    pair.to_two = pair.one.accept_timeout(PATIENCE).unwrap();
    pair.talk(&[8, 100_000]);
}

/// A side that waits for less long has forgotten the peer that comes back; the peer is told at
/// once.
#[test]
fn who_comes_back_too_late_is_told() {
    let hasty = builder(Progress::Dedicated).reconnect_timeout(Duration::from_millis(200));
    let patient = builder(Progress::Dedicated).reconnect_timeout(Duration::from_secs(3600));
    let pair = Pair::new(hasty, patient);
    pair.relay.stall();
    pair.reset();
    until(|| pair.one.peers().is_empty());
    let send = pair.two.send_owned(pair.to_one, 1, stamp::bytes(100_000, 1));
    pair.relay.resume();
    let (done, _) = send.wait();
    assert_eq!(how(done.unwrap_err()), Gone::Forgot);
    assert_eq!(how(pair.two.recv(pair.to_one, 1).unwrap_err()), Gone::Forgot);
}

#[test]
fn without_patience_a_break_is_the_end() {
    for (one, two) in [(0, 0), (0, 10), (10, 0)] {
        let of = |away| builder(Progress::Dedicated).reconnect_timeout(Duration::from_secs(away));
        let pair = Pair::new(of(one), of(two));
        pair.talk(&[8, 100_000]);
        pair.reset();
        for (endpoint, peer) in [(&pair.one, pair.to_two), (&pair.two, pair.to_one)] {
            let gone = how(endpoint.recv_timeout(peer, 1, PATIENCE).unwrap_err());
            assert!(matches!(gone, Gone::Lost(_) | Gone::Died), "{gone}");
        }
        assert_eq!(pair.relay.connections(), 1);
    }
}

/// No thread has to wait for a peer that is away.
#[test]
fn who_closes_meanwhile_ends() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        for disconnects in [true, false] {
            let patient = || builder(progress).reconnect_timeout(Duration::from_secs(3600));
            let Pair { one, to_two, two, to_one, relay } = Pair::new(patient(), patient());
            relay.stall();
            relay.reset_after(Way::There, 0);
            until(|| relay.resets() > 0);
            relay.reset_never();
            for (endpoint, peer) in [(&one, to_two), (&two, to_one)] {
                endpoint.send(peer, 1, b"never to come").unwrap();
            }
            let began = Instant::now();
            if disconnects {
                one.disconnect(to_two);
                two.disconnect(to_one);
                let gone = how(one.recv(to_two, 1).unwrap_err());
                assert_eq!(gone, Gone::Disconnected);
            }
            drop(one);
            drop(two);
            // A bound, no measurement.
            assert!(began.elapsed() < Duration::from_secs(30));
        }
    }
}
