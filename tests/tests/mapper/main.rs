//! The adversarial mapper: threads that unmap, map over, move, discard and fork the very memory
//! that they send from, each the places that it owns at the moment, so that the program itself has
//! no race. Not one byte may be wrong; and where nothing is checked, some are.

mod budgets;
mod calls;
mod lacking;
mod measure;
mod shrinking;
mod work;

use pinfold::translate::{
    own::{Blind, OwnMemory, PinnedBy, Standing, Validation, Why},
    pincache::Budget,
};
use pinfold_tests::{
    Args, Stage, figures,
    ground::PAGE,
    role::{note, skip},
    skip::{again, is_long},
};

use self::{
    budgets::budgeted,
    calls::calls,
    lacking::lacking,
    shrinking::shrinking,
    work::{Found, work},
};

pinfold_tests::roles!(mapper, blind, budgeted, calls, lacking, shrinking);

/// The budget of tests that say nothing of budgets: less than an ordinary user may lock.
const PINNED_MAX: u64 = 1 << 20;

#[test]
fn not_one_byte_is_wrong() {
    let stage = Stage::new(if is_long() { 900 } else { 170 });
    let transfers = match (is_long(), figures::are_gathered()) {
        (true, _) => 1_000_000,
        (false, true) => 400_000,
        (false, false) => again(100_000),
    };
    let mut player = stage.role("mapper").with("transfers", transfers).spawn();
    player.end_well();
}

#[test]
fn without_checks_some_bytes_are_wrong() {
    let stage = Stage::new(60);
    let mut player = stage.role("blind").with("transfers", 5000).spawn();
    player.end_well();
}

fn mapper(args: &Args) {
    let own = OwnMemory::new(Budget::of_bytes(PINNED_MAX)).unwrap();
    let standing = own.standing();
    if standing.by == PinnedBy::Nothing {
        return skip(standing);
    }
    let found = work(&own, 4, args.number("transfers"));
    note(format_args!("{standing}: {found:?} {:?}", own.counters()));
    gather(standing, &found);
    assert_eq!(found.wrong, 0, "{found:?}");
    right_where_it_should(&own, &found, args.number("transfers"));
}

/// Writes the figures of transfers that are to be right.
fn gather(standing: Standing, found: &Found) {
    let Found { pinned, unkept, copied, wrong, .. } = *found;
    let by = match standing.by {
        PinnedBy::Ring => "ring",
        PinnedBy::Lock => "mlock",
        PinnedBy::Nothing => "nothing",
    };
    let way = format!("own memory, by {by}");
    let values: [(&str, &dyn std::fmt::Display); 5] = [
        ("way", &way),
        ("count", &(pinned + copied)),
        ("wrong", &wrong),
        ("kept", &(pinned - unkept)),
        ("copied", &copied),
    ];
    figures::add("transfers", &values);
}

/// Checks which transfers went which way.
fn right_where_it_should<V: Validation>(own: &OwnMemory<V>, found: &Found, transfers: u64) {
    let standing: Standing = own.standing();
    assert!(found.pinned + found.copied >= transfers);
    // Refusals are for the want of room alone.
    assert!(found.copied < transfers / 4, "{found:?}");
    let counters = own.counters();
    match standing.not_kept {
        None => {
            assert!(counters.pins.hits > transfers / 20, "{counters:?}");
            assert!(counters.pins.invalidations > transfers / 20, "{counters:?}");
            assert!(found.discarding > 0, "{found:?}");
        }
        Some(why) => {
            assert_eq!((counters.pins.hits, counters.pins.now.entries), (0, 0), "{counters:?}");
            assert_eq!(found.unkept, found.pinned, "{why}: {found:?}");
        }
    }
}

fn blind(args: &Args) {
    let own = OwnMemory::<Blind>::with_validation(Budget::of_bytes(PINNED_MAX)).unwrap();
    if let Some(why) = own.standing().not_kept {
        return skip(why);
    }
    let found = work(&own, 2, args.number("transfers"));
    note(format_args!("blind: {found:?}"));
    assert!(found.wrong > 0, "{found:?}");
}

/// Returns whether a reason is one of those that pass.
fn passes(why: Why) -> bool {
    matches!(why, Why::Discarding | Why::Restless)
}
