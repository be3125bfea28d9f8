//! Memory behind the program break, which shrinks and grows again.
#![allow(unsafe_code)]
// Invariant: nothing else in this role moves the break: the C library's allocator takes mappings
// instead, where the break is not where it left it.

use std::{ops::Range, os::fd::AsFd, ptr};

use pinfold::translate::{own::OwnMemory, pincache::Budget};
use pinfold_sys::mem::memfd;
use pinfold_tests::{Args, Stage, role::skip};

use super::{PAGE, PINNED_MAX};

#[test]
fn the_break() {
    Stage::new(60).role("shrinking").spawn().end_well();
}

/// The byte that fills a transfer.
fn sent(own: &OwnMemory, range: &Range<usize>) -> u8 {
    let file = memfd::create_sealed("break", range.len()).expect("a memfd");
    let hold = own.begin(range.start as u64, range.len() as u64).expect("to pin it");
    assert_eq!(own.write_out(&hold, file.as_fd(), 0).expect("to send it"), range.len());
    own.end(hold);
    let mut found = vec![0; range.len()];
    assert_eq!(rustix::io::pread(&file, &mut found, 0), Ok(range.len()));
    assert!(found.iter().all(|byte| *byte == found[0]));
    found[0]
}

fn fill(range: &Range<usize>, byte: u8) {
    // SAFETY: memory of this role's, behind the break, without a reference to it.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(range.start).write_bytes(byte, range.len()) };
}

pub fn shrinking(_: &Args) {
    let own = OwnMemory::new(Budget::of_bytes(PINNED_MAX)).unwrap();
    if let Some(why) = own.standing().not_kept {
        return skip(why);
    }
    let bytes = 17 * PAGE as isize;
    for round in 0..50 {
        // SAFETY: the program uses none of it yet.
        let from = unsafe { libc::sbrk(bytes) }.addr().next_multiple_of(PAGE);
        let range = from..from + 16 * PAGE;
        fill(&range, 1);
        assert_eq!(sent(&own, &range), 1);
        assert_eq!(sent(&own, &range), 1);
        // SAFETY: it is used by the transfers above alone, and they have ended.
        let end = unsafe { libc::sbrk(-bytes) };
        // SAFETY: as above.
        let again = unsafe { libc::sbrk(bytes) };
        assert!(again.addr() + bytes as usize == end.addr(), "somebody else moved the break");
        assert_eq!(sent(&own, &range), 0, "round {round}");
        fill(&range, 2);
        assert_eq!(sent(&own, &range), 2, "round {round}");
        // SAFETY: as above.
        unsafe { libc::sbrk(-bytes) };
    }
    assert!(own.counters().pins.hits >= 50, "{:?}", own.counters());
}
