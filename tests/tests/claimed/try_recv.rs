//! Receives that never wait.

use pinfold::{Error, Received, RecvRequest, Source, TagMatch};
use pinfold_tests::{Pair, stamp};

use super::pairs;

/// Sends a message without waiting for its receiver, which is this thread as well.
fn send(pair: &Pair, tag: u64, bytes: &[u8]) {
    pair.until("there is room", || pair.two.try_send(pair.to_one, tag, bytes).unwrap());
}

/// The result of a receive, for which both sides make progress.
fn received_by(pair: &Pair, mut request: RecvRequest<Vec<u8>>) -> (Received, Vec<u8>) {
    let mut ended = None;
    pair.until("it comes", || {
        ended = ended.take().or_else(|| request.try_wait());
        ended.is_some()
    });
    let (received, bytes) = ended.unwrap();
    (received.unwrap(), bytes)
}

/// A receive that never waits takes what is next, and leaves all else to those that are posted.
#[test]
fn what_try_recv_takes_is_the_next_and_nobody_elses() {
    for pair in pairs() {
        let (one, to_two) = (&pair.one, pair.to_two);
        let mut into = [0; 4096];
        assert!(one.try_recv_into(to_two, 1, &mut into).unwrap().is_none());
        let mut taken = 0;
        for number in 0..2000u64 {
            let bytes = stamp::bytes([0, 8, 50, 100, 4096][number as usize % 5], number);
            send(&pair, 1, &bytes);
            let from = if number % 2 == 0 { Source::Any } else { Source::Peer(to_two) };
            let received = one.try_recv_into(from, 1, &mut into).unwrap();
            taken += u32::from(received.is_some());
            let received = received.unwrap_or_else(|| {
                let (received, bytes) = received_by(&pair, one.recv_owned(from, 1, vec![0; 4096]));
                into.copy_from_slice(&bytes);
                received
            });
            assert_eq!((received.peer, received.tag), (to_two, 1));
            let len = received.len as usize;
            assert_eq!(len, bytes.len());
            stamp::check(&into[..len], number);
        }
        // A connection's messages come by progress.
        assert!(taken == 0 || taken > 1900, "{taken}");

        // Another tag is not passed over, and a posted receive has its message first.
        let posted = one.recv_owned(to_two, TagMatch::masked(0, 1), vec![0; 8]);
        for (tag, byte) in [(1, 1), (2, 2), (1, 3)] {
            send(&pair, tag, &[byte; 8]);
        }
        assert!(one.try_recv_into(to_two, 2, &mut into).unwrap().is_none());
        assert!(one.try_recv_into(to_two, 1, &mut into).unwrap().is_none());
        assert!(!one.has_stored().unwrap());
        assert_eq!(received_by(&pair, posted).1, [1; 8]);
        pair.until("they are stored", || one.has_stored().unwrap());
        assert!(one.try_recv_into(to_two, 2, &mut into).unwrap().is_none());
        assert_eq!(one.recv(to_two, 2).unwrap()[..], [2; 8]);
        assert_eq!(one.recv(to_two, 1).unwrap()[..], [3; 8]);
        assert!(!one.has_stored().unwrap());

        // One that is too long has its beginning in the memory.
        send(&pair, 1, &[4; 40]);
        let cut = match one.try_recv_into(to_two, 1, &mut into[..8]) {
            Ok(None) => one.recv_into(to_two, 1, &mut into[..8]).map(drop),
            other => other.map(drop),
        };
        assert!(matches!(cut, Err(Error::Truncated { len: 40, capacity: 8, .. })), "{cut:?}");
        assert_eq!(into[..8], [4; 8]);
        pair.one.disconnect(to_two);
        pair.until("it is gone", || pair.one.peer(to_two).is_none());
        assert!(one.try_recv_into(to_two, 1, &mut into).unwrap().is_none());
        one.close();
        assert!(matches!(one.try_recv_into(to_two, 1, &mut into), Err(Error::Closed)));
    }
}
