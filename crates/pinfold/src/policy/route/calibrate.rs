//! Measures the costs of copies and of `process_vm_readv(2)` on this machine, in a few
//! milliseconds.
//!
//! One thread of one process stands in for two on two cores. The cost of the hop between cores is
//! therefore assumed, not measured; it changes within seconds anyway where a host moves virtual
//! cores about, and the learner of each pair finds it out.

use std::{hint::black_box, process};

use pinfold_sys::{
    cpu::{clock::now_ns, scheduled::preempted},
    process::read_remote_into,
};

use super::{CostModel, Line};

/// No further measurement is begun after this time, nanoseconds.
const BUDGET_NS: u64 = 4_000_000;

const SMALL: usize = 1 << 10;
const MIDDLE: usize = 64 << 10;
/// Larger would cost more page faults than it tells.
const LARGE: usize = 256 << 10;

/// The time that an eager message adds to its two copies for lines of memory that cross between
/// cores: the sender takes each back from the receiver, then the receiver takes it from the sender.
const CROSSING_NS_PER_BYTE: f64 = 0.05;

/// Hops between cores that a cma transfer needs besides its system call: the offer of the
/// message, and the word that it was taken.
const CMA_HOPS: f64 = 2.0;

/// Hops between cores that a mapped transfer needs besides its copy: as cma, and the copy's first
/// line.
const MAPPED_HOPS: f64 = 3.0;

/// Returns whether this process may read itself with `process_vm_readv(2)`; some filters forbid the
/// call altogether. One system call.
pub(super) fn cma_is_allowed() -> bool {
    read(&[1; 8], &mut [0; 8]).is_some()
}

/// The result of a measurement.
pub(super) struct Measured {
    /// The costs of this machine, or the defaults where they could not be measured.
    pub(super) costs: CostModel,
    /// True if all costs that this process may measure were measured, and no other thread took the
    /// processor meanwhile. If not, the costs are good enough to begin with, and are not kept.
    pub(super) complete: bool,
}

/// Measures the costs of this machine. About 1 ms, at most about 5.
pub(super) fn measure() -> Measured {
    measure_beside(preempted)
}

/// The same; `preempted` counts how often another thread took the processor.
fn measure_beside(mut preempted: impl FnMut() -> Option<u64>) -> Measured {
    let default = CostModel::DEFAULT;
    let before = preempted();
    let until = now_ns().saturating_add(BUDGET_NS);
    // Written, so that the pages are there.
    let from = vec![1u8; LARGE];
    let mut to = vec![2u8; LARGE];
    let allowed = cma_is_allowed();
    let cma = if allowed { cma(until, &from, &mut to) } else { None };
    let copies = copies(until, &from, &mut to);
    let [eager, mapped] = [copies.map(eager), copies.map(mapped)];
    let [eager, cma, mapped] =
        [eager, cma, mapped].map(|line| line.filter(|line| line.is_plausible()));
    Measured {
        costs: CostModel {
            eager: eager.unwrap_or(default.eager),
            cma: cma.unwrap_or(default.cma),
            mapped: mapped.unwrap_or(default.mapped),
        },
        complete: eager.is_some()
            && (cma.is_some() || !allowed)
            && is_undisturbed(before, preempted()),
    }
}

/// Returns whether no other thread took the processor between two counts of preemptions. Without a
/// count, the measurement is believed.
fn is_undisturbed(before: Option<u64>, after: Option<u64>) -> bool {
    before.zip(after).is_none_or(|(before, after)| before == after)
}

/// The cost of a copy by this processor.
fn copies(until: u64, from: &[u8], to: &mut [u8]) -> Option<Line> {
    let mut copy = |rounds, batch, len: usize| {
        median(until, rounds, batch, || {
            black_box(&mut to[..len]).copy_from_slice(black_box(&from[..len]));
            Some(())
        })
    };
    let small = copy(5, 32, SMALL)?;
    let middle = copy(5, 1, MIDDLE)? / MIDDLE as f64;
    // Without time for the large copy, the one within the cache must do.
    let large = copy(3, 1, LARGE).map_or(middle, |ns| ns / LARGE as f64);
    let rate = (middle + large) / 2.0;
    Some(Line { base_ns: (small - rate * SMALL as f64).max(0.0), ns_per_byte: rate })
}

