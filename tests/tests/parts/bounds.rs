//! The limit on memory that is given in several parts.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Arena, Path};
use pinfold_tests::{pair, role::PATIENCE, stamp};

use super::{HUGE, MIB, builder, parts, wait_for_empty};

const MESSAGES: u64 = 40;
const PART: usize = 3 * MIB;
const MESSAGE: usize = 2 * PART;
/// Room for two messages.
const LIMIT: usize = 2 * (MESSAGE + 1024);

/// Two messages are out, and a third one waits.
#[test]
fn who_gives_parts_waits_for_a_slow_receiver() {
    let by = || builder().given_bytes_max(LIMIT);
    let (a, to_b, b, from_a) = pair("parts-bounds", by(), builder());
    let arena = Arena::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let end = Instant::now() + PATIENCE;
            while a.counters().given_stalls == 0 {
                assert!(Instant::now() < end, "nothing stops the giver: {:?}", arena.stats());
                thread::sleep(Duration::from_millis(1));
            }
            for seed in 0..MESSAGES {
                let view = b.recv_view(from_a, 0).unwrap();
                stamp::check(&view.to_vec().unwrap(), seed);
                if seed % 8 == 0 {
                    thread::sleep(Duration::from_millis(5));
                }
            }
        });
        for seed in 0..MESSAGES {
            a.give_vectored(to_b, 0, parts(&arena, &[PART, PART], HUGE, seed)).unwrap();
        }
        a.drain(PATIENCE).unwrap();
    });
    wait_for_empty(&a, &arena);
    let stats = arena.stats();
    assert!(stats.bytes_live_peak <= 3 * MESSAGE as u64, "{stats:?}");
    let counters = a.counters();
    assert_eq!(counters.undelivered, 0);
    let sent: u64 = counters.sent.iter().map(|count| count.messages).sum();
    assert_eq!(sent, MESSAGES, "{:?}", counters.sent[Path::Handoff as usize]);
}
