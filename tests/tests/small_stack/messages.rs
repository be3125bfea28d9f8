//! Messages of all lengths by every call, and the status of endpoints.

use std::{
    future::poll_fn,
    io::{IoSlice, IoSliceMut},
    os::fd::AsFd,
    sync::mpsc,
    task::Poll,
    thread,
    time::Duration,
};

use pinfold::{
    Access, CompletionQueue, Endpoint, Error, Path, PeerId, Receipt, Source, TagMatch, copy, status,
};
use pinfold_tests::{block_on, stamp};

use super::{here, small};

const LENGTHS: [usize; 9] = [0, 8, 56, 57, 2048, 9000, 100_000, 1 << 20, 9 << 20];
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints a message's receipt, as programs do.
fn told(receipt: Receipt) {
    assert!(!receipt.to_string().is_empty());
    assert!(receipt.refusals().count() < 10);
    let _ = (receipt.refused(Path::Cma), receipt.copied_by(), receipt.prefaulted());
    let _ = (receipt.sent_by(), receipt.send_driver(), receipt.send_refused());
}

#[test]
fn blocking_calls() {
    here(
        "blocking",
        |one, peer| {
            for len in LENGTHS {
                let bytes = stamp::bytes(len, 1);
                told(one.send(peer, 1, &bytes).unwrap());
                told(one.send_by(Path::Eager, peer, 1, &bytes).unwrap());
                let (head, tail) = bytes.split_at(len / 3);
                let parts = [IoSlice::new(head), IoSlice::new(tail)];
                told(one.send_vectored(peer, 1, &parts).unwrap());
                told(one.send_timeout(peer, 1, &bytes, PATIENCE).unwrap());
            }
        },
        |two, peer| {
            for len in LENGTHS {
                let mut bytes = vec![0; len];
                let received = two.recv_into(peer, 1, &mut bytes).unwrap();
                told(received.receipt);
                stamp::check(&bytes, 1);
                assert_eq!(two.probe(peer, 1).unwrap().len, len as u64);
                assert!(two.try_probe(peer, 2).unwrap().is_none());
                assert_eq!(two.probe_timeout(.., .., PATIENCE).unwrap().peer, peer);
                assert_eq!(two.probe_request(peer, (1, 0)).wait().unwrap().tag, 1);
                let message = two.recv(peer, TagMatch::any()).unwrap();
                assert_eq!((message.peer(), message.tag()), (peer, 1));
                told(message.receipt());
                let _ = message.folded().map(|how| format!("{how:?}"));
                stamp::check(&message.into_vec(), 1);
                let (head, tail) = bytes.split_at_mut(len / 2);
                let mut parts = [IoSliceMut::new(head), IoSliceMut::new(tail)];
                told(two.recv_vectored(peer, 1, &mut parts).unwrap().receipt);
                stamp::check(&two.recv_timeout(peer, 1, PATIENCE).unwrap(), 1);
            }
            let nothing = two.recv_timeout(peer, 1, Duration::from_millis(1));
            assert!(matches!(nothing, Err(Error::Timeout(_))));
        },
    );
}

#[test]
fn requests() {
    here(
        "requests",
        |one, peer| {
            for len in LENGTHS {
                let bytes = || stamp::bytes(len, 2);
                one.send_owned(peer, 1, bytes()).wait().0.unwrap();
                block_on(one.send_owned(peer, 1, bytes())).0.unwrap();
                let mut request = one.send_owned(peer, 1, bytes());
                let done = request.wait_timeout(PATIENCE);
                done.unwrap().0.unwrap();
                assert!(!request.cancel() && request.try_wait().is_none());
            }
        },
        |two, peer| {
            for len in LENGTHS {
                let (received, bytes) = two.recv_owned(peer, 1, vec![0; len]).wait();
                received.unwrap();
                stamp::check(&bytes, 2);
                stamp::check(&block_on(two.recv_request(peer, 1)).unwrap(), 2);
                stamp::check(&two.recv_request(peer, 1).wait().unwrap(), 2);
            }
            let mut never = two.recv_request(peer, 9);
            assert!(never.try_wait().is_none() && never.cancel());
            assert!(never.wait_timeout(PATIENCE).unwrap().is_err());
        },
    );
}

