//! Random requests by the engine and one after the other: the same memory, for any behaviour of the
//! back end.

use proptest::prelude::*;

use super::{
    super::*,
    eager,
    faulty::{Faults, Faulty},
    pattern,
};

/// A copy or a zeroing inside a memory of 64 KiB.
#[derive(Clone, Debug)]
struct Step {
    from: Option<usize>,
    to: usize,
    len: usize,
}

const SIZE: usize = 64 << 10;

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..200usize, 0..20_000usize];
    (prop::option::weighted(0.9, 0..SIZE - 20_000), 0..SIZE - 20_000, len)
        .prop_map(|(from, to, len)| Step { from, to, len })
}

/// The same steps by the engine and one after the other.
fn compare(engine: &CopyEngine, steps: &[Step]) {
    let (mut memory, mut oracle) = (pattern(SIZE, 3), pattern(SIZE, 3));
    let base = memory.as_mut_ptr();
    let tickets: Vec<Ticket> = steps
        .iter()
        .map(|step| {
            let to = base.wrapping_add(step.to);
            let work = match step.from {
                Some(from) => Work::copy(base.wrapping_add(from), to, step.len),
                None => Work::zero(to, step.len),
            };
            // SAFETY: it lies inside, and the memory is not touched before all have ended.
            unsafe { engine.submit(work) }
        })
        .collect();
    for step in steps {
        match step.from {
            Some(from) => oracle.copy_within(from..from + step.len, step.to),
            None => oracle[step.to..step.to + step.len].fill(0),
        }
    }
    // The last first: their order is none of the waiter's business.
    for ticket in tickets.iter().rev() {
        assert_eq!(ticket.wait(), Ok(()));
    }
    assert!(memory == oracle);
}

proptest! {
    #[test]
    fn overlapping_requests_have_the_effect_of_their_order(
        steps in prop::collection::vec(step(), 1..40),
        queue_max in 0..20usize,
        bytes_min in prop::sample::select(vec![0, 500, 8000]),
    ) {
        let config = EngineConfig { queue_max, bytes_min, ..eager() };
        compare(&CopyEngine::new(config), &steps);
    }

    #[test]
    fn faults_change_nothing(
        steps in prop::collection::vec(step(), 1..40),
        queue_max in 0..20usize,
        seed in any::<u64>(),
        faults in any::<[bool; 5]>(),
    ) {
        let [partial, fail, lie, refuse, repeat] = faults;
        let faults = Faults { partial, fail, lie, refuse, repeat };
        let backend = Faulty::new(seed, faults);
        let engine = CopyEngine::with_backend(backend, EngineConfig { queue_max, ..eager() });
        compare(&engine, &steps);
    }
}

#[test]
fn faults_are_repaired_and_counted() {
    let all = Faults { partial: true, fail: true, lie: true, refuse: true, repeat: true };
    let engine = CopyEngine::with_backend(Faulty::new(11, all), eager());
    for seed in 0..40 {
        let (end, from, to) =
            engine.copy(pattern(200_000, seed), vec![0; 200_000]).unwrap().wait().unwrap();
        assert_eq!(end, Ok(()));
        assert!(from == to && to == pattern(200_000, seed));
    }
    let counts = engine.counts();
    assert_eq!(counts.queued, 40);
    let faults = [counts.partial, counts.failed, counts.refused, counts.unknown];
    assert!(faults.iter().all(|count| *count > 10), "{counts:?}");
}
