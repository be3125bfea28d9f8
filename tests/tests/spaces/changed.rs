#![allow(unsafe_code)]
// Invariant: the exposed memory is a ground's, which system calls alone reach.
//! Peers read and write, after each call that changes memory, the memory that is there then.

use pinfold::{Endpoint, Rights};
use pinfold_tests::{
    Args,
    changes::{BYTES, CHANGES, Ground, Kind},
    role,
};

use super::{play, space, tell, told};

#[test]
fn what_is_there_is_read_and_written() {
    play("shifter", "seer");
}

pub fn shifter(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "changed");
    let mut ground = Ground::new(2);
    ground.renew(Kind::Plain).unwrap();
    // SAFETY: there are no references to it.
    let all = unsafe { endpoint.expose(ground.range.clone(), Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &all.key().to_bytes()).unwrap();
    let start = ground.range.start as u64;
    let read = || {
        tell(&endpoint, peer, &[start, 0]);
        endpoint.recv(peer, 3).unwrap().to_vec()
    };
    let mut byte = 0;
    for change in CHANGES {
        ground.renew(change.kind).unwrap();
        byte = byte % 100 + 1;
        assert!(ground.fill(byte));
        assert!(read() == vec![byte; BYTES], "before {}", change.name);
        if change.make(&ground).is_err() {
            continue;
        }
        let found = read();
        // Memory that cannot be read is refused.
        let there = ground.look();
        assert!(found.is_empty() || Some(found) == there, "{}", change.name);
        tell(&endpoint, peer, &[start, u64::from(byte) + 100]);
        let is_written = !endpoint.recv(peer, 3).unwrap().is_empty();
        let there = ground.look();
        assert!(!is_written || there == Some(vec![byte + 100; BYTES]), "{}", change.name);
        assert!(is_written || there.is_none(), "{}", change.name);
    }
    tell(&endpoint, peer, &[]);
}

pub fn seer(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "changed");
    let all = space(&endpoint, peer);
    while let [address, byte] = told(&endpoint, peer)[..] {
        let mut bytes = vec![byte as u8; BYTES];
        let done = match byte {
            0 => all.read(address, &mut bytes),
            _ => all.write(address, &bytes),
        };
        let said = if done.is_ok() { &bytes[..] } else { &[] };
        endpoint.send(peer, 3, said).unwrap();
    }
}