/// A hop and two copies.
fn eager(copy: Line) -> Line {
    Line {
        base_ns: CostModel::DEFAULT.eager.base_ns + 2.0 * copy.base_ns,
        ns_per_byte: 2.0 * copy.ns_per_byte + CROSSING_NS_PER_BYTE,
    }
}

/// Hops and one copy, of lines that come from another core, but need not be taken back.
fn mapped(copy: Line) -> Line {
    Line {
        base_ns: MAPPED_HOPS * CostModel::DEFAULT.eager.base_ns + copy.base_ns,
        ns_per_byte: copy.ns_per_byte + CROSSING_NS_PER_BYTE / 2.0,
    }
}

/// Two hops and a system call.
fn cma(until: u64, from: &[u8], to: &mut [u8]) -> Option<Line> {
    let mut call = |rounds, batch, len: usize| {
        median(until, rounds, batch, || read(&from[..len], &mut to[..len]))
    };
    let call_ns = call(5, 8, 8)?;
    let rate = |ns: f64, len: usize| (ns - call_ns) / len as f64;
    let middle = rate(call(5, 1, MIDDLE)?, MIDDLE);
    let large = call(3, 1, LARGE).map_or(middle, |ns| rate(ns, LARGE));
    Some(Line {
        base_ns: call_ns + CMA_HOPS * CostModel::DEFAULT.eager.base_ns,
        ns_per_byte: (middle + large) / 2.0,
    })
}

/// Reads all of `from`, in this process, as another process would.
fn read(from: &[u8], to: &mut [u8]) -> Option<()> {
    let got = read_remote_into(process::id(), from.as_ptr() as u64, to).ok()?;
    (got == from.len()).then_some(())
}

/// The median time of `act`, nanoseconds, over `rounds` of `batch` calls each, or as many rounds as
/// can be begun before `until`. `None` if that is not even one, or if `act` fails.
fn median(
    until: u64,
    rounds: usize,
    batch: u32,
    mut act: impl FnMut() -> Option<()>,
) -> Option<f64> {
    // Once to warm up.
    act()?;
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = now_ns();
        if start >= until {
            break;
        }
        (0..batch).try_for_each(|_| act())?;
        times.push(now_ns().saturating_sub(start));
    }
    times.sort_unstable();
    Some(*times.get(times.len() / 2)? as f64 / f64::from(batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_something_plausible() {
        let Measured { costs, .. } = measure();
        assert!(costs.is_plausible(), "{costs:?}");
        if !cma_is_allowed() {
            assert_eq!(costs.cma, CostModel::DEFAULT.cma);
        }
    }

    #[test]
    fn what_others_had_a_part_in_is_not_complete() {
        assert!(is_undisturbed(Some(3), Some(3)));
        assert!(!is_undisturbed(Some(3), Some(4)));
        assert!(is_undisturbed(None, None));
    }

    #[test]
    fn a_busy_processor_gives_costs_that_are_not_kept() {
        let mut switches = 0;
        let Measured { costs, complete } = measure_beside(|| {
            switches += 1;
            Some(switches)
        });
        assert!(!complete && costs.is_plausible(), "{costs:?}");
    }

    #[test]
    fn no_time_and_failure_give_nothing() {
        assert_eq!(median(0, 5, 1, || Some(())), None);
        assert_eq!(median(u64::MAX, 5, 1, || None), None);
        assert!(median(u64::MAX, 5, 4, || Some(())).is_some());
        let mut calls = 0;
        let fails_late = || {
            calls += 1;
            (calls < 3).then_some(())
        };
        assert_eq!(median(u64::MAX, 5, 1, fails_late), None);
    }
}
