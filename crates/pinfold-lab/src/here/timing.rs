//! Medians of repeated measurements.

use pinfold_sys::cpu::clock::{now_ns, ticks};

/// Calls `act` in turns of `calls`, and returns the median turn's time of one call, ns. The first
/// turn warms up and does not count.
///
/// # Errors
/// The first error of `act`.
pub fn median_ns<E>(
    turns: usize,
    calls: usize,
    act: impl FnMut(usize) -> Result<(), E>,
) -> Result<f64, E> {
    median_of(&now_ns, turns, calls, act)
}

/// The same in cycles of the processor's time stamp counter, as the thesis on the APE25 counts.
///
/// # Errors
/// The first error of `act`.
pub fn median_cycles<E>(
    turns: usize,
    calls: usize,
    act: impl FnMut(usize) -> Result<(), E>,
) -> Result<f64, E> {
    median_of(&ticks, turns, calls, act)
}

fn median_of<E>(
    clock: &dyn Fn() -> u64,
    turns: usize,
    calls: usize,
    mut act: impl FnMut(usize) -> Result<(), E>,
) -> Result<f64, E> {
    let (turns, calls) = (turns.max(1), calls.max(1));
    let mut all = Vec::with_capacity(turns);
    for turn in 0..=turns {
        let start = clock();
        for call in 0..calls {
            act(call)?;
        }
        let each = clock().saturating_sub(start) as f64 / calls as f64;
        if turn > 0 {
            all.push(each);
        }
    }
    Ok(median(&mut all))
}

/// The median of some numbers, the upper one of an even count; 0 of none.
pub fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_and_calls_are_counted() {
        let mut calls = Vec::new();
        let mut act = |call| {
            calls.push(call);
            Ok::<(), ()>(())
        };
        assert!(median_ns(2, 3, &mut act).unwrap() >= 0.0);
        assert_eq!(calls, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(median_ns(1, 1, |_| Err("no")), Err("no"));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut []), 0.0);
    }
}
