//! Classes, placements, cells, defaults and how a table is printed.

use std::collections::HashSet;

use pinfold_sys::cpu::block::{Isa, Prefetch};

use super::*;
use crate::copy::Maker;

#[test]
fn sizes_go_to_the_nearest_class() {
    for class in 0..CLASSES {
        let bytes = class_bytes(class);
        assert_eq!(class_of(bytes), class);
        if class + 1 < CLASSES {
            assert_eq!((class_of(bytes + bytes / 4), class_of(bytes * 3 / 2)), (class, class + 1));
        }
    }
    assert_eq!(class_bytes(CLASSES - 1), 64 << 20);
    assert_eq!([SHORT_BELOW - 1, SHORT_BELOW].map(class_of), [class_of(1024), class_of(2048)]);
    for len in [0, 1, 63, CHOICE_MIN_AWAY, 85] {
        assert_eq!(class_of(len), 0);
    }
    for len in [65 << 20, 1 << 40, usize::MAX] {
        assert_eq!(class_of(len), CLASSES - 1);
    }
}

#[test]
fn placements() {
    let of = |from: usize, to: usize| Placement::of_copy(from, to);
    assert_eq!(of(0x1000, 0x9000), Placement::Plain, "both page-aligned");
    assert_eq!(of(0x1011, 0x9411), Placement::Plain, "the same place of their lines");
    assert_eq!(of(0x1000, 0x9401), Placement::Misaligned);
    for ahead in [1, 64, 256] {
        assert_eq!(of(0x1000, 0x9000 + ahead), Placement::Aliased);
        assert_eq!(of(0x1fff, 0x9fff + ahead), Placement::Aliased);
    }
    assert_eq!(of(0x1000, 0x9101), Placement::Misaligned);
    // The source ahead of the destination: loads come first.
    assert_eq!(of(0x1040, 0x9000), Placement::Plain);
    assert_eq!(of(usize::MAX, 0), Placement::Aliased);
    assert_eq!(Placement::of_zero(128), Placement::Plain);
    assert_eq!(Placement::of_zero(129), Placement::Misaligned);
}

#[test]
fn each_situation_has_its_own_cells() {
    let all: Vec<Situation> = Situation::all().collect();
    assert_eq!(all.len(), SITUATIONS);
    let places: HashSet<usize> = all.iter().map(|situation| situation.index()).collect();
    assert_eq!(places.len(), SITUATIONS);
    assert!(places.iter().all(|&place| place < SITUATIONS));
    // If there is no source, nothing said of it counts.
    let zeroed = Situation {
        operation: Operation::Zero,
        reader: Reader::Device,
        source: CacheState::Cached,
        destination: CacheState::Uncached,
        placement: Placement::Aliased,
    };
    assert!(zeroed.index() < SITUATIONS);
    let without =
        Situation { source: CacheState::Unknown, placement: Placement::Misaligned, ..zeroed };
    assert_eq!(zeroed.index(), without.index());
}

fn name(text: &str) -> Algorithm {
    text.parse().unwrap()
}

#[test]
fn what_is_put_in_is_found_again() {
    let all: Vec<Algorithm> = Algorithm::all().collect();
    let temporal: Vec<Algorithm> =
        all.into_iter().filter(|it| it.stores() == Stores::Temporal).collect();
    let expected = |situation: Situation, class: usize| {
        temporal[(situation.index() * 7 + class) % temporal.len()]
    };
    let table = Table::from_fn(|situation, class| {
        Choice::new(expected(situation, class), name("sse2+streaming"), false)
    });
    let table = table.unwrap();
    for situation in Situation::all() {
        let first = situation.classes().start;
        for class in 0..CLASSES {
            if class + 1 == first {
                // A block longer than the size that names the class is as the next one.
                assert_eq!(table.choice(situation, class), table.choice(situation, first));
                continue;
            }
            if class < first {
                assert_eq!(table.choice(situation, class).best, Algorithm::LIBC);
                continue;
            }
            let wanted = expected(situation, class);
            assert_eq!(table.best(situation, class_bytes(class)), wanted);
            assert_eq!(table.choice(situation, class).temporal, wanted);
            assert_eq!(table.choice(situation, class).streaming, name("sse2+streaming"));
        }
        assert_eq!(table.choice(situation, usize::MAX), table.choice(situation, CLASSES - 1));
    }
}

