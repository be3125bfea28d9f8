//! Short messages that nobody asks for, until one is not taken.

use std::time::Duration;

use pinfold::{Error, Untaken};
use pinfold_tests::{role::PATIENCE, stamp};

use crate::pair::End;

const UNASKED: u64 = 1;
/// The credit that a message takes beside its bytes.
const MESSAGE_COST: u64 = 128;
/// The wait after which a send is taken back.
const SHORT: Duration = Duration::from_millis(200);
/// Lengths that go within their descriptors, and are stored on every transport.
const LENGTHS: [usize; 4] = [0, 56, 1, 33];

/// Messages that were taken, and why the one after them was not.
pub struct Filled {
    pub messages: u64,
    /// The credit that they take.
    pub cost: u64,
    pub why: Untaken,
}

fn bytes(number: u64) -> Vec<u8> {
    stamp::bytes(LENGTHS[number as usize % LENGTHS.len()], number)
}

/// Sends until a message is not taken. With `looks` the receiver looks at its endpoint, and a
/// message that waits behind others is sent again.
pub fn fill(from: &End, looks: bool) -> Filled {
    let (mut messages, mut cost) = (0, 0);
    loop {
        let bytes = bytes(messages);
        match from.endpoint.send_timeout(from.peer, from.out(UNASKED), &bytes, SHORT) {
            Ok(receipt) => {
                assert_eq!(receipt.bytes, bytes.len() as u64);
                messages += 1;
                cost += MESSAGE_COST + receipt.bytes;
            }
            Err(Error::NotTaken { why: Untaken::Behind, .. }) if looks => {}
            Err(Error::NotTaken { why, .. }) => return Filled { messages, cost, why },
            Err(other) => panic!("{other}"),
        }
    }
}

/// Takes all of them in their order, and a message that is sent after them.
pub fn take(from: &End, to: &End, filled: &Filled) {
    let after = from.endpoint.send_owned(from.peer, from.out(UNASKED), b"after them".to_vec());
    let recv = || to.endpoint.recv_timeout(to.peer, to.into(UNASKED), PATIENCE).unwrap();
    for number in 0..filled.messages {
        assert_eq!(*recv(), bytes(number), "message {number} of {}", filled.messages);
    }
    let mut next = recv();
    // Where that is unsure, it may come, and once.
    if filled.why == Untaken::Unsure && *next == bytes(filled.messages) {
        next = recv();
    }
    assert_eq!(&*next, b"after them");
    after.wait().0.unwrap();
    assert_eq!(to.endpoint.try_probe(to.peer, to.into(UNASKED)).unwrap(), None);
}
