//! The process that lives on, and the friend that it talks with.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Error, PeerId, Progress, Rights, Source, TagMatch};
use pinfold_tests::{
    Args, Baseline,
    baseline::status_bytes,
    role::{self, say},
    stamp,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::traffic;

/// The longest time for an operation that should be done at once.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Tags that no message has.
const NEVER: u64 = 99;
/// The tag that ends the friend's day.
const BYE: u64 = 98;

/// Sends back every message that comes.
pub fn friend(_: &Args) {
    let (endpoint, survivor) = role::connect(Endpoint::builder().label("friend"), "survivor");
    loop {
        let message = endpoint.recv(survivor, TagMatch::any()).expect("the survivor survives");
        endpoint.send(survivor, message.tag(), &message).expect("the survivor survives");
        if message.tag() == BYE {
            return;
        }
    }
}

/// Meets one victim after the other.
pub fn survivor(args: &Args) {
    let progress = match args.text("progress") {
        "dedicated" => Progress::Dedicated,
        _ => Progress::Inline,
    };
    // Prepared receives would hold descriptors from the first long message on.
    // Where processors are short one side copies alone, and some points are never reached.
    let builder = Endpoint::builder().label("survivor").progress(progress).prepare_receives(false);
    let builder = builder.heed_shortage(false);
    let (endpoint, friend) = role::listen(builder, "survivor");
    talk(&endpoint, friend);
    // The flags that say whether regions stand lie in memory that is made with the first and stays.
    drop(endpoint.region(64, Rights::ReadWrite).expect("memory"));
    say("has a friend");
    let (before, memory_before) = (Baseline::now(), status_bytes("VmRSS"));
    for number in 0.. {
        let line = role::hear();
        let words: Vec<&str> = line.split(' ').collect();
        let [how, pid, name] = words[..] else { break };
        let delay = meet(&endpoint, how == "call", pid.parse().expect("a number"), name, number);
        talk(&endpoint, friend);
        before.returns(AT_ONCE);
        assert_eq!(endpoint.peers().len(), 1, "only the friend is left");
        match delay {
            Some(delay) => say(format_args!("over {}", delay.as_micros())),
            None => say("over unheard"),
        }
    }
    say(format_args!("grown {}", status_bytes("VmRSS").saturating_sub(memory_before)));
    endpoint.send(friend, BYE, b"").expect("the friend is there");
    endpoint.recv(friend, BYE).expect("the friend is there");
    // The next endpoint that takes a name removes the names of the dead.
    drop(Endpoint::listen("local:next").expect("to listen"));
}

/// A word with the friend by every path.
fn talk(endpoint: &Endpoint, friend: PeerId) {
    for len in [8, 3000, 100_000, 600_000] {
        let sent = stamp::bytes(len, len as u64);
        let request = endpoint.send_owned(friend, len as u64, sent);
        let back = endpoint.recv(friend, len as u64).expect("the friend answers");
        stamp::check(&back, len as u64);
        request.wait().0.expect("the friend hears");
    }
}

/// Tells when a process has ended.
fn watch(pid: u32) -> mpsc::Receiver<Instant> {
    let pid = Pid::from_raw(pid as i32).expect("a process id");
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("the victim is there");
    let (tell, ended) = mpsc::channel();
    thread::spawn(move || {
        while poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None).is_err() {}
        let _ = tell.send(Instant::now());
    });
    ended
}

/// Exchanges messages with a victim until it is gone. Returns how long after its death this was
/// known here; `None` if the two never met, or the victim closed in good order.
fn meet(endpoint: &Endpoint, calls: bool, pid: u32, name: &str, number: u64) -> Option<Duration> {
    let ended = watch(pid);
    say("watching");
    let mut death = None;
    let victim = if calls {
        match endpoint.connect(&format!("local:{name}")) {
            Ok(victim) => Some(victim),
            Err(error) => {
                let known = Instant::now();
                let says_who = error.to_string().contains(name);
                let right = error.is_peer_gone() || matches!(error, Error::NameGone { .. });
                assert!(says_who && right, "connecting to {name}: {error}");
                let death = ended.recv_timeout(AT_ONCE).expect("it is dead");
                return Some(known.saturating_duration_since(death));
            }
        }
    } else {
        loop {
            match endpoint.accept_timeout(Duration::from_millis(5)) {
                Ok(victim) => break Some(victim),
                Err(Error::Timeout(_)) => {}
                Err(error) => panic!("{error}"),
            }
            if death.is_some() {
                break None;
            }
            // The death is looked for once more after it, for it may have come before.
            death = ended.try_recv().ok();
        }
    };
    let victim = victim?;
    let who = format!("victim (pid {pid})");

    // Operations that nothing will ever satisfy.
    let into = endpoint.recv_owned(victim, NEVER, vec![7; 5000]);
    let message = endpoint.recv_request(victim, TagMatch::masked(NEVER, 0xff << 8));
    let short = endpoint.send_owned(victim, NEVER, vec![1; 30]);
    let long = endpoint.send_owned(victim, NEVER, vec![1; 700_000]);
    let wide = endpoint.recv_request(Source::Any, NEVER);
    let blocked = number.is_multiple_of(3).then(|| {
        let endpoint = endpoint.clone();
        thread::spawn(move || endpoint.recv(victim, NEVER + 1).map(drop))
    });

    let result = traffic::exchange(endpoint, victim, false, number, u64::MAX);
    let known = Instant::now();
    names("traffic", result.expect_err("it does not end by itself"), &who);

    let in_time = "an operation with the dead goes on";
    let check = |what, error: Option<Error>| names(what, error.expect("there is no message"), &who);
    let mut requests = (into, message, short, long);
    let (result, buffer) = requests.0.wait_timeout(AT_ONCE).expect(in_time);
    check("recv_owned", result.err());
    assert!(buffer.iter().all(|byte| *byte == 7), "the buffer comes back as it was");
    check("recv_request", requests.1.wait_timeout(AT_ONCE).expect(in_time).err());
    // A short message is sent once it is in the ring; its fate there is another matter.
    let (result, _) = requests.2.wait_timeout(AT_ONCE).expect(in_time);
    if let Err(error) = result {
        names("send_owned, short", error, &who);
    }
    check("send_owned", requests.3.wait_timeout(AT_ONCE).expect(in_time).0.err());
    if let Some(blocked) = blocked {
        // The library may have been told later than this thread, but not much.
        let end = Instant::now() + AT_ONCE;
        while !blocked.is_finished() {
            assert!(Instant::now() < end, "a thread is still blocked in recv from the dead");
            thread::sleep(Duration::from_millis(1));
        }
        check("recv", blocked.join().expect("no panic").err());
    }
    // New operations fail as well.
    check("a new send", endpoint.send(victim, 1, b"are you there").err());
    check("a new receive", endpoint.recv(victim, 1).err());
    assert!(endpoint.peer(victim).is_none());
    // A receive from any source may still get a message.
    let mut wide = wide;
    assert!(wide.try_wait().is_none());
    assert!(wide.cancel());

    let death = death.or_else(|| ended.recv_timeout(AT_ONCE).ok()).expect("its process ended");
    Some(known.saturating_duration_since(death))
}

/// An error that says that the victim is gone.
#[track_caller]
fn names(what: &str, error: Error, who: &str) {
    let right = error.is_peer_gone() || matches!(error, Error::Transfer { .. });
    assert!(right && error.to_string().contains(who), "{what}: {error}");
    if !error.is_peer_gone() {
        role::note(format_args!("{what}: {error}"));
    }
}
