//! Messages in pieces, in a pool of the test's own.

use std::{
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    thread,
};

use parking_lot::RwLock;
use pinfold_sys::{
    child,
    mem::userfault::{self, Mover, Stop},
};

use super::super::folding::{Folding, PIECE_MIN};
use crate::memory::reassembly::{
    HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
    fold::{Folded, Place, Receipt, Unmoved},
    gather::Costs,
    pool::{AnonPages, Filled, Owner, Pages, Pool},
};

type Message = Filled<AnonPages>;

const PAGES: u32 = 16 * HUGE_PAGES;

/// A pool as the store has it, and the folding of its messages.
struct Bench {
    pool: RwLock<Pool<AnonPages>>,
    folding: Folding,
}

impl Bench {
    /// With pages that no child of another test gets: those would stay where they are.
    fn new() -> Bench {
        let pool = Pool::new(AnonPages::new(PAGES, None).unwrap());
        // Times measured here depend on the share of two processors that other tests leave.
        let mut folding = Folding::new().unwrap();
        folding.costs = Some(Costs::DEFAULT);
        Bench { pool: RwLock::new(pool), folding }
    }

    /// Returns whether pages can be moved here; says so if not.
    fn moves(&self) -> bool {
        let can = userfault::probe().is_ok_and(|support| support.moves);
        if !can {
            eprintln!("SKIPPED: pages are moved nowhere here");
        }
        can
    }

    fn message(&self, len: usize, seed: u8) -> Option<Message> {
        let mut filling = self.pool.read().take(Owner(0), len as u64).ok()?;
        filling.write(&vec![seed; len]).unwrap();
        Some(filling.finish())
    }

    /// Takes all of the pool in parts of so many pages, and gives every other one back. Returns
    /// those held.
    fn holes(&self, pages: u32) -> Vec<Message> {
        let mut held = Vec::new();
        while let Some(message) = self.message(pages as usize * PAGE_BYTES, 0xAA) {
            held.push(message);
        }
        let mut at = 0;
        held.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        held
    }

    fn fold(&self, message: Message, wanted: Option<bool>) -> (Folded<Message>, Receipt) {
        let (folded, receipt) = self.folding.fold(&self.pool, message, wanted).unwrap();
        let Receipt { bytes, moved, mapped, copied, .. } = receipt;
        let done = if receipt.place == Place::InPlace { 0 } else { bytes };
        assert_eq!((moved + copied, mapped), (done, 0), "{receipt}");
        (folded, receipt)
    }

    fn taken(&self) -> u32 {
        self.pool.read().count().taken
    }
}

fn is_all(bytes: &[u8], seed: u8) -> bool {
    bytes.iter().all(|byte| *byte == seed)
}

#[test]
fn what_is_cheaper_moved_is_moved_and_its_pages_come_back() {
    let bench = Bench::new();
    let held = bench.holes(HUGE_PAGES);
    let taken = bench.taken();
    for seed in 1..20 {
        let message = bench.message(4 * HUGE_BYTES, seed).unwrap();
        assert_eq!(message.spans().count(), 4);
        let (folded, receipt) = bench.fold(message, Some(true));
        assert!(is_all(&folded, seed));
        if bench.moves() && message_is_huge(&bench) {
            let moved = (receipt.place, receipt.moved, receipt.unmoved);
            assert_eq!(moved, (Place::Window, 4 * HUGE_BYTES as u64, None), "{receipt}");
        }
        drop(folded);
        assert_eq!(bench.taken(), taken);
    }
    drop(held);
    assert_eq!(bench.taken(), 0);
}

/// Returns whether the pool has huge pages here. Small ones may be cheaper to copy.
fn message_is_huge(bench: &Bench) -> bool {
    bench.pool.read().count().huge > 0
}

#[test]
fn nobody_asks_for_what_is_of_no_use() {
    let bench = Bench::new();
    let pages = PIECE_MIN as u32 / PAGE_BYTES as u32 - 1;
    let _held = bench.holes(pages);
    let message = || bench.message(3 * pages as usize * PAGE_BYTES, 5).unwrap();
    let (folded, receipt) = bench.fold(message(), Some(true));
    assert!(is_all(&folded, 5) && receipt.unmoved == Some(Unmoved::Short), "{receipt}");
    let (folded, receipt) = bench.fold(message(), Some(false));
    assert!(is_all(&folded, 5) && receipt.unmoved == Some(Unmoved::Unwanted), "{receipt}");
    assert!(!bench.pool.read().memory().is_movable());
}

