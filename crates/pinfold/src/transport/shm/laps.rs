//! `Laps`: the number of bulk bytes in which short pieces go round, learnt from how fast they go.
//!
//! Few bytes stay in the first-level caches of both sides: between some cores that moves twice as
//! many bytes a second as all bulk bytes do, and between others half as many, since a line that the
//! consumer has just read takes long to be written again. A ping-pong does not tell them apart: it
//! begins at the first byte again each time. So the producer compares the times in which streams of
//! such pieces are lent. Figures: `docs/measurements/rings.md`.
//!
//! Plain state, no I/O: the clock comes as an argument.

use super::bulk::{HOT_BYTES, HOT_PIECE_MAX, WARM_BYTES, WARM_PIECE_MAX};
use crate::wire::layout::BULK_BYTES_MAX;

/// Length of the shortest pieces that are learnt from, bytes: shorter ones move few lines for what
/// they cost besides.
const LEARNT_FROM: u32 = 1 << 10;
/// Bytes lent in a period, whose time is one sample.
const PERIOD_BYTES: u32 = 512 << 10;
/// Number of periods from one trial of the other lap to the next, at first and at most.
const TRIAL_AFTER: u32 = 32;
const TRIAL_AFTER_MAX: u32 = 256;
/// Number of periods of a trial. The first holds the transition and is not judged.
const TRIAL_PERIODS: u32 = 4;

/// The laps of one direction.
pub(crate) struct Laps {
    /// True if short pieces go round in all bulk bytes.
    is_wide: bool,
    /// True while the lap that is not the usual one is tried.
    is_trial: bool,
    /// Bytes lent in this period, and those of them that were lent while others were.
    lent: u32,
    streamed: u32,
    /// Ticks at which it began; 0 if there was none before.
    began: u64,
    /// Periods since the trial began, or since the last one ended.
    periods: u32,
    trial_after: u32,
    /// The shortest period of the usual lap since the last trial, and of the trial, ticks.
    usual: u64,
    tried: u64,
}

impl Laps {
    pub(crate) const fn new() -> Laps {
        Laps {
            is_wide: false,
            is_trial: false,
            lent: 0,
            streamed: 0,
            began: 0,
            periods: 0,
            trial_after: TRIAL_AFTER,
            usual: u64::MAX,
            tried: u64::MAX,
        }
    }

    /// Bytes in which pieces of `len` bytes go round while the consumer keeps up; `None` for a
    /// piece that is worth being written past the caches: those go round in all bulk bytes.
    #[inline]
    pub(crate) fn bytes(&self, len: u32) -> Option<u32> {
        if len < LEARNT_FROM {
            Some(HOT_BYTES)
        } else if len <= HOT_PIECE_MAX {
            Some(if self.is_wide != self.is_trial { BULK_BYTES_MAX } else { HOT_BYTES })
        } else if len <= WARM_PIECE_MAX {
            Some(WARM_BYTES)
        } else {
            None
        }
    }

    /// Takes note of a piece lent; `is_stream` says that others were lent already. Returns whether
    /// a period has ended, at whose time [`Laps::end_period`] is called.
    #[inline]
    pub(crate) fn lend(&mut self, len: u32, is_stream: bool) -> bool {
        if (LEARNT_FROM..=HOT_PIECE_MAX).contains(&len) {
            self.lent += len;
            self.streamed += if is_stream { len } else { 0 };
        }
        self.lent >= PERIOD_BYTES
    }

