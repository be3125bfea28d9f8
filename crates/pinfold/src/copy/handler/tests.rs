#![allow(unsafe_code)]
//! Contents and counts of copies by the handler. Unsafe for its raw form.

use std::thread;

use proptest::prelude::*;

use super::*;
use crate::copy::{Caller, Isa, Prefetch};

/// Bytes that tell their places apart.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + 1) as u8).collect()
}

/// An algorithm that stores past the cache; `None` if there is none.
const STREAMING: Option<Algorithm> = Algorithm::new(Isa::Word, Prefetch::None, Stores::Streaming);

/// A plan with two candidates, and `rep` below those sizes.
struct Two;

const REP: Algorithm = algorithm("rep");
const WORD: Algorithm = algorithm("word");

const fn algorithm(name: &str) -> Algorithm {
    let isa = if name.len() == 3 { Isa::Rep } else { Isa::Word };
    match Algorithm::new(isa, Prefetch::None, Stores::Temporal) {
        Some(algorithm) => algorithm,
        None => Algorithm::LIBC,
    }
}

impl Choose for Two {
    fn pick(&self, block: &Block) -> Algorithm {
        assert_eq!(block.reader, Reader::OtherCore);
        REP
    }

    fn candidates(&self, block: &Block) -> impl Iterator<Item = Algorithm> {
        assert!(block.len >= 1024);
        [WORD, REP].into_iter()
    }
}

const HINTS: Hints = Hints {
    reader: Reader::OtherCore,
    source: CacheState::Unknown,
    destination: CacheState::Unknown,
    hears_reader: true,
};

#[test]
fn what_goes_through_is_counted_by_algorithm_and_size() {
    let (mut handler, mut site) = (Handler::new(Two), Site::new());
    let from = pattern(5000);
    let mut to = vec![0; 5000];
    let mut copy = |handler: &mut Handler<Two>, len: usize| {
        to.fill(0);
        // SAFETY: both vectors are longer.
        let done = unsafe { handler.copy(&mut site, HINTS, from.as_ptr(), to.as_mut_ptr(), len) };
        assert_eq!(to[..len], from[..len]);
        assert!(to[len..].iter().all(|byte| *byte == 0));
        assert_eq!(done.bytes, len);
        done
    };
    assert_eq!(copy(&mut handler, 255), Done::by_libc(255));
    assert_eq!(handler.tally().counts(), Counts::default());
    // Too short for the site to know: the plan's choice.
    assert_eq!(copy(&mut handler, 256), Done { algorithm: REP, bytes: 256, ns: None });
    assert_eq!(copy(&mut handler, 1023).algorithm, REP);
    // The first of a class is the likeliest candidate, and timed.
    let done = copy(&mut handler, 5000);
    assert_eq!((done.algorithm, done.ns.is_some()), (WORD, true));
    let counts = handler.tally().counts();
    let rep = counts.copied[usize::from(REP.id())];
    assert_eq!(rep, Count { copies: 2, bytes: 256 + 1023 });
    assert_eq!(counts.copied[usize::from(WORD.id())], Count { copies: 1, bytes: 5000 });
    assert_eq!(counts.by_size[0], Count { copies: 1, bytes: 256 });
    assert_eq!(counts.by_size[1], Count { copies: 1, bytes: 1023 });
    assert_eq!(counts.by_size[4], Count { copies: 1, bytes: 5000 });
    assert_eq!(counts.zeroed, [Count::default(); Algorithm::COUNT]);
    assert_eq!(counts.moved, Count::default());
}

#[test]
fn who_does_not_hear_of_the_reader_compares_like_with_like() {
    /// Stores that leave the reader more to do, and two that do not.
    struct Mixed;
    impl Choose for Mixed {
        fn pick(&self, _: &Block) -> Algorithm {
            REP
        }

        fn candidates(&self, _: &Block) -> impl Iterator<Item = Algorithm> {
            [Some(REP), STREAMING, Some(WORD)].into_iter().flatten()
        }
    }
    let (from, mut to) = (pattern(4096), vec![0; 4096]);
    for hears_reader in [false, true] {
        let (mut handler, mut site) = (Handler::new(Mixed), Site::new());
        let hints = Hints { hears_reader, ..Hints::default() };
        for _ in 0..100 {
            // SAFETY: both vectors have that length.
            let done =
                unsafe { handler.copy(&mut site, hints, from.as_ptr(), to.as_mut_ptr(), 4096) };
            done.learn(&mut site, 0);
        }
        let counts = handler.tally().counts();
        let tried = |algorithm: Algorithm| counts.copied[usize::from(algorithm.id())].copies > 0;
        assert_eq!(STREAMING.map(tried), Some(hears_reader));
        assert!(tried(REP) && tried(WORD));
    }
}

