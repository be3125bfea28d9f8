//! The cost model: the expected time of a message before any was sent.

use serde::{Deserialize, Serialize};

use super::Path;

/// One way, inline: a descriptor and a hop between two cores. Not measured, since no other path
/// comes close.
const INLINE_NS: f64 = 60.0;

/// One way, handed off: an announcement and a hop, whatever the size. Not measured either: only the
/// caller chooses it.
const HANDOFF_NS: f64 = 120.0;

/// A cost that grows evenly with size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The cost of an empty message, nanoseconds.
    pub base_ns: f64,
    /// The cost of each further byte, nanoseconds.
    pub ns_per_byte: f64,
}

impl Line {
    /// The cost of `len` bytes, nanoseconds; at least 1, also where the constants make no sense.
    #[inline]
    pub fn at(self, len: u64) -> f64 {
        // `max` prefers a number to NaN.
        (self.base_ns + self.ns_per_byte * len as f64).max(1.0)
    }

    /// Returns whether a machine could have these costs.
    pub fn is_plausible(self) -> bool {
        (1.0..=1e6).contains(&self.base_ns) && (1e-3..=100.0).contains(&self.ns_per_byte)
    }
}

/// The expected time of a message, one way, by path and length.
///
/// The defaults suit a present-day server or virtual machine. A measurement of this machine gives
/// better ones, and the times of transfers correct either; a model only has to be good enough that
/// the first choices are not bad ones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostModel {
    /// [`Path::Eager`]: a hop between the cores, and two copies that overlap.
    pub eager: Line,
    /// [`Path::Cma`]: a system call and its handshake, and a copy with a look-up for each page.
    pub cma: Line,
    /// [`Path::Mapped`]: an announcement, an answer, and a copy out of another core's cache.
    pub mapped: Line,
}

impl CostModel {
    /// The costs to assume where nothing was measured: eager and cma cross at 39,200 bytes.
    pub const DEFAULT: CostModel = CostModel {
        eager: Line { base_ns: 120.0, ns_per_byte: 0.10 },
        cma: Line { base_ns: 1100.0, ns_per_byte: 0.075 },
        mapped: Line { base_ns: 350.0, ns_per_byte: 0.05 },
    };

    /// The expected time of a message of `len` bytes over `path`, nanoseconds; at least 1.
    #[inline]
    pub fn predict(&self, path: Path, len: u64) -> f64 {
        match path {
            Path::Inline => INLINE_NS,
            Path::Eager => self.eager.at(len),
            Path::Cma => self.cma.at(len),
            Path::Mapped => self.mapped.at(len),
            Path::Handoff => HANDOFF_NS,
        }
    }

    /// Returns whether a machine could have these costs.
    pub fn is_plausible(&self) -> bool {
        [self.eager, self.cma, self.mapped].into_iter().all(Line::is_plausible)
    }
}

impl Default for CostModel {
    fn default() -> CostModel {
        CostModel::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_crosses_where_it_says() {
        let model = CostModel::default();
        assert!(model.is_plausible());
        assert!(model.predict(Path::Eager, 39_000) < model.predict(Path::Cma, 39_000));
        assert!(model.predict(Path::Eager, 39_400) > model.predict(Path::Cma, 39_400));
        assert!(model.predict(Path::Inline, 56) < model.predict(Path::Eager, 0));
    }

    #[test]
    fn senseless_constants_give_a_number() {
        for base_ns in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0] {
            for ns_per_byte in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
                let line = Line { base_ns, ns_per_byte };
                assert!(!line.is_plausible());
                for len in [0, 1, 1 << 20, u64::MAX] {
                    assert!(line.at(len) >= 1.0, "{line:?} {len}");
                }
            }
        }
    }

    #[test]
    fn json_keeps_the_model() {
        let text = serde_json::to_string(&CostModel::DEFAULT).unwrap();
        assert_eq!(serde_json::from_str::<CostModel>(&text).unwrap(), CostModel::DEFAULT);
    }
}
