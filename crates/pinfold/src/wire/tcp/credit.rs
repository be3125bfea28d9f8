//! Credit in the head of a frame.
//!
//! A receiver says how much of what it granted has become free again since the session began, in units
//! of [`UNIT_BYTES`]. A frame carries the low half of that count. Counts, unlike differences, can be
//! lost and repeated.

/// Bytes of a unit.
pub(crate) const UNIT_BYTES: u64 = 64;

/// No more may be granted: the low half of a count tells two apart that are this close.
pub(crate) const UNITS_MAX: u64 = 1 << 31;

/// What a message of `len` bytes takes: at least one unit.
pub(crate) const fn units(len: u64) -> u64 {
    let units = len.div_ceil(UNIT_BYTES);
    if units == 0 { 1 } else { units }
}

/// The count whose low half came, if the last one was `known`. `None`: it went back, or too far.
pub(crate) const fn widen(known: u64, low: u32) -> Option<u64> {
    let more = low.wrapping_sub(known as u32) as u64;
    if more >= UNITS_MAX { None } else { known.checked_add(more) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_take_whole_units() {
        for (len, taken) in [(0, 1), (1, 1), (64, 1), (65, 2), (u64::MAX, 1 << 58)] {
            assert_eq!(units(len), taken, "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn counts_come_back(known in 0u64..1 << 60, more in 0..UNITS_MAX) {
            prop_assert_eq!(widen(known, (known + more) as u32), Some(known + more));
        }

        #[test]
        fn no_count_goes_back(known in UNITS_MAX..1 << 60, less in 1..=UNITS_MAX) {
            prop_assert_eq!(widen(known, (known - less) as u32), None);
        }
    }
}
