#![allow(unsafe_code)]
//! Pieces against copies of one byte after the other. Unsafe for the handler's raw form.

use proptest::prelude::*;

use super::*;
use crate::copy::{Algorithm, Block, Count, Counts, Fixed, SiteCount};

/// Bytes that tell their places apart.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + 1) as u8).collect()
}

fn piece(from: usize, to: usize, len: usize) -> Piece {
    Piece { from, to, len }
}

/// The memory after the pieces, and the first piece that is not inside, if one is not.
fn naive(to: &mut [u8], from: &[u8], pieces: &[Piece]) -> Option<usize> {
    for (at, piece) in pieces.iter().enumerate() {
        let inside =
            |start: usize, size: usize| size - start.min(size) >= piece.len && start <= size;
        if !inside(piece.from, from.len()) || !inside(piece.to, to.len()) {
            return Some(at);
        }
        for byte in 0..piece.len {
            to[piece.to + byte] = from[piece.from + byte];
        }
    }
    None
}

/// The copies of calls from lines of this file, in this thread.
fn site_at(line: u32) -> SiteCount {
    let here = |count: &SiteCount| match count.caller {
        Caller::At(place) => place.file() == file!() && place.line() == line,
        Caller::Named(_) => false,
    };
    locally(|local| local.copies.counts().find(here)).flatten().unwrap()
}

#[test]
fn neighbours_are_one_copy_and_others_are_not() {
    let from = pattern(64);
    // The same offsets on both sides, which say nothing of overlaps.
    let mut to = [0; 64];
    let all = (0..8).map(|at| piece(at * 8, at * 8, 8));
    let done = copy_pieces(&mut to, &from, all, Reader::Me).unwrap();
    assert_eq!(done, PiecesDone { pieces: 8, copies: 1, merged: 7, bytes: 64 });
    assert_eq!(to[..], from);
    // Gaps on either side; a piece without bytes is no gap.
    for (given, copies) in [
        ([piece(0, 0, 8), piece(9, 8, 8), piece(0, 0, 0)], 2),
        ([piece(0, 0, 8), piece(8, 9, 8), piece(0, 0, 0)], 2),
        ([piece(8, 8, 8), piece(64, 64, 0), piece(0, 0, 8)], 2),
        ([piece(8, 8, 8), piece(0, 64, 0), piece(16, 16, 8)], 1),
    ] {
        let mut to = [0; 64];
        let done = copy_pieces(&mut to, &from, given, Reader::Me).unwrap();
        assert_eq!(done, PiecesDone { pieces: 3, copies, merged: 2 - copies, bytes: 16 });
    }
    let none = copy_pieces(&mut to, &from, [], Reader::Me).unwrap();
    assert_eq!(none, PiecesDone::default());
    assert_eq!(copy_pieces(&mut [], &[], [piece(0, 0, 0)], Reader::Me).unwrap().pieces, 1);
}

#[test]
fn what_is_outside_is_an_error_and_only_what_was_before_is_copied() {
    let from = pattern(100);
    for wrong in [
        piece(91, 0, 10),
        piece(0, 41, 10),
        piece(101, 0, 0),
        piece(0, 51, 0),
        piece(usize::MAX, 0, 2),
        piece(0, usize::MAX - 1, 2),
        piece(0, 0, usize::MAX),
    ] {
        let (mut to, mut asked) = ([0; 50], 0);
        let given = [piece(0, 10, 5), piece(5, 15, 5), wrong, piece(0, 0, 10)];
        let given = given.into_iter().inspect(|_| asked += 1);
        let error = copy_pieces(&mut to, &from, given, Reader::Me).unwrap_err();
        assert_eq!(error, BlockError::Piece { at: 2, piece: wrong, from: 100, to: 50 });
        assert_eq!((&to[10..20], asked), (&from[..10], 3));
        assert!(to[..10].iter().chain(&to[20..]).all(|byte| *byte == 0), "{wrong:?}");
    }
    let error = copy_pieces(&mut [0; 5], &from, [piece(3, 4, 2)], Reader::Me).unwrap_err();
    assert_eq!(
        error.to_string(),
        "piece 0, 2 bytes from 3 to 4, is not inside: there are 100 and 5"
    );
}

