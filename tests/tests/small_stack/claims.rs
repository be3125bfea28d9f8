//! Claims, sends that never wait, operations cancelled by their contexts.

use std::io::IoSlice;

use pinfold::{CompletionQueue, Endpoint, RegionKey, Rights};
use pinfold_tests::stamp;

use super::here;

const LENGTHS: [usize; 5] = [0, 8, 2048, 100_000, 9 << 20];

#[test]
fn claims() {
    here(
        "claims",
        |one, peer| {
            for len in LENGTHS {
                let bytes = stamp::bytes(len, 1);
                for _ in 0..3 {
                    one.send(peer, 1, &bytes).unwrap();
                }
            }
            let parts = [IoSlice::new(&[1; 9]), IoSlice::new(&[2; 9])];
            while !one.try_send(peer, 2, &[0; Endpoint::TRY_SEND_MAX]).unwrap() {}
            while !one.try_send_vectored(peer, 2, &parts).unwrap() {}
        },
        |two, peer| {
            for len in LENGTHS {
                two.probe(peer, 1).unwrap();
                let claimed = two.claim(peer, 1).unwrap().unwrap();
                assert_eq!(claimed.envelope().len, len as u64);
                stamp::check(&claimed.recv_owned(vec![0; len]).wait().1, 1);
                two.probe(peer, 1).unwrap();
                stamp::check(
                    &two.claim(peer, 1).unwrap().unwrap().recv_request().wait().unwrap(),
                    1,
                );
                two.probe(peer, 1).unwrap();
                two.claim(peer, 1).unwrap().unwrap().discard();
            }
            assert_eq!(two.recv(peer, 2).unwrap().len(), Endpoint::TRY_SEND_MAX);
            assert_eq!(two.recv(peer, 2).unwrap().len(), 18);
            let queue = CompletionQueue::new().unwrap();
            queue.add(7, two.recv_request(peer, 99));
            assert!(queue.cancel(7));
            let mut ended = Vec::new();
            assert_eq!(queue.take(&mut ended, 8), 1);
            assert_eq!(queue.poll_of(two, &mut ended, 8).unwrap().0, 0);
            assert!(two.try_recv_into(peer, 99, &mut [0; 8]).unwrap().is_none());
            assert!(!two.has_stored().unwrap());
        },
    );
}

/// Memory of a peer is opened without a wait, by offsets and by addresses.
#[test]
fn openings() {
    here(
        "openings",
        |one, peer| {
            let region = one.region(100, Rights::ReadWrite).unwrap();
            region.write(0, b"hello").unwrap();
            one.send(peer, 1, &region.key().unwrap().to_bytes()).unwrap();
            assert!(one.recv(peer, 2).unwrap().is_empty());
            let mut bytes = [0; 5];
            region.read(50, &mut bytes).unwrap();
            assert_eq!(&bytes, b"there");
        },
        |two, peer| {
            let key = RegionKey::from_bytes(&two.recv(peer, 1).unwrap()).unwrap();
            let mut opening = two.open_region_request(peer, &key);
            let region = loop {
                if let Some(region) = opening.try_wait() {
                    break region.unwrap();
                }
            };
            let mut bytes = [0; 5];
            region.read(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"hello");
            let space = two.open_space_request(peer, &key).wait().unwrap();
            space.write(space.addresses().start + 50, b"there").unwrap();
            two.send(peer, 2, &[]).unwrap();
            let unknown = RegionKey::from_bytes(&[7; RegionKey::BYTES]).unwrap();
            assert!(two.open_region_request(peer, &unknown).wait().is_err());
        },
    );
}
