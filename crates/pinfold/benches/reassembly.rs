//! `cargo bench -p pinfold --bench reassembly`: pages out of a window of 65,536, by each
//! organisation, plans for messages in many pieces, folding beside `memcpy` (`-- fold` for that
//! alone), messages that endpoints keep, as they are handed out (`-- kept`), and those that are
//! given in parts (`-- given`).
//!
//! A window is filled to its level as the paper's maps are (section 4.2): all of it is taken page
//! by page but for 512 pages at the end, then pages are freed at random until so many are left.

use divan::{Bencher, black_box, counter::ItemsCount};
use pinfold::reassembly::{
    HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
    gather::{Backing, Costs, Piece, Target, plan},
    pool::{HeapPages, Owner, Pool},
    window::{
        AllocError, Bitmap, Buddy, Count, FreeError, Inner, PAPER_PAGES, SizeClasses, Tree, Windows,
    },
};

mod fold;

fn main() {
    // Pairs that take turns are not for divan.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let names = args.iter().filter(|arg| !arg.starts_with('-')).count();
    let fold = args.iter().any(|arg| ["fold", "given", "kept"].contains(&&**arg));
    let list = args.iter().any(|arg| arg == "--list" || arg == "--test");
    if !list && (fold || names == 0) {
        fold::main();
    }
    if !fold {
        divan::main();
    }
}

/// Percent of the window that are taken.
const LEVELS: [u32; 4] = [0, 50, 90, 99];

/// Pages of a message.
const PAGES: [u32; 3] = [1, 16, 512];

trait Make: Windows + Clone {
    fn make() -> Self;
}

/// The bitmap with the paper's inner loop.
#[derive(Clone, Debug)]
struct Paper(Bitmap);

impl Windows for Paper {
    #[inline]
    fn alloc(&mut self, pages: u32, align: u32) -> Result<u32, AllocError> {
        self.0.alloc(pages, align)
    }

    #[inline]
    fn free(&mut self, start: u32) -> Result<u32, FreeError> {
        self.0.free(start)
    }

    fn count(&self) -> Count {
        self.0.count()
    }

    fn largest(&self, align: u32) -> u32 {
        self.0.largest(align)
    }
}

impl Make for Paper {
    fn make() -> Paper {
        Paper(Bitmap::searching(PAPER_PAGES, Inner::Forward))
    }
}

impl Make for Bitmap {
    fn make() -> Bitmap {
        Bitmap::new(PAPER_PAGES)
    }
}

impl Make for SizeClasses {
    fn make() -> SizeClasses {
        SizeClasses::new(PAPER_PAGES)
    }
}

impl Make for Buddy {
    fn make() -> Buddy {
        Buddy::new(PAPER_PAGES)
    }
}

impl Make for Tree {
    fn make() -> Tree {
        Tree::new(PAPER_PAGES)
    }
}

/// The paper's generator: a Fibonacci sequence.
struct Fibonacci(u64, u64);

impl Fibonacci {
    fn below(&mut self, bound: usize) -> usize {
        (self.0, self.1) = ((self.0 + self.1) % 0x7FFF_FFFF, self.0);
        self.0 as usize % bound
    }
}

/// A window taken to `level` percent, its taken pages, and the generator that frees them at random.
fn filled<W: Make>(level: u32) -> (W, Vec<u32>, Fibonacci) {
    let mut windows = W::make();
    let mut random = Fibonacci(17, 37);
    if level == 0 {
        return (windows, Vec::new(), random);
    }
    let fill = PAPER_PAGES - HUGE_PAGES;
    let mut taken: Vec<u32> = (0..fill).map(|_| windows.alloc(1, 1).expect("free")).collect();
    while taken.len() as u32 > (PAPER_PAGES * level / 100).min(fill) {
        let page = taken.swap_remove(random.below(taken.len()));
        windows.free(page).expect("taken");
    }
    (windows, taken, random)
}

/// The cost of [`take_and_give`] beside the window's work: finding the run to give back.
#[divan::bench]
fn overhead(bencher: Bencher) {
    let (mut random, mut taken) = (Fibonacci(17, 37), vec![0u32; 60_000]);
    bencher.bench_local(|| {
        taken.push(black_box(1));
        let at = random.below(taken.len());
        taken.swap_remove(at)
    });
}

/// One run is taken, and another of that length, taken some time before, is given back: a random
/// one.
#[divan::bench(
    types = [Paper, Bitmap, SizeClasses, Buddy, Tree],
    consts = PAGES,
    args = LEVELS,
    sample_count = 50,
)]
fn take_and_give<W: Make, const RUN: u32>(bencher: Bencher, level: u32) {
    let (mut windows, mut taken, mut random) = filled::<W>(level);
    if RUN > 1 {
        // As many as are sure to fit into the end of the window, less one.
        taken.clear();
        let fit = HUGE_PAGES / RUN - 1;
        taken.extend((0..fit).map(|_| windows.alloc(RUN, 1).expect("there is room at the end")));
    }
    bencher.bench_local(move || {
        let start = windows.alloc(black_box(RUN), 1).expect("room for one more");
        taken.push(start);
        let at = random.below(taken.len());
        let back = taken.swap_remove(at);
        windows.free(back).expect("taken");
    });
}

/// 256 searches for one page, and nothing given back: look at the time for one of them.
#[divan::bench(
    types = [Paper, Bitmap, SizeClasses, Buddy, Tree],
    args = LEVELS,
    sample_count = 200,
    sample_size = 1,
)]
fn search_one_page<W: Make>(bencher: Bencher, level: u32) {
    let (windows, ..) = filled::<W>(level);
    bencher.counter(ItemsCount::new(256u32)).with_inputs(|| windows.clone()).bench_local_refs(
        |windows| {
            for _ in 0..256 {
                black_box(windows.alloc(1, 1).is_ok());
            }
        },
    );
}

/// A message in the pool, taken, left unfilled, finished and given back: the pool's cost for it.
#[divan::bench(args = [1, 16, 512, 1536])]
fn pool(bencher: Bencher, pages: u64) {
    let pool = Pool::new(HeapPages::new(4 * HUGE_PAGES).expect("memory"));
    let bytes = pages * PAGE_BYTES as u64 - 100;
    bencher.bench_local(|| {
        let mut filling = pool.take(Owner(1), bytes).expect("free");
        filling.assume_filled(bytes).expect("as many");
        filling.finish()
    });
}

/// A plan for a message of 24 MiB in pieces of so many pages.
#[divan::bench(args = [1, 16, 512])]
fn gather(bencher: Bencher, pages: u64) {
    let len = pages * PAGE_BYTES as u64;
    let count = 12 * HUGE_BYTES as u64 / len;
    let piece = |at: u64| Piece {
        at: (2 * count - at) * 2 * len,
        len,
        room: len,
        huge: pages == u64::from(HUGE_PAGES),
        backing: Backing::Anonymous,
    };
    let pieces: Vec<Piece> = (0..count).map(piece).collect();
    let target = Target::Window { align: HUGE_BYTES as u64, maps_max: 1000 };
    bencher
        .counter(ItemsCount::new(pieces.len()))
        .bench_local(|| plan(black_box(&pieces), target, &Costs::DEFAULT));
}
