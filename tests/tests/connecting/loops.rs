//! Event loops and executors: one thread that connects and accepts at the same time.

use async_executor::LocalExecutor;
use futures_lite::future::{self, zip};
use pinfold::{Endpoint, PeerId, TagMatch};
use pinfold_tests::block_on;

use super::{Awaited, Link, builder, label, meet, name, peers, talk, until};

#[test]
fn one_thread_connects_an_endpoint_with_itself() {
    let (endpoint, address) = Link::Local.listen(builder());
    for round in 1..4 {
        let (called, caller) = meet(&endpoint, &endpoint, &address);
        talk([(&endpoint, called), (&endpoint, caller)]);
        assert_eq!(endpoint.peers().len(), 2 * round);
    }
}

#[test]
fn one_thread_calls_eight_and_is_called_by_them() {
    let here = name();
    let hub = builder().label("hub").listen(&here).listen("tcp:127.0.0.1:0").build().unwrap();
    let there = hub.listens_at().unwrap();
    let others: Vec<(Endpoint, String)> = (0..8)
        .map(|number| {
            let link = Link::ALL[number % 2];
            link.listen(builder().label(&format!("other-{number}")))
        })
        .collect();
    let all: Vec<&Endpoint> = others.iter().map(|(other, _)| other).chain([&hub]).collect();
    let mut requests: Vec<Awaited> = Vec::new();
    for (_, address) in &others {
        requests.push(hub.connect_request(address).into());
        requests.push(hub.accept_request().into());
    }
    for (number, (other, _)) in others.iter().enumerate() {
        requests.push(other.connect_request([&here, &there][number % 2]).into());
        requests.push(other.accept_request().into());
    }
    let peers = peers(&all, requests);
    let (at_hub, at_others) = peers.split_at(16);
    let chunk = |at: &[PeerId], number: usize| (at[2 * number], at[2 * number + 1]);
    for (number, (other, _)) in others.iter().enumerate() {
        let (called, _) = chunk(at_hub, number);
        let (calls, is_called) = chunk(at_others, number);
        assert_eq!(label(&hub, called), format!("other-{number}"));
        talk([(&hub, called), (other, is_called)]);
        other.send(calls, number as u64, b"from its own call").unwrap();
    }
    // Callers come in any order, but each comes once.
    let mut callers = Vec::new();
    for number in 0..8 {
        let (_, caller) = chunk(at_hub, number);
        let mut message = hub.recv_request(caller, TagMatch::any());
        let tag = until(&all, || message.try_wait()).unwrap().tag();
        assert_eq!(label(&hub, caller), format!("other-{tag}"));
        callers.push(tag);
    }
    callers.sort_unstable();
    assert_eq!(callers, (0..8).collect::<Vec<u64>>());
    assert_eq!(hub.peers().len(), 16);
}

#[test]
fn a_crowd_of_calls_to_one_listener() {
    const CALLS: usize = 40;
    for link in Link::ALL {
        let (listener, address) = link.listen(builder());
        let caller = builder().build().unwrap();
        let mut requests: Vec<Awaited> =
            (0..CALLS).map(|_| caller.connect_request(&address).into()).collect();
        requests.extend((0..CALLS).map(|_| listener.accept_request().into()));
        let both = [&caller, &listener];
        let mut peers = peers(&both, requests);
        assert_eq!((caller.peers().len(), listener.peers().len()), (CALLS, CALLS));
        peers[..CALLS].sort_by_key(|peer| format!("{peer:?}"));
        peers[..CALLS].windows(2).for_each(|two| assert_ne!(two[0], two[1]));
    }
}

#[test]
fn futures_of_one_endpoint() {
    let (endpoint, address) = Link::Local.listen(builder());
    let both = zip(endpoint.connect_request(&address), endpoint.accept_request());
    let (called, caller) = block_on(both);
    talk([(&endpoint, called.unwrap()), (&endpoint, caller.unwrap())]);
    // One that does not come holds no other up.
    let vain = endpoint.connect_request("local:connecting-nobody");
    let error = block_on(future::or(async { Some(vain.await) }, async {
        endpoint.accept_request().await.unwrap();
        None
    }));
    assert!(matches!(error, Some(Err(pinfold::Error::NameGone { .. }))), "{error:?}");
}

#[test]
fn futures_of_many_endpoints() {
    for link in Link::ALL {
        let executor = LocalExecutor::new();
        let (hub, address) = link.listen(builder());
        let calls: Vec<_> = (0..6)
            .map(|number| {
                let (address, label) = (address.clone(), format!("{number}"));
                executor.spawn(async move {
                    let endpoint = builder().label(&label).build().unwrap();
                    let to_hub = endpoint.connect_request(&address).await.unwrap();
                    let sent = endpoint.send_owned(to_hub, number, b"hello".to_vec()).await.0;
                    assert_eq!(sent.unwrap().bytes, 5);
                    // Until the hub has it.
                    endpoint.recv_request(to_hub, number).await.unwrap();
                })
            })
            .collect();
        block_on(executor.run(async {
            for _ in 0..6 {
                let peer = hub.accept_request().await.unwrap();
                let message = hub.recv_request(peer, TagMatch::any()).await.unwrap();
                assert_eq!(label(&hub, peer), message.tag().to_string());
                hub.send_owned(peer, message.tag(), Vec::new()).await.0.unwrap();
            }
            for call in calls {
                call.await;
            }
        }));
    }
}