#[test]
fn a_call_is_one_lookup_and_each_copy_counts() {
    let (from, mut to) = (pattern(4000), vec![0; 4000]);
    let counts = || locally(|local| local.handler.tally().counts()).unwrap();
    let before = counts();
    // 300 bytes each, in pairs that belong together.
    let pieces = (0..12).map(|at| piece(at * 300 + at / 2 * 30, at * 300, 300));
    let (line, done) = (line!(), copy_pieces(&mut to, &from, pieces, Reader::Me).unwrap());
    assert_eq!(done, PiecesDone { pieces: 12, copies: 6, merged: 6, bytes: 3600 });
    let site = site_at(line);
    assert_eq!((site.copies, site.bytes), (6, 3600));
    let after = counts();
    let class = crate::copy::size_class(600).unwrap();
    assert_eq!(after.by_size[class].copies - before.by_size[class].copies, 6);
    assert_eq!(after.by_size[class].bytes - before.by_size[class].bytes, 3600);
    assert_eq!(after.merged - before.merged, 6);
    assert!(crate::copy::counts().merged >= after.merged);
}

#[test]
fn a_site_learns_from_each_copy() {
    /// The slower one seems likelier.
    struct Wrong;
    const SLOW: Algorithm = {
        use crate::copy::{Isa, Prefetch, Stores};
        Algorithm::new(Isa::Word, Prefetch::None, Stores::Streaming).unwrap()
    };
    impl Choose for Wrong {
        fn pick(&self, _: &Block) -> Algorithm {
            SLOW
        }

        fn candidates(&self, _: &Block) -> impl Iterator<Item = Algorithm> {
            [SLOW, Algorithm::LIBC].into_iter()
        }
    }
    // Half a page apart, modulo a page: where they lie alike, libc's copy may take as long as the
    // slow one.
    let (from, mut room) = (pattern(32 << 10), vec![0; 36 << 10]);
    let shift = (from.as_ptr().addr() + 2048).wrapping_sub(room.as_ptr().addr()) % 4096;
    let to = &mut room[shift..][..32 << 10];
    let (mut handler, mut site) = (Handler::new(Wrong), Site::new());
    let hints = Hints { hears_reader: true, ..Hints::default() };
    let (source, target) = (from.as_ptr(), to.as_mut_ptr());
    // From the last to the first: none goes on where the one before ended.
    let place = |at: usize| piece(source.addr() + at * 8192, target.addr() + at * 8192, 8192);
    let mut rounds = 0;
    while site.using(8192) != Some(Algorithm::LIBC) {
        let given = (0..4).rev().map(place);
        // SAFETY: all lie inside the vectors.
        let done = unsafe { handler.copy_pieces(&mut site, hints, source, target, given) };
        assert_eq!((done.copies, done.merged), (4, 0));
        rounds += 1;
        assert!(rounds < 100_000, "nothing is learnt");
    }
    assert_eq!(to, from);
}

#[test]
fn blocks_that_overlap_are_as_if_copied_one_by_one() {
    // Each writes the source of the next, and overlaps itself: moved, not copied.
    let mut memory = pattern(3000);
    let mut wanted = memory.clone();
    let (mut handler, mut site) = (Handler::new(Fixed(Algorithm::LIBC)), Site::new());
    let base = memory.as_mut_ptr();
    let offsets = [piece(0, 500, 1000), piece(1000, 1500, 1000), piece(2000, 2500, 500)];
    for Piece { from, to, len } in offsets {
        wanted.copy_within(from..from + len, to);
    }
    let by_address = |it: Piece| piece(base.addr() + it.from, base.addr() + it.to, it.len);
    let given = offsets.map(by_address);
    // SAFETY: all lie inside the vector.
    let done = unsafe { handler.copy_pieces(&mut site, Hints::default(), base, base, given) };
    assert_eq!(done, PiecesDone { pieces: 3, copies: 3, merged: 0, bytes: 2500 });
    assert_eq!(memory, wanted);
    let Counts { moved, copied, .. } = handler.tally().counts();
    assert_eq!(moved, Count { copies: 2, bytes: 2000 });
    assert_eq!(copied[usize::from(Algorithm::LIBC.id())], Count { copies: 1, bytes: 500 });
}

