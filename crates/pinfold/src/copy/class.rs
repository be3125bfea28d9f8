//! The distance between two cores during a measurement. No I/O.
//!
//! A virtual machine's cores move. A run that is bound by cache coherence takes three to five times
//! longer when they are far apart, so every timed run is bracketed by a probe of the cache-line
//! hop, and only runs of the same class are compared.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Hops below this many nanoseconds are near.
pub const NEAR_BELOW_NS: f64 = 80.0;
/// Hops from this many nanoseconds on are far; between the two it is neither.
pub const FAR_FROM_NS: f64 = 120.0;

/// The distance between two cores before and after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Near before and after.
    Near,
    /// Far before and after.
    Far,
    /// It changed meanwhile, or was between the two.
    Mixed,
}

impl Class {
    /// Every class, best first.
    pub const ALL: [Class; 3] = [Class::Near, Class::Far, Class::Mixed];

    /// The class of a run between two hops that took this many nanoseconds.
    pub fn of(before_ns: f64, after_ns: f64) -> Class {
        if before_ns < NEAR_BELOW_NS && after_ns < NEAR_BELOW_NS {
            Class::Near
        } else if before_ns >= FAR_FROM_NS && after_ns >= FAR_FROM_NS {
            Class::Far
        } else {
            Class::Mixed
        }
    }

    /// The name that tables and records use.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Near => "near",
            Class::Far => "far",
            Class::Mixed => "mixed",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        assert_eq!(Class::of(45.0, 55.0), Class::Near);
        assert_eq!(Class::of(79.9, 79.9), Class::Near);
        assert_eq!(Class::of(165.0, 120.0), Class::Far);
        assert_eq!(Class::of(1e6, 200.0), Class::Far);
        assert_eq!(Class::of(45.0, 165.0), Class::Mixed);
        assert_eq!(Class::of(165.0, 45.0), Class::Mixed);
        assert_eq!(Class::of(100.0, 100.0), Class::Mixed);
        assert_eq!(Class::of(80.0, 45.0), Class::Mixed);
    }

    #[test]
    fn names_match_the_records() {
        for class in Class::ALL {
            assert_eq!(serde_json::to_string(&class).unwrap(), format!("\"{class}\""));
        }
    }
}
