//! Many connections.

use std::{sync::Barrier, thread};

use pinfold::{Progress, Source, TagMatch};
use pinfold_tests::stamp;

use super::builder;

const ENDPOINTS: u64 = 20;
const EACH: u64 = 50;

/// A thousand connections: each endpoint of a crowd connects many times over.
#[test]
fn a_thousand_connections() {
    let one = builder(Progress::Inline).listen("tcp:127.0.0.1:0").build().unwrap();
    let address = one.listens_at().unwrap();
    let over = Barrier::new(ENDPOINTS as usize + 1);
    thread::scope(|scope| {
        for number in 0..ENDPOINTS {
            let (address, over) = (&address, &over);
            scope.spawn(move || {
                let two = builder(Progress::Inline).build().unwrap();
                let peers: Vec<_> =
                    (0..EACH).map(|_| two.connect(address).expect("it listens")).collect();
                for (at, peer) in peers.iter().enumerate() {
                    let seed = number * EACH + at as u64;
                    two.send(*peer, seed, &stamp::bytes(3000, seed)).unwrap();
                }
                for (at, peer) in peers.iter().enumerate() {
                    let seed = number * EACH + at as u64;
                    assert_eq!(&*two.recv(*peer, seed).unwrap(), stamp::bytes(3000, seed));
                }
                over.wait();
            });
        }
        for _ in 0..ENDPOINTS * EACH {
            let message = one.recv(Source::Any, TagMatch::any()).unwrap();
            one.send(message.peer(), message.tag(), &message).unwrap();
        }
        assert_eq!(one.peers().len() as u64, ENDPOINTS * EACH);
        over.wait();
    });
}
