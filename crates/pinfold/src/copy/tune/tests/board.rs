//! From the measurements to a table.

use super::*;

/// Puts results that are the same for a dirty and a clean cached destination.
fn put(
    board: &mut Board,
    situation: Situation,
    class: usize,
    apart: Option<Class>,
    losses: &survey::Losses,
) {
    let destinations = match situation.destination {
        CacheState::Cached => vec![CacheState::Dirty, CacheState::Clean],
        known => vec![known],
    };
    for destination in destinations {
        let situation = Situation { destination, ..situation };
        board.put(&Case { situation, class }, apart, losses.clone());
    }
}

#[test]
fn neighbours_stand_in() {
    let mut board = Board::new(CACHE);
    let losses = |best: &str| {
        let best = name(best);
        survey::Losses::from_fn(|it| if it == best { 1.0 } else { 2.0 })
    };
    let plain = copy(Reader::Nobody, Cached, Cached);
    let misaligned = Situation { placement: Placement::Misaligned, ..plain };
    // From here on there is a choice.
    let start = plain.classes().start;
    put(&mut board, plain, start, None, &losses("rep"));
    put(&mut board, plain, start + 6, None, &losses("sse2"));
    put(&mut board, misaligned, start + 2, None, &losses("avx2"));
    let table = board.table(&Table::uniform(Algorithm::LIBC), Seen::default());
    let best = |situation, class| table.choice(situation, start + class).best.to_string();
    assert_eq!(best(plain, 0), "rep");
    assert_eq!(best(plain, 2), "rep");
    assert_eq!(best(plain, 5), "sse2");
    // Its own, if near; else the plain one.
    assert_eq!((best(misaligned, 4), best(misaligned, 5)), ("avx2".into(), "sse2".into()));
    assert_eq!(best(Situation { placement: Placement::Aliased, ..plain }, 1), "rep");
    // A device counts as no reader.
    assert_eq!(best(Situation { reader: Reader::Device, ..plain }, 2), "rep");
    assert_eq!(best(copy(Reader::Me, Cached, Cached), 2), "libc");
}

#[test]
fn a_little_better_is_not_worth_a_change() {
    let situation = copy(Reader::Nobody, CacheState::Cached, CacheState::Cached);
    // The C library is best but for one size, where another one is: by so much.
    let odd_one = |gain: f64| {
        let mut board = Board::new(CACHE);
        for class in SOME {
            let rep = if class == SOME.start + 2 { 1.0 } else { 1.5 };
            let libc = if class == SOME.start + 2 { gain } else { 1.0 };
            let losses = survey::Losses::from_fn(|it| match it {
                Algorithm::LIBC => libc,
                it if it == name("rep") => rep,
                _ => 2.0,
            });
            put(&mut board, situation, class, None, &losses);
        }
        let table = board.table(&Table::uniform(Algorithm::LIBC), Seen::default());
        let best: Vec<String> =
            SOME.map(|class| table.choice(situation, class).best.to_string()).collect();
        (best.iter().filter(|it| *it == "rep").count(), best[2].clone())
    };
    assert_eq!(odd_one(1.05), (0, "libc".into()));
    assert_eq!(odd_one(1.08), (1, "rep".into()));
    assert_eq!(odd_one(2.0), (1, "rep".into()));
}

#[test]
fn what_is_usual_stays_unless_there_is_much_to_gain() {
    let situation = copy(Reader::Nobody, CacheState::Cached, CacheState::Cached);
    let defaults = Table::uniform(name("rep"));
    let with = |loss: f64| {
        let mut board = Board::new(CACHE);
        for class in SOME {
            let losses = survey::Losses::from_fn(|it| if it == name("rep") { loss } else { 1.0 });
            put(&mut board, situation, class, None, &losses);
        }
        board.table(&defaults, Seen::default()).choice(situation, SOME.end - 1).best.to_string()
    };
    assert_eq!([1.0, 1.02, 1.05, 1.2].map(with), ["rep", "rep", "libc", "libc"]);
}

