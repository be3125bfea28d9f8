//! An endpoint that is connected to itself: both ends of the pair are its peers, and everything
//! goes as between two.

use std::time::Duration;

use pinfold::{
    Arena, AtomicChange, Completed, CompletionQueue, Endpoint, Error, PeerId, Progress, Rights,
};
use pinfold_tests::{role::PATIENCE, stamp};

const LENGTHS: [usize; 6] = [0, 8, 57, 5_000, 200_000, 5 << 20];

/// An endpoint and its names for itself: the one that calls, and the one that is called.
fn endpoint(name: &str, progress: Progress) -> (Endpoint, String, PeerId, PeerId) {
    let address = format!("local:loopback-{name}-{}", std::process::id());
    let endpoint = Endpoint::builder()
        .progress(progress)
        .handle(1, |active| active.reply(active.payload()).unwrap())
        .listen(&address)
        .build()
        .unwrap();
    let there = endpoint.connect_wait(&address, PATIENCE).unwrap();
    let here = endpoint.accept_timeout(PATIENCE).unwrap();
    assert_ne!(there, here);
    (endpoint, address, there, here)
}

/// Each case, by one thread that does not wait for anything that it has to do itself.
fn everything(name: &str, progress: Progress) {
    let (endpoint, address, there, here) = endpoint(name, progress);
    let arena = Arena::new().unwrap();
    let queue = CompletionQueue::new().unwrap();
    let mut ended = Vec::new();
    for (from, to) in [(there, here), (here, there)] {
        for (tag, len) in LENGTHS.into_iter().enumerate() {
            let tag = tag as u64;
            let mut lent = arena.alloc(len.max(1)).unwrap();
            lent[..len].copy_from_slice(&stamp::bytes(len, tag));
            queue.add(0, endpoint.recv_owned(to, tag, vec![0; len]));
            queue.add(1, endpoint.send_owned(from, tag, stamp::bytes(len, tag)));
            queue.add(2, endpoint.recv_request(to, 100 + tag));
            let given = endpoint.handoff(from, 100 + tag, lent);
            while queue.outstanding() > 0 {
                assert!(queue.wait(&mut ended, 9, Some(PATIENCE)).unwrap() > 0);
            }
            for mut completion in ended.drain(..) {
                match (completion.context, completion.result.as_ref().unwrap()) {
                    (0, Completed::Received(received)) => {
                        assert_eq!((received.peer, received.tag), (to, tag));
                        stamp::check(&completion.take_buffer::<Vec<u8>>().unwrap(), tag);
                    }
                    (1, Completed::Sent(receipt)) => assert_eq!(receipt.bytes, len as u64),
                    (2, Completed::Message(message)) => stamp::check(&message[..len], tag),
                    (context, other) => panic!("{context}: {other:?}"),
                }
            }
            given.wait().0.unwrap();
        }
        // Its own handler, and its own memory.
        let asked = endpoint.request(from, 1, b"how now").wait().unwrap();
        assert_eq!(&*asked, b"how now");
        let region = endpoint.region(4096, Rights::ReadWrite).unwrap();
        let remote = endpoint.open_region(from, &region.key().unwrap()).unwrap();
        remote.write(8, &7u64.to_ne_bytes()).unwrap();
        let was = remote.atomic(8, AtomicChange::Add(1u64)).wait().unwrap();
        let mut bytes = [0; 8];
        remote.read(8, &mut bytes).unwrap();
        assert_eq!((was, u64::from_ne_bytes(bytes)), (7, 8));
    }
    // One end goes, and the other hears of it.
    endpoint.disconnect(there);
    let gone = endpoint.recv_timeout(here, 1, PATIENCE).unwrap_err();
    assert!(gone.is_peer_gone(), "{gone}");
    let again = endpoint.connect_wait(&address, PATIENCE).unwrap();
    let back = endpoint.accept_timeout(PATIENCE).unwrap();
    endpoint.send(again, 1, b"again").unwrap();
    assert_eq!(&*endpoint.recv(back, 1).unwrap(), b"again");
    let nothing = endpoint.recv_timeout(back, 2, Duration::from_millis(10)).unwrap_err();
    assert!(matches!(nothing, Error::Timeout(_)), "{nothing}");
    endpoint.close();
    assert!(matches!(endpoint.send(again, 1, b"late"), Err(Error::Closed)));
}

#[test]
fn calls_that_wait() {
    let (endpoint, _, out, into) = endpoint("waits", Progress::Inline);
    assert_eq!(endpoint.peers().len(), 2);
    for (tag, len) in [8, 1000, 100_000, 2 << 20].into_iter().enumerate() {
        let tag = tag as u64;
        let sent = endpoint.send_owned(out, tag, stamp::bytes(len, tag));
        stamp::check(&endpoint.recv(into, tag).unwrap(), tag);
        sent.wait().0.unwrap();
    }
}

#[test]
fn driven_by_its_calls() {
    everything("memory", Progress::Inline);
}

#[test]
fn driven_by_a_thread() {
    everything("driven", Progress::Dedicated);
}

/// By a port it is refused: somebody in the middle could pass off an endpoint's own greeting as
/// another's.
#[test]
fn not_by_a_port() {
    for shortcut in [false, true] {
        let builder = Endpoint::builder().local_shortcut(shortcut);
        let endpoint = builder.listen("tcp:127.0.0.1:0").build().unwrap();
        let address = endpoint.listens_at().unwrap();
        let error = endpoint.connect_wait(&address, PATIENCE).unwrap_err().to_string();
        assert!(error.contains("both ends are one endpoint"), "{error}");
    }
}
