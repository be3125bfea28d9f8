//! Made-up machines: their best algorithms are found, through any noise.

use pinfold_sys::cpu::block::{Prefetch, Stores};

mod board;

use super::{
    super::{
        CacheState::{self, Cached, Clean, Uncached},
        Reader,
        class::Class,
        table::{
            CLASSES, Choice, LOOPS_FROM, Operation, Placement, SHORT_BELOW, Situation, class_bytes,
            class_of,
        },
    },
    *,
};

/// A machine given by the time of a block on it.
struct Made<F> {
    cost_ns: F,
    now_ns: u64,
    runs: u64,
    /// One run in so many takes ten times as long, and all are uneven by 1 %.
    noise_every: u64,
    has_other_core: bool,
    /// From core to core, at some time.
    hop_ns: fn(u64) -> f64,
}

impl<F: Fn(&Case, Algorithm) -> f64> Bench for Made<F> {
    fn run(&mut self, case: &Case, algorithm: Algorithm) -> Option<f64> {
        if case.situation.reader == Reader::OtherCore && !self.has_other_core {
            return None;
        }
        self.runs += 1;
        let mut ns = (self.cost_ns)(case, algorithm);
        if self.noise_every > 0 {
            ns *= 1.0 + (self.runs * 7 % 11) as f64 / 1000.0;
            if self.runs.is_multiple_of(self.noise_every) {
                ns *= 10.0;
            }
        }
        self.now_ns += ns as u64;
        Some(ns)
    }

    fn move_on(&mut self) {}

    fn hop_ns(&mut self) -> Option<f64> {
        self.has_other_core.then(|| (self.hop_ns)(self.now_ns))
    }

    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }
}

fn made<F>(cost_ns: F) -> Made<F> {
    Made { cost_ns, now_ns: 5, runs: 0, noise_every: 0, has_other_core: true, hop_ns: |_| 50.0 }
}

const CACHE: usize = 1 << 20;

fn machine() -> Machine {
    Machine { caches_bytes: vec![32 << 10, CACHE], ..Machine::this() }
}

fn measure<F: Fn(&Case, Algorithm) -> f64>(bench: &mut Made<F>, seconds: u64) -> Found {
    let mut last = 0.0;
    let found = survey_all(
        bench,
        (&machine(), Maker::Intel),
        Duration::from_secs(seconds),
        None,
        |_| true,
        |done| {
            assert!(done >= last && (0.0..=1.0).contains(&done), "{last} {done}");
            last = done;
        },
    );
    assert_eq!(last, 1.0);
    found
}

fn name(text: &str) -> Algorithm {
    text.parse().unwrap()
}

/// Calhoun's machine: streaming pays if the destination is not cached and no core here reads it;
/// line loops beat words; a fetch of the source pays if that is not cached.
fn calhoun(case: &Case, algorithm: Algorithm) -> f64 {
    let it = case.situation;
    let uncached = it.destination == CacheState::Uncached;
    let stores = match algorithm.stores() {
        Stores::Streaming if uncached && it.reader != Reader::Me => 0.5,
        Stores::Streaming => 2.0,
        Stores::Temporal => 1.0,
    };
    let fetch = match algorithm.prefetch() {
        Prefetch::Source if it.source == CacheState::Uncached => 0.7,
        Prefetch::None => 1.0,
        _ => 1.2,
    };
    let isa = if algorithm.isa() == pinfold_sys::cpu::block::Isa::Avx2 { 0.8 } else { 1.0 };
    case.len() as f64 / 100.0 * stores * fetch * isa
}

fn copy(reader: Reader, source: CacheState, destination: CacheState) -> Situation {
    let placement = Placement::Plain;
    Situation { operation: Operation::Copy, reader, source, destination, placement }
}

#[test]
fn the_best_is_found_in_every_situation() {
    let mut bench = made(calhoun);
    let found = measure(&mut bench, 1000);
    assert_eq!(found.measured, found.cases);
    for situation in Situation::all() {
        // The cores were near all the while.
        if situation.reader == Reader::FarCore {
            continue;
        }
        for class in situation.classes() {
            let known = |state| !matches!(state, CacheState::Unknown | CacheState::Cached);
            let sources =
                situation.operation == Operation::Zero || situation.source != CacheState::Unknown;
            if !sources || !known(situation.destination) {
                continue;
            }
            let as_measured = case::measured_as(situation, class_bytes(class), CACHE);
            let case = Case { situation: as_measured, class };
            let best = Algorithm::all()
                .filter(|it| case.suits(*it))
                .min_by(|a, b| calhoun(&case, *a).total_cmp(&calhoun(&case, *b)))
                .unwrap();
            let choice = found.tuned.table.choice(situation, class);
            assert_eq!(choice.best, best, "{case:?}");
        }
    }
    assert!(found.gain > 1.3, "{}", found.gain);
}

