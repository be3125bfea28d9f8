//! Transfers where a facility of the kernel is missing: still the right bytes, nothing kept, and
//! the reason.

use pinfold::translate::{
    own::{Facility, Lack, OwnMemory, PinnedBy, Why},
    pincache::Budget,
};
use pinfold_tests::{
    Args, Stage,
    filter::{deny, deny_if},
    role::note,
};

use super::{PINNED_MAX, gather, right_where_it_should, work};

fn without(lacks: &str) {
    let stage = Stage::new(120);
    for errno in [libc::EPERM, libc::ENOSYS] {
        stage.role("lacking").with("lacks", lacks).with("errno", errno).spawn().end_well();
    }
}

#[test]
fn without_userfaultfd() {
    without("watch");
}

#[test]
fn without_io_uring() {
    without("ring");
}

#[test]
fn without_either() {
    without("watch ring");
}

#[test]
fn without_anything() {
    without("watch ring lock");
}

/// The number of `USERFAULTFD_IOC_NEW`, by which the device makes one.
const IOC_NEW: u64 = 0xAA00;

pub fn lacking(args: &Args) {
    let (lacks, errno): (Vec<&str>, i32) =
        (args.text("lacks").split(' ').collect(), args.number("errno"));
    let lack = if errno == libc::EPERM { Lack::Denied } else { Lack::Absent };
    if lacks.contains(&"watch") {
        deny(&[libc::SYS_userfaultfd], errno);
        deny_if(libc::SYS_ioctl, 1, 0xFFFF_FFFF, IOC_NEW, errno);
    }
    if lacks.contains(&"ring") {
        deny(&[libc::SYS_io_uring_setup], errno);
    }
    if lacks.contains(&"lock") {
        deny(&[libc::SYS_mlock], errno);
    }
    let own = OwnMemory::new(Budget::of_bytes(PINNED_MAX)).unwrap();
    let standing = own.standing();
    note(standing);
    if lacks.contains(&"ring") {
        assert_eq!(standing.no_ring, Some(Why::Lacks(Facility::Ring, lack)));
        let by = if lacks.contains(&"lock") { PinnedBy::Nothing } else { PinnedBy::Lock };
        assert_eq!(standing.by, by);
    } else if standing.by == PinnedBy::Ring
        // Without frames the watch is not even asked for.
        && !matches!(standing.not_kept, Some(Why::Lacks(Facility::Frames, _)))
    {
        assert_eq!(standing.not_kept, Some(Why::Lacks(Facility::Watch, lack)));
    }
    assert!(standing.not_kept.is_some());
    let transfers = 4000;
    let found = work(&own, 2, transfers);
    gather(standing, &found);
    assert_eq!(found.wrong, 0, "{found:?}");
    if standing.by == PinnedBy::Nothing {
        assert_eq!((found.pinned, found.copied), (0, transfers));
    } else {
        right_where_it_should(&own, &found, transfers);
    }
}
