//! Waiting: by one call and by the descriptor, for one endpoint and for several, by several
//! threads.

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Completed, CompletionQueue, Endpoint, PeerId};
use pinfold_tests::{Args, Stage, role, stamp};
use rustix::event::{PollFd, PollFlags, poll};

use super::Pair;

const ROUNDS: u64 = 300;
/// The context of sends.
const SENT: u64 = u64::MAX;

/// Plays a process that waits in this way for as many endpoints, each with a peer in a process of
/// its own.
fn play(count: u32, how: &str, dedicated: bool) {
    let stage = Stage::new(120);
    let waiter = stage.role("waiter").with("count", count).with("how", how);
    let mut waiter = if dedicated { waiter.with("dedicated", 1) } else { waiter }.spawn();
    let mut ringers: Vec<_> = (0..count)
        .map(|number| {
            waiter.expect("ready");
            stage.role("ringer").with("number", number).spawn()
        })
        .collect();
    waiter.end_well();
    ringers.iter_mut().for_each(|ringer| ringer.end_well());
}

/// Sends each message back, some of them later.
pub fn ringer(args: &Args) {
    let name = format!("ringer-{}", args.text("number"));
    let (endpoint, peer) = role::connect(args.builder(), &name);
    for round in 0..ROUNDS {
        let message = endpoint.recv(peer, round).unwrap();
        if round % 16 == 0 {
            thread::sleep(Duration::from_millis(2));
        }
        endpoint.send(peer, round, &message).unwrap();
    }
}

/// Sends to all and waits for all, `ROUNDS` times.
pub fn waiter(args: &Args) {
    let name = |number| format!("ringer-{number}");
    let ends: Vec<(Endpoint, PeerId)> = (0..args.number::<u32>("count"))
        .map(|number| role::listen(args.builder(), &name(number)))
        .collect();
    let queue = CompletionQueue::new().unwrap();
    let mut ended = Vec::new();
    for round in 0..ROUNDS {
        let len = [8, 600, 70_000][round as usize % 3];
        for (endpoint, peer) in &ends {
            queue.add(round, endpoint.recv_owned(*peer, round, vec![0; len]));
            let bytes = stamp::bytes(len, round);
            queue.add(SENT, endpoint.send_owned(*peer, round, bytes));
        }
        while queue.outstanding() > 0 {
            match args.text("how") {
                "call" => {
                    let came = queue.wait(&mut ended, 100, Some(role::PATIENCE)).unwrap();
                    assert!(came > 0, "nothing comes");
                }
                "descriptor" if queue.poll(&mut ended, 100).unwrap() == 0 => by_descriptor(&queue),
                _ => {
                    queue.poll(&mut ended, 1).unwrap();
                }
            }
        }
        assert_eq!(ended.len(), 2 * ends.len());
        for mut completion in ended.drain(..) {
            let result = completion.result.as_ref().unwrap();
            assert_eq!(matches!(result, Completed::Sent(_)), completion.context == SENT);
            stamp::check(&completion.take_buffer::<Vec<u8>>().unwrap(), round);
        }
    }
}

fn by_descriptor(queue: &CompletionQueue) {
    if queue.arm().unwrap() {
        let mut fds = [PollFd::from_borrowed_fd(queue.as_fd(), PollFlags::IN)];
        let patience = role::PATIENCE.try_into().unwrap();
        assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1, "the descriptor tells of nothing");
    }
}

#[test]
fn one_endpoint_by_its_descriptor() {
    play(1, "descriptor", false);
}

#[test]
fn three_endpoints_by_one_descriptor() {
    play(3, "descriptor", false);
}

#[test]
fn endpoints_that_drive_themselves_by_one_descriptor() {
    play(2, "descriptor", true);
}

#[test]
fn endpoints_by_polling() {
    play(2, "polling", false);
}

#[test]
fn endpoints_by_calls_that_wait() {
    play(1, "call", false);
    play(3, "call", false);
    play(2, "call", true);
}

#[test]
fn a_wait_has_an_end() {
    let pair = Pair::new("completions", Endpoint::builder);
    let queue = CompletionQueue::new().unwrap();
    let mut ended = Vec::new();
    let short = Duration::from_millis(30);
    let waits = |ended: &mut Vec<_>| {
        let begun = Instant::now();
        assert_eq!(queue.wait(ended, 1, Some(short)).unwrap(), 0);
        assert!(begun.elapsed() >= short);
    };
    waits(&mut ended);
    queue.add(1, pair.one.recv_request(pair.to_two, 1));
    waits(&mut ended);
    queue.add(2, pair.two.recv_request(pair.to_one, 1));
    waits(&mut ended);
    assert_eq!(queue.outstanding(), 2);
}

/// One thread waits, before there is any endpoint; others add, and what has ended at once wakes it.
#[test]
fn a_thread_that_waits_hears_of_what_others_add() {
    for count in [1, 2] {
        let pairs: Vec<_> =
            (0..count).map(|_| Pair::new("completions", Endpoint::builder)).collect();
        let queue = CompletionQueue::new().unwrap();
        let taken = AtomicU64::new(0);
        thread::scope(|threads| {
            threads.spawn(|| {
                let mut ended = Vec::new();
                while taken.load(Ordering::Relaxed) < 100 * count {
                    let came = queue.wait(&mut ended, 3, Some(role::PATIENCE)).unwrap();
                    assert!(came > 0, "{} taken", taken.load(Ordering::Relaxed));
                    taken.fetch_add(came as u64, Ordering::Relaxed);
                }
            });
            for number in 0..100 {
                for pair in &pairs {
                    // It has ended when it is added.
                    let bytes = b"at once".to_vec();
                    queue.add(number, pair.one.send_owned(pair.to_two, number, bytes));
                    pair.two.recv(pair.to_one, number).unwrap();
                }
                let before = taken.load(Ordering::Relaxed);
                if number % 8 == 0 {
                    thread::sleep(Duration::from_millis(3));
                    assert!(taken.load(Ordering::Relaxed) >= before);
                }
            }
        });
        assert_eq!(queue.outstanding(), 0);
    }
}
