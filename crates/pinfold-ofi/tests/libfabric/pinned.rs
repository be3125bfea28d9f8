//! The pin-down cache under sends of the program's memory to another host: the same buffer again is
//! a hit, and memory that was mapped anew is a miss, with its own bytes.

use pinfold_tests::{
    Args, Stage,
    network::where_allowed,
    role::{hear, say},
    skip::skip,
    stamp,
};

use crate::{
    host::host,
    hosts::{Hosts, await_message, deliver},
    mapper::Place,
    side::{Side, Terms, hex, unhex},
};

const LEN: usize = 1 << 20;
/// Messages from a buffer that stays as it is.
const AGAIN: usize = 10;
/// Times that the buffer is mapped anew, one message after each.
const CHANGES: u64 = 10;

/// The process that sends, with an endpoint after the other: each leaves its counters as it closes.
pub fn sender(_: &Args) {
    let host = host().expect("the director has one");
    let name = unhex(&hear());
    let mut from = Place::new();
    let mut sends = |seeds: &mut dyn Iterator<Item = u64>| {
        let side = Side::new(host, Terms::default());
        let to = side.insert(&name);
        for seed in seeds {
            if seed > 0 {
                from.change(seed);
            }
            stamp::fill(from.bytes(LEN), seed);
            deliver(&side, from.bytes(LEN), to, 1);
        }
    };
    sends(&mut std::iter::repeat_n(0, AGAIN));
    sends(&mut (1..=CHANGES));
}

/// The process that it sends to.
pub fn taker(_: &Args) {
    let host = host().expect("the director has one");
    let side = Side::new(host, Terms::default());
    say(format_args!("is {}", hex(&side.name())));
    let mut room = vec![0; LEN];
    let seeds = std::iter::repeat_n(0, AGAIN).chain(1..=CHANGES);
    for seed in seeds {
        room.fill(0);
        await_message(&side, &mut room, 1);
        side.take(side.rx, &[]).expect("no error");
        stamp::check(&room, seed);
    }
}

#[test]
fn sends_to_another_host_are_counted_by_the_cache() {
    if host().is_none() {
        return;
    }
    where_allowed("pinned::sends_to_another_host_are_counted_by_the_cache", || {
        let (stage, hosts) = (Stage::new(120), Hosts::two());
        let reports = stage.path().join("reports");
        std::fs::create_dir(&reports).expect("a directory");
        let mut taker = hosts.on(0, &stage, stage.role("taker")).spawn();
        let name = taker.expect("is");
        let sender = hosts.on(1, &stage, stage.role("sender"));
        // Within a machine the kernel copies, and the route would give up after some messages.
        let sender = sender.env("PINFOLD_SEND_MODE", "cached").env("PINFOLD_REPORT", &reports);
        let mut sender = sender.spawn();
        sender.say(name);
        sender.end_well();
        taker.end_well();
        let left = pinfold::status::reports(&reports).expect("reports");
        let [again, changed] = left.iter().map(|it| it.counters).collect::<Vec<_>>()[..] else {
            panic!("{left:?}")
        };
        let hits = |of: &pinfold::Counters| of.tlb_hits + of.pin_hits;
        if hits(&again) + again.pin_misses == 0 {
            return skip("nothing is kept pinned here");
        }
        // A message may leave in several pieces, of which the first alone is new.
        assert_eq!(again.pin_misses, 1, "{again:?}");
        assert!(hits(&again) >= AGAIN as u64 - 1, "{again:?}");
        assert!(changed.pin_misses >= CHANGES, "{changed:?}");
    });
}
