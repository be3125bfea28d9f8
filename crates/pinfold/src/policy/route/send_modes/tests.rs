//! The choice of a send mode, by costs.

use proptest::{array, collection::vec, option, prelude::*, sample::select};

use super::*;

/// Valid times and invalid ones.
fn ns() -> impl Strategy<Value = f64> {
    prop_oneof![
        8 => 1.0..1e5,
        1 => select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300]),
    ]
}

fn curve() -> impl Strategy<Value = CostCurve> {
    vec((0usize..70_000, ns()), 0..6).prop_map(CostCurve::through)
}

fn cost() -> impl Strategy<Value = SendCost> {
    let source = || {
        (curve(), ns(), ns()).prop_map(|(curve, several_ns, piece_ns)| SourceCost {
            curve,
            several_ns,
            piece_ns,
        })
    };
    (source(), source()).prop_map(|(cache, memory)| SendCost { cache, memory })
}

fn modes() -> impl Strategy<Value = SendModes> {
    array::uniform5(option::of(cost())).prop_map(|costs| SendModes { costs })
}

fn outgoing() -> impl Strategy<Value = Outgoing> {
    let memory = vec![SendMemory::Unregistered, SendMemory::Registered, SendMemory::Placed];
    let from = vec![SentFrom::Cache, SentFrom::Memory];
    (0usize..100_000, 0usize..12, 0usize..30, select(from), select(memory)).prop_map(
        |(bytes, pieces, pages, from, memory)| Outgoing { bytes, pieces, pages, from, memory },
    )
}

proptest! {
    #[test]
    fn what_is_picked_is_possible_and_nothing_is_cheaper(modes in modes(), it in outgoing()) {
        let picked = modes.pick(&it);
        prop_assert!(SendModes::is_possible(picked, &it));
        match modes.predict(picked, &it) {
            Some(cost) => {
                prop_assert!(cost.is_finite() && cost >= 0.0);
                for other in SendMode::ALL {
                    prop_assert!(modes.predict(other, &it).is_none_or(|it| it >= cost), "{other:?}");
                }
            }
            // No cost is known.
            None => {
                prop_assert_eq!(picked, SendMode::Plain);
                prop_assert!(SendMode::ALL.iter().all(|mode| modes.predict(*mode, &it).is_none()));
            }
        }
        // A message in memory of fewer rights has no cheaper way.
        let most = Outgoing { memory: SendMemory::Placed, ..it };
        let cost = |it: &Outgoing| modes.predict(modes.pick(it), it).unwrap_or(f64::INFINITY);
        prop_assert!(cost(&most) <= cost(&it));
    }

    #[test]
    fn a_picker_says_the_same(modes in modes(), some in vec((outgoing(), 1usize..3), 0..6)) {
        let mut picker = SendPicker::new(modes.clone());
        for it in some.into_iter().flat_map(|(it, often)| std::iter::repeat_n(it, often)) {
            prop_assert_eq!(picker.pick(&it), modes.pick(&it));
        }
    }

    #[test]
    fn more_never_costs_less(modes in modes(), it in outgoing(), bytes in 0usize..50_000) {
        for mode in SendMode::ALL {
            let more = [
                Outgoing { bytes: it.bytes + bytes, ..it },
                Outgoing { pieces: it.pieces + 1, ..it },
            ];
            for more in more {
                if let Some((less, more)) = modes.predict(mode, &it).zip(modes.predict(mode, &more)) {
                    prop_assert!(more >= less - 1e-6 * less, "{mode:?}: {less} {more}");
                }
            }
        }
    }

    #[test]
    fn a_curve_keeps_points_that_rise(sizes in vec((1usize..5000, 0.0..100.0f64), 1..8)) {
        let mut sum = (0, 1.0);
        let points: Vec<(usize, f64)> = sizes.iter().map(|(bytes, ns)| {
            sum = (sum.0 + bytes, sum.1 + ns);
            sum
        }).collect();
        let mut mixed = points.clone();
        mixed.reverse();
        let curve = CostCurve::through(mixed);
        for (bytes, ns) in points {
            prop_assert!((curve.at(bytes).unwrap() - ns).abs() < 1e-6);
        }
    }
}