#[test]
fn many_into_one_buffer() {
    let room = LENGTHS.iter().map(|len| len.next_multiple_of(8).max(8)).sum();
    here(
        "many",
        |one, peer| {
            for (tag, len) in (0..).zip(LENGTHS).chain((0..).zip(LENGTHS)) {
                one.send(peer, tag, &stamp::bytes(len, tag)).unwrap();
            }
        },
        move |two, peer| {
            let mut multi = two.multi_recv(peer, TagMatch::any(), vec![0; room], 1);
            while !multi.is_over() {
                let polled = block_on(poll_fn(|context| match multi.try_next() {
                    Some(message) => Poll::Ready(Some(message)),
                    None => multi.poll_next(context),
                }));
                let message = polled.unwrap().unwrap();
                stamp::check(multi.bytes(&message).unwrap(), message.tag);
            }
            let queue = CompletionQueue::new().unwrap();
            let mut multi = two.multi_recv(peer, TagMatch::any(), multi.take_buffer().unwrap(), 1);
            multi.next().unwrap().unwrap();
            multi.next_timeout(PATIENCE).unwrap().unwrap();
            queue.add(1, multi);
            let mut ended = Vec::new();
            while queue.outstanding() > 0 {
                queue.wait(&mut ended, 8, None).unwrap();
            }
            let buffer: Vec<u8> = ended.last_mut().unwrap().take_buffer().unwrap();
            assert_eq!((ended.len(), buffer.len()), (LENGTHS.len() - 2, room));
            let mut never = two.multi_recv(peer, 99, buffer, 1);
            assert!(never.cancel() && never.next().unwrap().is_err());
        },
    );
}

#[test]
fn scopes() {
    here(
        "scopes",
        |one, peer| {
            for len in LENGTHS {
                let bytes = stamp::bytes(len, 3);
                one.scope(|scope| {
                    scope.send(peer, 1, &bytes).unwrap().wait().unwrap();
                    let mut send = scope.send(peer, 2, &bytes).unwrap();
                    while let Err(again) = send.try_wait() {
                        send = again;
                    }
                });
            }
        },
        |two, peer| {
            for len in LENGTHS {
                let (mut first, mut second) = (vec![0; len], vec![0; len]);
                two.scope(|scope| {
                    scope.recv_into(peer, 1, &mut first).unwrap().wait().0.unwrap();
                    let mut recv = scope.recv_into(peer, 2, &mut second).unwrap();
                    while let Err(again) = recv.try_wait() {
                        recv = again;
                    }
                });
                stamp::check(&first, 3);
                stamp::check(&second, 3);
            }
        },
    );
}

#[test]
fn endpoints_say_how_they_are() {
    let look = |endpoint: &Endpoint, peer: PeerId| {
        assert_eq!(endpoint.peers().len(), 1);
        assert!(!format!("{:?}", endpoint.peer(peer).unwrap()).is_empty());
        assert!(!format!("{:?} {:?}", endpoint.counters(), endpoint.copies()).is_empty());
        let _ = endpoint.as_fd();
        let _ = endpoint.arm().unwrap();
        endpoint.progress().unwrap();
        let view = status::endpoints_of(std::process::id()).unwrap();
        assert!(!view.endpoints.is_empty() && !format!("{view:?}").is_empty());
        for status in &view.endpoints {
            assert!(!status.state.name().is_empty());
            for peer in &status.peers {
                let _ = peer.refused(Path::Cma);
            }
        }
        assert!(!status::endpoints().unwrap().endpoints.is_empty());
        // The environment names no place for it.
        status::report(&endpoint.counters()).unwrap();
        assert!(status::reports(std::path::Path::new("/nowhere")).is_err());
        endpoint.disconnect(peer);
    };
    here("says", look, look);
}

