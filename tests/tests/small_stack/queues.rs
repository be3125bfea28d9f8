//! Completion queues.

use pinfold::{AtomicChange, CompletionQueue, Endpoint, PeerId, RemoteRegion};
use pinfold_tests::stamp;

/// Every call of a queue, with operations on a region of the peer's and a receive of nothing.
pub fn use_queue(endpoint: &Endpoint, peer: PeerId, remote: &RemoteRegion) {
    let queue = CompletionQueue::new().unwrap();
    let mut ended = Vec::new();
    for len in [8, 100_000] {
        queue.add(1, remote.write_owned(128, stamp::bytes(len, 7)));
        while queue.outstanding() > 0 {
            queue.wait(&mut ended, 8, None).unwrap();
        }
        queue.add(2, remote.read_owned(128, vec![0; len]));
        while queue.outstanding() > 0 {
            if queue.poll(&mut ended, 8).unwrap() == 0 {
                let _ = queue.arm().unwrap();
            }
        }
        let bytes: Vec<u8> = ended.last_mut().unwrap().take_buffer().unwrap();
        stamp::check(&bytes, 7);
    }
    // The kernel changes no words.
    queue.add(3, remote.atomic(64, AtomicChange::Max(5u32)));
    queue.add(4, remote.atomic(65, AtomicChange::Max(5u32)));
    while queue.outstanding() > 0 {
        queue.wait(&mut ended, 1, None).unwrap();
    }
    // Their order is that of their ends.
    let wrong = ended.iter().find(|completion| completion.context == 4).unwrap();
    assert!(wrong.result.is_err());
    queue.add(5, endpoint.recv_request(peer, u64::MAX - 1));
    assert_eq!((queue.outstanding(), ended.len()), (1, 6));
    drop(queue.clone());
}