#[test]
fn lines_between_and_beyond() {
    let curve = CostCurve::through([(1000, 10.0), (3000, 30.0), (2000, 10.0)]);
    let at = |bytes| curve.at(bytes).unwrap();
    assert_eq!((at(0), at(1000), at(1500), at(2500), at(3500)), (10.0, 10.0, 10.0, 20.0, 40.0));
    // Noise is levelled, by the mean.
    let noisy = CostCurve::through([(1, 5.0), (2, 9.0), (3, 7.0), (4, 20.0)]);
    assert_eq!(
        (noisy.at(1), noisy.at(2), noisy.at(3), noisy.at(4)),
        (Some(5.0), Some(8.0), Some(8.0), Some(20.0))
    );
    assert_eq!(CostCurve::through([(5, 3.0)]).at(900), Some(3.0));
    assert_eq!(CostCurve::through([(5, f64::NAN)]).at(900), None);
}

fn line(base: f64, per_byte: f64) -> CostCurve {
    CostCurve::through([0, 63_000].map(|bytes| (bytes, base + per_byte * bytes as f64)))
}

/// The costs of a machine on which copying wins below some 8 KB out of a cache.
fn here() -> SendModes {
    let mut modes = SendModes::default();
    let cost = |base, cache, memory, piece_ns| {
        let from =
            |per_byte| SourceCost { curve: line(base, per_byte), several_ns: piece_ns, piece_ns };
        SendCost { cache: from(cache), memory: from(memory) }
    };
    modes.learn(SendMode::TwoCopy, cost(2900.0, 0.024, 0.071, 30.0));
    modes.learn(SendMode::PerSend, cost(3300.0, 0.012, 0.012, 180.0));
    modes.learn(SendMode::Cached, cost(3090.0, 0.002, 0.002, 40.0));
    modes.learn(SendMode::Aligned, cost(3080.0, 0.002, 0.002, 40.0));
    modes
}

#[test]
fn each_way_has_its_messages() {
    let modes = here();
    let pick = |bytes, from, memory| {
        modes.pick(&Outgoing { bytes, pieces: 1, pages: bytes / 4096 + 1, from, memory })
    };
    use SendMemory::*;
    assert_eq!(pick(136, SentFrom::Cache, Placed), SendMode::TwoCopy);
    assert_eq!(pick(7_000, SentFrom::Cache, Registered), SendMode::TwoCopy);
    assert_eq!(pick(7_000, SentFrom::Memory, Registered), SendMode::Cached);
    assert_eq!(pick(63_000, SentFrom::Cache, Registered), SendMode::Cached);
    assert_eq!(pick(63_000, SentFrom::Memory, Placed), SendMode::Aligned);
    assert_eq!(pick(7_000, SentFrom::Cache, Unregistered), SendMode::TwoCopy);
    assert_eq!(pick(63_000, SentFrom::Cache, Unregistered), SendMode::PerSend);
}

#[test]
fn each_source_has_its_own_pieces() {
    let from = |several_ns, piece_ns| SourceCost { curve: line(100.0, 0.0), several_ns, piece_ns };
    let mut modes = SendModes::default();
    modes.learn(SendMode::Plain, SendCost { cache: from(1.0, 2.0), memory: from(10.0, 20.0) });
    let predict = |pieces, from| {
        let it = Outgoing { bytes: 9, pieces, pages: 1, from, memory: SendMemory::Unregistered };
        modes.predict(SendMode::Plain, &it)
    };
    let cache = [0, 1, 2, 3, 8].map(|pieces| predict(pieces, SentFrom::Cache).unwrap());
    assert_eq!(cache, [100.0, 100.0, 101.0, 103.0, 113.0]);
    assert_eq!(predict(3, SentFrom::Memory), Some(130.0));
}

#[test]
fn more_pages_than_a_packet_names_are_copied() {
    let modes = here();
    let pick = |pages| {
        let (from, memory) = (SentFrom::Memory, SendMemory::Placed);
        modes.pick(&Outgoing { bytes: 63_000, pieces: 4, pages, from, memory })
    };
    assert_eq!((pick(PAGES_MAX), pick(PAGES_MAX + 1)), (SendMode::Aligned, SendMode::TwoCopy));
}

#[test]
fn nothing_known_is_plain() {
    let it = Outgoing {
        bytes: 9,
        pieces: 1,
        pages: 1,
        from: SentFrom::Cache,
        memory: SendMemory::Placed,
    };
    assert_eq!(SendModes::default().pick(&it), SendMode::Plain);
    let text = serde_json::to_string(&here()).unwrap();
    assert_eq!(serde_json::from_str::<SendModes>(&text).unwrap(), here());
}
