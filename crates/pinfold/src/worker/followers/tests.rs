//! Six threads that wait at one endpoint; leaders that leave in each of the ways they can.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::Awaited;
use crate::{Builder, Endpoint, Error, PeerId, Progress, TagMatch, worker::cancel};

const PATIENCE: Duration = Duration::from_secs(30);
const THREADS: usize = 6;

/// An endpoint at which threads wait, the identifier of its peer there, and the peer with the
/// identifier of the endpoint there.
fn pair(name: &str, by: Builder) -> ((Endpoint, PeerId), (Endpoint, PeerId)) {
    let name = format!("local:followers-{name}-{}", process::id());
    let one = by.listen(&name).build().unwrap();
    let two = Endpoint::builder().build().unwrap();
    let (to_two, to_one) = thread::scope(|scope| {
        let to_two = scope.spawn(|| one.accept().unwrap());
        let to_one = two.connect(&name).unwrap();
        (to_two.join().unwrap(), to_one)
    });
    ((one, to_two), (two, to_one))
}

fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

/// Waits until the leader sleeps and so many threads are parked.
fn all_wait(endpoint: &Endpoint, parked: usize) {
    until(|| {
        let engine = endpoint.shared().enter().unwrap();
        engine.asleep && engine.followers.parked.len() == parked
    });
}

fn woken(endpoint: &Endpoint) -> u64 {
    endpoint.shared().enter().unwrap().followers.woken
}

/// A thread that receives one message with this tag, and says so.
fn receiver(endpoint: &Endpoint, from: PeerId, tag: u64) -> mpsc::Receiver<u64> {
    let (says, said) = mpsc::channel();
    let endpoint = endpoint.clone();
    thread::spawn(move || {
        let message = endpoint.recv(from, TagMatch::exact(tag)).unwrap();
        let _ = says.send(message.tag());
    });
    said
}

/// A leader that sleeps and a follower, which wait for messages 1 and 2.
fn two_wait(endpoint: &Endpoint, from: PeerId) -> [mpsc::Receiver<u64>; 2] {
    let first = receiver(endpoint, from, 1);
    all_wait(endpoint, 0);
    let second = receiver(endpoint, from, 2);
    all_wait(endpoint, 1);
    [first, second]
}