#[test]
fn blocks_that_overlap_are_moved() {
    for (from, to) in [(0, 1), (1, 0), (0, 999), (999, 0), (500, 500)] {
        let (mut handler, mut site) = (Handler::new(Two), Site::new());
        let mut memory = pattern(2000);
        let base = memory.as_mut_ptr();
        // SAFETY: both lie inside.
        let done = unsafe { handler.copy(&mut site, HINTS, base.add(from), base.add(to), 1000) };
        assert_eq!(done, Done::by_libc(1000));
        assert_eq!(memory[to..to + 1000], pattern(2000)[from..from + 1000]);
        let counts = handler.tally().counts();
        assert_eq!(counts.moved, Count { copies: 1, bytes: 1000 });
        assert_eq!(counts.by_size, Counts::default().by_size);
    }
}

#[test]
fn a_site_learns_what_its_copies_took_with_their_readers_time() {
    let mut site = Site::new();
    for _ in 0..400 {
        let choice = site.next(4096, || [WORD, REP]).unwrap();
        let ns = choice.timed.then_some(1000);
        let done = Done { algorithm: choice.algorithm, bytes: 4096, ns };
        // The reader is slow after one of them.
        done.learn(&mut site, if choice.algorithm == WORD { 5000 } else { 0 });
    }
    assert_eq!(site.using(4096), Some(REP));
}

/// The gain of a stream from both sides at work counts half: (the time of the one here and with its
/// reader, that of the other, the one that is used in the end).
#[test]
fn neither_both_times_nor_the_longer_alone_decides() {
    let cases = [
        // Together 2.4 against 2.7, but the reader holds a stream up: the even one.
        ((500, 1900), (1350, 1350), REP),
        // Much less together, and the slower side is hardly slower.
        ((200, 1400), (1300, 1300), WORD),
        // The same together.
        ((0, 2000), (1000, 1000), REP),
    ];
    for (uneven, even, used) in cases {
        let mut site = Site::new();
        for _ in 0..400 {
            let choice = site.next(4096, || [WORD, REP]).unwrap();
            let (here, there) = if choice.algorithm == WORD { uneven } else { even };
            let ns = choice.timed.then_some(here);
            Done { algorithm: choice.algorithm, bytes: 4096, ns }.learn(&mut site, there);
        }
        assert_eq!(site.using(4096), Some(used), "{uneven:?} {even:?}");
    }
}

#[test]
fn who_hears_of_the_reader_does_not_begin_by_streaming() {
    struct Streams;
    impl Choose for Streams {
        fn pick(&self, _: &Block) -> Algorithm {
            STREAMING.unwrap_or(REP)
        }

        fn candidates(&self, _: &Block) -> impl Iterator<Item = Algorithm> {
            [STREAMING, Some(REP), Some(WORD)].into_iter().flatten()
        }
    }
    let (from, mut to) = (pattern(4096), vec![0; 4096]);
    for (hears_reader, first) in [(true, Some(REP)), (false, STREAMING)] {
        let (mut handler, mut site) = (Handler::new(Streams), Site::new());
        let hints = Hints { hears_reader, ..Hints::default() };
        // SAFETY: both vectors have that length.
        let done = unsafe { handler.copy(&mut site, hints, from.as_ptr(), to.as_mut_ptr(), 4096) };
        assert_eq!((Some(done.algorithm), to == from), (first, true), "{hears_reader}");
    }
}

#[test]
fn lengths_that_differ_are_an_error_and_nothing_is_copied() {
    let mut to = [9; 300];
    let error = copy(&mut to, &[1; 299], Reader::Me).unwrap_err();
    assert_eq!(error, BlockError::Lengths { from: 299, to: 300 });
    assert_eq!(to, [9; 300]);
    assert!(error.to_string().contains("299 bytes cannot be copied to 300"), "{error}");
}

#[test]
fn a_move_outside_is_an_error_that_names_both_ranges() {
    let mut memory = pattern(1000);
    #[expect(clippy::reversed_empty_ranges)]
    let wrong = [(0..500, 501), (501..1001, 0), (20..10, 0), (0..500, usize::MAX)];
    for (from, to) in wrong {
        let error = move_within(&mut memory, from.clone(), to, Reader::Me).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("{from:?}")) && text.contains(&format!("{to}..")), "{text}");
    }
    assert_eq!(memory, pattern(1000));
    let _ = move_within(&mut memory, 1000..1000, 1000, Reader::Me).unwrap();
}

