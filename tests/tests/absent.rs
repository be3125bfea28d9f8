//! Endpoints that make no calls: the messages that they received make room, and their senders hear
//! of it, although the receiver is busy with other things.

use std::{sync::mpsc, thread, time::Duration};

use pinfold::{Builder, Endpoint, Path, PathSet, PeerId};
use pinfold_tests::{pair, skip};

/// Runs `play` on a thread of its own, or says that it hangs.
fn soon<R: Send + 'static>(play: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        let result = play();
        let _ = tell.send(());
        result
    });
    if told.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("an endpoint waits for one that has taken all it was sent");
    }
    thread.join().unwrap()
}

fn builder(paths: PathSet) -> Builder {
    Endpoint::builder().paths(paths)
}

#[test]
fn what_was_received_has_made_room() {
    soon(|| {
        let (a, from_b, b, to_a) = pair("room", builder(PathSet::all()), builder(PathSet::all()));
        // All this is one thread: a send that waited for room would wait without end.
        for round in 0..3000u64 {
            let burst = if round % 3 == 0 { 1 + round * 7 % 45 } else { 1 };
            for i in 0..burst {
                let data = round.to_ne_bytes();
                let len = (i % 9) as usize;
                b.send(to_a, i, &data[..len]).unwrap();
            }
            for i in 0..burst {
                let mut buf = [0; 8];
                let got = a.recv_into(from_b, i, &mut buf).unwrap();
                assert_eq!((got.tag, got.len), (i, i % 9));
                assert_eq!(buf[..got.len as usize], round.to_ne_bytes()[..got.len as usize]);
            }
            // Answers say which messages were taken; without them the sender has to look for
            // itself.
            if round / 100 % 2 == 0 {
                a.send(from_b, round, b"").unwrap();
                b.recv(to_a, round).unwrap();
            }
        }
    });
}

#[test]
fn answers_that_found_no_room_are_delivered() {
    soon(|| {
        let (a, from_b, b, to_a) = pair(
            "answers",
            builder(PathSet::only(&[Path::Cma])),
            builder(PathSet::only(&[Path::Cma])),
        );
        if !b.peer(to_a).unwrap().paths.contains(Path::Cma) {
            return skip("no process_vm_readv here");
        }
        let data = vec![7; 100];
        // Messages of its own fill the receiver's way to the sender first.
        let send_all = |from: &Endpoint, to, n| -> Vec<_> {
            (0..n).map(|tag| from.send_owned(to, tag, data.clone())).collect()
        };
        let take_all = |by: &Endpoint, from: PeerId, n| {
            for tag in 0..n {
                let mut buf = [0; 100];
                assert_eq!(by.recv_into(from, tag, &mut buf).unwrap().receipt.path, Path::Cma);
                assert_eq!(buf, *data);
            }
        };
        let theirs = send_all(&a, from_b, 50);
        let ours = send_all(&b, to_a, 40);
        take_all(&a, from_b, 40);
        // From here on the receiver does not call any more.
        for send in ours {
            assert_eq!(send.wait().0.unwrap().path, Path::Cma);
        }
        take_all(&b, to_a, 50);
        for send in theirs {
            assert_eq!(send.wait().0.unwrap().path, Path::Cma);
        }
    });
}
