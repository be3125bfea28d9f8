//! Budgets hold at any instant, no matter which transfers are asked for.
#![allow(unsafe_code)]
// Invariant: the memory is this role's alone, and is never reached by reference.

use std::{collections::VecDeque, fs, ptr};

use pinfold::translate::{
    own::{OwnMemory, PinnedBy},
    pincache::{Budget, NoPin, Refused},
};
use pinfold_tests::{
    Args, Stage,
    filter::deny,
    role::{note, skip},
    stamp::Random,
};
use rustix::{
    mm::{self, MapFlags, ProtFlags},
    process::{Resource, Rlimit, setrlimit},
};

use super::PAGE;

fn each(lacks: &str) {
    let stage = Stage::new(120);
    for budget in [64 << 10, 1 << 20, 8 << 20] {
        // The limit is as much, and some for the ring itself.
        for limit in [0, budget / 2, budget] {
            let role = stage.role("budgeted").with("budget", budget).with("limit", limit);
            role.with("lacks", lacks).spawn().end_well();
        }
    }
}

#[test]
fn budgets_hold() {
    each("nothing");
}

#[test]
fn budgets_hold_by_locks() {
    each("ring");
}

/// A field of `/proc/self/status`, in bytes.
fn status(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find(|line| line.starts_with(name)).expect("a line");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<u64>().expect("a number") << 10
}

fn mappings() -> u64 {
    fs::read_to_string("/proc/self/maps").expect("/proc").lines().count() as u64
}

pub fn budgeted(args: &Args) {
    let (budget, limit): (u64, u64) = (args.number("budget"), args.number("limit"));
    setrlimit(Resource::Memlock, Rlimit { current: Some(limit), maximum: Some(limit) })
        .expect("to lower a limit");
    if args.text("lacks") == "ring" {
        deny(&[libc::SYS_io_uring_setup], libc::EPERM);
    }
    let own = OwnMemory::new(Budget::of_bytes(budget)).expect("a budget");
    let standing = own.standing();
    if args.text("lacks") == "ring" {
        assert_ne!(standing.by, PinnedBy::Ring, "{standing}");
    }
    if standing.by == PinnedBy::Nothing && limit > 0 {
        return skip(standing);
    }
    let pages = 100 * budget / PAGE as u64;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is asked for.
    let at = unsafe { mm::mmap_anonymous(ptr::null_mut(), pages as usize * PAGE, prot, flags) };
    let from = at.expect("memory").addr() as u64;
    let before = (status("VmPin"), status("VmLck"));
    let (mut random, mut held) = (Random::new(budget), VecDeque::new());
    let (mut went, mut refused, mut most, mut most_mappings) = (0u64, 0u64, 0, 0);
    for round in 0..20_000 {
        let first = random.below(pages - 16);
        let len = 1 + random.below(16 * PAGE as u64 - 1);
        match own.begin(from + first * PAGE as u64 + random.below(PAGE as u64), len) {
            Ok(hold) => {
                went += 1;
                held.push_back(hold);
            }
            Err(NoPin::Busy | NoPin::TooLarge) => refused += 1,
            Err(NoPin::Refused(Refused::NoMemory | Refused::Absent)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
        while held.len() > 5 || (random.below(2) == 0 && !held.is_empty()) {
            held.pop_front().into_iter().for_each(|hold| own.end(hold));
        }
        if round % 100 == 0 {
            let now = status("VmPin") - before.0 + status("VmLck") - before.1;
            assert!(now <= budget, "{now} bytes are pinned, of {budget}: {standing}");
            most = most.max(now);
        }
        if round % 1000 == 0 {
            most_mappings = most_mappings.max(mappings());
        }
    }
    held.into_iter().for_each(|hold| own.end(hold));
    let most_counted = own.counters().pins.most.bytes;
    note(format_args!(
        "{budget} bytes, limit {limit}: {standing}; {went} went, {refused} refused, at most {most} \
         and {most_counted} pinned in {most_mappings} mappings"
    ));
    assert!(most_counted <= budget);
    if standing.by == PinnedBy::Nothing {
        assert_eq!((went, most), (0, 0));
    } else {
        assert!(went > 5000, "{went} of 20000");
    }
    let max = fs::read_to_string("/proc/sys/vm/max_map_count").expect("/proc");
    assert!(most_mappings < max.trim().parse::<u64>().expect("a number") / 2);
    drop(own);
    assert_eq!((status("VmPin"), status("VmLck")), before);
}
