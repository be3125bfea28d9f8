//! Waits for a message that is not taken: requests and futures.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::Duration,
};

use pinfold::{Endpoint, Error, TagMatch};
use pinfold_tests::{Pair, block_on, role::PATIENCE};

fn new_pair(name: &str) -> Pair {
    Pair::new(name, Endpoint::builder)
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Count>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn it_ends_with_the_first_message_that_matches_and_takes_none() {
    let pair = new_pair("probing-first");
    let mut probe = pair.two.probe_request(.., (4, 1));
    let mut other = pair.two.probe_request(pair.to_one, 4);
    for tag in [1, 5, 4] {
        pair.one.send(pair.to_two, tag, &[tag as u8; 100]).unwrap();
    }
    let envelope = probe.wait_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!((envelope.peer, envelope.tag, envelope.len), (pair.to_one, 5, 100));
    assert_eq!(other.wait_timeout(PATIENCE).unwrap().unwrap().tag, 4);
    // A result is handed out once.
    assert!(probe.try_wait().is_none());
    // One that begins when the message is there.
    assert_eq!(pair.two.probe_request(.., ..).wait().unwrap().tag, 1);
    for tag in [1, 4, 5] {
        assert_eq!(pair.two.recv(.., tag).unwrap()[..], [tag as u8; 100]);
    }
    assert_eq!(pair.two.try_probe(.., ..).unwrap(), None);
}

#[test]
fn a_task_is_woken_once_there_is_one() {
    let pair = new_pair("probing-task");
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let mut probe = pin!(pair.two.probe_request(pair.to_one, 7));
    assert!(probe.as_mut().poll(&mut context).is_pending());
    pair.one.send(pair.to_two, 6, b"another").unwrap();
    pair.one.send(pair.to_two, 7, b"it").unwrap();
    let end = std::time::Instant::now() + PATIENCE;
    while count.0.load(Ordering::Relaxed) == 0 {
        assert!(std::time::Instant::now() < end);
        thread::yield_now();
    }
    let Poll::Ready(found) = probe.as_mut().poll(&mut context) else { panic!("it was woken") };
    assert_eq!((found.unwrap().tag, count.0.load(Ordering::Relaxed)), (7, 1));
    // And by every length, asleep.
    for len in [0, 8, 56, 5000, 3 << 20] {
        let bytes = vec![3; len];
        thread::scope(|scope| {
            let waits = scope.spawn(|| block_on(pair.two.probe_request(.., 9)).unwrap());
            let sends = scope.spawn(|| pair.one.send(pair.to_two, 9, &bytes).unwrap());
            assert_eq!(waits.join().unwrap().len, len as u64);
            assert_eq!(pair.two.recv(.., 9).unwrap().len(), len);
            sends.join().unwrap();
        });
    }
}

#[test]
fn it_can_be_given_up_in_every_way() {
    let pair = new_pair("probing-up");
    let mut cancelled = pair.two.probe_request(.., 1);
    let dropped = pair.two.probe_request(.., 1);
    std::mem::forget(pair.two.probe_request(.., 1));
    assert!(pair.two.probe_request(.., 1).wait_timeout(Duration::from_millis(1)).is_none());
    assert!(cancelled.cancel());
    assert!(matches!(cancelled.wait(), Err(Error::Cancelled)));
    drop(dropped);
    pair.one.send(pair.to_two, 1, b"it").unwrap();
    assert_eq!(pair.two.probe_timeout(.., 1, PATIENCE).unwrap().len, 2);
    assert_eq!(pair.two.recv(.., 1).unwrap()[..], b"it"[..]);
    let none = pair.two.probe_timeout(.., 1, Duration::from_millis(1));
    assert!(matches!(none, Err(Error::Timeout(_))), "{none:?}");
}

#[test]
fn a_message_of_a_receive_that_is_given_up_counts() {
    let pair = new_pair("probing-left");
    let receive = pair.two.recv_owned(pair.to_one, 1, vec![0; 10]);
    let mut probe = pair.two.probe_request(pair.to_one, 1);
    pair.one.send(pair.to_two, 1, b"it").unwrap();
    for _ in 0..100 {
        pair.two.progress().unwrap();
    }
    assert!(probe.try_wait().is_none(), "it is the receive's");
    drop(receive);
    assert_eq!(probe.wait_timeout(PATIENCE).unwrap().unwrap().len, 2);
}

#[test]
fn it_ends_when_no_message_can_come() {
    let pair = new_pair("probing-gone");
    let gone = pair.two.probe_request(pair.to_one, TagMatch::any());
    let closed = pair.one.probe_request(.., ..);
    pair.one.close();
    assert!(matches!(closed.wait(), Err(Error::Closed)));
    assert!(gone.wait().unwrap_err().is_peer_gone());
    assert!(matches!(pair.one.probe_request(.., ..).wait(), Err(Error::Closed)));
    let forever: Pin<Box<_>> = Box::pin(pair.two.probe_request(pair.to_one, 1));
    assert!(block_on(forever).unwrap_err().is_peer_gone());
}