#[test]
fn both_distances_count() {
    let situation = copy(Reader::OtherCore, CacheState::Cached, CacheState::Cached);
    let (libc, streams) = (Algorithm::LIBC, name("avx2+streaming"));
    // Streaming takes so many times as long as the C library, where that was seen.
    let best = |seen: &[(Class, f64)], usual: Algorithm| {
        let mut board = Board::new(CACHE);
        for &(apart, times) in seen {
            let losses = survey::Losses::from_fn(|it| match it {
                Algorithm::LIBC => 1f64.max(1.0 / times),
                it if it == streams => 1f64.max(times),
                _ => 10.0,
            });
            put(&mut board, situation, SOME.start, Some(apart), &losses);
        }
        let usual = Choice::new(libc, streams, usual == streams);
        let defaults = Table::from_fn(|_, _| usual).unwrap();
        let table = board.table(&defaults, Seen::default());
        // If the distance is known, only the results at it count.
        for apart in [Class::Near, Class::Far] {
            let there = Situation { reader: Reader::core(apart), ..situation };
            let best = seen.iter().find(|(it, _)| *it == apart).map(|(_, times)| match times {
                times if *times < 1.0 => streams,
                _ => libc,
            });
            assert_eq!(
                table.choice(there, SOME.start).best,
                best.unwrap_or(usual.best),
                "{seen:?}"
            );
        }
        table.choice(situation, SOME.start).best
    };
    let (near, far, mixed) = (Class::Near, Class::Far, Class::Mixed);
    for usual in [libc, streams] {
        assert_eq!(best(&[(near, 1.1), (far, 0.3)], usual), streams);
        assert_eq!(best(&[(near, 2.0), (far, 0.9)], usual), libc);
        // Near or far counts; neither only if there is nothing else.
        assert_eq!(best(&[(near, 1.1), (far, 0.3), (mixed, 9.0)], usual), streams);
        assert_eq!(best(&[(mixed, 1.2)], usual), libc);
        assert_eq!(best(&[(mixed, 0.8)], usual), streams);
    }
    // The defaults know something of cases that were not seen.
    assert_eq!([libc, streams].map(|usual| best(&[(near, 1.2)], usual)), [libc, streams]);
    assert_eq!([libc, streams].map(|usual| best(&[(far, 0.8)], usual)), [libc, streams]);
    assert_eq!([libc, streams].map(|usual| best(&[(near, 3.0)], usual)), [libc, libc]);
    assert_eq!([libc, streams].map(|usual| best(&[(far, 0.2)], usual)), [streams, streams]);
}

/// The table's stores for near, far and any other cores after `stores` did best at one distance, if
/// it had `before` for near and for far ones.
fn after_one_distance(
    apart: Class,
    stores: Stores,
    before: [Algorithm; 2],
    seen: Seen,
) -> [Algorithm; 3] {
    let situation = copy(Reader::OtherCore, CacheState::Cached, CacheState::Cached);
    let mut board = Board::new(CACHE);
    let losses = survey::Losses::from_fn(|it| if it.stores() == stores { 1.0 } else { 1.2 });
    put(&mut board, situation, SOME.start, Some(apart), &losses);
    let before = Table::from_fn(|situation, _| {
        let best = match situation.reader {
            Reader::NearCore => before[0],
            _ => before[1],
        };
        Choice::new(Algorithm::LIBC, name("avx2+streaming"), best.stores() == Stores::Streaming)
    });
    let table = board.table(&before.unwrap(), seen);
    [Reader::NearCore, Reader::FarCore, Reader::OtherCore]
        .map(|reader| table.choice(Situation { reader, ..situation }, SOME.start).best)
}

#[test]
fn what_follows_from_one_distance_is_taken_at_the_other() {
    use Stores::{Streaming, Temporal};
    let streams = name("avx2+streaming");
    let libc = Algorithm::LIBC;
    let kinds = |found: [Algorithm; 3]| found.map(Algorithm::stores);
    let after =
        |apart, stores, before| kinds(after_one_distance(apart, stores, before, Seen::default()));
    // An algorithm that stores for a far core does so for a near one; of the converse nothing is
    // known.
    let defaults = [streams, streams];
    assert_eq!(after(Class::Far, Temporal, defaults), [Temporal; 3]);
    assert_eq!(after(Class::Near, Temporal, defaults), [Temporal, Streaming, Streaming]);
    // An algorithm that streams for a near core does so for a far one.
    let defaults = [libc, libc];
    assert_eq!(after(Class::Near, Streaming, defaults), [Streaming; 3]);
    assert_eq!(after(Class::Far, Streaming, defaults), [Temporal, Streaming, Temporal]);
}

#[test]
fn of_one_kind_of_stores_the_other_distance_tells_the_best() {
    let situation = copy(Reader::OtherCore, CacheState::Cached, CacheState::Cached);
    let mut board = Board::new(CACHE);
    let losses = survey::Losses::from_fn(|it| match it {
        it if it == name("rep") => 1.0,
        it if it.stores() == Stores::Temporal => 1.5,
        _ => 2.0,
    });
    put(&mut board, situation, SOME.start, Some(Class::Near), &losses);
    let best = |default: &str| {
        let default = name(default);
        let before = Table::from_fn(|_, _| {
            let streams = default.stores() == Stores::Streaming;
            Choice::new(Algorithm::LIBC, name("avx2+streaming"), streams)
        });
        let table = board.table(&before.unwrap(), Seen::default());
        table.choice(Situation { reader: Reader::FarCore, ..situation }, SOME.start).best
    };
    assert_eq!(best("libc"), name("rep"));
    assert_eq!(best("avx2+streaming"), name("avx2+streaming"));
}

