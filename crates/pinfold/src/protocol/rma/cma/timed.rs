//! `timed`: how long a copy by the kernel waited for memory, beyond the time it took.

use std::cell::Cell;

use pinfold_sys::cpu::{clock, scheduled::Scheduled};

use super::trust::WAITED_NS;

/// Largest age of a thread's cached scheduling times, ns: asking for them takes 20 µs.
const KNOWN_NS: u64 = 10_000_000;

thread_local! {
    /// The scheduling times of this thread, and when they were read.
    static KNOWN: Cell<Option<(u64, Scheduled)>> = const { Cell::new(None) };
}

/// Runs `copy` and returns how long it waited, ns; 0 if not for long. Costs 30 ns more than the
/// copy.
pub(super) fn timed<T>(copy: impl FnOnce() -> T) -> (T, u64) {
    let begun = clock::ticks();
    let known =
        KNOWN.get().filter(|(when, _)| clock::ns_of(begun.saturating_sub(*when)) < KNOWN_NS);
    let (_, before) = known.unwrap_or_else(|| {
        let fresh = (begun, Scheduled::own());
        KNOWN.set(Some(fresh));
        fresh
    });
    let copied = copy();
    let took_ns = clock::ns_of(clock::ticks().saturating_sub(begun));
    if took_ns < WAITED_NS {
        return (copied, 0);
    }
    KNOWN.set(None);
    (copied, before.blocked_ns(&Scheduled::own(), took_ns))
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn who_waits_is_told() {
        let spin = |time: Duration| {
            let begun = Instant::now();
            while begun.elapsed() < time {
                std::hint::spin_loop();
            }
        };
        assert_eq!(timed(|| 7), (7, 0));
        assert_eq!(timed(|| spin(Duration::from_millis(40))).1, 0);
        // A machine that does not count sleep times shows nothing, nor at times does a busy one.
        let told = || timed(|| thread::sleep(Duration::from_millis(100))).1;
        let counts = Scheduled::own().slept.is_some();
        assert!(!counts || (0..20).any(|_| told() > WAITED_NS));
    }
}