#[test]
fn short_ones_of_every_length_are_whole_and_may_overlap() {
    for len in 1..=SHORT {
        for by in [-65, -33, -17, -8, -3, -1, 0, 1, 2, 5, 9, 16, 31, 40, 64, 255_isize] {
            let (mut memory, to) = (pattern(1000), 300_usize.strict_add_signed(by));
            let mut wanted = memory.clone();
            wanted.copy_within(300..300 + len, to);
            wanted.copy_within(0..1, 999);
            let (mut handler, mut site) = (Handler::new(Fixed(Algorithm::LIBC)), Site::new());
            let base = memory.as_mut_ptr();
            // The last one tells that the first is over.
            let given = [piece(300, to, len), piece(0, 999, 1)];
            let given = given.map(|it| piece(base.addr() + it.from, base.addr() + it.to, it.len));
            // SAFETY: all lie inside the vector.
            let done =
                unsafe { handler.copy_pieces(&mut site, Hints::default(), base, base, given) };
            assert_eq!((done.copies, done.bytes), (2, len + 1));
            assert_eq!(memory, wanted, "{len} bytes by {by}");
        }
    }
}

#[test]
fn pieces_may_be_copied_while_others_are_asked_for() {
    let from = pattern(2000);
    let (mut to, mut inner) = (vec![0; 2000], vec![0; 2000]);
    let pieces = (0..2).map(|at| {
        // Without the thread's handler, which is in use.
        let given = [piece(0, 1000, 500), piece(500, 1500, 500), piece(0, 0, 999)];
        let done = copy_pieces(&mut inner, &from, given, Reader::Me).unwrap();
        assert_eq!(done, PiecesDone { pieces: 3, copies: 2, merged: 1, bytes: 1999 });
        piece(at * 1000, at * 1000, 1000)
    });
    let done = copy_pieces(&mut to, &from, pieces, Reader::Me).unwrap();
    assert_eq!((done.copies, to == from), (1, true));
    assert_eq!((&inner[..999], &inner[1000..]), (&from[..999], &from[..1000]));
}

/// Memories of up to 3,000 bytes, and pieces of which many go on where the one before ended, and a
/// few are not inside.
fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let one = (0..3050usize, 0..2050usize, prop_oneof![0..20usize, 0..900usize], 0..4u8);
    prop::collection::vec(one, 0..30).prop_map(|raw| {
        let mut pieces: Vec<Piece> = Vec::new();
        for (mut from, mut to, len, kind) in raw {
            if let Some(last) = pieces.last().filter(|_| kind > 0) {
                from = if kind == 3 { from } else { last.from + last.len };
                to = if kind == 2 { to } else { last.to + last.len };
            }
            // Most that would not fit begin at the start again.
            let fit = |start: usize, size: usize| if start + len > size + 9 { 0 } else { start };
            pieces.push(piece(fit(from, 3000), fit(to, 2000), len));
        }
        pieces
    })
}

proptest! {
    #[test]
    fn pieces_are_copied_one_after_the_other(pieces in pieces()) {
        let from = pattern(3000);
        let (mut to, mut wanted) = (vec![9; 2000], vec![9; 2000]);
        let outside = naive(&mut wanted, &from, &pieces);
        let result = copy_pieces(&mut to, &from, pieces.iter().copied(), Reader::Me);
        prop_assert_eq!(to, wanted);
        match (result, outside) {
            (Ok(done), None) => {
                let full = pieces.iter().filter(|piece| piece.len > 0);
                prop_assert_eq!(done.pieces, pieces.len());
                prop_assert_eq!(done.copies + done.merged, full.clone().count());
                prop_assert_eq!(done.bytes, full.map(|piece| piece.len).sum::<usize>());
                let apart = pieces.iter().filter(|piece| piece.len > 0).collect::<Vec<_>>();
                let joins = |pair: &&[&Piece]| {
                    pair[0].from + pair[0].len == pair[1].from && pair[0].to + pair[0].len == pair[1].to
                };
                // The memories being two, all pieces that are next to each other are one.
                prop_assert_eq!(done.merged, apart.windows(2).filter(joins).count());
            }
            (Err(BlockError::Piece { at, piece, from: 3000, to: 2000 }), Some(first)) => {
                prop_assert_eq!((at, piece), (first, pieces[first]));
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