/// Memory that another userfaultfd has cannot be given back to: messages come to other memory from
/// then on.
#[test]
fn memory_that_somebody_watches_is_left_to_him() {
    let bench = Bench::new();
    if !bench.moves() {
        return;
    }
    let message = bench.message(HUGE_BYTES, 1).unwrap();
    let at = message.spans().next().unwrap().at.addr().get();
    let watch = Mover::new().unwrap();
    // SAFETY: no thread moves pages there.
    unsafe { watch.register(at..at + PAGE_BYTES) }.unwrap();
    drop(message);
    let held = bench.holes(HUGE_PAGES);
    let (first, receipt) = bench.fold(bench.message(4 * HUGE_BYTES, 2).unwrap(), Some(true));
    assert!(is_all(&first, 2) && receipt.copied == 4 * HUGE_BYTES as u64, "{receipt}");
    assert_eq!((bench.taken(), receipt.unmoved, receipt.moving.backing), (0, None, 4), "{receipt}");
    let others = bench.holes(HUGE_PAGES);
    let (folded, receipt) = bench.fold(bench.message(4 * HUGE_BYTES, 3).unwrap(), Some(true));
    assert!(is_all(&folded, 3));
    assert!(receipt.moved > 0 || !message_is_huge(&bench), "{receipt}");
    drop((held, others, first));
}

/// Threads take, fold, read and drop; the pool is exhausted now and then. No byte of one is in
/// another.
#[test]
fn many_at_a_time() {
    let bench = Bench::new();
    let (seeds, over) = (AtomicU8::new(1), AtomicBool::new(false));
    let folds: u32 = thread::scope(|scope| {
        let work = |number: usize| {
            let (bench, seeds, over) = (&bench, &seeds, &over);
            scope.spawn(move || {
                let mut held: Vec<(u8, Folded<Message>)> = Vec::new();
                let (mut folds, mut lens) = (0, 0usize);
                while folds < 60 && !over.load(Ordering::Relaxed) {
                    lens = lens.wrapping_mul(25).wrapping_add(number + 7) % 1021;
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    let len = (128 << 10) + lens * 5000 + number;
                    let Some(message) = bench.message(len, seed) else {
                        // A thread that finds it exhausted makes room.
                        held.clear();
                        thread::yield_now();
                        continue;
                    };
                    let (folded, receipt) = bench.fold(message, Some(true));
                    assert!(is_all(&folded, seed), "{receipt}");
                    folds += 1;
                    held.push((seed, folded));
                    if held.len() > 3 {
                        let (seed, folded) = held.swap_remove(lens % 3);
                        assert!(is_all(&folded, seed));
                    }
                }
                assert!(held.iter().all(|(seed, folded)| is_all(folded, *seed)));
                folds
            })
        };
        let threads: Vec<_> = (0..4).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((folds, bench.taken()), (240, 0));
}

/// Bytes that a message leaves in the pool and in the window are shown by no other one: neither
/// behind its end, nor where it was never written.
#[test]
fn secrets_stay_with_their_message() {
    let bench = Bench::new();
    let _held = bench.holes(HUGE_PAGES);
    for round in 0..12u8 {
        let (secret, receipt) =
            bench.fold(bench.message(4 * HUGE_BYTES, 0x5E).unwrap(), Some(true));
        assert!(is_all(&secret, 0x5E), "{receipt}");
        drop(secret);
        // Shorter, and not of whole pages.
        let len = 2 * HUGE_BYTES + usize::from(round) * 70_001 + 13;
        let (folded, receipt) = bench.fold(bench.message(len, round).unwrap(), Some(true));
        assert!(is_all(&folded, round), "{receipt}");
        if receipt.place == Place::Window {
            let end = folded.as_ptr().addr() + len;
            for at in end..end.next_multiple_of(PAGE_BYTES) {
                // SAFETY: within the last page of the message.
                let byte: u8 = unsafe { *std::ptr::with_exposed_provenance(at) };
                assert_eq!(byte, 0, "round {round}, {} behind", at - end);
            }
        }
    }
}

/// Pages that a child has, too, are copied.
#[test]
fn what_a_child_shares_is_copied() {
    let bench = Bench::new();
    bench.pool.read().memory().inherit().unwrap();
    let _held = bench.holes(HUGE_PAGES);
    let (before, receipt) = bench.fold(bench.message(4 * HUGE_BYTES, 1).unwrap(), Some(true));
    if receipt.moved == 0 {
        return eprintln!("SKIPPED: {receipt}");
    }
    let message = bench.message(2 * HUGE_BYTES, 2).unwrap();
    // SAFETY: the child only looks at memory, and leaves.
    let child = unsafe { child::spawn(|| i32::from(!is_all(&before, 1))) }.unwrap();
    let options = rustix::process::WaitOptions::empty();
    let (_, ended) = rustix::process::waitpid(Some(child), options).unwrap().unwrap();
    assert_eq!(ended.exit_status(), Some(0));
    let (after, receipt) = bench.fold(message, Some(true));
    assert!(is_all(&after, 2) && is_all(&before, 1));
    assert_eq!((receipt.moved, receipt.stop), (0, Some(Stop::Busy)), "{receipt}");
    // Pages that cannot go back go to the system; the next message has other pages.
    drop((before, after));
    let (next, receipt) = bench.fold(bench.message(4 * HUGE_BYTES, 3).unwrap(), Some(true));
    assert!(is_all(&next, 3) && receipt.moved > 0, "{receipt}");
}
