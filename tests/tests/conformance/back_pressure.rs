//! Back-pressure: a receiver that makes no call stops its sender, whose memory does not grow; a
//! send with a time limit says so; and all goes on when the receiver calls again.

use pinfold::Untaken;
use pinfold_tests::stamp;

use crate::{
    fill::{fill, take},
    pair::{End, LENGTHS, Pair, Transport},
};

const LATER: u64 = 2;

pub fn holds(on: Transport) {
    let pair = Pair::new(on);
    for (from, to) in pair.ways() {
        press(from, to);
        pair.both(End::meet);
    }
}

fn press(from: &End, to: &End) {
    let filled = fill(from, false);
    // The lane is full, or the receiver was told of a message that lacks credit, and is silent.
    assert!(matches!(filled.why, Untaken::Behind | Untaken::Unsure), "{}", filled.why);
    let (endpoint, peer) = from.status();
    assert!(filled.messages > 0 && filled.cost <= peer.credit_max, "{} {peer:?}", filled.cost);
    assert!(endpoint.lane_bytes <= endpoint.lane_bytes_max, "{endpoint:?}");
    let lane_bytes = endpoint.lane_bytes;
    // Sends of any length wait in their own memory.
    let mut waiting: Vec<_> = (0..)
        .zip(LENGTHS)
        .map(|(number, len)| {
            let bytes = stamp::bytes(len, number);
            from.endpoint.send_owned(from.peer, from.out(LATER + number), bytes)
        })
        .collect();
    for _ in 0..1000 {
        from.endpoint.progress().unwrap();
    }
    assert!(waiting.iter_mut().all(|request| request.try_wait().is_none()));
    let (endpoint, peer) = from.status();
    assert!(peer.queued + peer.waiting >= LENGTHS.len() as u64, "{peer:?}");
    assert_eq!(endpoint.lane_bytes, lane_bytes);
    // The receiver calls.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (request, (number, len)) in waiting.into_iter().zip((0..).zip(LENGTHS)) {
                let (receipt, bytes) = request.wait();
                assert_eq!(receipt.unwrap().bytes, len as u64);
                stamp::check(&bytes, number);
            }
        });
        take(from, to, &filled);
        for (number, len) in (0..).zip(LENGTHS) {
            let message = to.endpoint.recv(to.peer, to.into(LATER + number)).unwrap();
            assert_eq!(message.len(), len);
            stamp::check(&message, number);
        }
    });
}
