//! Each call that changes memory, one at a time: a transfer after it carries the bytes that are
//! there. And each check is needed: without it the same finds wrong bytes, after each of the calls
//! that it is for.

use std::{
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use pinfold::translate::{
    own::{self, Blind, OwnMemory, PinnedBy, Validation, Watched},
    pincache::Budget,
};
use pinfold_sys::mem::memfd;
use pinfold_tests::{
    Args, Stage,
    changes::{BYTES, CHANGES, Change, Ground, Heard, Kind},
    role::{note, skip},
};

use super::{PINNED_MAX, passes};

const ROUNDS: usize = 6;

fn each(checks: &str) {
    Stage::new(120).role("calls").with("checks", checks).spawn().end_well();
}

#[test]
fn after_each_call_what_is_there_is_sent() {
    each("all");
}

#[test]
fn who_only_listens_misses_what_nobody_tells() {
    each("listens");
}

#[test]
fn who_checks_nothing_misses_each_call() {
    each("nothing");
}

pub fn calls(args: &Args) {
    match args.text("checks") {
        "all" => try_each::<Watched>(|_| false),
        "listens" => try_each::<own::Heard>(|change| change.heard == Heard::Untold),
        _ => try_each::<Blind>(|change| change.heard != Heard::Same),
    }
}

/// Makes all changes. The changes that `misses` picks are to be missed.
fn try_each<V: Validation>(misses: impl Fn(&Change) -> bool) {
    let own = || OwnMemory::<V>::with_validation(Budget::of_bytes(PINNED_MAX)).unwrap();
    let standing = own().standing();
    note(standing);
    if standing.by == PinnedBy::Nothing {
        return skip(standing);
    }
    let keeps = standing.not_kept.is_none();
    let mut ground = Ground::new(0);
    let mut byte = 0;
    let mut failed = Vec::new();
    for change in CHANGES {
        let (mut wrong, mut kept, mut lacking) = (0, 0, None);
        for _ in 0..ROUNDS {
            if let Err(error) = ground.renew(change.kind) {
                lacking = Some(error);
                break;
            }
            byte = byte % 100 + 1;
            assert!(ground.fill(byte));
            // A change that is missed once is missed in all that follow.
            let own = own();
            kept += usize::from(keeps && until_kept(&own, &ground, change.kind));
            assert!(sent(&own, &ground) == Some(vec![byte; BYTES]), "before {}", change.name);
            lacking = change.make(&ground).err();
            if lacking.is_some() {
                break;
            }
            wrong += usize::from(is_wrong(&own, &ground));
            if ground.fill(byte + 100) {
                wrong += usize::from(is_wrong(&own, &ground));
            }
        }
        let what = match &lacking {
            Some(error) => format!("not here: {error}"),
            None => format!("{kept} of {ROUNDS} kept, {wrong} of {} sends wrong", 2 * ROUNDS),
        };
        note(format_args!("{}: {what}", change.name));
        if keeps && change.kind == Kind::Plain && lacking.is_none() {
            assert_eq!(kept, ROUNDS, "{}: {what}", change.name);
        }
        let may = change.heard == Heard::Same && !V::LOOKS;
        if !may && (wrong > 0) != (kept > 0 && lacking.is_none() && misses(change)) {
            failed.push(format!("{}: {what}", change.name));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Sends until the memory is kept. Returns whether it is.
fn until_kept<V: Validation>(own: &OwnMemory<V>, ground: &Ground, kind: Kind) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let hold = own.begin(ground.range.start as u64, BYTES as u64).expect("to pin it");
        let kept = hold.kept();
        own.end(hold);
        match kept {
            Ok(()) => {
                assert_eq!(kind, Kind::Plain, "others change it");
                return true;
            }
            Err(why) if !passes(why) || Instant::now() > end => return false,
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The bytes of a transfer; `None` if the memory is refused.
fn sent<V: Validation>(own: &OwnMemory<V>, ground: &Ground) -> Option<Vec<u8>> {
    let file = memfd::create_sealed("calls", BYTES).expect("a memfd");
    let hold = own.begin(ground.range.start as u64, BYTES as u64).ok()?;
    let sent = own.write_out(&hold, file.as_fd(), 0);
    own.end(hold);
    if sent.ok()? < BYTES {
        return None;
    }
    let mut found = vec![0; BYTES];
    assert_eq!(rustix::io::pread(&file, &mut found, 0), Ok(BYTES));
    Some(found)
}

/// Returns whether a transfer carries bytes that are not there. A refusal is not wrong.
fn is_wrong<V: Validation>(own: &OwnMemory<V>, ground: &Ground) -> bool {
    let sent = sent(own, ground);
    sent.is_some() && sent != ground.look()
}
