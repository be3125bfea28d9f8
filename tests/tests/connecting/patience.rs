//! Calls that wait for their obstacle to pass.

use std::{thread, time::Duration};

use pinfold::{Completed, CompletionQueue, Error};
use pinfold_tests::role::PATIENCE;

use super::{Link, builder, pass, peers, talk, until};

const SHORT: Duration = Duration::from_millis(60);

#[test]
fn an_endpoint_that_comes_later_is_found() {
    for link in Link::ALL {
        let address = link.free();
        let caller = builder().build().unwrap();
        let mut called = caller.connect_wait_request(&address, PATIENCE);
        pass(&[&caller], SHORT);
        assert!(called.try_wait().is_none());
        let listener = builder().listen(&address).build().unwrap();
        let requests = vec![called.into(), listener.accept_request().into()];
        let peers = peers(&[&caller, &listener], requests);
        talk([(&caller, peers[0]), (&listener, peers[1])]);
        assert_eq!(caller.peers().len(), 1);
    }
}

/// By a thread that sleeps until the next call is due.
#[test]
fn an_endpoint_that_comes_later_is_found_by_one_that_sleeps() {
    let address = &Link::Local.free();
    let caller = builder().build().unwrap();
    let queue = CompletionQueue::new().unwrap();
    thread::scope(|threads| {
        // A thread that waits for something else sleeps for both.
        let waits = threads.spawn(|| caller.recv_timeout(pinfold::Source::Any, 1, PATIENCE));
        let later = threads.spawn(|| {
            thread::sleep(SHORT);
            let listener = builder().listen(address).build().unwrap();
            for _ in 0..3 {
                let peer = listener.accept_timeout(PATIENCE).unwrap();
                listener.send(peer, 1, b"hello").unwrap();
            }
            listener
        });
        queue.add(1, caller.connect_wait_request(address, PATIENCE));
        let blocks = threads.spawn(|| caller.connect_wait(address, PATIENCE).unwrap());
        let mut ended = Vec::new();
        assert_eq!(queue.wait(&mut ended, 9, Some(PATIENCE)).unwrap(), 1);
        let Ok(Completed::Connected(one)) = ended[0].result else { panic!("{ended:?}") };
        let two = caller.connect_wait_request(address, PATIENCE).wait().unwrap();
        let three = blocks.join().unwrap();
        assert_eq!(&*waits.join().unwrap().unwrap(), b"hello");
        assert!(one != two && two != three && one != three);
        later.join().unwrap();
    });
}

#[test]
fn patience_ends() {
    for link in Link::ALL {
        let (address, caller) = (link.free(), builder().build().unwrap());
        let mut by_turns = caller.connect_wait_request(&address, SHORT);
        let error = until(&[&caller], || by_turns.try_wait()).unwrap_err();
        assert!(matches!(error, Error::NameGone { .. }), "{error}");
        assert!(by_turns.try_wait().is_none());
        let mut in_parts = caller.connect_wait_request(&address, SHORT);
        assert!(in_parts.wait_timeout(Duration::from_micros(100)).is_none());
        assert!(matches!(in_parts.wait(), Err(Error::NameGone { .. })));
        let none = caller.connect_wait_request(&address, Duration::ZERO).wait();
        assert!(matches!(none, Err(Error::NameGone { .. })), "{none:?}");
    }
}

/// Also between two calls.
#[test]
fn a_call_that_waits_can_be_cancelled_and_dropped() {
    for link in Link::ALL {
        let (address, caller) = (link.free(), builder().build().unwrap());
        for time in [0, 1, 15, 30] {
            let mut called = caller.connect_wait_request(&address, Duration::MAX);
            let other = caller.connect_wait_request(&address, Duration::MAX);
            pass(&[&caller], Duration::from_millis(time));
            assert!(called.cancel() && !called.cancel());
            assert!(matches!(called.wait(), Err(Error::Cancelled)));
            drop(other);
        }
        // Nobody calls any more.
        let listener = builder().listen(&address).build().unwrap();
        pass(&[&caller, &listener], SHORT);
        assert!(listener.peers().is_empty());
    }
}
