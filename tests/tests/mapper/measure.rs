//! The cost of a look, and the cost of a pin each time instead.

use std::time::Instant;

use pinfold::translate::{
    own::{Heard, OwnMemory, Validation, Watched},
    pincache::Budget,
};
use pinfold_sys::mem::pin::{Pin, Registered};

use super::PAGE;

const ROUNDS: usize = 2000;

#[test]
#[ignore = "measures"]
fn hits() {
    let memory = vec![1u8; 257 * PAGE];
    let start = memory.as_ptr().addr().next_multiple_of(PAGE);
    for pages in [2, 4, 16, 64, 256] {
        let len = pages * PAGE;
        let heard = hit::<Heard>(start, len);
        let looked = hit::<Watched>(start, len);
        let ring = Registered::new(1).expect("a ring");
        let pinned = best(|| ring.unpin(ring.pin(start..start + len).unwrap()).unwrap());
        println!(
            "{len} bytes: a hit {heard:?} ns without a look, {looked:?} with one; pinned and unpinned {pinned}"
        );
    }
}

fn hit<V: Validation>(start: usize, len: usize) -> Option<u64> {
    let own = OwnMemory::<V>::with_validation(Budget::of_bytes(1 << 23)).unwrap();
    own.standing().not_kept.is_none().then(|| {
        best(|| {
            let hold = own.begin(start as u64, len as u64).unwrap();
            own.end(hold);
        })
    })
}

/// The least time of many runs, in nanoseconds.
fn best(mut what: impl FnMut()) -> u64 {
    let each = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        what();
        started.elapsed().as_nanos() as u64
    });
    each.min().unwrap()
}
