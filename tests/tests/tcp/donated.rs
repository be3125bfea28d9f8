//! The limit on gifts to a peer on another host that does not take them.

use std::{thread, time::Instant};

use pinfold::{Arena, ArenaBuf, Error, Progress};
use pinfold_tests::{role::PATIENCE, stamp};

use super::{builder, pair};

const FRAME: usize = 3 << 20;
/// Room for four frames.
const LIMIT: usize = 4 * (FRAME + 1024);
/// Frames that the sockets of a connection take at most, and those that wait.
const TAKEN_MAX: u64 = 40;

fn frame(arena: &Arena, number: u64) -> ArenaBuf {
    let mut buf = arena.alloc(FRAME).unwrap();
    stamp::fill(&mut buf, number);
    buf
}

#[test]
fn who_gives_to_another_host_is_bounded() {
    let builder = || builder(Progress::Inline).given_bytes_max(LIMIT);
    let ((a, to_b), (b, from_a)) = pair(builder(), builder());
    let arena = Arena::new().unwrap();
    let mut given = 0;
    // The receiver does nothing: only the sockets take some.
    let refused = loop {
        let tried = a.try_give(to_b, 0, frame(&arena, given));
        let stats = arena.stats();
        assert!(stats.buffers <= 5, "{given}: {stats:?}");
        match tried {
            Ok(()) => given += 1,
            Err(refused) => break refused,
        }
        assert!(given <= TAKEN_MAX, "nothing stops the giver");
    };
    assert!(given >= 4, "{given}");
    assert!(
        matches!(refused.error, Error::LimitReached { limit, .. } if limit == LIMIT as u64),
        "{refused}"
    );
    stamp::check(&refused.donation.into_arena_buf().expect("it is the caller's"), given);
    assert!(a.counters().given_stalls >= 1);
    // A giver that waits instead has as little out.
    let all = given + 20;
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..all {
                stamp::check(&b.recv_timeout(from_a, 0, PATIENCE).unwrap(), number);
            }
        });
        for number in given..all {
            a.give(to_b, 0, frame(&arena, number)).unwrap();
        }
        a.drain(PATIENCE).unwrap();
    });
    let end = Instant::now() + PATIENCE;
    while arena.stats().buffers > 0 {
        assert!(Instant::now() < end, "not back: {:?}", arena.stats());
        a.progress().unwrap();
    }
    let stats = arena.stats();
    assert!(stats.bytes_live_peak <= 5 * FRAME as u64, "{stats:?}");
    assert_eq!(a.counters().undelivered, 0);
}