#[test]
fn unsound_choices_are_refused() {
    let (libc, stream) = (Algorithm::LIBC, name("sse2+streaming"));
    let table = |choice| Table::from_fn(|_, _| choice);
    assert!(table(Choice { best: libc, temporal: libc, streaming: stream }).is_some());
    assert!(table(Choice { best: libc, temporal: libc, streaming: libc }).is_some());
    for (best, temporal, streaming) in [
        (name("rep"), libc, stream),
        (stream, stream, stream),
        (libc, libc, name("rep")),
        (stream, libc, libc),
    ] {
        assert!(table(Choice { best, temporal, streaming }).is_none());
    }
}

#[test]
fn defaults_hold_what_they_promise() {
    let table = Table::defaults(Maker::Intel, 32 << 20, |_| true);
    let best = |reader, destination, len| {
        let situation = Situation {
            operation: Operation::Copy,
            reader,
            source: CacheState::Unknown,
            destination,
            placement: Placement::Plain,
        };
        table.best(situation, len).to_string()
    };
    for destination in CacheState::ALL {
        for reader in Reader::ALL {
            assert_eq!(best(reader, destination, 16 << 20), "avx2+streaming");
        }
    }
    for destination in CacheState::ALL {
        assert_eq!(best(Reader::Me, destination, 8 << 20), "avx2");
        assert_eq!(best(Reader::Me, destination, 4 << 10), "avx2");
        assert_eq!(best(Reader::OtherCore, destination, 8 << 10), "avx2");
        assert_eq!(best(Reader::OtherCore, destination, 16 << 10), "avx2+streaming");
        let clean = destination == CacheState::Clean;
        let near = if clean { "avx2+streaming" } else { "avx2" };
        assert_eq!(best(Reader::NearCore, destination, 8 << 10), "avx2");
        assert_eq!(best(Reader::NearCore, destination, 16 << 10), near);
        assert_eq!(best(Reader::NearCore, destination, 32 << 10), "avx2+streaming");
        assert_eq!(best(Reader::FarCore, destination, 4 << 10), "avx2+streaming");
        let away = destination == CacheState::Uncached;
        let short = if away { "libc+destination" } else { "avx2" };
        assert_eq!(best(Reader::Me, destination, CHOICE_MIN), short);
    }
    for reader in [Reader::Device, Reader::Nobody] {
        assert_eq!(best(reader, CacheState::Cached, 8 << 20), "avx2");
        for destination in [CacheState::Unknown, CacheState::Uncached] {
            assert_eq!(best(reader, destination, 4 << 10), "avx2+streaming");
        }
        assert_eq!(best(reader, CacheState::Uncached, 2 << 10), "avx2+streaming");
        assert_eq!(best(reader, CacheState::Uncached, 1 << 10), "libc+destination");
        assert_eq!(best(reader, CacheState::Unknown, 1 << 10), "libc");
        let uncached = Situation {
            operation: Operation::Copy,
            reader,
            source: CacheState::Uncached,
            destination: CacheState::Uncached,
            placement: Placement::Plain,
        };
        assert_eq!(table.best(uncached, 64), Algorithm::LIBC_FETCHED);
    }
    assert_eq!(best(Reader::FarCore, CacheState::Clean, 2 << 10), "avx2+streaming");
    assert_eq!(best(Reader::FarCore, CacheState::Dirty, 2 << 10), "libc+destination");
    for reader in [Reader::OtherCore, Reader::NearCore, Reader::FarCore] {
        for destination in CacheState::ALL {
            assert_eq!(best(reader, destination, 64), "libc+destination");
            assert_eq!(best(reader, destination, 1 << 10), "libc+destination");
        }
    }
    // An older processor, and none of x86.
    let old = Table::defaults(Maker::Intel, 32 << 20, |it| {
        it.isa() == Isa::Sse2 || it == Algorithm::LIBC
    });
    let far = Situation {
        operation: Operation::Zero,
        reader: Reader::OtherCore,
        source: CacheState::Unknown,
        destination: CacheState::Uncached,
        placement: Placement::Plain,
    };
    assert_eq!(old.best(far, 1 << 20), name("sse2+streaming"));
    assert_eq!(old.best(far, 4096), Algorithm::LIBC);
    assert_eq!(old.best(far, 1024), Algorithm::LIBC);
    let none = Table::defaults(Maker::Intel, 32 << 20, |it| it == Algorithm::LIBC);
    assert!(none == Table::uniform(Algorithm::LIBC));
}

