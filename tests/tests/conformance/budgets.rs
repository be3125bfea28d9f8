//! Budgets: what the builder allows is not exceeded at any moment, and a call that would says so.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use pinfold::{Arena, ArenaBuf, Endpoint, Error, Ungreeted};
use pinfold_tests::{driven, role::PATIENCE, stamp, until};

use crate::{
    fill::{fill, take},
    order::stream,
    pair::{End, LENGTHS, Pair, Transport, builder},
};

const LANE_BYTES: usize = 192 << 10;
const UNEXPECTED_BYTES: usize = 512 << 10;
const MAPPED_BYTES: usize = 256 << 20;
const FRAME: usize = 300_000;
/// Room for three frames.
const GIVEN_BYTES: usize = 3 * (FRAME + 1024);
const GIVEN: u64 = 10;

pub fn holds(on: Transport) {
    // Where both ends are of one endpoint, it has two peers.
    let peers = if on.has_two_endpoints() { 1 } else { 2 };
    let pair = Pair::with(on, |builder| {
        builder
            .lane_bytes_max(LANE_BYTES)
            .unexpected_bytes_max(UNEXPECTED_BYTES)
            .mapped_bytes_max(MAPPED_BYTES)
            .given_bytes_max(GIVEN_BYTES)
            .peers_max(peers)
    });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                [&pair.one, &pair.two].into_iter().for_each(within);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let traffic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pair.both(|end| stream(end, &LENGTHS.repeat(2), false));
            pair.both(|end| stream(end, &LENGTHS, true));
            for (from, to) in pair.ways() {
                driven(&from.endpoint, || {
                    driven(&to.endpoint, || take(from, to, &fill(from, true)));
                });
            }
            for (from, to) in pair.ways() {
                gives(from, to);
            }
            refuses(&pair, peers as u64);
        }));
        over.store(true, Ordering::Relaxed);
        traffic.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn within(end: &End) {
    let (endpoint, peer) = end.status();
    assert_eq!(endpoint.lane_bytes_max, LANE_BYTES as u64);
    assert!(endpoint.lane_bytes <= LANE_BYTES as u64, "{endpoint:?}");
    assert_eq!(endpoint.unexpected_bytes_max, UNEXPECTED_BYTES as u64);
    assert!(endpoint.granted_bytes <= UNEXPECTED_BYTES as u64, "{endpoint:?}");
    assert!(peer.owed <= peer.granted, "{peer:?}");
    assert!(peer.announced <= peer.announced_max && peer.waiting <= peer.waiting_max, "{peer:?}");
    assert!(peer.given_bytes <= GIVEN_BYTES as u64, "{peer:?}");
    assert!(endpoint.mapped_bytes <= MAPPED_BYTES as u64, "{endpoint:?}");
}

fn frame(arena: &Arena, number: u64) -> ArenaBuf {
    let mut buf = arena.alloc(FRAME).unwrap();
    stamp::fill(&mut buf, number);
    buf
}

/// A peer that lets go of nothing is given only so much.
fn gives(from: &End, to: &End) {
    let arena = Arena::new().unwrap();
    let give = |number| from.endpoint.try_give(from.peer, from.out(GIVEN), frame(&arena, number));
    let mut given = 0;
    let refused = loop {
        match give(given) {
            Ok(()) => given += 1,
            Err(refused) => break refused,
        }
        // A connection takes copies, as many as its sockets and what is on the way have room for.
        assert!(given < 1000, "nothing stops the giver");
        assert!(arena.stats().buffers <= 4, "{:?}", arena.stats());
    };
    let limit = GIVEN_BYTES as u64;
    assert!(matches!(refused.error, Error::LimitReached { limit: said, .. } if said == limit));
    stamp::check(&refused.donation.into_arena_buf().expect("it is the caller's"), given);
    assert!(given >= 3 && from.status().1.counters.given_stalls > 0, "{given}");
    driven(&from.endpoint, || {
        for number in 0..given {
            let view = to.endpoint.recv_view(to.peer, to.into(GIVEN)).unwrap();
            stamp::check(&view.to_vec().unwrap(), number);
        }
        // There is room again.
        until(|| arena.stats().buffers == 0);
        give(0).unwrap();
        stamp::check(&to.endpoint.recv(to.peer, to.into(GIVEN)).unwrap(), 0);
    });
}

/// A caller beyond the limit of peers is turned away, and told why.
fn refuses(pair: &Pair, peers: u64) {
    let stranger: Endpoint = builder().connect_timeout(PATIENCE).build().unwrap();
    driven(&pair.one.endpoint, || {
        let error = stranger.connect(&pair.address).unwrap_err();
        let limit = match error {
            Error::LimitReached { limit, .. } => limit,
            // By a connection the refusal is one of the greeting's.
            Error::Greeting { reason: Ungreeted::Full(limit), .. } => limit,
            other => panic!("{other:?}"),
        };
        assert_eq!(limit, peers);
    });
    pair.both(|end| stream(end, &[8], false));
}
