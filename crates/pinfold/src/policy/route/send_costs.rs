//! The costs of the send modes on this machine, learned from what sends take. No I/O.
//!
//! Each mode begins with a straight line over the bytes of a call ([`PRIORS`]). What calls take is
//! kept as a ratio to that line, by mode and by size: the length of a call is in one of
//! [`CLASSES`] classes, each twice as long as the one before. A class of which nothing is known
//! goes by the nearest one that is known.
//!
//! Noise decides nothing: of three times in a row the middle one counts, so one interruption is not
//! seen at all; no time moves an expectation by more than an eighth, so a burst is hardly seen;
//! and a mode takes the place of the one last chosen for its class only if it is cheaper by
//! [`MARGIN`].

use super::{
    CostCurve, Outgoing, SendCost, SendMode, SendModes, SentFrom, SourceCost,
    send_modes::SendMemory,
};

/// The costs of the modes before any are known: a fixed cost, and one for a MiB, in ns. From a Xeon
/// of 2023.
const PRIORS: [(SendMode, f64, f64); 3] = [
    (SendMode::Plain, 1_000.0, 90_000.0),
    // To ask the ring, to have the notice, and for each page to take hold of it and to let go.
    (SendMode::PerSend, 3_000.0, 13_000.0),
    // To ask the ring, to have the notice, and to look for each page whether it is there.
    (SendMode::Cached, 3_900.0, 8_500.0),
];

const MODES: usize = SendMode::ALL.len();

/// Classes of length: up to 8 KiB, 16 KiB, and so on; the last one has all that is longer.
const CLASSES: usize = 12;
const FIRST_CLASS_BITS: u32 = 13;

/// The weight of a new time.
const WEIGHT: f64 = 0.1;
/// A time so many times as long as expected, or as short, counts as this.
const RATIO_MAX: f64 = 3.0;
/// The part by which another mode has to be cheaper.
const MARGIN: f64 = 0.2;

/// The times of one mode and class.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    /// Times over those expected. `None`: none was seen.
    ratio: Option<f64>,
    /// The two latest.
    latest: [f64; 2],
}

impl Known {
    const NOTHING: Known = Known { ratio: None, latest: [f64::NAN; 2] };

    fn saw(&mut self, ratio: f64) {
        let [a, b] = self.latest;
        self.latest = [b, ratio];
        let known = self.ratio.unwrap_or(1.0);
        // The middle one; of two, the one that says less.
        let middle = match a.is_nan() {
            false => ratio.clamp(a.min(b), a.max(b)),
            true if (b - known).abs() < (ratio - known).abs() => b,
            true => ratio,
        };
        let step = (middle / known).clamp(1.0 / RATIO_MAX, RATIO_MAX);
        self.ratio = Some(known * step.powf(WEIGHT));
    }
}

impl SendModes {
    /// The costs that endpoints begin with, before a send has told any: of a Xeon of 2023.
    pub fn priors() -> SendModes {
        let mut priors = SendModes::default();
        for (mode, fixed, mib) in PRIORS {
            let curve = CostCurve::through([(0, fixed), (1 << 20, fixed + mib)]);
            let cost = SourceCost { curve, several_ns: 0.0, piece_ns: 0.0 };
            priors.learn(mode, SendCost { cache: cost.clone(), memory: cost });
        }
        priors
    }
}

/// The costs of all modes, and the modes last chosen.
#[derive(Clone, Debug)]
pub(crate) struct SendCosts {
    priors: SendModes,
    known: [[Known; CLASSES]; MODES],
    chosen: [Option<SendMode>; CLASSES],
}

impl SendCosts {
    /// Nothing is known but what is the same everywhere.
    pub(crate) fn new() -> SendCosts {
        let known = [[Known::NOTHING; CLASSES]; MODES];
        SendCosts { priors: SendModes::priors(), known, chosen: [None; CLASSES] }
    }

    /// A call has sent `bytes` bytes in `ns` nanoseconds.
    pub(crate) fn took(&mut self, mode: SendMode, bytes: usize, ns: u64) {
        let it = Outgoing {
            bytes,
            pieces: 1,
            pages: 0,
            from: SentFrom::Memory,
            memory: SendMemory::Registered,
        };
        let Some(expected) = self.priors.predict(mode, &it).filter(|ns| *ns > 0.0) else { return };
        let ratio = (ns as f64 / expected).max(f64::MIN_POSITIVE);
        self.known[mode as usize][class_of(bytes)].saw(ratio);
    }

    /// The expected cost of a message, nanoseconds. `None` if it cannot go this way.
    pub(crate) fn predict(&self, mode: SendMode, it: &Outgoing) -> Option<f64> {
        Some(self.priors.predict(mode, it)? * self.ratio(mode, class_of(it.bytes)))
    }

    /// The ratio of a class, or of the nearest that is known: of two as near, of the shorter one.
    fn ratio(&self, mode: SendMode, class: usize) -> f64 {
        let known = &self.known[mode as usize];
        let nearest = (0..CLASSES).filter_map(|at| Some((at.abs_diff(class), known[at].ratio?)));
        nearest.min_by_key(|it| it.0).map_or(1.0, |it| it.1)
    }

    /// The mode that is expected to be cheapest, or the one last chosen for such a message if that
    /// costs little more. Some tens of ns.
    pub(crate) fn cheapest(&mut self, it: &Outgoing) -> SendMode {
        let class = class_of(it.bytes);
        let Some((best, ns)) = cheapest(|mode| self.predict(mode, it)) else {
            return SendMode::Plain;
        };
        // A mode that this memory does not allow is passed by, and remembered.
        let last = self.chosen[class].and_then(|last| Some((last, self.predict(last, it)?)));
        match last {
            Some((last, before)) if ns >= before * (1.0 - MARGIN) => last,
            Some(_) => {
                self.chosen[class] = Some(best);
                best
            }
            None => {
                self.chosen[class].get_or_insert(best);
                best
            }
        }
    }

    /// The mode that would be cheapest if nothing were known of this machine.
    pub(crate) fn cheapest_elsewhere(&self, it: &Outgoing) -> SendMode {
        cheapest(|mode| self.priors.predict(mode, it)).map_or(SendMode::Plain, |best| best.0)
    }

    /// Forgets what was learned of the modes that do not copy, and what was chosen: the times of
    /// before say little of those to come. A copy costs what it did.
    pub(crate) fn forget_uncopied(&mut self) {
        for mode in SendMode::ALL.into_iter().filter(|mode| !mode.copies()) {
            self.known[mode as usize] = [Known::NOTHING; CLASSES];
        }
        self.chosen = [None; CLASSES];
    }
}

fn cheapest(cost: impl Fn(SendMode) -> Option<f64>) -> Option<(SendMode, f64)> {
    let known = SendMode::ALL.into_iter().filter_map(|mode| Some((mode, cost(mode)?)));
    known.min_by(|a, b| a.1.total_cmp(&b.1))
}

fn class_of(bytes: usize) -> usize {
    let bits = bytes.max(1).ilog2() + u32::from(!bytes.max(1).is_power_of_two());
    (bits.saturating_sub(FIRST_CLASS_BITS) as usize).min(CLASSES - 1)
}

#[cfg(test)]
mod tests;
