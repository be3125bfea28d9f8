#![allow(unsafe_code)]
// Pages are read and written here by their addresses, each while its message has them.
//! Pages of the pool: accounts, and nothing left of earlier messages.

use std::{
    cell::Cell,
    io,
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use parking_lot::Mutex;
use pinfold_sys::mem::userfault::Mover;

mod account;
mod secrets;

use super::{
    super::{
        HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
        gather::{self, Backing, Costs, How, Target},
    },
    *,
};

thread_local! {
    /// True if finishing a message clears the old contents: see [`super::holding`].
    pub(super) static ZEROES: Cell<bool> = const { Cell::new(true) };
}

const PAGE: u64 = PAGE_BYTES as u64;

fn heap(pages: u32) -> Pool<HeapPages> {
    Pool::new(HeapPages::new(pages).unwrap())
}

fn message(pool: &Pool<HeapPages>, owner: u64, bytes: &[u8]) -> Filled<HeapPages> {
    let mut filling = pool.take(Owner(owner), bytes.len() as u64).unwrap();
    filling.write(bytes).unwrap();
    filling.finish()
}

/// All bytes of the pages of a message, whether they belong to it or not.
fn whole<P: Pages>(pool: &Pool<P>, filled: &Filled<P>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in filled.pieces() {
        let (at, len) = (piece.first as usize * PAGE_BYTES, piece.pages as usize * PAGE_BYTES);
        // SAFETY: the message has these pages, and no code writes to them meanwhile.
        bytes.extend_from_slice(unsafe {
            std::slice::from_raw_parts(pool.memory().base().as_ptr().add(at), len)
        });
    }
    bytes
}

/// Memory that records the requests to it, and has only so many pages to give.
struct Poor {
    heap: HeapPages,
    left: AtomicU32,
    huge: bool,
    asked: Mutex<Vec<(Range<u32>, bool)>>,
}

impl Poor {
    fn new(pages: u32, left: u32, huge: bool) -> Poor {
        let heap = HeapPages::new(pages).unwrap();
        Poor { heap, left: AtomicU32::new(left), huge, asked: Mutex::default() }
    }
}

// SAFETY: the heap's memory, whole and unchanged.
unsafe impl Pages for Poor {
    fn base(&self) -> NonNull<u8> {
        self.heap.base()
    }

    fn pages(&self) -> u32 {
        self.heap.pages()
    }

    fn commit(&self, pages: Range<u32>, huge: bool) -> io::Result<bool> {
        self.asked.lock().push((pages.clone(), huge));
        let left = self.left.load(Ordering::Relaxed).checked_sub(pages.len() as u32);
        self.left.store(left.ok_or(io::ErrorKind::OutOfMemory)?, Ordering::Relaxed);
        Ok(huge && self.huge)
    }
}

#[test]
fn a_message_reads_as_it_was_written() {
    let pool = heap(64);
    // Two holes of a page each, so that a message of two pages has two pieces.
    let all: Vec<_> = (0..64).map(|_| message(&pool, 1, &[7; PAGE_BYTES])).collect();
    let first = |filled: &Filled<_>| filled.pieces()[0].first;
    let mut all: Vec<_> = all.into_iter().map(Some).collect();
    for at in [10, 20] {
        let found = all.iter_mut().find(|f| f.as_ref().is_some_and(|f| first(f) == at)).unwrap();
        *found = None;
    }
    let bytes: Vec<u8> = (0..5000u32).map(|at| (at % 251) as u8).collect();
    let mut filling = pool.take(Owner(2), 5001).unwrap();
    for part in bytes.chunks(999) {
        filling.write(part).unwrap();
    }
    assert_eq!((filling.filled(), filling.room()), (5000, 1));
    assert_eq!(filling.write(&[1, 2]), Err(TooLong { bytes: 2, room: 1 }));
    assert_eq!(filling.assume_filled(2), Err(TooLong { bytes: 2, room: 1 }));
    let filled = filling.finish();
    assert_eq!((filled.bytes(), filled.pieces().len(), filled.owner()), (5000, 2, Owner(2)));
    assert_eq!(filled.spans().map(|span| span.len).collect::<Vec<_>>(), [4096, 904]);
    let mut read = [0; 6000];
    assert_eq!(filled.read(0, &mut read), 5000);
    assert_eq!(read[..5000], bytes);
    assert_eq!(filled.read(4000, &mut read[..200]), 200);
    assert_eq!(read[..200], bytes[4000..4200]);
    assert_eq!(filled.read(5000, &mut read), 0);
    assert_eq!(filled.read(u64::MAX, &mut read), 0);
}

#[test]
fn exhaustion_says_the_numbers_and_goes_away() {
    let pool = heap(10);
    let some = pool.take(Owner(1), 6 * PAGE).unwrap();
    let more = pool.take(Owner(2), PAGE + 1).unwrap();
    let error = pool.take(Owner(1), 2 * PAGE + 1).unwrap_err();
    assert!(error.is_exhausted());
    assert!(
        matches!(error, TakeError::Exhausted { asked: 3, free: 2, budget: 10, own: 6 }),
        "{error}"
    );
    let said = error.to_string();
    assert!(said.contains("3 pages") && said.contains("2 of 10"), "{said}");
    assert!(pool.take(Owner(1), u64::MAX).unwrap_err().is_exhausted());
    let count = PoolCount { pages: 10, taken: 8, pieces: 2, committed: 8, huge: 0, owners: 2 };
    assert_eq!(pool.count(), count);
    assert_eq!((pool.taken_by(Owner(1)), pool.taken_by(Owner(2))), (6, 2));
    drop(some);
    assert_eq!(pool.taken_by(Owner(1)), 0);
    let all = pool.take(Owner(3), 8 * PAGE).unwrap();
    drop((more, all));
    assert_eq!(pool.count(), PoolCount { pages: 10, committed: 10, ..PoolCount::default() });
    let none = pool.take(Owner(1), 0).unwrap().finish();
    assert_eq!((none.pieces().len(), none.spans().count(), pool.count().owners), (0, 0, 0));
}

#[test]
fn large_messages_get_whole_blocks_first() {
    let pool = heap(4 * HUGE_PAGES);
    let small = pool.take(Owner(1), 3 * PAGE).unwrap();
    let large = pool.take(Owner(1), HUGE_BYTES as u64 + 5 * PAGE).unwrap().finish();
    let firsts: Vec<_> = large.pieces().iter().map(|p| (p.first, p.pages)).collect();
    assert_eq!(firsts, [(512, 517)]);
    // No two blocks are left in a row; the second half of the message comes from elsewhere.
    let larger = pool.take(Owner(1), 2 * HUGE_BYTES as u64).unwrap().finish();
    let firsts: Vec<_> = larger.pieces().iter().map(|p| (p.first, p.pages)).collect();
    assert_eq!(firsts[0], (1536, 512));
    assert_eq!(larger.pieces().iter().map(|p| p.pages).sum::<u32>(), 1024);
    drop(small);
}

#[test]
fn memory_is_asked_for_once() {
    let pool = Pool::new(Poor::new(4 * HUGE_PAGES, u32::MAX, true));
    drop(pool.take(Owner(1), 3 * PAGE).unwrap());
    drop(pool.take(Owner(1), 5 * PAGE).unwrap());
    let huge = pool.take(Owner(1), 2 * HUGE_BYTES as u64).unwrap().finish();
    assert!(huge.pieces()[0].huge);
    drop(huge);
    drop(pool.take(Owner(1), 2 * HUGE_BYTES as u64).unwrap());
    drop(pool.take(Owner(1), 100).unwrap());
    let asked = std::mem::take(&mut *pool.memory().asked.lock());
    assert_eq!(asked, [(0..3, false), (3..5, false), (0..1024, true)]);
    let count = pool.count();
    assert_eq!((count.committed, count.huge), (1024, 2));
    // Pages that left are asked for again.
    let mut filling = pool.take(Owner(1), 2 * HUGE_BYTES as u64).unwrap();
    filling.assume_filled(2 * HUGE_BYTES as u64).unwrap();
    let mut huge = filling.finish();
    huge.left(HUGE_BYTES as u64..u64::MAX);
    assert_eq!((pool.count().committed, pool.count().huge), (512, 1));
    drop(huge);
    let huge = pool.take(Owner(1), 2 * HUGE_BYTES as u64).unwrap().finish();
    assert!(huge.pieces()[0].huge);
    assert_eq!(*pool.memory().asked.lock(), [(512..1024, true)]);
}

#[test]
fn a_block_is_huge_whatever_comes_behind_it() {
    let pool = Pool::new(Poor::new(2 * HUGE_PAGES, u32::MAX, true));
    let filled = pool.take(Owner(1), HUGE_BYTES as u64 + 5 * PAGE).unwrap().finish();
    assert_eq!(filled.pieces(), [Piece { first: 0, pages: 517, huge: true }]);
    assert_eq!(*pool.memory().asked.lock(), [(0..512, true), (512..517, false)]);
}

#[test]
fn blocks_that_cannot_be_huge_are_tried_once() {
    let pool = Pool::new(Poor::new(HUGE_PAGES, u32::MAX, false));
    for _ in 0..2 {
        let filled = pool.take(Owner(1), HUGE_BYTES as u64).unwrap().finish();
        assert!(!filled.pieces()[0].huge);
    }
    assert_eq!(*pool.memory().asked.lock(), [(0..512, true)]);
}

#[test]
fn want_of_memory_takes_nothing() {
    let pool = Pool::new(Poor::new(100, 10, false));
    let kept = pool.take(Owner(1), 8 * PAGE).unwrap();
    for _ in 0..3 {
        let error = pool.take(Owner(1), 5 * PAGE).unwrap_err();
        assert!(
            matches!(&error, TakeError::NoMemory(why) if why.kind() == io::ErrorKind::OutOfMemory)
        );
        assert_eq!((pool.count().taken, pool.count().committed), (8, 8));
    }
    drop(pool.take(Owner(1), 2 * PAGE).unwrap());
    drop(kept);
    assert_eq!(pool.count().committed, 10);
    drop(pool.take(Owner(1), 10 * PAGE).unwrap());
}

#[test]
fn memory_of_a_memfd_works_alike() {
    let pool = Pool::new(MemfdPages::new(2 * HUGE_PAGES).unwrap());
    assert_eq!(pool.memory().base().as_ptr() as usize % HUGE_BYTES, 0);
    let bytes = vec![9; HUGE_BYTES + 100];
    let mut filling = pool.take(Owner(1), bytes.len() as u64).unwrap();
    filling.write(&bytes).unwrap();
    let filled = filling.finish();
    let mut read = vec![0; bytes.len()];
    assert_eq!(filled.read(0, &mut read), read.len());
    assert!(read == bytes && whole(&pool, &filled)[bytes.len()..].iter().all(|byte| *byte == 0));
    // The file shows the same bytes at the same offset.
    let mut byte = [0; 2];
    let offset = u64::from(filled.pieces()[0].first) * PAGE + bytes.len() as u64 - 1;
    rustix::io::pread(pool.memory().file().unwrap(), &mut byte, offset).unwrap();
    assert_eq!(byte, [9, 0]);
    assert!(HeapPages::new(0).is_err() && MemfdPages::new(0).is_err());
}

#[test]
fn pages_that_left_need_no_clearing() {
    let pool = heap(4);
    let mut filled = message(&pool, 1, &[1; 4 * PAGE_BYTES - 10]);
    // The second page, and the last one, which the message does not quite fill.
    filled.left(PAGE - 1..2 * PAGE + 5);
    filled.left(3 * PAGE..4 * PAGE - 10);
    assert_eq!(pool.count().committed, 2);
    drop(filled);
    // The pages were not really taken, so bytes that are not cleared are still there to be seen.
    let filled = pool.take(Owner(2), 4 * PAGE).unwrap().finish();
    let pages: Vec<u8> = whole(&pool, &filled).chunks(PAGE_BYTES).map(|page| page[0]).collect();
    assert_eq!(pages, [0, 1, 0, 1]);
    assert_eq!(pool.count().committed, 4);
}

/// Pages that a message has beyond its end were not taken along with the message's.
#[test]
fn pages_behind_the_end_do_not_leave() {
    let pool = heap(8);
    let mut filling = pool.take(Owner(1), 6 * PAGE).unwrap();
    filling.write(&[1; PAGE_BYTES + 1]).unwrap();
    let mut filled = filling.finish();
    filled.left(0..PAGE + 1);
    assert_eq!(pool.count().committed, 4);
}

#[test]
fn torn_blocks_are_not_huge_and_not_tried_again() {
    let pool = Pool::new(Poor::new(2 * HUGE_PAGES, u32::MAX, true));
    let take = || {
        let mut filling = pool.take(Owner(1), 2 * HUGE_BYTES as u64).unwrap();
        filling.assume_filled(2 * HUGE_BYTES as u64).unwrap();
        filling.finish()
    };
    take().torn(HUGE_BYTES as u64..HUGE_BYTES as u64 + PAGE);
    assert_eq!((pool.count().huge, pool.count().committed), (1, 1024));
    assert!(!take().pieces()[0].huge);
    assert_eq!(pool.memory().asked.lock().len(), 1);
    // Pages that come anew are.
    take().left(HUGE_BYTES as u64..2 * HUGE_BYTES as u64);
    assert!(take().pieces()[0].huge);
}

/// Anonymous memory with a mover, or nothing where there is none.
fn movable(pages: u32) -> Option<Pool<AnonPages>> {
    let mover = Mover::new().map_err(|error| eprintln!("SKIPPED: {error}")).ok()?;
    Some(Pool::new(AnonPages::new(pages, Some(mover.into())).unwrap()))
}

#[test]
fn anonymous_memory_works_alike() {
    let without = Pool::new(AnonPages::new(2 * HUGE_PAGES, None).unwrap());
    for pool in [Some(without), movable(2 * HUGE_PAGES)].into_iter().flatten() {
        assert_eq!(pool.memory().base().as_ptr() as usize % HUGE_BYTES, 0);
        // Some pages of the first block are in use before it is asked to be huge.
        let mut small = pool.take(Owner(1), 3 * PAGE).unwrap();
        small.write(&[5; 3 * PAGE_BYTES]).unwrap();
        drop(small);
        let bytes: Vec<u8> = (0..2 * HUGE_BYTES).map(|at| (at / 4096 % 251) as u8).collect();
        for _ in 0..2 {
            let mut filling = pool.take(Owner(1), bytes.len() as u64).unwrap();
            // Memory that was never written to is zero.
            let spans: Vec<_> = filling.spare(u64::MAX).collect();
            assert_eq!(spans.len(), 1);
            filling.write(&bytes).unwrap();
            let filled = filling.finish();
            assert!(whole(&pool, &filled) == bytes);
            let count = pool.count();
            assert_eq!(count.committed, 2 * HUGE_PAGES);
            if count.huge < 2 {
                eprintln!("SKIPPED: {} of 2 blocks became huge pages", count.huge);
            }
        }
        assert_eq!(pool.memory().is_movable(), told(&pool, 5)[0].backing == Backing::Anonymous);
    }
    assert!(AnonPages::new(0, None).is_err());
}

#[test]
fn fresh_anonymous_blocks_are_zero() {
    let Some(pool) = movable(3 * HUGE_PAGES) else { return };
    let filled = pool.take(Owner(1), 3 * HUGE_BYTES as u64).unwrap().finish();
    assert!(whole(&pool, &filled).iter().all(|byte| *byte == 0));
}

#[test]
fn sealed_memory_has_no_other_writer() {
    let pages = match SealedPages::new(4) {
        Ok(pages) => pages,
        Err(error) => return eprintln!("SKIPPED: {error}"),
    };
    let pool = Pool::new(pages);
    let mut filling = pool.take(Owner(1), 100).unwrap();
    filling.write(&[7; 100]).unwrap();
    let _filled = filling.finish();
    let file = pool.memory().file().unwrap();
    let mut byte = [0];
    rustix::io::pread(file, &mut byte, 99).unwrap();
    assert_eq!(byte, [7]);
    assert!(rustix::io::pwrite(file, b"x", 0).is_err());
    assert!(pinfold_sys::mem::mapping::SharedMapping::map(file, 4 * PAGE_BYTES).is_err());
}

#[test]
fn pages_come_back_from_other_threads() {
    let pool = heap(256);
    let (send, receive) = std::sync::mpsc::sync_channel::<(u8, Filled<HeapPages>)>(16);
    let receive = Mutex::new(receive);
    let [taken, refused, wrong] = [0; 3].map(AtomicU32::new);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Ok((tag, filled)) = receive.lock().recv() else { break };
                    let all = whole(&pool, &filled);
                    let (own, behind) = all.split_at(filled.bytes() as usize);
                    // To panic here would leave the senders waiting.
                    let right =
                        own.iter().all(|byte| *byte == tag) && behind.iter().all(|byte| *byte == 0);
                    wrong.fetch_add(u32::from(!right), Ordering::Relaxed);
                }
            });
        }
        for owner in 1..=2u8 {
            let send = send.clone();
            let (pool, taken, refused) = (&pool, &taken, &refused);
            scope.spawn(move || {
                for at in 0..2000u32 {
                    let bytes = (at.wrapping_mul(2654435761) >> 8) % (30 * PAGE_BYTES as u32);
                    match pool.take(Owner(owner.into()), bytes.into()) {
                        Ok(mut filling) => {
                            filling.write(&vec![owner; bytes as usize]).unwrap();
                            taken.fetch_add(1, Ordering::Relaxed);
                            send.send((owner, filling.finish())).unwrap();
                        }
                        Err(error) => {
                            assert!(error.is_exhausted());
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        drop(send);
    });
    assert_eq!(wrong.into_inner(), 0);
    let sum = taken.into_inner() + refused.into_inner();
    assert_eq!((sum, pool.count().taken, pool.count().owners), (4000, 0, 0));
    drop(pool.take(Owner(9), 256 * PAGE).unwrap());
}

/// The pieces of a message as told to [`gather`](super::super::gather).
fn told<P: Pages>(pool: &Pool<P>, bytes: u64) -> Vec<gather::Piece> {
    let mut filling = pool.take(Owner(1), bytes).unwrap();
    filling.assume_filled(bytes).unwrap();
    filling.finish().to_gather()
}

#[test]
fn plans_can_be_made_for_messages() {
    let pool = Pool::new(MemfdPages::new(3 * HUGE_PAGES).unwrap());
    let base = pool.memory().base().as_ptr().addr() as u64;
    // The only whole blocks left are the second and the third.
    let _page = pool.take(Owner(1), 1).unwrap();
    let bytes = 2 * HUGE_BYTES as u64 + 3 * PAGE - 10;
    let pieces = told(&pool, bytes);
    let facts: Vec<_> = pieces.iter().map(|p| (p.at - base, p.len, p.room, p.backing)).collect();
    let huge = HUGE_BYTES as u64;
    assert_eq!(
        facts,
        [
            (huge, 2 * huge, 2 * huge, Backing::File { offset: huge }),
            (PAGE, 3 * PAGE - 10, 3 * PAGE, Backing::File { offset: PAGE }),
        ]
    );
    let target = Target::Window { align: huge, maps_max: 9 };
    let costs = Costs { map_call_ns: 0.0, map_page_ns: 0.0, ..Costs::DEFAULT };
    assert_eq!(gather::plan(&pieces, target, &costs).only(), Some(How::Map));
    // Nothing of the heap goes away, and of a message that came to nothing there is nothing to
    // tell.
    assert_eq!(told(&heap(2), 100)[0].backing, Backing::Other);
    assert_eq!(heap(2).take(Owner(1), 100).unwrap().finish().to_gather(), []);
}

/// Pages that a child drops are its parent's.
#[test]
fn a_child_gives_nothing_back() {
    let pool = heap(8);
    let mut filled = Some(message(&pool, 1, &[3; 100]));
    // SAFETY: the child calls nothing but the tested code, and makes no threads.
    let pid = unsafe {
        pinfold_sys::child::spawn(|| {
            drop(filled.take());
            pool.count().taken as i32
        })
    };
    let options = rustix::process::WaitOptions::empty();
    let (_, ended) = rustix::process::waitpid(Some(pid.unwrap()), options).unwrap().unwrap();
    assert_eq!(ended.exit_status(), Some(1));
    assert_eq!(pool.count().taken, 1);
    drop(filled);
    assert_eq!(pool.count().taken, 0);
}

#[test]
fn the_memory_outlives_the_pool() {
    let pool = heap(8);
    let filled = message(&pool, 1, &[3; 100]);
    drop(pool);
    let mut read = [0; 100];
    filled.read(0, &mut read);
    assert_eq!(read, [3; 100]);
}
