//! The four organisations of a window, each against a model.

use proptest::prelude::*;

use super::{super::HUGE_PAGES, *};

/// The window as plain as it can be: for each page, the first page of its run.
struct Naive {
    pages: Vec<Option<u32>>,
}

impl Naive {
    fn is_free(&self, start: u32, len: u32) -> bool {
        let (start, end) = (start as usize, start as usize + len as usize);
        end <= self.pages.len() && self.pages[start..end].iter().all(Option::is_none)
    }

    fn aligned(&self, align: u32) -> impl Iterator<Item = u32> {
        (0..self.pages.len() as u32).step_by(align as usize)
    }

    fn largest(&self, align: u32) -> u32 {
        let run = |at: u32| self.pages[at as usize..].iter().take_while(|page| page.is_none());
        self.aligned(align).map(|at| run(at).count() as u32).max().unwrap_or(0)
    }

    fn free(&mut self, start: u32) -> Result<u32, FreeError> {
        let pages = self.pages.len() as u32;
        match self.pages.get(start as usize) {
            None => Err(FreeError::Foreign { start, pages }),
            Some(None) => Err(FreeError::Free { start }),
            Some(Some(first)) if *first != start => Err(FreeError::Inside { start }),
            Some(Some(_)) => {
                let run = self.pages.iter_mut().filter(|page| **page == Some(start));
                Ok(run.map(|page| *page = None).count() as u32)
            }
        }
    }
}

/// The promises of an organisation beyond those of all.
#[derive(Clone, Copy, PartialEq)]
enum Promise {
    /// A run that fits is found.
    Exact,
    /// A run that fits into a free block of a power of two is found.
    Blocks,
    /// A run that fits into a free, aligned 2 MiB is found.
    Huge,
}

