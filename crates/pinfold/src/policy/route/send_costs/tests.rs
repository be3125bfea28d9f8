//! Costs that are learned, on recorded times.

use super::*;

fn message(bytes: usize, memory: SendMemory) -> Outgoing {
    Outgoing { bytes, pieces: 1, pages: 0, from: SentFrom::Memory, memory }
}

fn any(bytes: usize) -> Outgoing {
    message(bytes, SendMemory::Unregistered)
}

fn kept(bytes: usize) -> Outgoing {
    message(bytes, SendMemory::Registered)
}

/// Calls that sent 256 KiB through loopback, ns: by `send(2)`, and with `MSG_ZEROCOPY`, which pins
/// there and copies all the same. Recorded on two virtual processors of a Xeon with Linux 6.18
/// while compilers ran: both have an interruption of 24 ms, and slow calls around it.
const COPIED: [u64; 24] = [
    14_102, 13_889, 14_115, 13_935, 13_983, 13_896, 14_063, 13_923, 14_001, 13_927, 14_137, 14_073,
    14_110, 13_894, 14_058, 13_877, 14_073, 18_868, 27_342, 21_821, 31_769, 24_161_054, 123_988,
    45_103,
];
const PINNED: [u64; 24] = [
    47_838, 38_717, 33_648, 24_120_055, 86_373, 26_579, 25_043, 23_217, 21_076, 20_761, 20_866,
    20_942, 20_898, 20_910, 20_698, 20_789, 21_010, 20_848, 20_822, 20_900, 20_649, 20_852, 20_759,
    30_360,
];

/// Number of times faster a device that gathers is beside the latter.
const OF_PINNED: u64 = 4;

fn recorded() -> impl Iterator<Item = (u64, u64)> {
    COPIED.into_iter().zip(PINNED)
}

#[test]
fn the_priors_are_those_of_before() {
    let mut costs = SendCosts::new();
    assert_eq!(costs.cheapest(&any(16 << 10)), SendMode::Plain);
    assert_eq!(costs.cheapest(&any(1 << 20)), SendMode::PerSend);
    assert_eq!(costs.cheapest(&kept(1 << 20)), SendMode::Cached);
    let near = |mode, it: &Outgoing, ns: f64| {
        let expected = costs.predict(mode, it).unwrap();
        assert!((expected / ns - 1.0).abs() < 0.001, "{mode:?}: {expected}");
    };
    near(SendMode::Plain, &any(1 << 20), 91_000.0);
    near(SendMode::PerSend, &any(1 << 20), 16_000.0);
    near(SendMode::Cached, &kept(1 << 20), 12_400.0);
    assert_eq!(costs.predict(SendMode::Cached, &any(1 << 20)), None);
}

#[test]
fn interruptions_decide_nothing() {
    let mut costs = SendCosts::new();
    let len = 256 << 10;
    for (copied, pinned) in recorded().chain(recorded()).chain(recorded().take(17)) {
        costs.took(SendMode::Plain, len, copied);
        costs.took(SendMode::PerSend, len, pinned / OF_PINNED);
        assert_eq!(costs.cheapest(&any(len)), SendMode::PerSend);
    }
    let expected = costs.predict(SendMode::Plain, &any(len)).unwrap();
    assert!((13_000.0..17_000.0).contains(&expected), "{expected}");
    let expected = costs.predict(SendMode::PerSend, &any(len)).unwrap();
    assert!((5_000.0..6_500.0).contains(&expected), "{expected}");
}

/// The process moves to a machine that copies what it pins, and back.
#[test]
fn a_change_of_the_machine_is_followed_once() {
    let mut costs = SendCosts::new();
    let len = 256 << 10;
    let mut modes = vec![costs.cheapest(&any(len))];
    for of_pinned in [OF_PINNED, 1, OF_PINNED] {
        for (copied, pinned) in std::iter::repeat_n((), 6).flat_map(|()| recorded()) {
            costs.took(SendMode::Plain, len, copied);
            costs.took(SendMode::PerSend, len, pinned / of_pinned);
            modes.push(costs.cheapest(&any(len)));
        }
    }
    modes.dedup();
    assert_eq!(modes, [SendMode::PerSend, SendMode::Plain, SendMode::PerSend]);
}

/// Two modes that cost the same, with noise of a tenth: the one chosen first stays.
#[test]
fn of_equals_the_first_stays() {
    let mut costs = SendCosts::new();
    let len = 64 << 10;
    let mut modes = Vec::new();
    for round in 0..200u64 {
        let noise = |seed: u64| (round * seed) % 1_000;
        costs.took(SendMode::Plain, len, 9_500 + noise(317));
        costs.took(SendMode::PerSend, len, 9_500 + noise(731));
        if round >= 50 {
            modes.push(costs.cheapest(&any(len)));
        }
    }
    modes.dedup();
    assert_eq!(modes.len(), 1, "{modes:?}");
}

#[test]
fn each_size_learns_for_itself_and_its_neighbours() {
    let mut costs = SendCosts::new();
    // Short ones cost ten times as much as expected, long ones what is expected.
    for _ in 0..40 {
        costs.took(SendMode::PerSend, 32 << 10, 34_000);
        costs.took(SendMode::PerSend, 8 << 20, 107_000);
    }
    assert_eq!(costs.cheapest(&any(32 << 10)), SendMode::Plain);
    assert_eq!(costs.cheapest(&any(64 << 10)), SendMode::Plain);
    assert_eq!(costs.cheapest(&any(4 << 20)), SendMode::PerSend);
    assert_eq!(costs.cheapest(&any(64 << 20)), SendMode::PerSend);
    // Modes that failed are begun anew, and copies cost what they did.
    costs.took(SendMode::Plain, 1 << 20, 182_000);
    let copy = costs.predict(SendMode::Plain, &any(1 << 20));
    costs.forget_uncopied();
    assert_eq!(costs.predict(SendMode::Plain, &any(1 << 20)), copy);
    assert_eq!(costs.predict(SendMode::PerSend, &any(1 << 20)), Some(16_000.0));
}

#[test]
fn memory_that_is_not_kept_does_not_change_the_choice_for_the_rest() {
    let mut costs = SendCosts::new();
    for _ in 0..5 {
        assert_eq!(costs.cheapest(&kept(1 << 20)), SendMode::Cached);
        assert_eq!(costs.cheapest(&any(1 << 20)), SendMode::PerSend);
    }
}

#[test]
fn classes_are_powers_of_two() {
    let classes = [0, 1, 8 << 10, (8 << 10) + 1, 16 << 10, 256 << 10, 16 << 20, usize::MAX];
    assert_eq!(classes.map(class_of), [0, 0, 0, 1, 1, 5, 11, 11]);
}
