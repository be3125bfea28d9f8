//! Send modes on one connection: trials, rests, insistence.

use proptest::prelude::*;

use super::*;
use crate::policy::route::SentFrom;

fn long(memory: SendMemory) -> Outgoing {
    Outgoing { bytes: 1 << 20, pieces: 1, pages: 0, from: SentFrom::Memory, memory }
}

const ANY: SendMemory = SendMemory::Unregistered;

/// Sends so many messages over a route that copies. Returns the numbers of those that were trials.
fn trials(route: &mut SendRoute, messages: u64) -> Vec<u64> {
    (0..messages)
        .filter(|_| match route.choose(&long(ANY)) {
            SendMode::Plain => false,
            mode => {
                assert_eq!(mode, SendMode::PerSend);
                route.landed(true);
                true
            }
        })
        .collect()
}

#[test]
fn a_route_that_copies_is_tried_ever_more_seldom() {
    let mut route = SendRoute::new(None);
    assert_eq!(trials(&mut route, 1000), [16, 81, 210, 467, 980]);
    // And at last one trial in so many.
    trials(&mut route, 1 << 18);
    let later = trials(&mut route, 10 * (REST_MAX + 1));
    assert_eq!(later.len(), 10);
}

#[test]
fn a_route_that_does_not_is_used() {
    let mut route = SendRoute::new(None);
    trials(&mut route, 100);
    while route.choose(&long(ANY)) == SendMode::Plain {}
    // As long as the trial has no result, the other messages are copied.
    assert!((0..100).all(|_| route.choose(&long(ANY)) == SendMode::Plain));
    assert!(!route.wants_cache());
    route.landed(false);
    assert!(route.wants_cache());
    let modes: Vec<_> = (0..640).map(|_| route.choose(&long(ANY))).collect();
    assert_eq!(modes.iter().filter(|mode| **mode == SendMode::Plain).count(), 10);
    assert_eq!(route.choose(&long(SendMemory::Registered)), SendMode::Cached);
    // Where it lies makes no difference to what is done.
    assert_eq!(route.choose(&long(SendMemory::Placed)), SendMode::Cached);
    let short = Outgoing { bytes: 16 << 10, ..long(ANY) };
    assert_eq!(route.choose(&short), SendMode::Plain);
    // The route rests from the beginning when it copies again.
    route.landed(true);
    assert_eq!(trials(&mut route, 200), [64, 193]);
}

#[test]
fn what_is_slower_than_a_copy_is_not_used() {
    let mut route = SendRoute::new(None);
    while route.choose(&long(ANY)) == SendMode::Plain {}
    route.landed(false);
    for _ in 0..20 {
        route.took(SendMode::PerSend, 1 << 20, 500_000);
        route.took(SendMode::Plain, 1 << 20, 90_000);
    }
    let plain = (0..60).take_while(|_| route.choose(&long(ANY)) == SendMode::Plain).count();
    assert_eq!(plain, 60);
    // Another chance.
    assert!((0..10).any(|_| route.choose(&long(ANY)) == SendMode::PerSend));
}

#[test]
fn who_insists_gets_what_the_memory_allows() {
    for mode in SendMode::ALL {
        let mut route = SendRoute::new(Some(mode));
        let placed = if mode == SendMode::Aligned { SendMode::Cached } else { mode };
        assert_eq!(route.choose(&long(SendMemory::Placed)), placed);
        route.landed(true);
        route.failed();
        let (registered, any) = match mode {
            SendMode::Aligned => (SendMode::Cached, SendMode::PerSend),
            SendMode::Cached => (SendMode::Cached, SendMode::PerSend),
            mode => (mode, mode),
        };
        assert_eq!(route.choose(&long(SendMemory::Registered)), registered);
        assert_eq!(route.choose(&long(ANY)), any);
    }
}

proptest! {
    /// For all observations, the mode chosen is possible, and a route that copies costs little.
    #[test]
    fn trials_are_few(steps in prop::collection::vec((0..4u8, 0..5usize, any::<u64>()), 0..400)) {
        let mut route = SendRoute::new(None);
        let mut tried = 0;
        for (step, mode, ns) in steps {
            match step {
                0 => route.took(SendMode::ALL[mode], ns as usize % (1 << 21), ns),
                _ => if !route.choose(&long(ANY)).copies() {
                    tried += 1;
                    route.landed(true);
                }
            }
        }
        prop_assert!(tried <= 4, "{tried}");
    }
}