#[derive(Clone, Debug)]
enum Step {
    Alloc {
        pages: u32,
        align: u32,
    },
    /// One of those taken.
    Free(usize),
    /// Any page, also beyond the end.
    FreeAny(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pages = prop_oneof![
        4 => Just(1u32),
        4 => 1u32..20,
        3 => 1u32..300,
        1 => 500u32..2500,
        1 => prop_oneof![Just(4u32), Just(16), Just(64), Just(256), Just(512), Just(513), Just(u32::MAX)],
    ];
    let align = prop_oneof![6 => Just(0u32), 2 => 0u32..6, 1 => 6u32..13, 1 => Just(31u32)];
    let alloc = (pages, align).prop_map(|(pages, shift)| Step::Alloc { pages, align: 1 << shift });
    let step = prop_oneof![
        6 => alloc,
        3 => any::<usize>().prop_map(Step::Free),
        1 => (0u32..4000).prop_map(Step::FreeAny),
    ];
    proptest::collection::vec(step, 1..150)
}

/// Windows of whole blocks, so that size classes use all of it; the others are also tried at odd
/// sizes.
fn sizes(promise: Promise) -> BoxedStrategy<u32> {
    let whole = (1u32..6).prop_map(|blocks| blocks * HUGE_PAGES);
    if promise == Promise::Huge { whole.boxed() } else { prop_oneof![whole, 1u32..3000].boxed() }
}

fn refusal_is_right<W: Windows + Clone>(
    windows: &W,
    naive: &Naive,
    promise: Promise,
    (pages, align): (u32, u32),
    error: AllocError,
) {
    let (free, largest) = (windows.count().free(), windows.largest(align));
    assert_eq!(error, AllocError::Full { asked: pages, align, free, largest });
    assert!(largest < pages);
    // The largest run claimed can be had, and no more.
    assert!(largest == 0 || windows.clone().alloc(largest, align).is_ok(), "claimed {largest}");
    assert!(windows.clone().alloc(largest + 1, align).is_err());
    let really = naive.largest(align);
    assert!(largest <= really);
    match promise {
        Promise::Exact => assert_eq!(largest, really),
        Promise::Blocks => {
            let Some(block) = pages.max(align).checked_next_power_of_two() else { return };
            assert!(!naive.aligned(block).any(|at| naive.is_free(at, block)));
        }
        Promise::Huge => {
            let count = pages.div_ceil(HUGE_PAGES).checked_mul(HUGE_PAGES);
            let blocks = count.zip(Some(align.max(HUGE_PAGES)));
            let fits = |(len, align)| naive.aligned(align).any(|at| naive.is_free(at, len));
            assert!(!blocks.is_some_and(fits));
        }
    }
}

fn agrees<W: Windows + Clone>(mut windows: W, promise: Promise, steps: Vec<Step>) {
    let fresh = windows.clone();
    let pages = windows.count().pages;
    assert_eq!(windows.count(), Count { pages, ..Count::default() });
    let mut naive = Naive { pages: vec![None; pages as usize] };
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for step in steps {
        match step {
            Step::Alloc { pages, align } => match windows.alloc(pages, align) {
                Ok(start) => {
                    assert!(start.is_multiple_of(align) && naive.is_free(start, pages));
                    naive.pages[start as usize..(start + pages) as usize].fill(Some(start));
                    runs.push((start, pages));
                }
                Err(error) => refusal_is_right(&windows, &naive, promise, (pages, align), error),
            },
            Step::Free(_) if runs.is_empty() => {}
            Step::Free(which) => {
                let (start, len) = runs.swap_remove(which % runs.len());
                assert_eq!(windows.free(start), Ok(len));
                naive.free(start).unwrap();
                assert_eq!(windows.free(start), Err(FreeError::Free { start }));
            }
            Step::FreeAny(page) => {
                assert_eq!(windows.free(page), naive.free(page));
                runs.retain(|(start, _)| *start != page);
            }
        }
        let count = windows.count();
        let taken = naive.pages.iter().flatten().count() as u32;
        assert_eq!((count.pages, count.taken, count.runs), (pages, taken, runs.len() as u32));
        assert!(count.held <= pages && taken <= count.held);
        assert!(promise == Promise::Huge || count.held == taken);
    }
    for align in [1, 16, 512] {
        let largest = windows.largest(align);
        assert!(largest == 0 || windows.clone().alloc(largest, align).is_ok());
        assert!(promise != Promise::Exact || largest == naive.largest(align));
    }
    for (start, len) in runs {
        assert_eq!(windows.free(start), Ok(len));
    }
    // Everything came back, in one piece.
    assert_eq!(windows.count(), fresh.count());
    for align in [1, 2, 512, 1024] {
        assert_eq!(windows.largest(align), fresh.largest(align));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn bitmaps_are_as_the_model(
        pages in sizes(Promise::Exact),
        from in 0u32..3000,
        forward in any::<bool>(),
        steps in steps(),
    ) {
        let inner = if forward { Inner::Forward } else { Inner::Backward };
        let mut windows = Bitmap::searching(pages, inner);
        windows.search_from(from);
        agrees(windows, Promise::Exact, steps);
    }

    #[test]
    fn classes_are_as_the_model(pages in sizes(Promise::Huge), steps in steps()) {
        agrees(SizeClasses::new(pages), Promise::Huge, steps);
    }

    #[test]
    fn buddies_are_as_the_model(pages in sizes(Promise::Blocks), steps in steps()) {
        agrees(Buddy::new(pages), Promise::Blocks, steps);
    }

    #[test]
    fn trees_are_as_the_model(pages in sizes(Promise::Exact), steps in steps()) {
        agrees(Tree::new(pages), Promise::Exact, steps);
    }
}

fn all(pages: u32) -> [Box<dyn Windows>; 4] {
    Organisation::ALL.map(|organisation| organisation.window(pages))
}

#[test]
fn windows_can_be_filled_page_by_page() {
    for mut windows in all(2 * HUGE_PAGES) {
        let mut starts: Vec<u32> = (0..1024).map(|_| windows.alloc(1, 1).unwrap()).collect();
        let error = windows.alloc(1, 1).unwrap_err();
        assert_eq!(error, AllocError::Full { asked: 1, align: 1, free: 0, largest: 0 });
        starts.sort_unstable();
        assert!(starts.iter().copied().eq(0..1024), "{windows:?}");
        // Every other page: half is free, and nothing but single pages.
        for page in (0..1024).step_by(2) {
            windows.free(page).unwrap();
        }
        let error = windows.alloc(2, 1).unwrap_err();
        assert_eq!(error, AllocError::Full { asked: 2, align: 1, free: 512, largest: 1 });
    }
}

#[test]
fn nonsense_is_refused() {
    for mut windows in all(1024) {
        let before = windows.count();
        assert_eq!(windows.alloc(0, 1), Err(AllocError::Empty));
        for align in [0, 3, u32::MAX] {
            assert_eq!(windows.alloc(1, align), Err(AllocError::Align { align }));
            assert_eq!(windows.largest(align), 0);
        }
        assert!(matches!(windows.alloc(u32::MAX, 1 << 31), Err(AllocError::Full { .. })));
        for start in [1024, 4096, u32::MAX] {
            assert_eq!(windows.free(start), Err(FreeError::Foreign { start, pages: 1024 }));
        }
        assert_eq!(windows.count(), before);
    }
}

#[test]
fn a_window_of_no_pages_is_always_full() {
    for mut windows in all(0) {
        let full = AllocError::Full { asked: 1, align: 1, free: 0, largest: 0 };
        assert_eq!(windows.alloc(1, 1), Err(full));
        assert_eq!(windows.free(0), Err(FreeError::Foreign { start: 0, pages: 0 }));
    }
}

#[test]
fn errors_say_the_numbers() {
    let mut windows = Tree::new(100);
    windows.alloc(30, 1).unwrap();
    let said = windows.alloc(80, 1).unwrap_err().to_string();
    assert!(said.contains("80") && said.contains("70"), "{said}");
    let said = windows.free(3).unwrap_err().to_string();
    assert!(said.contains("page 3"), "{said}");
}

#[test]
fn the_bitmap_goes_on_where_it_was_and_around() {
    let mut windows = Bitmap::new(256);
    assert_eq!(windows.alloc(10, 1), Ok(0));
    windows.free(0).unwrap();
    assert_eq!(windows.alloc(10, 1), Ok(10));
    windows.search_from(250);
    // Six pages are left behind that, and runs do not go around the end.
    assert_eq!(windows.alloc(10, 1), Ok(0));
    assert_eq!(windows.rover(), 10);
    windows.search_from(250);
    assert_eq!(windows.alloc(6, 1), Ok(250));
    assert_eq!(windows.rover(), 0);
    // A run that begins before the rover and ends behind it is found last.
    windows.search_from(200);
    assert_eq!(windows.alloc(230, 1), Ok(20));
    windows.search_from(999);
    assert_eq!(windows.rover(), 0);
}

#[test]
fn the_inner_loop_meets_every_change_or_hardly_any() {
    // The paper's worst case: every other page is taken, and the wanted run lies at the end.
    let mut work = [Inner::Forward, Inner::Backward].map(|inner| {
        let mut windows = Bitmap::searching(PAPER_PAGES, inner);
        let last = PAPER_PAGES - 64;
        for _ in 0..last {
            windows.alloc(1, 1).unwrap();
        }
        (0..last).step_by(2).for_each(|page| assert_eq!(windows.free(page), Ok(1)));
        windows.search_from(0);
        let before = windows.work();
        // The last page that is taken is the one before them.
        assert_eq!(windows.alloc(64, 1), Ok(last));
        windows.work().candidates - before.candidates
    });
    assert_eq!(work[0], u64::from(PAPER_PAGES - 64) / 2 + 1);
    work[0] /= 30;
    assert!(work[1] < work[0], "{work:?}");
}

#[test]
fn classes_round_up_and_say_so() {
    let mut windows = SizeClasses::new(4 * HUGE_PAGES);
    for (pages, held) in [(1, 1), (2, 4), (5, 16), (17, 64), (65, 256), (257, 512), (513, 1024)] {
        let before = windows.count().held;
        let start = windows.alloc(pages, 1).unwrap();
        assert_eq!(windows.count().held - before, held, "{pages}");
        windows.free(start).unwrap();
        assert_eq!(windows.count().held, before);
    }
    assert_eq!(SizeClasses::new(1023).count().pages, 512);
}

#[test]
fn huge_runs_lie_on_huge_pages() {
    let mut windows = SizeClasses::new(8 * HUGE_PAGES);
    windows.alloc(1, 1).unwrap();
    for pages in [257, 512, 513] {
        assert_eq!(windows.alloc(pages, 1).unwrap() % HUGE_PAGES, 0);
    }
    assert_eq!(
        windows.alloc(512, 2048),
        Err(AllocError::Full {
            asked: 512,
            align: 2048,
            free: 4096 - 1 - 512 - 512 - 1024,
            largest: 0,
        })
    );
}

#[test]
fn a_class_without_room_uses_a_larger_one() {
    let mut windows = SizeClasses::new(2 * HUGE_PAGES);
    let page = windows.alloc(1, 1).unwrap();
    let large = windows.alloc(200, 1).unwrap();
    assert_eq!((page, large), (0, 512));
    // The only block with slots of 16 pages would be a third.
    assert_eq!(windows.alloc(10, 1), Ok(512 + 256));
    assert_eq!(windows.count().held, 1 + 2 * 256);
    // Smaller slots are not put together, however many are free.
    let full = AllocError::Full { asked: 2, align: 1, free: 511, largest: 1 };
    assert_eq!(windows.alloc(2, 1), Err(full));
    assert_eq!(windows.free(512 + 256), Ok(10));
    assert_eq!(windows.free(large), Ok(200));
    assert_eq!(windows.alloc(512, 1), Ok(512));
}

#[test]
fn a_full_block_has_room_again_at_once() {
    let mut windows = SizeClasses::new(HUGE_PAGES);
    for pages in [1, 4, 16, 64, 256] {
        let count = HUGE_PAGES / pages;
        let starts: Vec<u32> = (0..count).map(|_| windows.alloc(pages, 1).unwrap()).collect();
        assert_eq!(windows.largest(1), 0);
        let one = starts[count as usize / 2];
        windows.free(one).unwrap();
        assert_eq!(windows.alloc(pages, 1), Ok(one));
        starts.into_iter().for_each(|start| assert_eq!(windows.free(start), Ok(pages)));
    }
}

#[test]
fn the_tree_takes_what_fits_best() {
    let mut windows = Tree::new(1000);
    let runs = [100, 20, 100, 10, 100, 30, 100].map(|len| windows.alloc(len, 1).unwrap());
    for hole in [1, 3, 5] {
        windows.free(runs[hole]).unwrap();
    }
    assert_eq!(windows.alloc(9, 1), Ok(runs[3]));
    assert_eq!(windows.alloc(20, 1), Ok(runs[1]));
    assert_eq!(windows.alloc(21, 1), Ok(runs[5]));
    assert_eq!(windows.alloc(31, 1), Ok(460));
}

#[test]
fn the_buddy_loses_no_page() {
    let mut windows = Buddy::new(1024);
    assert_eq!(windows.alloc(3, 1), Ok(0));
    assert_eq!(windows.alloc(1, 1), Ok(3));
    assert_eq!(windows.alloc(5, 8), Ok(8));
    assert_eq!(windows.alloc(1, 1), Ok(13));
    assert_eq!(windows.alloc(4, 1), Ok(4));
    assert_eq!(windows.count().free(), 1024 - 14);
    assert_eq!(windows.largest(1), 512);
}
