//! Folded messages have the contents that came.

use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use super::{super::super::gather::Piece, *};

#[test]
fn whole_pages_are_moved_and_nothing_is_copied() {
    let folder = folder(FREE);
    let pool = anonymous(&folder, 64);
    let maps = folder.count().maps_left;
    let (message, bytes) = parts(&pool, &[PAGE, 3 * PAGE, 2 * PAGE, 5 * PAGE - 9]);
    let folded = folder.fold(message).unwrap();
    assert!(*folded == bytes[..], "{}", folded.receipt());
    let receipt = *folded.receipt();
    assert_eq!((receipt.bytes, receipt.pieces), (bytes.len() as u64, 4));
    if moves(&folder) {
        assert_eq!(receipt.place, Place::Window);
        let all = (receipt.moved, receipt.mapped, receipt.copied, receipt.stops);
        assert_eq!(all, (bytes.len() as u64, 0, 0, 0), "{receipt}");
        assert_eq!(receipt.moving.cheapest, 4);
        assert!(folder.has(folded.as_ptr().addr()));
        // The pages of the pool really are gone: their places read as zeros.
        let count = folder.count();
        assert_eq!((count.messages, count.pages, count.maps_left), (1, 11, maps - 2));
    } else {
        assert_eq!((receipt.copied, receipt.moved), (bytes.len() as u64, 0));
        assert_eq!(receipt.moving.unmeasured + receipt.moving.backing, receipt.moving.unmeasured);
    }
    // The pool counts them as its own meanwhile, and when they are back.
    assert_eq!((pool.count().taken, pool.count().committed), (11, 11));
    let message = folded.unfold();
    assert!(gathered(&message) == bytes);
    nothing_left(&folder, maps);
    drop(message);
    let count = PoolCount { pages: 64, committed: 11, ..PoolCount::default() };
    assert_eq!(pool.count(), count);
}

#[test]
fn moved_pages_are_not_where_they_were() {
    let folder = folder(FREE);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 8);
    let (message, bytes) = parts(&pool, &[2 * PAGE, PAGE]);
    let mut pieces = Vec::new();
    message.gather(&mut pieces);
    // A bit of eight bytes for each page says whether it is there.
    let map = std::fs::File::open("/proc/self/pagemap").unwrap();
    let is_there = |at: u64| {
        let mut entry = [0; 8];
        map.read_exact_at(&mut entry, at / PAGE as u64 * 8).unwrap();
        u64::from_ne_bytes(entry) >> 63 == 1
    };
    let here = |pieces: &[Piece]| -> Vec<usize> {
        let pages = |piece: &Piece| (piece.at..piece.at + piece.room).step_by(PAGE);
        pieces.iter().map(|piece| pages(piece).filter(|at| is_there(*at)).count()).collect()
    };
    assert_eq!(here(&pieces), [2, 1]);
    let folded = folder.fold(message).unwrap();
    assert_eq!(here(&pieces), [0, 0]);
    let message = folded.unfold();
    assert_eq!(here(&pieces), [2, 1]);
    assert!(gathered(&message) == bytes);
}

#[test]
fn huge_pages_stay_huge() {
    let folder = folder(FREE);
    let pool = anonymous(&folder, 6 * HUGE_PAGES);
    // Twice, for the second message meets the remains of the first.
    for round in 0..2 {
        let (message, bytes) = parts(&pool, &[HUGE_BYTES; 4]);
        let folded = folder.fold(message).unwrap();
        assert!(*folded == bytes[..]);
        if !moves(&folder) {
            return;
        }
        assert_eq!((folded.receipt().moved, folded.receipt().stops), (bytes.len() as u64, 0));
        if pool.count().huge < 4 {
            return eprintln!("SKIPPED: {} of 4 blocks are huge pages", pool.count().huge);
        }
        let at = folded.as_ptr().addr();
        assert_eq!((at % HUGE_BYTES, huge_bytes(at, bytes.len())), (0, bytes.len()), "{round}");
        drop(folded);
        let base = pool.memory().base().as_ptr().addr();
        assert_eq!(huge_bytes(base, 6 * HUGE_BYTES), 4 * HUGE_BYTES);
        assert_eq!((pool.count().huge, pool.count().committed), (4, 4 * HUGE_PAGES));
        // Messages of small pages in between leave nothing there that would split huge ones.
        for lens in [&[HUGE_BYTES, 3 * PAGE + 5, 7][..], &[HUGE_BYTES, 3 * PAGE]] {
            // From elsewhere, for it tears huge pages.
            let other = anonymous(&folder, 2 * HUGE_PAGES);
            let (message, bytes) = parts(&other, lens);
            assert!(*folder.fold(message).unwrap() == bytes[..]);
        }
    }
}