#[test]
fn connecting() {
    let address = format!("local:small-connecting-{}", std::process::id());
    let wait = &address;
    thread::scope(|scope| {
        scope.spawn(|| {
            small(|| {
                let one = Endpoint::listen(wait).unwrap();
                one.accept_timeout(PATIENCE).unwrap();
            });
        });
        small(|| {
            let two = Endpoint::new().unwrap();
            assert!(two.connect("local:small-nobody").is_err());
            assert!(two.listens_at().is_none());
            two.connect_wait(wait, PATIENCE).unwrap();
        });
    });
    small(|| {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", socket.local_addr().unwrap());
        let one = Endpoint::builder().listen_on(&address, socket.into()).build().unwrap();
        assert_eq!(one.listens_at(), Some(address));
    });
}

#[test]
fn connecting_by_requests() {
    let address = format!("local:small-requests-{}", std::process::id());
    for by in [address.as_str(), "tcp:127.0.0.1:0"] {
        small(|| {
            let builder = Endpoint::builder().local_shortcut(false);
            let endpoint = builder.clone().listen(by).build().unwrap();
            let caller = builder.build().unwrap();
            let address = endpoint.listens_at().unwrap_or(by.to_owned());
            let mut is_called = endpoint.accept_request();
            let mut calls = caller.connect_request(&address);
            let mut calls_again = caller.connect_wait_request(&address, PATIENCE);
            let mut found = Vec::new();
            while found.len() < 2 {
                found.extend(is_called.try_wait());
                found.extend(calls.try_wait());
            }
            assert!(found.iter().all(Result::is_ok), "{found:?}");
            let _ = calls_again.wait_timeout(Duration::from_millis(1));
            let _ = calls_again.cancel();
            assert!(block_on(caller.connect_request("local:small-nobody")).is_err());
            let queue = CompletionQueue::new().unwrap();
            queue.add(1, calls_again);
            queue.add(2, endpoint.accept_request());
        });
    }
}

#[test]
fn settings() {
    let key = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(key.path(), [7; 32]).unwrap();
    small(|| {
        let builder = Endpoint::builder().label("small").access(Access::default()).strict(false);
        let builder = builder.connect_timeout(PATIENCE).reconnect_timeout(PATIENCE).peers_max(7);
        let builder = builder.lane_bytes_max(1 << 20).mapped_bytes_max(64 << 20);
        let builder = builder.unexpected_bytes_max(1 << 20).active_bytes_max(1 << 20);
        let builder = builder.given_bytes_max(64 << 20).frames_in_flight(2);
        Endpoint::check_address("local:small").unwrap();
        let builder =
            builder.io_uring(false).move_pages(false).prepare_receives(false).heed_shortage(false);
        assert!(!format!("{builder:?}").is_empty());
        let endpoint = builder.key_file(key.path()).build().unwrap();
        assert!(endpoint.peers().is_empty());
        let tag = TagMatch::masked(8, 7);
        assert!(tag.matches(15) && tag.ignore() == 7 && !TagMatch::exact(8).matches(15));
        assert!(Source::Any.matches(small_peer(&endpoint)));
    });
}

/// A peer that is gone again.
fn small_peer(endpoint: &Endpoint) -> PeerId {
    let (tell, told) = mpsc::channel();
    let address = format!("local:small-settings-{}", std::process::id());
    thread::scope(|scope| {
        scope.spawn(|| {
            let one = Endpoint::listen(&address).unwrap();
            tell.send(()).unwrap();
            one.accept().unwrap();
        });
        told.recv().unwrap();
        endpoint.connect(&address).unwrap()
    })
}

#[test]
fn copies_of_slices() {
    small(|| {
        let from = stamp::bytes(1 << 20, 4);
        let mut to = vec![0; 1 << 20];
        for reader in copy::Reader::ALL {
            for len in [100, 300, 5000, 1 << 20] {
                let copied = copy::copy(&mut to[..len], &from[..len], reader).unwrap();
                let zeroed = copy::zero(&mut to[..len], reader);
                let moved = copy::move_within(&mut to, 0..len / 2, len / 3, reader).unwrap();
                assert!(!format!("{copied:?} {zeroed:?} {moved:?}").is_empty());
            }
        }
        assert!(!format!("{:?}", copy::counts()).is_empty());
        assert!(!format!("{:?}", copy::plan().origin()).is_empty());
        let _ = copy::probe();
    });
}