/// Unless another algorithm is known to be a gain, all copies are the C library's.
#[test]
fn defaults_for_others_than_intel_are_careful() {
    use CacheState::{Cached, Uncached, Unknown};
    let table = Table::defaults(Maker::Other, 32 << 20, |_| true);
    let best = |reader, source, destination, len| {
        let (operation, placement) = (Operation::Copy, Placement::Plain);
        let situation = Situation { operation, reader, source, destination, placement };
        table.best(situation, len).to_string()
    };
    for reader in Reader::ALL {
        for source in [Cached, Uncached, Unknown] {
            for destination in CacheState::ALL {
                let best = |len| best(reader, source, destination, len);
                assert_eq!(best(16 << 20), "avx2+streaming");
                let here = [2 << 10, 4 << 10, 32 << 10].map(best);
                let short = source == Cached && destination == Uncached;
                assert_eq!(here, [if short { "libc+destination" } else { "libc" }, "libc", "libc"]);
                let near = [Reader::Me, Reader::OtherCore, Reader::NearCore].contains(&reader);
                assert!(!near || best(8 << 20) == "libc");
            }
        }
    }
    for (reader, source, from) in [
        (Reader::FarCore, Uncached, 128 << 10),
        (Reader::Nobody, Uncached, 64 << 10),
        (Reader::Device, Unknown, 1 << 20),
        (Reader::Nobody, Cached, 1 << 20),
    ] {
        let best = [from / 2, from].map(|len| best(reader, source, Uncached, len));
        assert_eq!(best, ["libc", "avx2+streaming"], "{reader:?}, {source:?}");
    }
    assert_eq!(best(Reader::Nobody, Uncached, Cached, 8 << 20), "libc");
}

#[test]
fn what_is_lacking_is_replaced() {
    let table = Table::defaults(Maker::Intel, 1 << 20, |_| true);
    let fitted = table.clone().fitted(|it| it.isa() != Isa::Avx2);
    for situation in Situation::all() {
        for class in situation.classes() {
            let choice = fitted.choice(situation, class);
            let short = class_bytes(class) < 4096;
            let libc = if short { Algorithm::LIBC_FETCHED } else { Algorithm::LIBC };
            assert_eq!(choice, Choice::new(libc, libc, false));
        }
    }
    let plain = Algorithm::new(Isa::Avx2, Prefetch::None, Stores::Temporal).unwrap();
    let only_temporal = table.fitted(|it| it.stores() == Stores::Temporal);
    assert!(
        Situation::all()
            .all(|it| only_temporal.choice(it, CLASSES - 1) == Choice::new(plain, plain, true)),
    );
}

#[test]
fn printed_for_people() {
    let text = Table::defaults(Maker::Intel, 32 << 20, |_| true).to_string();
    let titles: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    let expected = [
        "copied, then read by this core",
        "copied, then read by another core",
        "copied, then read by a near core",
        "copied, then read by a far core",
        "copied, then read by a device or nobody soon",
        "zeroed, then read by this core",
        "zeroed, then read by another core",
        "zeroed, then read by a near core",
        "zeroed, then read by a far core",
        "zeroed, then read by a device or nobody soon",
    ];
    assert_eq!(titles, expected, "{text}");
    // Five of copies, three of zeroings.
    assert_eq!(text.lines().count(), 10 + 5 * 5 + 5 * 3, "{text}");
    let line =
        "  uncached to uncached  libc+destination, from 4 KiB avx2, from 16 KiB avx2+streaming\n";
    assert_eq!(text.matches(line).count(), 1, "{text}");
    let line = "  cached                avx2, from 16 MiB avx2+streaming\n";
    assert_eq!(text.matches(line).count(), 2, "{text}");
    assert_eq!(format!("{:?}", Table::defaults(Maker::Intel, 32 << 20, |_| true)), text);
}

#[test]
fn rows_tell_everything() {
    let table = Table::defaults(Maker::Intel, 32 << 20, |_| true);
    let rows: Vec<Row> = table.rows().collect();
    assert_eq!(rows.len(), SITUATIONS);
    for Row { situation, from } in rows {
        assert_eq!(from[0].0, class_bytes(situation.classes().start));
        assert!(from.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 != two[1].1));
        for class in situation.classes() {
            let row = from.iter().rfind(|(bytes, _)| *bytes <= class_bytes(class)).unwrap();
            assert_eq!(row.1, table.choice(situation, class).best);
        }
    }
}