#[test]
fn what_was_seen_before_stays() {
    use Stores::{Streaming, Temporal};
    let streams = name("avx2+streaming");
    let libc = Algorithm::LIBC;
    let seen = |near, far| Seen { near, far, mixed: 0 };
    let after = |apart, stores, before, seen| {
        after_one_distance(apart, stores, before, seen).map(Algorithm::stores)
    };
    // A measurement counts more than an inference.
    let both = [streams, streams];
    assert_eq!(after(Class::Far, Temporal, both, seen(9, 9))[..2], [Streaming, Temporal]);
    assert_eq!(after(Class::Near, Streaming, [libc, libc], seen(0, 9))[..2], [Streaming, Temporal]);
    // A run that sees only one distance keeps the results of the one before for the other.
    let run = |hop_ns: fn(u64) -> f64, best: &str, before: Option<&Tuned>| {
        let best = name(best);
        let mut bench = made(|case: &Case, algorithm: Algorithm| {
            case.len() as f64 * if algorithm == best { 1.0 } else { 2.0 }
        });
        bench.hop_ns = hop_ns;
        let budget = Duration::from_secs(1000);
        survey_all(&mut bench, (&machine(), Maker::Intel), budget, before, |_| true, |_| ()).tuned
    };
    let near = run(|_| 50.0, "rep", None);
    let both = run(|_| 170.0, "word+streaming", Some(&near));
    assert!(near.seen.near > 0 && near.seen.far == 0, "{:?}", near.seen);
    assert_eq!(both.seen, Seen { near: near.seen.near, ..both.seen });
    assert!(both.seen.far > 0, "{:?}", both.seen);
    for class in SOME {
        let best = |reader| {
            both.table.choice(copy(reader, CacheState::Cached, CacheState::Dirty), class).best
        };
        assert_eq!(best(Reader::NearCore), name("rep"));
        assert_eq!(best(Reader::FarCore), name("word+streaming"));
    }
}

#[test]
fn a_glimpse_of_another_distance_counts_for_nothing() {
    let situation = copy(Reader::OtherCore, CacheState::Cached, CacheState::Clean);
    let best_is = |best: Algorithm| {
        survey::Losses::from_fn(|it| if it == best || it == Algorithm::LIBC { 1.0 } else { 9.0 })
    };
    let seen = |near: usize| {
        let mut board = Board::new(64 << 20);
        for class in SOME.start..CLASSES {
            for source in [CacheState::Cached, CacheState::Uncached] {
                for destination in [CacheState::Clean, CacheState::Dirty, CacheState::Uncached] {
                    let situation = Situation { source, destination, ..situation };
                    put(&mut board, situation, class, Some(Class::Far), &best_is(name("rep")));
                }
            }
        }
        for class in SOME.start..SOME.start + near {
            put(&mut board, situation, class, Some(Class::Near), &best_is(name("word")));
        }
        board.forget_rare();
        board.seen()
    };
    // Of 90 at the other one.
    assert_eq!(seen(0).far, 90);
    assert_eq!([0, 1, 3, 4, 5].map(|near| seen(near).near), [0, 0, 0, 4, 5]);
}

#[test]
fn of_short_ones_that_lie_so_or_so_there_is_one_choice() {
    // The best on the whole.
    let mut board = Board::new(CACHE);
    let away = copy(Reader::Nobody, Cached, Uncached);
    let fetching = |times: f64| {
        survey::Losses::from_fn(|it| match it {
            Algorithm::LIBC => 1f64.max(1.0 / times),
            Algorithm::LIBC_FETCHED => 1f64.max(times),
            _ => f64::INFINITY,
        })
    };
    for (placement, times) in
        [(Placement::Plain, 1.05), (Placement::Misaligned, 0.5), (Placement::Aliased, 1.05)]
    {
        let situation = Situation { placement, ..away };
        for bytes in [256, 1024] {
            board.put(&Case { situation, class: class_of(bytes) }, None, fetching(times));
        }
    }
    let table = board.table(&Table::uniform(Algorithm::LIBC), Seen::default());
    for placement in Placement::ALL {
        let best = table.best(Situation { placement, ..away }, 1000);
        assert_eq!(best, Algorithm::LIBC_FETCHED, "{placement:?}");
    }
}