#[test]
fn torn_huge_pages_are_told_to_the_pool() {
    let folder = folder(FREE);
    // The second piece comes to lie a page behind; of one of three blocks nothing is left huge,
    // either.
    for blocks in [1, 3] {
        let pool = anonymous(&folder, 6 * HUGE_PAGES);
        let (message, bytes) = parts(&pool, &[HUGE_BYTES, PAGE, blocks * HUGE_BYTES]);
        let huge = pool.count().huge as usize;
        let folded = folder.fold(message).unwrap();
        assert!(*folded == bytes[..]);
        if moves(&folder) && huge == 1 + blocks {
            assert_eq!((pool.count().huge, folded.receipt().copied), (1, 0));
        }
    }
}

#[test]
fn sealed_files_are_mapped_for_reading() {
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let pool = Pool::new(SealedPages::new(64).unwrap());
    let (message, bytes) = parts(&pool, &[2 * PAGE, 3 * PAGE, PAGE + 100]);
    let mut folded = folder.fold(message).unwrap();
    assert!(*folded == bytes[..]);
    let receipt = *folded.receipt();
    assert_eq!((receipt.place, receipt.mapped), (Place::Window, bytes.len() as u64), "{receipt}");
    assert_eq!(folder.count().maps_left, maps - 2 - 2 * 3);
    assert!(folded.as_mut().is_none());
    let at = folded.as_ptr().addr();
    let all = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = all.lines().find(|line| line.starts_with(&format!("{at:x}-"))).unwrap();
    assert_eq!(line.split(' ').nth(1), Some("r--s"), "{line}");
    assert!(gathered(&folded.unfold()) == bytes);
    nothing_left(&folder, maps);
}

/// A huge page of a file is mapped by one fault, so that is worth while where copying a small one
/// is cheap.
#[test]
fn huge_files_are_mapped() {
    let costs = Costs { fault_ns: 100.0, copy_byte_ns: 0.05, map_page_ns: 500.0, ..Costs::DEFAULT };
    let folder = folder(costs);
    let pool = Pool::new(SealedPages::new(4 * HUGE_PAGES).unwrap());
    let (message, bytes) = parts(&pool, &[HUGE_BYTES, HUGE_BYTES]);
    let huge = pool.count().huge == 2;
    let folded = folder.fold(message).unwrap();
    assert!(*folded == bytes[..]);
    let mapped = if huge { bytes.len() as u64 } else { 0 };
    assert_eq!(folded.receipt().mapped, mapped, "{}", folded.receipt());
    let (message, _) = parts(&pool, &[16 * PAGE, 16 * PAGE]);
    assert_eq!(folder.fold(message).unwrap().receipt().mapped, 0);
}

/// Parts of two files, whose offsets follow each other.
#[test]
fn files_are_not_taken_for_each_other() {
    let folder = folder(FREE);
    let [one, two] = [(); 2].map(|()| Pool::new(MemfdPages::new(8).unwrap()));
    let skipped = filled(&two, &fresh(PAGE));
    let (a, b) = (fresh(PAGE), fresh(PAGE));
    let message = vec![filled(&one, &a), filled(&two, &b)];
    let folded = folder.fold(message).unwrap();
    assert_eq!(folded.receipt().mapped, 2 * PAGE as u64);
    assert!(copied_out(&folded) == [a, b].concat());
    drop(skipped);
}

