//! Copies whose cycles can be added up by hand.

use proptest::prelude::*;

use super::{
    processor::{OPTERON_250, PENTIUM_4},
    *,
};

const T: Way = Way::LINES[0];
const NT: Way = Way::LINES[1];

fn of(with: &Processor, way: Way, before: (Before, Before), bytes: u64) -> Copied {
    copy(&with.with_frames(Frames::InOrder), way, before, bytes)
}

#[test]
fn lines_of_the_first_level_take_their_instructions() {
    let near = (Before::Cached, Before::Cached);
    for lines in [1, 4, 100] {
        let copied = of(&OPTERON_250, T, near, lines * 64);
        assert_eq!(copied.cycles, 15.0 + 16.0 * lines as f64);
        assert_eq!((copied.reads, copied.writes), (0, 0));
        // Half the instructions once more.
        assert_eq!(copied.reading, 8.0 * lines as f64);
        let words = of(&OPTERON_250, T.by_words(), near, lines * 64);
        assert_eq!(words.cycles, 15.0 + 15.0 + 16.0 * lines as f64);
    }
}

#[test]
fn a_line_of_memory_waits_for_its_row_and_the_path() {
    // Half the path is 30 cycles, so the request comes at 45: the fourth clock of 12 cycles. The
    // row 3, the column 3, the data 2: at 144. The way back: 174. Then the store, in the first
    // level.
    let copied = of(&OPTERON_250, T, (Before::Uncached, Before::Cached), 64);
    assert_eq!((copied.cycles, copied.reads, copied.writes), (174.0, 1, 0));
    // The store asks for its line when the load is there: at 174 + 30, the 17th clock. Its bank is
    // another one.
    let copied = of(&OPTERON_250, T, (Before::Uncached, Before::Uncached), 64);
    assert_eq!(copied.cycles, (17 + 8) as f64 * 12.0 + 30.0);
    assert_eq!((copied.reads, copied.writes), (2, 0));
}

#[test]
fn stores_past_the_cache_read_nothing_and_are_written() {
    let copied = of(&OPTERON_250, NT, (Before::Cached, Before::Uncached), 64 * 64);
    assert_eq!((copied.reads, copied.writes), (0, 64));
    let copied = of(&OPTERON_250, NT, (Before::Cached, Before::SecondDirty), 64 * 64);
    assert_eq!((copied.reads, copied.writes), (0, 128), "each line goes back first");
    // A line of instructions, and the fence.
    let short = of(&OPTERON_250, NT, (Before::Cached, Before::Uncached), 64);
    assert_eq!(short.cycles, 15.0 + 16.0 + 60.0);
    // Lines that went past the cache have to come from memory.
    assert!(copied.reading > 64.0 * 24.0);
}

#[test]
fn the_memory_takes_its_time() {
    for bytes in [8 << 10, 64 << 10] {
        let peak = OPTERON_250.peak();
        assert!((peak - 0.375).abs() < 1e-9, "section 4.3: {peak}");
        for way in Way::LINES {
            let cycles =
                per_byte(&OPTERON_250, way, (Before::Uncached, Before::Uncached), bytes, 3)[0];
            // Eight lines, which the controller may hold at the end, are not yet in memory.
            let least = 2.0 * peak * (1.0 - 8.0 * 64.0 / bytes as f64);
            assert!(cycles > least, "{}: {cycles}", way.words());
        }
    }
}

#[test]
fn two_lines_of_a_sector_come_at_once() {
    let copied = of(&PENTIUM_4, T, (Before::Uncached, Before::Cached), 64);
    assert_eq!(copied.reads, 2);
    let copied = of(&PENTIUM_4, T, (Before::Uncached, Before::Cached), 4096);
    assert_eq!(copied.reads, 64, "each line once, and none beyond the page");
}

#[test]
fn random_frames_conflict() {
    let none = (Before::Uncached, Before::Uncached);
    let apart = of(&OPTERON_250, T, none, 64 << 10).cycles / (64 << 10) as f64;
    let [random, reread] = per_byte(&OPTERON_250, T, none, 64 << 10, 3);
    assert!(random > 1.2 * apart, "{random} {apart}");
    assert!(reread > random && per_byte(&OPTERON_250, T, none, 64 << 10, 3) == [random, reread]);
}

#[test]
fn a_dirty_line_is_waited_for_where_the_processor_does() {
    let before = |to| (Before::Second, to);
    let clean = of(&PENTIUM_4, NT, before(Before::Second), 64);
    let dirty = of(&PENTIUM_4, NT, before(Before::SecondDirty), 64);
    assert_eq!((clean.writes, dirty.writes), (1, 2));
    assert!(dirty.cycles > clean.cycles + PENTIUM_4.path);
}

fn before() -> impl Strategy<Value = Before> {
    prop::sample::select(vec![
        Before::Uncached,
        Before::Cached,
        Before::Second,
        Before::SecondDirty,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The lines that go over the memory's bus, whatever their time.
    #[test]
    fn every_line_is_read_and_written_as_often_as_it_has_to_be(
        lines in 1u64..80,
        way in prop::sample::select(Way::LINES.to_vec()),
        places in (before(), before()),
    ) {
        let copied = of(&OPTERON_250, way, places, lines * 64);
        let (from, to) = places;
        let streams = way.stores == Stores::Streaming;
        let source = if from == Before::Uncached { lines } else { 0 };
        let target = if to == Before::Uncached && !streams { lines } else { 0 };
        // The processor may fetch two lines beyond the end of each stream.
        prop_assert!((source + target..=source + target + 4).contains(&copied.reads));
        let dirty = if to == Before::SecondDirty && streams { lines } else { 0 };
        prop_assert_eq!(copied.writes, if streams { lines } else { 0 } + dirty);
        prop_assert!(copied.cycles >= OPTERON_250.start + 16.0 * lines as f64);
        prop_assert!(copied.reading >= 8.0 * lines as f64);
    }
}