#[test]
fn noise_picks_nothing_exotic() {
    // All alike, but for the costs of the kinds of stores.
    let mut bench = made(|case: &Case, algorithm: Algorithm| {
        let streaming = algorithm.stores() == Stores::Streaming;
        case.len() as f64 * if streaming { 0.5 } else { 0.3 }
    });
    bench.noise_every = 13;
    let found = measure(&mut bench, 1000);
    // Nothing far was seen.
    for situation in Situation::all().filter(|it| it.reader != Reader::FarCore) {
        for class in situation.classes() {
            let choice = found.tuned.table.choice(situation, class);
            // The simplest, or that of the defaults.
            let simple = [Algorithm::LIBC, Algorithm::LIBC_FETCHED, name("avx2")];
            assert!(simple.contains(&choice.best), "{situation:?} {class}");
            assert_eq!(choice.temporal, choice.best, "{situation:?} {class}");
            if class >= class_of(SHORT_BELOW) {
                assert_eq!(choice.streaming, name("avx2+streaming"), "{situation:?} {class}");
            }
        }
    }
}

#[test]
fn the_unknown_is_what_does_best_in_both() {
    use CacheState::Unknown;
    // Temporal stores lose much where the destination is uncached; streaming ones lose little.
    let mut bench = made(|case: &Case, algorithm: Algorithm| {
        let streaming = algorithm.stores() == Stores::Streaming;
        let ns = match (case.situation.destination, streaming) {
            (Uncached, false) => 4.0,
            (Cached, true) => 1.5,
            _ => 1.0,
        };
        ns * case.len() as f64
    });
    let table = measure(&mut bench, 1000).tuned.table;
    let best = |destination| {
        let class = class_of(16 << 10);
        table.choice(copy(Reader::Me, Cached, destination), class).best.stores()
    };
    assert_eq!(best(Cached), Stores::Temporal);
    assert_eq!(best(Uncached), Stores::Streaming);
    assert_eq!(best(Unknown), Stores::Streaming);
}

#[test]
fn the_time_is_kept() {
    let mut bench = made(calhoun);
    let whole = measure(&mut bench, 1000).cases;
    for seconds in [0, 1, 2] {
        let mut bench = made(|case: &Case, algorithm: Algorithm| 100.0 * calhoun(case, algorithm));
        let found = measure(&mut bench, seconds);
        let over_ns = (bench.now_ns - 5).saturating_sub(seconds * 1_000_000_000);
        // One case may be under way.
        assert!(over_ns < 1_000_000_000, "{seconds}: {over_ns}");
        assert_eq!(found.cases, whole);
        assert!(found.measured < whole);
        // A case that was not measured still has an algorithm.
        let far = copy(Reader::OtherCore, CacheState::Unknown, CacheState::Uncached);
        assert!(found.tuned.table.choice(far, CLASSES - 1).best.stores() == Stores::Streaming);
        if seconds == 0 {
            assert_eq!(found.measured, 0);
            assert_eq!(found.gain, 1.0);
            assert!(found.tuned.table == Table::defaults(Maker::Intel, CACHE, |_| true));
        }
    }
}

#[test]
fn without_a_second_core_the_defaults_hold_there() {
    let mut bench = made(
        |case: &Case, algorithm: Algorithm| {
            if algorithm == name("word") { 1.0 } else { 2.0 * case.len() as f64 }
        },
    );
    bench.has_other_core = false;
    let found = measure(&mut bench, 1000);
    let defaults = Table::defaults(Maker::Intel, CACHE, |_| true);
    for situation in Situation::all() {
        for class in situation.classes() {
            let choice = found.tuned.table.choice(situation, class);
            if situation.reader.is_other_core() {
                assert_eq!(choice, defaults.choice(situation, class));
            } else if class >= LOOPS_FROM {
                assert_eq!(choice.best, name("word"));
            } else {
                // For short ones there are two, and neither is the better one.
                assert_eq!(
                    choice,
                    Choice { best: choice.best, ..defaults.choice(situation, class) }
                );
            }
        }
    }
}

/// Classes of sizes, where every situation has a choice.
const SOME: std::ops::Range<usize> = 6..12;