#[test]
fn what_lies_in_a_row_stays_there() {
    let folder = folder(FREE);
    let pool = Pool::new(SealedPages::new(8).unwrap());
    let bytes = fresh(3 * PAGE);
    let one = filled(&pool, &bytes);
    let mut folded = folder.fold(one).unwrap();
    assert_eq!((folded.receipt().place, folded.receipt().copied), (Place::InPlace, 0));
    assert!(*folded == bytes[..] && !folder.has(folded.as_ptr().addr()));
    assert!(folded.as_mut().is_none());
    drop(folded);
    // Two parts that happen to be neighbours.
    let (a, b) = (fresh(2 * PAGE), fresh(10));
    let heap = Pool::new(HeapPages::new(8).unwrap());
    let mut folded = folder.fold(vec![filled(&heap, &a), filled(&heap, &b)]).unwrap();
    assert_eq!(folded.receipt().place, Place::InPlace);
    assert!(*folded == [a, b].concat()[..]);
    folded.as_mut().unwrap()[2 * PAGE] = 1;
    assert_eq!(gathered(&folded.unfold())[2 * PAGE], 1);
    let nothing = folder.fold(filled(&heap, &[])).unwrap();
    assert!(nothing.is_empty() && nothing.iter().next().is_none());
    // Their pages are neighbours, their bytes are not.
    let (a, b) = (fresh(2 * PAGE - 5), fresh(10));
    let folded = folder.fold(vec![filled(&heap, &a), filled(&heap, &b)]).unwrap();
    assert!(folded.receipt().place != Place::InPlace && *folded == [a, b].concat()[..]);
}

/// Small pages would be copied, huge ones are worth a move.
#[test]
fn huge_pages_are_moved_where_small_ones_are_not() {
    let costs = Costs { move_page_ns: 1e4, copy_byte_ns: 0.05, fault_ns: 0.0, ..Costs::DEFAULT };
    let folder = folder(costs);
    if !moves(&folder) {
        return;
    }
    let pool = anonymous(&folder, 4 * HUGE_PAGES);
    let (message, bytes) = parts(&pool, &[HUGE_BYTES, HUGE_BYTES]);
    let moved = if pool.count().huge == 2 { bytes.len() as u64 } else { 0 };
    let folded = folder.fold(message).unwrap();
    assert_eq!(folded.receipt().moved, moved, "{}", folded.receipt());
    let (message, _) = parts(&pool, &[16 * PAGE, 16 * PAGE]);
    assert_eq!(folder.fold(message).unwrap().receipt().moved, 0);
}

#[test]
fn what_is_written_is_there_when_unfolded() {
    for costs in [FREE, Costs::COPY_ONLY] {
        let folder = folder(costs);
        let pool = anonymous(&folder, 32);
        let (message, mut bytes) = parts(&pool, &[3 * PAGE, PAGE + 7, 2 * PAGE, 100]);
        let mut folded = folder.fold(message).unwrap();
        for at in [0, PAGE, 4 * PAGE + 3, 5 * PAGE, 6 * PAGE + 80] {
            folded.as_mut().unwrap()[at] ^= 255;
            bytes[at] ^= 255;
        }
        assert!(*folded == bytes[..], "{}", folded.receipt());
        let message = folded.unfold();
        assert!(gathered(&message) == bytes);
        assert!(*folder.fold(message).unwrap() == bytes[..]);
    }
}

#[test]
fn callers_have_memory_of_their_own() {
    let folder = folder(FREE);
    let pool = Pool::new(MemfdPages::new(64).unwrap());
    let (message, bytes) = parts(&pool, &[2 * PAGE, 3 * PAGE, PAGE + 100]);
    let mut to = vec![7; bytes.len() + 1];
    let receipt = folder.fold_into(&message, &mut to).unwrap();
    assert_eq!((receipt.copied, receipt.place), (bytes.len() as u64, Place::Memory(Why::Asked)));
    assert!(to[..bytes.len()] == bytes && to[bytes.len()] == 7);
    let short = folder.fold_into(&message, &mut to[..bytes.len() - 1]).unwrap_err();
    let (bytes, room) = (bytes.len() as u64, bytes.len() as u64 - 1);
    assert_eq!(short, FoldError::Short { bytes, room });
}

/// Parts of a message: kind of memory, length, and how many pages are taken before them.
fn shapes() -> impl Strategy<Value = Vec<(u8, usize, usize)>> {
    let len = prop_oneof![
        3 => (1usize..20).prop_map(|pages| pages * PAGE),
        2 => 0usize..5 * PAGE,
        1 => Just(HUGE_BYTES),
        1 => (0usize..3 * PAGE).prop_map(|more| HUGE_BYTES + more),
    ];
    proptest::collection::vec((0u8..4, len, 0usize..3), 1..9)
}

