//! Pages are taken in as few pieces as can be, and have memory by then.

use proptest::prelude::*;

use super::{
    super::{super::HUGE_PAGES, account::Account},
    *,
};

proptest! {
    #[test]
    fn accounts_are_as_the_model(
        pages in 1u32..3000,
        steps in proptest::collection::vec((0u64..4, any::<u32>(), 0u32..12), 1..60),
    ) {
        let mut account = Account::new(pages);
        let mut naive: Vec<bool> = vec![false; pages as usize];
        let mut taken: Vec<(Owner, Vec<Piece>)> = Vec::new();
        for (owner, number, shift) in steps {
            if number % 3 == 0 && !taken.is_empty() {
                let (owner, pieces) = taken.swap_remove(number as usize % taken.len());
                account.give(owner, &pieces);
                let given = pieces.iter().flat_map(Piece::range);
                given.for_each(|page| naive[page as usize] = false);
            } else {
                let asked = number % (2 << shift);
                let free = naive.iter().filter(|taken| !**taken).count() as u32;
                match account.take(Owner(owner), u64::from(asked)) {
                    Err(error) => prop_assert!(asked > free && error.is_exhausted()),
                    Ok(pieces) => {
                        let pieces = pieces.to_vec();
                        prop_assert!(asked <= free);
                        prop_assert_eq!(pieces.iter().map(|piece| piece.pages).sum::<u32>(), asked);
                        prop_assert!(pieces.len() <= few(&mut naive.clone(), asked));
                        for page in pieces.iter().flat_map(Piece::range) {
                            prop_assert!(!std::mem::replace(&mut naive[page as usize], true));
                        }
                        taken.push((Owner(owner), pieces));
                    }
                }
            }
            let used = naive.iter().filter(|taken| **taken).count() as u32;
            prop_assert_eq!(account.count().taken, used);
            let sum: u32 = (0..4).map(|owner| account.taken_by(Owner(owner))).sum();
            prop_assert_eq!(sum, used);
            let pieces: usize = taken.iter().map(|(_, pieces)| pieces.len()).sum();
            prop_assert_eq!(account.count().pieces, pieces as u32);
        }
    }

    #[test]
    fn every_page_has_memory_before_it_is_used(
        steps in proptest::collection::vec((0u64..4 * 512, any::<bool>(), 0u64..1200), 1..30),
    ) {
        let pool = Pool::new(Poor::new(4 * HUGE_PAGES, u32::MAX, true));
        let mut kept = Vec::new();
        let (mut has, mut tried) = ([false; 4 * 512], [false; 4]);
        for (pages, keep, left) in steps {
            let Ok(filling) = pool.take(Owner(1), pages * PAGE) else {
                kept.clear();
                continue;
            };
            for (pages, huge) in pool.memory().asked.lock().drain(..) {
                let range = pages.start as usize..pages.end as usize;
                if huge {
                    prop_assert!(range.start % 512 == 0 && range.end % 512 == 0);
                    for block in &mut tried[range.start / 512..range.end / 512] {
                        prop_assert!(!std::mem::replace(block, true), "tried again");
                    }
                } else {
                    // Small pages are asked for once, and not behind a block that is to be huge.
                    prop_assert!(!has[range.clone()].contains(&true));
                }
                has[range].fill(true);
            }
            let mut filling = filling;
            filling.assume_filled(filling.room()).unwrap();
            let mut filled = filling.finish();
            for piece in filled.pieces() {
                let range = piece.first as usize..piece.range().end as usize;
                prop_assert!(has[range.clone()].iter().all(|has| *has));
                let blocks = range.start.div_ceil(512)..(range.end / 512).max(range.start.div_ceil(512));
                prop_assert!(tried[blocks.clone()].iter().all(|tried| *tried));
                prop_assert_eq!(piece.huge, !blocks.is_empty());
            }
            let committed = has.iter().filter(|has| **has).count() as u32;
            prop_assert_eq!(pool.count().committed, committed);
            if left < 1000 {
                // Pages that are taken out lack memory, and their blocks are not huge any more.
                filled.expose();
                filled.left(left * PAGE..(left + 100) * PAGE);
                let pages: Vec<u32> = filled.pieces().iter().flat_map(Piece::range).collect();
                for page in pages.iter().skip(left as usize).take(100) {
                    has[*page as usize] = false;
                    tried[*page as usize / 512] = false;
                }
                let committed = has.iter().filter(|has| **has).count() as u32;
                prop_assert_eq!(pool.count().committed, committed);
            }
            if keep {
                kept.push(filled);
            }
        }
    }
}

/// Neither pages that came back already nor pages that were never taken are ever counted as free
/// again.
#[test]
fn pieces_come_back_once() {
    let mut account = Account::new(16);
    let gone = account.take(Owner(1), 4).unwrap();
    let kept = account.take(Owner(1), 5).unwrap();
    account.give(Owner(1), &gone);
    let (count, first) = (account.count(), kept[0].first);
    let never = Piece { first: 14, pages: 1, huge: false };
    let foreign = Piece { first: 16, pages: 1, huge: false };
    let inside = Piece { first: first + 1, pages: 4, huge: false };
    for bad in [gone[0], never, foreign, inside] {
        let give = std::panic::AssertUnwindSafe(|| account.give(Owner(1), &[bad]));
        // A mistake of this library's, which tests are to notice.
        assert_eq!(std::panic::catch_unwind(give).is_err(), cfg!(debug_assertions), "{bad:?}");
        assert_eq!((account.count(), account.taken_by(Owner(1))), (count, 5), "{bad:?}");
    }
    account.give(Owner(1), &kept);
    assert_eq!((account.count().taken, account.count().owners), (0, 0));
    assert_eq!(account.take(Owner(2), 16).unwrap().len(), 1);
}

/// The fewest pieces that a message can do with, at most: whole blocks from the longest runs of
/// them, then the longest runs, until one is long enough, of which the shortest is taken.
fn few(naive: &mut [bool], asked: u32) -> usize {
    let (mut left, mut pieces) = (asked, 0);
    for align in [HUGE_PAGES, 1] {
        while left >= align {
            let runs = (0..naive.len() as u32).step_by(align as usize).map(|at| {
                let free = naive[at as usize..].iter().take_while(|taken| !**taken).count() as u32;
                (free, at)
            });
            let runs: Vec<_> = runs.collect();
            let Some((free, at)) = runs.into_iter().max_by_key(|(free, _)| *free) else { break };
            let take = if free >= left { left } else { free / align * align };
            if take == 0 {
                break;
            }
            naive[at as usize..(at + take) as usize].fill(true);
            left -= take;
            pieces += 1;
        }
    }
    pieces
}
