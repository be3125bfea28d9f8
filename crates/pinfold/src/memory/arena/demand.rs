//! The rule by which memory that no buffer uses goes back to the system by itself.
//!
//! Plain state, no I/O and no clock: time is counted in bytes freed. A window ends once the bytes
//! freed in it are a few times those committed, so that every buffer that is used in turn was used
//! within it. Memory that was needed neither in this window nor in the one before is surplus. A
//! program that frees everything and then nothing more keeps its memory until it calls `trim`.

/// A window holds at least so many frees.
const FREES_MIN: u32 = 16;
/// A window lasts until so many times the committed bytes were freed, or so many frees were seen.
const TURNS: u64 = 4;
const FREES_MAX: u32 = 1 << 20;
/// Memory kept beyond the need: a part of the need, and at least so many bytes.
const SPARE_PART: u64 = 8;
const SPARE_BYTES: u64 = 4 << 20;
/// Less surplus than that is not worth a system call.
const SURPLUS_MIN: u64 = 1 << 20;

/// The demand for memory of late.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// The most bytes in use in this window and in the one before.
    peak: u64,
    peak_before: u64,
    frees: u32,
    bytes_freed: u64,
}

impl Demand {
    /// `live` bytes are in use, after an allocation.
    #[inline]
    pub(crate) fn grew(&mut self, live: u64) {
        self.peak = self.peak.max(live);
    }

    /// `bytes` were freed, `live` are still in use, `committed` have memory. Returns how many of
    /// those to give back to the system now.
    #[inline]
    pub(crate) fn freed(&mut self, bytes: u64, live: u64, committed: u64) -> u64 {
        self.frees += 1;
        self.bytes_freed += bytes;
        let over = self.frees >= FREES_MAX
            || self.frees >= FREES_MIN && self.bytes_freed >= TURNS * committed;
        if over { self.end_window(live, committed) } else { 0 }
    }

    #[cold]
    fn end_window(&mut self, live: u64, committed: u64) -> u64 {
        let needed = self.peak.max(self.peak_before);
        *self = Demand { peak: live, peak_before: self.peak, frees: 0, bytes_freed: 0 };
        let keep = needed + (needed / SPARE_PART).max(SPARE_BYTES);
        let surplus = committed.saturating_sub(keep);
        if surplus >= SURPLUS_MIN { surplus } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Frees and takes `bytes` over and over with `live` in use besides, and returns surplus.
    /// Returns the bytes that are committed in the end.
    fn churn(demand: &mut Demand, turns: u32, bytes: u64, live: u64, mut committed: u64) -> u64 {
        for _ in 0..turns {
            demand.grew(live + bytes);
            committed -= demand.freed(bytes, live, committed);
        }
        committed
    }

    #[test]
    fn what_is_used_in_turn_is_kept() {
        let mut demand = Demand::default();
        assert_eq!(churn(&mut demand, 1000, 64 * MIB, 0, 64 * MIB), 64 * MIB);
        // Ten at a time, all freed, again and again.
        for _ in 0..100 {
            (1..=10).for_each(|i| demand.grew(i * 64 * MIB));
            for i in (0..10).rev() {
                assert_eq!(demand.freed(64 * MIB, i * 64 * MIB, 640 * MIB), 0);
            }
        }
    }

    #[test]
    fn what_was_long_not_needed_goes() {
        let mut demand = Demand::default();
        demand.grew(1024 * MIB);
        // Most of it is freed, some small traffic stays.
        let mut committed = 1024 * MIB;
        committed -= demand.freed(1023 * MIB, MIB, committed);
        let committed = churn(&mut demand, 3 * FREES_MAX, 4096, MIB, committed);
        assert!(committed <= 6 * MIB, "{committed}");
    }

    #[test]
    fn a_little_is_not_worth_it() {
        let mut demand = Demand::default();
        assert_eq!(churn(&mut demand, 3 * FREES_MAX, 4096, 0, 4 * MIB), 4 * MIB);
    }
}
