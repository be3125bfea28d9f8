//! Measurements of costs: as in `userfault`.
use std::time::Instant;

use super::*;

#[test]
#[ignore = "measures"]
fn pinning() {
    println!();
    let _alone = alone();
    let locked = Locked::new().unwrap();
    let mut ends: Vec<Box<dyn Pin>> = vec![Box::new(locked)];
    if let Some(ring) = ring(Registered::SLOTS_MAX) {
        ends.insert(0, Box::new(ring));
    }
    for (end, name) in ends.iter().rev().zip(["mlock", "io_uring"]) {
        for pages in [1, 16, 64, 256, 1024] {
            // Enough of it that not all is in the cache.
            let count = (8192 / pages).min(256);
            let (_memory, range) = memory(count * pages);
            let (mut pins, mut unpins) = (Vec::new(), Vec::new());
            for _ in 0..9 {
                let start = Instant::now();
                let part =
                    |n: usize| range.start + n * pages * PAGE..range.start + (n + 1) * pages * PAGE;
                let slots: Vec<_> = (0..count).map(|n| end.pin(part(n)).unwrap()).collect();
                pins.push(start.elapsed().as_nanos() as usize / count);
                let start = Instant::now();
                slots.into_iter().for_each(|slot| end.unpin(slot).unwrap());
                unpins.push(start.elapsed().as_nanos() as usize / count);
            }
            pins.sort();
            unpins.sort();
            let (pin, unpin) = (pins[4], unpins[4]);
            let (per_pin, per_unpin) = (pin / pages, unpin / pages);
            println!(
                "{name} {pages} pages: pin {pin} ns ({per_pin} a page), unpin {unpin} ns ({per_unpin} a page)"
            );
        }
    }
}
