#![allow(unsafe_code)]
//! Lanes: memory they hold, long pieces, words that the two ends exchange.

use std::{
    fs::File,
    os::{fd::AsFd, unix::fs::MetadataExt},
};

use pinfold_sys::mem::{mapping::SharedMapping, memfd};

use super::super::{
    budget::Budget,
    fragment::{Cut, FragmentSize},
    segment::Segment,
};
use super::*;
use crate::{
    sync::LightFence,
    wire::{
        descriptor::{FRAGMENT_SAMPLES_FROM, Header, Kind, Piece},
        layout::{BULK_BYTES_MAX, BULK_BYTES_MIN, Direction, SEGMENT_BYTES},
    },
};

const LONG: u32 = FragmentSize::LONG.bytes() as u32;
const MESSAGE: u64 = 1 << 20;

fn ends() -> (LaneTx, LaneRx) {
    let (_, tx, rx) = ends_and_file();
    (tx, rx)
}

fn ends_and_file() -> (File, LaneTx, LaneRx) {
    let file = memfd::create_sealed("pinfold-test", SEGMENT_BYTES).unwrap();
    let segment = Segment::new(SharedMapping::map(file.as_fd(), SEGMENT_BYTES).unwrap());
    let (way, fence, tally) = (Direction::ToAccepting, LightFence::Full, Default::default());
    let tx = LaneTx::new(&segment, way, &tally);
    (file.into(), tx, LaneRx::new(&segment, way, fence, &tally))
}

/// Lends long pieces until there is no more room. Returns how many bytes.
fn fill_up(tx: &mut LaneTx, budget: &mut Budget) -> u32 {
    let mut lent = 0;
    while let Some(piece) = tx.lend(LONG, 1 << 10, budget).unwrap() {
        tx.push(Header::new(Kind::Data, 0, 0), &piece.body());
        lent += piece.len;
    }
    lent
}

/// Takes everything, as a receiver does.
fn take_all(rx: &mut LaneRx) {
    while let Some(header) = rx.head() {
        rx.advance(header).unwrap();
    }
    rx.publish();
}

#[test]
fn long_pieces_have_room_for_several_and_it_is_given_back() {
    let (mut tx, mut rx) = ends();
    let mut budget = Budget::new(1 << 20);
    assert!(fill_up(&mut tx, &mut budget) >= BULK_BYTES_MAX / LONG * LONG);
    assert_eq!(budget.used(), tx.budgeted());
    assert!(budget.used() >= (BULK_BYTES_MAX - BULK_BYTES_MIN) as usize);
    // Memory is not given back while something is in flight.
    tx.trim(&mut budget).unwrap();
    assert!(budget.used() >= (BULK_BYTES_MAX - BULK_BYTES_MIN) as usize);
    take_all(&mut rx);
    tx.trim(&mut budget).unwrap();
    assert_eq!((budget.used(), tx.budgeted()), (0, 0));
    // The lane grows once more.
    assert!(fill_up(&mut tx, &mut budget) >= BULK_BYTES_MAX / LONG * LONG);
    assert_eq!(budget.used(), tx.budgeted());
}

/// Where the budget is short, a range may turn out to be too short for what it was lent for.
#[test]
fn a_range_that_was_lent_in_vain_goes_back_with_the_memory() {
    let (mut tx, mut rx) = ends();
    let mut budget = Budget::new(1 << 20);
    fill_up(&mut tx, &mut budget);
    take_all(&mut rx);
    assert!(tx.lend(LONG, LONG, &mut budget).unwrap().is_some());
    tx.trim(&mut budget).unwrap();
    assert_eq!((budget.used(), tx.budgeted()), (0, 0));
    assert!(fill_up(&mut tx, &mut Budget::new(0)) <= BULK_BYTES_MIN);
}

#[test]
fn the_first_long_piece_makes_room_for_several() {
    let (mut tx, _rx) = ends();
    let mut budget = Budget::new(1 << 20);
    assert!(tx.lend(LONG, 1 << 10, &mut budget).unwrap().is_some());
    assert_eq!(tx.budgeted(), (BULK_BYTES_MAX - BULK_BYTES_MIN) as usize);
}

#[test]
fn memory_that_is_given_back_is_free_and_out_of_use() {
    let (file, mut tx, mut rx) = ends_and_file();
    let memory = || file.metadata().unwrap().blocks() * 512;
    let mut budget = Budget::new(1 << 20);
    // The pages that every lane has that was used.
    fill_up(&mut tx, &mut Budget::new(0));
    take_all(&mut rx);
    let before = memory();
    fill_up(&mut tx, &mut budget);
    assert!(memory() >= before + u64::from(BULK_BYTES_MAX - BULK_BYTES_MIN));
    take_all(&mut rx);
    tx.trim(&mut budget).unwrap();
    assert_eq!(memory(), before);
    // A lane without a budget cannot use the memory again.
    assert!(fill_up(&mut tx, &mut Budget::new(0)) <= BULK_BYTES_MIN);
    assert_eq!(memory(), before);
}

#[test]
fn nothing_is_asked_while_long_pieces_are_tried() {
    let (mut tx, _rx) = ends();
    let mut budget = Budget::new(1 << 20);
    let from = vec![7; LONG as usize];
    let mut piece = tx.lend(LONG, LONG, &mut budget).unwrap().unwrap();
    let mut filled = 0;
    loop {
        // SAFETY: `from` is as long as the piece.
        piece.sample = unsafe { tx.fill(piece, from.as_ptr()).unwrap() };
        if tx.copies.is_settled(LONG as usize) {
            break;
        }
        filled += 1;
        assert_eq!(
            tx.cut(MESSAGE, MESSAGE),
            Cut { fragment: FragmentSize::LONG, sample_number: 0 }
        );
    }
    if filled == 0 {
        return eprintln!("SKIPPED: there is one algorithm for long pieces here");
    }
    assert_ne!(tx.cut(MESSAGE, MESSAGE).sample_number, 0);
}

#[test]
fn long_pieces_make_do_with_what_the_budget_has() {
    for left in [0, 10_000, 40 << 10, 100_000] {
        let (mut tx, mut rx) = ends();
        let mut budget = Budget::new(left);
        for _ in 0..3 {
            let lent = fill_up(&mut tx, &mut budget);
            assert!(lent as usize <= left + BULK_BYTES_MIN as usize);
            assert!(lent > 0 && lent as usize >= left / 4, "{lent} of {left}");
            assert!(budget.used() <= left && budget.used() == tx.budgeted());
            take_all(&mut rx);
        }
    }
}

#[test]
fn what_a_message_took_is_asked_and_answered() {
    let (mut tx, rx) = ends();
    let (mut long, mut asked) = (0, 0);
    for number in 0..400 {
        let Cut { fragment, sample_number } = tx.cut(MESSAGE, MESSAGE);
        if sample_number != 0 {
            assert_eq!(
                Piece { offset: 0, len: 1, sample: sample_number }.sample_number(),
                sample_number
            );
            // Long pieces take long here.
            rx.say_fragment_sample(
                sample_number,
                if fragment == FragmentSize::LONG { 900_000 } else { 100_000 },
            );
            asked += 1;
        }
        long += u32::from(number >= 100 && fragment == FragmentSize::LONG);
    }
    assert!(asked >= 40, "{asked} of 400");
    assert!(long <= 12, "{long} of the last 300 cut long");
    assert_eq!(Piece { offset: 0, len: 1, sample: FRAGMENT_SAMPLES_FROM - 1 }.sample_number(), 0);
}