#[test]
fn a_message_wakes_one_thread_of_six() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let by = Endpoint::builder().progress(progress);
        let ((one, to_two), (two, to_one)) = pair("six", by);
        let parked = THREADS - usize::from(progress == Progress::Inline);
        let got: Arc<[AtomicU32; THREADS]> = Arc::default();
        for tag in 0..THREADS {
            let (one, got) = (one.clone(), Arc::clone(&got));
            thread::spawn(move || {
                while one.recv(to_two, TagMatch::exact(tag as u64)).is_ok() {
                    got[tag].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..10 {
            for tag in 0..THREADS {
                let tag = (tag + round) * 5 % THREADS;
                all_wait(&one, parked);
                let before = (woken(&one), got[tag].load(Ordering::Relaxed));
                two.send(to_one, tag as u64, b"hello").unwrap();
                until(|| got[tag].load(Ordering::Relaxed) > before.1);
                all_wait(&one, parked);
                assert_eq!(woken(&one) - before.0, 1, "{progress:?}, message {tag}");
            }
        }
        one.close();
    }
}

#[test]
fn a_leader_that_has_its_message_hands_over() {
    let ((one, to_two), (two, to_one)) = pair("result", Endpoint::builder());
    let [first, second] = two_wait(&one, to_two);
    two.send(to_one, 1, b"hello").unwrap();
    assert_eq!(first.recv_timeout(PATIENCE), Ok(1));
    two.send(to_one, 2, b"hello").unwrap();
    assert_eq!(second.recv_timeout(PATIENCE), Ok(2));
}

#[test]
fn a_leader_whose_time_is_up_hands_over() {
    let ((one, to_two), (two, to_one)) = pair("deadline", Endpoint::builder());
    let first = one.clone();
    let patience = Duration::from_millis(300);
    let first = thread::spawn(move || first.recv_timeout(to_two, 1, patience).is_err());
    let second = receiver(&one, to_two, 2);
    assert!(first.join().unwrap());
    two.send(to_one, 2, b"hello").unwrap();
    assert_eq!(second.recv_timeout(PATIENCE), Ok(2));
}

#[test]
fn a_leader_that_runs_a_handler_hands_over() {
    let (lets_go, may_go) = mpsc::channel();
    let may_go = Mutex::new(may_go);
    let by = Endpoint::builder().handle(7, move |_| {
        let waits_for = may_go.lock().unwrap();
        waits_for.recv_timeout(PATIENCE).unwrap();
    });
    let ((one, to_two), (two, to_one)) = pair("handler", by);
    let [first, second] = two_wait(&one, to_two);
    two.call(to_one, 7, b"stay").unwrap();
    two.send(to_one, 1, b"hello").unwrap();
    two.send(to_one, 2, b"hello").unwrap();
    // The handler may run on either; the other one has its message meanwhile.
    let mut others = [first, second].map(Some);
    until(|| {
        let had = |said: &&mut Option<mpsc::Receiver<u64>>| {
            said.as_ref().is_some_and(|said| said.try_recv().is_ok())
        };
        others.iter_mut().find(had).is_some_and(|said| said.take().is_some())
    });
    lets_go.send(()).unwrap();
    let within = others.into_iter().flatten().next().unwrap();
    assert!(within.recv_timeout(PATIENCE).is_ok());
}

#[test]
fn a_leader_that_unwinds_hands_over() {
    let ((one, to_two), (two, to_one)) = pair("unwinds", Endpoint::builder());
    let unwinds = Arc::new(AtomicBool::new(false));
    let first = {
        let (one, unwinds) = (one.clone(), Arc::clone(&unwinds));
        thread::spawn(move || {
            let ready = |_: &mut _| -> Option<()> {
                assert!(!unwinds.load(Ordering::Relaxed), "as the test has it");
                None
            };
            let wait = || one.shared().wait_for(None, Awaited::Anything, ready);
            catch_unwind(AssertUnwindSafe(wait)).is_err()
        })
    };
    all_wait(&one, 0);
    let second = receiver(&one, to_two, 2);
    all_wait(&one, 1);
    unwinds.store(true, Ordering::Relaxed);
    one.shared().enter().unwrap().kick = true;
    assert!(first.join().unwrap());
    two.send(to_one, 2, b"hello").unwrap();
    assert_eq!(second.recv_timeout(PATIENCE), Ok(2));
}

/// An operation that another thread ends is the parked thread's, or the sleeping leader's.
#[test]
fn who_waits_hears_of_an_end_that_another_thread_saw() {
    let ((one, to_two), _two) = pair("ends", Endpoint::builder());
    let waits = |parked| {
        let (says, said) = mpsc::channel();
        let endpoint = one.clone();
        let wait = move || {
            let received = endpoint.recv(to_two, TagMatch::any());
            let _ = says.send(matches!(received, Err(Error::Cancelled)));
        };
        thread::spawn(wait);
        all_wait(&one, parked);
        let engine = one.shared().enter().unwrap();
        let number = engine.followers.last;
        let key = engine.core.ops.open().find(|(_, op)| op.waiting == number);
        (key.unwrap().0, said)
    };
    let (leads, follows) = (waits(0), waits(1));
    for (key, said) in [follows, leads] {
        assert!(cancel::cancel(&mut one.shared().enter().unwrap(), key));
        assert_eq!(said.recv_timeout(PATIENCE), Ok(true));
    }
}

/// Calls that wait sleep for all, so that a message wakes the one that it is for, and no other
/// thread before; and once none waits any more, the endpoint's own thread drives again.
#[test]
fn the_own_thread_leaves_the_lead_to_calls_and_takes_it_back() {
    let by = Endpoint::builder().progress(Progress::Dedicated);
    let ((one, to_two), (two, to_one)) = pair("stands-by", by);
    let is_left = || {
        let engine = one.shared().enter().unwrap();
        engine.asleep && engine.followers.parked.iter().any(|other| other.awaited == Awaited::Close)
    };
    for _ in 0..10 {
        let calls = one.clone();
        let calls = thread::spawn(move || while !calls.recv(to_two, 1).unwrap().is_empty() {});
        // It may lead at first, but not for all messages.
        until(|| {
            two.send(to_one, 1, b"hello").unwrap();
            thread::sleep(Duration::from_millis(10));
            is_left()
        });
        two.send(to_one, 1, b"").unwrap();
        calls.join().unwrap();
        // Nobody but the own thread takes this.
        let mut receive = one.recv_owned(to_two, 2, vec![0; 5]);
        two.send(to_one, 2, b"hello").unwrap();
        until(|| one.shared().enter().unwrap().core.ops.open().next().is_none());
        receive.try_wait().unwrap().0.unwrap();
    }
}
