//! Credit: without receives on the other side only so much is taken, more waits at its sender, and
//! all of it comes once it is asked for.

use std::time::Duration;

use pinfold::{Error, Untaken};
use pinfold_tests::{driven, stamp, until};

use crate::{
    fill::{fill, take},
    pair::{End, LENGTHS, Pair, Transport},
};

/// The memory for unexpected messages at either end.
const BUDGET: usize = 1 << 20;
const LATER: u64 = 2;

pub fn holds(on: Transport) {
    let pair = Pair::with(on, |builder| builder.unexpected_bytes_max(BUDGET));
    for (from, to) in pair.ways() {
        driven(&from.endpoint, || driven(&to.endpoint, || spend(from, to)));
    }
}

fn spend(from: &End, to: &End) {
    let filled = fill(from, true);
    let credit = from.status().1.credit_max;
    assert!(filled.messages > 0 && filled.cost <= credit, "{} of {credit}", filled.cost);
    assert!(credit <= BUDGET as u64, "{credit}");
    match filled.why {
        Untaken::NoCredit { credit: said } => assert_eq!(said, credit),
        // The receiver's answer took too long.
        Untaken::Unsure => {}
        other => panic!("{other}"),
    }
    assert!(from.endpoint.counters().credit_stalls > 0);
    // They lie at the receiver, which has promised no more than it may.
    until(|| to.status().1.owed >= filled.cost);
    let (endpoint, peer) = to.status();
    assert!(endpoint.stored >= filled.messages);
    assert!(peer.owed <= peer.granted && peer.granted <= endpoint.granted_bytes);
    assert!(endpoint.granted_bytes <= BUDGET as u64, "{endpoint:?}");
    // A message that is longer than the credit waits for its receive, not for credit.
    let long = stamp::bytes(1 << 20, 1);
    let patience = Duration::from_millis(20);
    let error = from.endpoint.send_timeout(from.peer, from.out(LATER), &long, patience);
    match error {
        Err(Error::NotTaken { why: Untaken::NoReceive | Untaken::Behind, .. }) => {}
        other => panic!("{other:?}"),
    }
    // Messages of all lengths that wait, and do not hold up what is asked for before them.
    let waiting: Vec<_> = (0..)
        .zip(LENGTHS)
        .map(|(number, len)| {
            let bytes = stamp::bytes(len, number);
            from.endpoint.send_owned(from.peer, from.out(LATER + 1 + number), bytes)
        })
        .collect();
    take(from, to, &filled);
    for (number, len) in LENGTHS.into_iter().enumerate().rev() {
        let number = number as u64;
        let mut bytes = vec![0; len];
        let tag = to.into(LATER + 1 + number);
        assert_eq!(to.endpoint.recv_into(to.peer, tag, &mut bytes).unwrap().len, len as u64);
        stamp::check(&bytes, number);
    }
    for (request, len) in waiting.into_iter().zip(LENGTHS) {
        assert_eq!(request.wait().0.unwrap().bytes, len as u64);
    }
    assert_eq!(to.endpoint.try_probe(to.peer, to.into(LATER)).unwrap(), None, "it was taken back");
    // Messages that were taken are credit again.
    until(|| to.status().1.owed == 0);
    let again = fill(from, true);
    assert!(again.messages >= filled.messages / 2, "{} of {}", again.messages, filled.messages);
    take(from, to, &again);
}
