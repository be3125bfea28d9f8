//! Ends of operations before they are done, and of queues before their operations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use pinfold::{Completed, CompletionQueue, Endpoint, Error, OwnedBuf, OwnedBufMut, TagMatch};
use pinfold_tests::{Args, Stage, role, stamp};

use super::{Pair, all};

/// A buffer that is counted.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Counted {
    fn new(bytes: Vec<u8>, count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(bytes, Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[allow(unsafe_code)]
// SAFETY: a vector's elements do not move with it.
unsafe impl OwnedBuf for Counted {
    fn bytes(&self) -> (*const u8, usize) {
        (self.0.as_ptr(), self.0.len())
    }
}

#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl OwnedBufMut for Counted {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.0.as_mut_ptr(), self.0.len())
    }
}

#[test]
fn the_end_of_an_endpoint_ends_all() {
    let count = Arc::default();
    let pair = Pair::new("completions", Endpoint::builder);
    let queue = CompletionQueue::new().unwrap();
    for number in 0..20 {
        let buffer = Counted::new(vec![0; 100], &count);
        queue.add(number, pair.one.recv_owned(pair.to_two, number, buffer));
    }
    queue.add(20, pair.one.recv_request(pair.to_two, TagMatch::any()));
    pair.one.close();
    let ended = all(&queue);
    assert_eq!(ended.len(), 21);
    for completion in &ended {
        assert!(matches!(completion.result, Err(Error::Closed)), "{completion:?}");
    }
    assert_eq!(count.load(Ordering::Relaxed), 20);
    drop(ended);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    // A request that is posted from now on ends at once.
    queue.add(1, pair.one.recv_request(pair.to_two, 1));
    assert!(matches!(all(&queue)[0].result, Err(Error::Closed)));
}

#[test]
fn the_death_of_a_peer_ends_all_with_it() {
    let stage = Stage::new(60);
    let mut survivor = stage.role("survivor").spawn();
    survivor.expect("ready");
    let mut mortal = stage.role("mortal").spawn();
    survivor.expect("posted");
    mortal.kill();
    survivor.end_well();
    mortal.end();
}

pub fn survivor(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "mortal");
    let queue = CompletionQueue::new().unwrap();
    for number in 0..10 {
        queue.add(number, endpoint.recv_owned(peer, number, vec![0; 8]));
        let bytes = stamp::bytes(4 << 20, number);
        queue.add(100 + number, endpoint.send_owned(peer, number, bytes));
    }
    role::say("posted");
    let ended = all(&queue);
    assert_eq!(ended.len(), 20);
    for mut completion in ended {
        assert!(completion.result.as_ref().is_err_and(Error::is_peer_gone), "{completion:?}");
        assert!(completion.take_buffer::<Vec<u8>>().is_some());
    }
}

pub fn mortal(args: &Args) {
    let _here = role::connect(args.builder(), "mortal");
    role::hear();
}

/// A message that a receive of the queue would have taken goes to the next one.
#[test]
fn a_queue_that_is_dropped_loses_no_message() {
    let count = Arc::default();
    let pair = Pair::new("completions", Endpoint::builder);
    let queue = CompletionQueue::new().unwrap();
    for number in 0..8 {
        let buffer = Counted::new(vec![0; 64], &count);
        queue.add(number, pair.one.recv_owned(pair.to_two, number, buffer));
    }
    let other = queue.clone();
    drop(queue);
    assert_eq!(other.outstanding(), 8);
    drop(other);
    assert_eq!(count.load(Ordering::Relaxed), 0, "buffers are kept");
    for number in 0..8 {
        pair.two.send(pair.to_one, number, &stamp::bytes(64, number)).unwrap();
        stamp::check(&pair.one.recv(pair.to_two, number).unwrap(), number);
    }
}

/// A send of it goes on to its end if its receiver has it already, and is taken back if not.
#[test]
fn sends_of_a_queue_that_is_dropped_keep_their_buffers_as_long_as_they_need() {
    let count = Arc::default();
    let pair = Pair::new("completions", Endpoint::builder);
    for len in [8, 3_000, 2 << 20] {
        let queue = CompletionQueue::new().unwrap();
        let buffer = Counted::new(stamp::bytes(len, 1), &count);
        queue.add(1, pair.one.send_owned(pair.to_two, 1, buffer));
        drop(queue);
        match pair.two.recv_timeout(pair.to_one, 1, Duration::from_millis(20)) {
            Ok(message) => stamp::check(&message, 1),
            Err(error) => assert_eq!(len, 2 << 20, "{error}"),
        }
        for _ in 0..10 {
            pair.one.progress().unwrap();
            pair.two.progress().unwrap();
        }
        assert_eq!(count.load(Ordering::Relaxed), 0, "{len}");
    }
}

/// Completions that nobody took go with the queue.
#[test]
fn completions_that_are_left_are_dropped_with_it() {
    let count = Arc::default();
    let pair = Pair::new("completions", Endpoint::builder);
    let queue = CompletionQueue::new().unwrap();
    for number in 0..4 {
        let buffer = Counted::new(stamp::bytes(8, number), &count);
        queue.add(number, pair.one.send_owned(pair.to_two, number, buffer));
    }
    let mut ended = Vec::new();
    assert_eq!(queue.poll(&mut ended, 1).unwrap(), 1);
    assert!(matches!(ended[0].result, Ok(Completed::Sent(_))));
    assert_eq!(queue.outstanding(), 3);
    drop(queue);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(ended);
    assert_eq!(count.load(Ordering::Relaxed), 0);
}