#[test]
fn all_threads_count() {
    // The only test that zeroes 300 KiB and more through the public functions.
    let class = size_class(300 << 10).unwrap();
    let before = counts().by_size[class];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut memory = pattern(300 << 10);
                for _ in 0..5 {
                    let done = zero(&mut memory, Reader::Nobody);
                    assert_eq!(done.bytes, 300 << 10);
                }
                assert!(memory.iter().all(|byte| *byte == 0));
            });
        }
    });
    let mut memory = pattern(300 << 10);
    let _ = zero(&mut memory, Reader::Me);
    let after = counts().by_size[class];
    // The counts of the threads that ended are still there, and each once.
    assert_eq!(after.copies - before.copies, 21);
    assert_eq!(after.bytes - before.bytes, 21 * (300 << 10));
}

#[test]
fn callers_have_their_names() {
    assert_eq!(Caller::Named("lane").to_string(), "lane");
}

#[test]
fn classes_of_sizes_end_at_64_mib() {
    assert_eq!(size_class(0), None);
    assert_eq!(size_class(255), None);
    assert_eq!(size_class(256), Some(0));
    assert_eq!(size_class(511), Some(0));
    assert_eq!(size_class(64 << 20), Some(SIZES - 1));
    assert_eq!(size_class((64 << 20) - 1), Some(SIZES - 2));
    assert_eq!(size_class(usize::MAX), Some(SIZES - 1));
}

/// Copies in a memory of 100 bytes, many of which go on where the one before ended.
fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let one = (0..90usize, 0..90usize, 0..=10usize, any::<(bool, bool)>());
    prop::collection::vec(one, 0..30).prop_map(|raw| {
        let mut pieces: Vec<Piece> = Vec::new();
        for (mut from, mut to, len, (goes_on, both)) in raw {
            if let Some(last) = pieces.last().filter(|_| goes_on) {
                from = (last.from + last.len).min(90);
                to = if both { (last.to + last.len).min(90) } else { to };
            }
            pieces.push(Piece { from, to, len });
        }
        pieces
    })
}

fn perform(memory: &mut [u8], pieces: impl Iterator<Item = Piece>) {
    pieces.for_each(|piece| memory.copy_within(piece.from..piece.from + piece.len, piece.to));
}

/// As pieces are joined on their way.
fn joined(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut last = Piece::EMPTY;
    let given = pieces.into_iter().filter(|piece| piece.len > 0);
    let mut joined: Vec<Piece> = given.filter_map(|next| last.join(next)).collect();
    joined.push(last);
    joined.into_iter().filter(|piece| piece.len > 0).collect()
}

#[test]
fn neighbours_become_one() {
    let piece = |from, to, len| Piece { from, to, len };
    let given = [piece(0, 50, 4), piece(4, 54, 0), piece(4, 54, 6), piece(10, 70, 1)];
    assert_eq!(joined(given), [piece(0, 50, 10), piece(10, 70, 1)]);
    // The second reads the bytes that the first writes.
    let given = [piece(0, 4, 4), piece(4, 8, 4)];
    assert_eq!(joined(given), given);
    // At the end of all addresses.
    let given = [piece(usize::MAX - 3, 0, 4), piece(0, 4, 4)];
    assert_eq!(joined(given), given);
}

proptest! {
    #[test]
    fn merged_pieces_do_the_same(pieces in pieces()) {
        let (mut plain, mut merged) = (pattern(100), pattern(100));
        perform(&mut plain, pieces.iter().copied());
        perform(&mut merged, joined(pieces.iter().copied()).into_iter());
        prop_assert_eq!(plain, merged);
        let left = joined(pieces.iter().copied());
        prop_assert!(left.len() <= pieces.iter().filter(|piece| piece.len > 0).count());
        // Nothing is left that could have been merged.
        for pair in left.windows(2) {
            let [a, b] = pair else { unreachable!() };
            let follows = a.from + a.len == b.from && a.to + a.len == b.to;
            prop_assert!(!follows || a.from.abs_diff(a.to) < a.len + b.len);
        }
    }

    #[test]
    fn slices_arrive(len in 0..5000usize, start in 0..64usize, by in 0..64usize) {
        let from = pattern(len + 64);
        let mut to = vec![0; len + 64];
        let done = copy(&mut to[by..by + len], &from[start..start + len], Reader::Me).unwrap();
        prop_assert_eq!(done.bytes, len);
        prop_assert_eq!(&to[by..by + len], &from[start..start + len]);
        prop_assert!(to[..by].iter().chain(&to[by + len..]).all(|byte| *byte == 0));
    }

    #[test]
    fn moves_are_those_of_copy_within(from in 0..2000usize, to in 0..2000usize, len in 0..2000usize) {
        let mut memory = pattern(4000);
        let mut oracle = pattern(4000);
        oracle.copy_within(from..from + len, to);
        let _ = move_within(&mut memory, from..from + len, to, Reader::Me).unwrap();
        prop_assert_eq!(memory, oracle);
    }
}
