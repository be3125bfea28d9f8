//! The adapter against hand-computed cases, and against recurrences.

use proptest::prelude::*;

use super::*;

/// 53 * 8 / 25.6 µs.
const CELL_US: f64 = 16.5625;

#[test]
fn cells_of_a_frame() {
    // 136 + 8 bytes are three cells and no byte more; 137 need a fourth.
    assert_eq!([0, 40, 41, 136, 137, 336, 3936].map(cells), [1, 1, 2, 3, 4, 8, 83]);
    assert_eq!(cell_us(), CELL_US);
    assert_eq!(frames_of(136).round(), 367_647.0);
}

#[test]
fn a_ring_wraps() {
    let mut ring = Ring::new(3);
    assert_eq!(ring.take(), None);
    assert!(!ring.complete());
    for frame in 0..3 {
        assert!(ring.post(frame));
    }
    assert!(!ring.post(3));
    // A descriptor that is taken is not free before it is complete.
    assert_eq!(ring.take(), Some(0));
    assert!(!ring.has_room());
    assert!(ring.complete());
    assert!(!ring.complete());
    // The fourth goes where the first was.
    assert!(ring.post(3));
    assert!(!ring.post(4));
    assert_eq!(
        [ring.take(), ring.take(), ring.take(), ring.take()],
        [Some(1), Some(2), Some(3), None]
    );
}

/// All of a frame by hand: 10 µs of host, 20 for the descriptor, 5 for the piece, the first cell's
/// fetch, and three cells on the line.
#[test]
fn one_frame() {
    let adapter = Ape25 { frame_us: 20.0, piece_us: 5.0, buffers: 3, descriptors: 2 };
    let frame = Frame { bytes: 136, pieces: 1, host: Time::from_us(10.0) };
    let ends = adapter.send(&[frame]);
    let expected = 10.0 + 20.0 + 5.0 + FETCH_US + 3.0 * CELL_US;
    assert!((ends[0].us() - expected).abs() < 1e-3, "{ends:?}");
}

/// Many frames of three cells: the engine is the bottleneck, 64 µs and three fetches each.
#[test]
fn the_frame_rate_is_bound_by_the_engine() {
    let adapter = Ape25 { frame_us: 60.0, piece_us: 4.0, buffers: 3, descriptors: 8 };
    let ends = adapter.send(&[Frame { bytes: 136, pieces: 1, host: Time(0) }; 100]);
    let each = (ends[99].us() - ends[49].us()) / 50.0;
    assert!((each - (64.0 + 3.0 * FETCH_US)).abs() < 1e-3, "{each}");
}

/// Many frames of 83 cells: the line is the bottleneck, and stands still while the engine reads a
/// descriptor, less the three cells that it had buffered.
#[test]
fn the_line_stalls_between_frames() {
    let adapter = Ape25 { frame_us: 60.0, piece_us: 4.0, buffers: 3, descriptors: 8 };
    let ends = adapter.send(&[Frame { bytes: 3936, pieces: 1, host: Time(0) }; 100]);
    let each = (ends[99].us() - ends[49].us()) / 50.0;
    // The third buffer is full a fetch after the line has begun with the first of the three.
    let stall = 64.0 + 2.0 * FETCH_US - 3.0 * CELL_US;
    assert!((each - (83.0 * CELL_US + stall)).abs() < 1e-3, "{each} {stall}");
}

/// When each frame has left, by recurrences over cells: a cell is fetched once the engine and a
/// buffer are free, and sent once it is fetched and the line is free.
fn naive(adapter: &Ape25, frames: &[Frame]) -> Vec<Time> {
    let (fetch, cell) = (Time::from_us(FETCH_US), Time::from_us(cell_us()));
    let (mut host, mut engine) = (Time(0), Time(0));
    let (mut sent, mut ends): (Vec<Time>, Vec<Time>) = (Vec::new(), Vec::new());
    for (at, frame) in frames.iter().enumerate() {
        let free = at.checked_sub(adapter.descriptors).map_or(Time(0), |before| ends[before]);
        host = host.max(free) + frame.host;
        let us = adapter.frame_us + adapter.piece_us * f64::from(frame.pieces);
        engine = engine.max(host) + Time::from_us(us);
        for _ in 0..cells(frame.bytes) {
            let before = sent.len().checked_sub(adapter.buffers);
            engine = engine.max(before.map_or(Time(0), |before| sent[before])) + fetch;
            let line = sent.last().copied().unwrap_or(Time(0));
            sent.push(engine.max(line) + cell);
        }
        ends.push(sent[sent.len() - 1]);
    }
    ends
}

proptest! {
    #[test]
    fn events_and_recurrences_agree(
        frames in prop::collection::vec((1u64..600, 1u32..9, 0u64..300), 1..40),
        (frame_us, piece_us) in (0u32..90, 0u32..9),
        (buffers, descriptors) in (1usize..6, 1usize..6),
    ) {
        let frame = |(bytes, pieces, us): (u64, u32, u64)| {
            Frame { bytes, pieces, host: Time(us * 1_000_000) }
        };
        let frames: Vec<Frame> = frames.into_iter().map(frame).collect();
        let (frame_us, piece_us) = (f64::from(frame_us), f64::from(piece_us));
        let adapter = Ape25 { frame_us, piece_us, buffers, descriptors };
        prop_assert_eq!(adapter.send(&frames), naive(&adapter, &frames));
    }
}