    /// Ends a period at `now`, in ticks, and chooses the lap of the next.
    #[cold]
    pub(crate) fn end_period(&mut self, now: u64) {
        let took = now.saturating_sub(self.began);
        let is_sample = self.began != 0 && self.streamed >= PERIOD_BYTES / 2;
        (self.began, self.lent, self.streamed) = (now, 0, 0);
        if !is_sample {
            return;
        }
        self.periods += 1;
        if !self.is_trial {
            // The first period after a trial holds the transition.
            if self.periods > 1 {
                self.usual = self.usual.min(took);
            }
            if self.periods >= self.trial_after {
                (self.is_trial, self.periods, self.tried) = (true, 0, u64::MAX);
            }
            return;
        }
        if self.periods > 1 {
            self.tried = self.tried.min(took);
        }
        if self.periods >= TRIAL_PERIODS {
            // An eighth is more than what noise makes of the best of several.
            let is_better = self.tried < self.usual - self.usual / 8;
            self.is_wide ^= is_better;
            self.trial_after =
                if is_better { TRIAL_AFTER } else { (self.trial_after * 2).min(TRIAL_AFTER_MAX) };
            (self.is_trial, self.periods, self.usual) = (false, 0, u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u32 = 4 << 10;

    /// Lends `periods` periods of pieces on a machine on which the lap takes `ticks` of it. Returns
    /// how many went round in all bulk bytes.
    fn run(laps: &mut Laps, now: &mut u64, periods: u32, ticks: impl Fn(bool) -> u64) -> u32 {
        let mut wide = 0;
        for _ in 0..periods {
            let is_wide = laps.bytes(LEN) == Some(BULK_BYTES_MAX);
            wide += u32::from(is_wide);
            *now += ticks(is_wide);
            while !laps.lend(LEN, true) {}
            laps.end_period(*now);
        }
        wide
    }

    #[test]
    fn the_faster_lap_is_found_and_followed() {
        let (mut laps, mut now) = (Laps::new(), 1);
        assert_eq!(laps.bytes(LEN), Some(HOT_BYTES));
        run(&mut laps, &mut now, 60, |is_wide| if is_wide { 100 } else { 190 });
        let wide = run(&mut laps, &mut now, 500, |is_wide| if is_wide { 100 } else { 190 });
        assert!(wide >= 480, "{wide} of 500");
        // The cores move.
        run(&mut laps, &mut now, 2 * TRIAL_AFTER_MAX, |is_wide| if is_wide { 190 } else { 100 });
        let wide = run(&mut laps, &mut now, 500, |is_wide| if is_wide { 190 } else { 100 });
        assert!(wide <= 20, "{wide} of 500");
    }

    #[test]
    fn noise_changes_nothing() {
        let (mut laps, mut now) = (Laps::new(), 1);
        let turn = std::cell::Cell::new(0u64);
        let wide = run(&mut laps, &mut now, 10_000, |_| {
            turn.set(turn.get() + 1);
            100 + turn.get() * 37 % 11 + if turn.get().is_multiple_of(13) { 900 } else { 0 }
        });
        // Trials alone.
        assert!(wide <= 200, "{wide} of 10,000");
    }

    #[test]
    fn a_ping_pong_is_not_learnt_from() {
        let mut laps = Laps::new();
        for now in 1..10_000 {
            while !laps.lend(LEN, false) {}
            laps.end_period(now);
            assert_eq!(laps.bytes(LEN), Some(HOT_BYTES));
        }
        assert_eq!(laps.periods, 0);
    }

    #[test]
    fn other_pieces_are_neither_learnt_from_nor_moved() {
        let mut laps = Laps::new();
        let other = [LEARNT_FROM - 1, 8 << 10];
        assert!((0..1 << 20).all(|i| !laps.lend(other[i % 2], true)));
        laps.is_wide = true;
        assert_eq!(laps.bytes(LEARNT_FROM - 1), Some(HOT_BYTES));
        assert_eq!(laps.bytes(HOT_PIECE_MAX), Some(BULK_BYTES_MAX));
        assert_eq!(laps.bytes(HOT_PIECE_MAX + 1), Some(WARM_BYTES));
        assert_eq!(laps.bytes(WARM_PIECE_MAX + 1), None);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_is_no_harm() {
        let mut laps = Laps::new();
        for now in [5, 5, 3, 0, u64::MAX, 1].into_iter().cycle().take(1000) {
            while !laps.lend(LEN, true) {}
            laps.end_period(now);
        }
    }
}