fn some_costs() -> impl Strategy<Value = Costs> {
    prop_oneof![
        4 => Just(FREE),
        1 => Just(Costs::DEFAULT),
        1 => Just(Costs::COPY_ONLY),
        // Pages are dearer to move back than to replace.
        2 => Just(Costs { move_call_ns: 5000.0, ..FREE }),
        // Huge pages are moved, the bytes behind them copied.
        1 => Just(Costs { move_page_ns: 1e7, move_few_page_ns: 1e7, ..FREE }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn messages_are_as_they_came(
        messages in proptest::collection::vec((shapes(), any::<bool>()), 1..4),
        costs in some_costs(),
        maps in prop_oneof![Just(None), (0u32..12).prop_map(Some)],
        window_bytes in prop_oneof![Just(0usize), Just(8 << 20), Just(64 << 20)],
    ) {
        let settings = Settings { maps_max: maps, window_bytes, ..settings(costs) };
        let folder = Folder::new(settings).unwrap();
        let maps = folder.count().maps_left;
        let anon = anonymous(&folder, 12 * HUGE_PAGES);
        let sealed = Pool::new(SealedPages::new(12 * HUGE_PAGES).unwrap());
        let memfd = Pool::new(MemfdPages::new(12 * HUGE_PAGES).unwrap());
        let heap = Pool::new(HeapPages::new(12 * HUGE_PAGES).unwrap());
        let mut held = Vec::new();
        for (shapes, keep) in &messages {
            let (mut message, mut model) = (Vec::<Box<dyn Scattered>>::new(), Vec::new());
            let mut before = Vec::new();
            for (kind, len, skip) in shapes {
                let bytes = fresh(*len);
                for _ in 0..*skip {
                    before.push(filled(&anon, &fresh(PAGE)));
                }
                message.push(match kind {
                    0 | 3 => Box::new(filled(&anon, &bytes)),
                    1 if len % 2 == 0 => Box::new(filled(&sealed, &bytes)),
                    1 => Box::new(filled(&memfd, &bytes)),
                    _ => Box::new(filled(&heap, &bytes)),
                });
                model.extend_from_slice(&bytes);
            }
            let folded = folder.fold(message).unwrap();
            prop_assert!(copied_out(&folded) == model, "{}", folded.receipt());
            let receipt = *folded.receipt();
            let sum = receipt.moved + receipt.mapped + receipt.copied;
            let placed = if receipt.place == Place::InPlace { 0 } else { receipt.bytes };
            // A page that the kernel finds busy for a moment is copied, which then is a stop.
            prop_assert_eq!(sum, placed, "{}", receipt);
            let window = receipt.place == Place::Window;
            prop_assert_eq!(window, receipt.moved + receipt.mapped > 0);
            if *keep {
                held.push((folded, model));
            } else {
                prop_assert!(gathered(&folded.unfold()) == model, "{}", receipt);
            }
        }
        for (folded, model) in held {
            prop_assert!(copied_out(&folded) == model, "{}", folded.receipt());
            drop(folded);
        }
        nothing_left(&folder, maps);
        prop_assert_eq!([anon.count(), sealed.count(), heap.count()].map(|c| c.taken), [0; 3]);
        // All pages can be had again, and show nothing.
        let all = anon.take(Owner(1), 12 * HUGE_BYTES as u64).unwrap().finish();
        prop_assert_eq!(anon.count().committed, 12 * HUGE_PAGES);
        let mut pieces = 0;
        for piece in all.pieces() {
            pieces += piece.pages;
            let at = anon.memory().base().as_ptr().wrapping_add(piece.first as usize * PAGE);
            // SAFETY: pages of the message, which no thread writes to.
            let bytes = unsafe { std::slice::from_raw_parts(at, piece.pages as usize * PAGE) };
            prop_assert!(bytes.iter().all(|byte| *byte == 0));
        }
        prop_assert_eq!(pieces, 12 * HUGE_PAGES);
    }
}
