//! Requests whose ends go to a completion queue.

use std::collections::BTreeMap;

use pinfold::{Completed, CompletionQueue, Endpoint, Error, PeerId, Result};
use pinfold_tests::role::PATIENCE;

use super::{Link, builder, label, talk, until};

/// Waits for so many completions: the peers by their contexts.
fn peers(queue: &CompletionQueue, count: usize) -> BTreeMap<u64, Result<PeerId>> {
    let (mut ended, mut peers) = (Vec::new(), BTreeMap::new());
    while ended.len() < count {
        assert!(queue.wait(&mut ended, 9, Some(PATIENCE)).unwrap() > 0);
    }
    for mut completion in ended {
        assert!(completion.take_buffer::<Vec<u8>>().is_none());
        let peer = completion.result.map(|completed| match completed {
            Completed::Connected(peer) if completion.context < 100 => peer,
            Completed::Accepted(peer) if completion.context >= 100 => peer,
            other => panic!("{}: {other:?}", completion.context),
        });
        assert!(peers.insert(completion.context, peer).is_none(), "it came twice");
    }
    peers
}

/// One thread waits for five endpoints, asleep.
#[test]
fn one_queue_for_several_endpoints() {
    for link in Link::ALL {
        let queue = CompletionQueue::new().unwrap();
        let (hub, address) = link.listen(builder().label("hub"));
        let callers: Vec<Endpoint> =
            (0..4).map(|number| builder().label(&number.to_string()).build().unwrap()).collect();
        for (number, caller) in callers.iter().enumerate() {
            queue.add(number as u64, caller.connect_request(&address));
            queue.add(100 + number as u64, hub.accept_request());
        }
        let peers = peers(&queue, 8);
        assert_eq!((peers.len(), queue.outstanding()), (8, 0));
        for accepted in 100..104 {
            let accepted = *peers[&accepted].as_ref().unwrap();
            let number: usize = label(&hub, accepted).parse().unwrap();
            let called = *peers[&(number as u64)].as_ref().unwrap();
            talk([(&hub, accepted), (&callers[number], called)]);
        }
    }
}

#[test]
fn an_endpoint_and_itself_in_one_queue() {
    let (endpoint, address) = Link::Local.listen(builder());
    let queue = CompletionQueue::new().unwrap();
    queue.add(1, endpoint.connect_wait_request(&address, PATIENCE));
    queue.add(101, endpoint.accept_request());
    let peers = peers(&queue, 2);
    let peer = |context| *peers[&context].as_ref().unwrap();
    talk([(&endpoint, peer(1)), (&endpoint, peer(101))]);
}

#[test]
fn errors_come_with_their_contexts() {
    let endpoint = builder().build().unwrap();
    let queue = CompletionQueue::new().unwrap();
    queue.add(1, endpoint.connect_request("local:connecting-nobody"));
    queue.add(2, endpoint.connect_request("nonsense"));
    queue.add(3, endpoint.connect_request(&Link::Tcp.free()));
    queue.add(100, endpoint.accept_request());
    let peers = peers(&queue, 4);
    assert!(matches!(peers[&1], Err(Error::NameGone { .. })), "{peers:?}");
    assert!(matches!(peers[&2], Err(Error::BadAddress { .. })), "{peers:?}");
    assert!(matches!(peers[&3], Err(Error::NameGone { .. })), "{peers:?}");
    assert!(matches!(peers[&100], Err(Error::NotListening)), "{peers:?}");
}

/// Completions that were not taken, and operations that had not ended.
#[test]
fn a_queue_that_is_dropped_gives_its_peers_up() {
    for is_taken in [false, true] {
        let (listener, address) = Link::Local.listen(builder());
        let caller = builder().label("caller").build().unwrap();
        let queue = CompletionQueue::new().unwrap();
        queue.add(1, caller.connect_request(&address));
        queue.add(2, caller.connect_wait_request(&Link::Local.free(), PATIENCE));
        queue.add(100, listener.accept_request());
        queue.add(101, listener.accept_request());
        until(&[&caller, &listener], || {
            let met = caller.peers().len() == 1 && listener.peers().len() == 1;
            met.then_some(())
        });
        if is_taken {
            assert_eq!(peers(&queue, 2).len(), 2);
        }
        drop(queue);
        assert_eq!(caller.peers().len(), usize::from(is_taken));
        if is_taken {
            // The program has them.
            pinfold_tests::driven(&caller, || listener.peers());
            assert_eq!(listener.peers().len(), 1);
        } else {
            until(&[&caller, &listener], || listener.peers().is_empty().then_some(()));
        }
        // The next newcomer goes to no queue.
        let mut again = caller.connect_request(&address);
        until(&[&caller, &listener], || again.try_wait()).unwrap();
        let newcomer = listener.accept_timeout(PATIENCE).unwrap();
        assert_eq!(label(&listener, newcomer), "caller");
    }
}

/// A newcomer is not lost with the queue whose operation it went to.
#[test]
fn a_newcomer_of_a_queue_that_is_dropped_goes_to_the_next() {
    let (listener, address) = Link::Local.listen(builder());
    let (one, two) = (builder().label("one"), builder().label("two"));
    let (one, two) = (one.build().unwrap(), two.build().unwrap());
    let queue = CompletionQueue::new().unwrap();
    queue.add(100, listener.accept_request());
    queue.add(101, listener.accept_request());
    queue.add(102, listener.accept_request());
    for caller in [&one, &two] {
        let mut call = caller.connect_request(&address);
        until(&[caller, &listener], || call.try_wait()).unwrap();
        let count = || listener.peers().iter().filter(|peer| peer.name.contains("(")).count();
        let expected = if std::ptr::eq(caller, &one) { 1 } else { 2 };
        until(&[caller, &listener], || (count() == expected).then_some(()));
    }
    let mut waits = listener.accept_request();
    assert!(waits.try_wait().is_none());
    drop(queue);
    let first = until(&[&listener], || waits.try_wait()).unwrap();
    assert_eq!(label(&listener, first), "one");
    let second = listener.accept_timeout(PATIENCE).unwrap();
    assert_eq!(label(&listener, second), "two");
}