#[test]
fn who_is_disturbed_once_is_not_out() {
    // In the first round of all, the best one takes ten times as long.
    let case = Case { situation: copy(Reader::Me, Cached, Uncached), class: class_of(4 << 20) };
    let (best, calls) = (name("avx512"), std::cell::Cell::new(0));
    let mut bench = made(|case: &Case, algorithm: Algorithm| {
        let disturbed = algorithm == best && calls.replace(calls.get() + 1) == 0;
        case.len() as f64
            * if disturbed {
                10.0
            } else if algorithm == best {
                1.0
            } else {
                1.3
            }
    });
    // There is no time at all.
    let survey = Survey::begin(&mut bench, &case, Algorithm::all().collect(), 0).unwrap();
    assert!(survey.finalists().any(|it| it == best));
    // Algorithms that do well on most machines are never out.
    let mut bench = made(|_: &Case, algorithm: Algorithm| {
        let simple = [Algorithm::LIBC, name("rep")].contains(&algorithm);
        if simple { 1e6 } else { 1e3 }
    });
    let survey = Survey::begin(&mut bench, &case, Algorithm::all().collect(), 0).unwrap();
    for simple in [Algorithm::LIBC, name("rep")] {
        assert_eq!(survey.finalists().filter(|it| *it == simple).count(), 1);
    }
}

#[test]
fn cores_that_move_are_noticed() {
    let mut bench = made(|case: &Case, _| case.len() as f64);
    // They move every now and then.
    bench.hop_ns = |now_ns| if now_ns / 50_000_000 % 2 == 0 { 50.0 } else { 170.0 };
    let found = measure(&mut bench, 100);
    let seen = found.tuned.seen;
    assert!(seen.near > 0 && seen.far > 0 && seen.mixed == 0, "{seen:?}");
    // Some were seen at both distances.
    let cases = cases(CACHE).into_iter().filter(|it| it.situation.reader == Reader::OtherCore);
    assert!(seen.near + seen.far >= cases.count(), "{seen:?}");
}

#[test]
fn what_is_measured() {
    let cases = cases(CACHE);
    assert!(cases.iter().all(|case| case.len() <= 2 * CACHE));
    // For a block that no cache holds there is one case for each operation and reader.
    let long = cases.iter().filter(|case| case.len() == 2 * CACHE);
    assert_eq!(long.count(), 2 * 3);
    // The others: two states a side, three readers, and the placements.
    let short = cases.iter().filter(|case| case.class == SOME.start);
    // A cached destination is dirty or clean.
    assert_eq!(short.count(), 3 * (2 * 3 * 3 + 3 * 2));
    let is_plain = |case: &Case| case.situation.placement == Placement::Plain;
    let first_odd = cases.iter().position(|case| !is_plain(case)).unwrap();
    assert!(cases[first_odd..].iter().all(|case| !is_plain(case)));
    // A zeroing has no source; short copies are the C library's.
    let suits = |operation, bytes, algorithm: &str| {
        let situation = Situation { operation, ..copy(Reader::Me, Cached, Clean) };
        Case { situation, class: class_of(bytes) }.suits(name(algorithm))
    };
    assert!(suits(Operation::Copy, 4096, "avx2+source"));
    assert!(!suits(Operation::Zero, 4096, "avx2+source"));
    assert!(
        suits(Operation::Copy, SHORT_BELOW, "rep") && suits(Operation::Zero, SHORT_BELOW, "rep")
    );
    assert!(suits(Operation::Copy, 1024, "sse2") && !suits(Operation::Copy, 512, "sse2"));
    assert!(suits(Operation::Copy, 256, "rep") && !suits(Operation::Copy, 128, "rep"));
    assert!(suits(Operation::Copy, 64, "libc") && suits(Operation::Zero, 64, "libc+destination"));
    let away = cases.iter().filter(|case| case.class == 0);
    assert!(away.clone().count() > 0);
    assert!(
        away.map(|case| case.situation)
            .all(|it| { it.reader == Reader::OtherCore || it.destination == CacheState::Uncached })
    );
}

#[test]
fn what_takes_long_begins_with_those_that_do_well_elsewhere() {
    let plain = copy(Reader::Nobody, Cached, Clean);
    let odd = Situation { placement: Placement::Misaligned, ..plain };
    let alike = |situation, bytes| Case { situation, class: class_of(bytes) }.alike();
    let case = |situation, bytes| Some(Case { situation, class: class_of(bytes) });
    assert_eq!((alike(plain, 4 << 20), alike(odd, 512 << 10)), (None, None));
    assert_eq!(alike(odd, 4 << 20), case(plain, 4 << 20));
    assert_eq!([plain, odd].map(|it| alike(it, 64 << 20)), [case(plain, 4 << 20); 2]);
}
