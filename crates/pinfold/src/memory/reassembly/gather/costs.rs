//! The costs of moving, mapping and copying.

use serde::{Deserialize, Serialize};

/// Expected costs on this machine, nanoseconds.
///
/// A way that cannot be used here costs [`Costs::UNKNOWN`]. Nor is a way used of which a cost is
/// negative, infinite or no number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// One call that moves pages, however many.
    pub move_call_ns: f64,
    /// Each page of 4 KiB that it moves.
    pub move_page_ns: f64,
    /// The same where it moves [few](Costs::FEW_PAGES): the processor then drops the old
    /// translation of each by itself, and otherwise all at once.
    pub move_few_page_ns: f64,
    /// Each huge page that it moves as such.
    pub move_huge_ns: f64,
    /// One call that maps a part of a file, and taking it away again.
    pub map_call_ns: f64,
    /// Each page that is mapped and read for the first time, be it of 4 KiB or a huge one.
    pub map_page_ns: f64,
    /// Each page that appears because it is written to for the first time.
    pub fault_ns: f64,
    /// Each byte copied.
    pub copy_byte_ns: f64,
}

impl Costs {
    /// The costs assumed where nothing was measured: a present-day virtual machine, Linux 6.18.
    /// Moving pays from 3 pages in a row on.
    pub const DEFAULT: Costs = Costs {
        move_call_ns: 950.0,
        move_page_ns: 130.0,
        move_few_page_ns: 130.0,
        move_huge_ns: 650.0,
        map_call_ns: 1500.0,
        map_page_ns: 100.0,
        fault_ns: 250.0,
        copy_byte_ns: 0.066,
    };

    /// So many pages are few: `tlb_single_page_flush_ceiling` of Linux on x86.
    pub const FEW_PAGES: u64 = 33;

    /// The cost of a way that cannot be used; JSON can hold it, too.
    pub const UNKNOWN: f64 = -1.0;

    /// Costs with which only copying is possible.
    pub const COPY_ONLY: Costs =
        Costs { move_call_ns: Costs::UNKNOWN, map_call_ns: Costs::UNKNOWN, ..Costs::DEFAULT };

    /// Returns whether plans can use moving.
    pub fn knows_moving(&self) -> bool {
        let page = [self.move_page_ns, self.move_few_page_ns];
        known(&[self.move_call_ns, self.move_huge_ns]) && known(&page)
    }

    /// Returns whether plans can use mapping.
    pub fn knows_mapping(&self) -> bool {
        known(&[self.map_call_ns, self.map_page_ns])
    }

    /// To copy `len` bytes which touch `pages` pages that are not there yet.
    pub(super) fn copy(&self, len: u64, pages: u64) -> f64 {
        sane(self.copy_byte_ns) * len as f64 + sane(self.fault_ns) * pages as f64
    }

    /// To move so many pages and huge pages by one call.
    pub(in super::super) fn moving(&self, pages: u64, huge: u64) -> f64 {
        let few = pages <= Costs::FEW_PAGES;
        let page_ns = if few { self.move_few_page_ns } else { self.move_page_ns };
        self.move_call_ns + page_ns * pages as f64 + self.move_huge_ns * huge as f64
    }

    pub(super) fn mapping(&self, pages: u64) -> f64 {
        self.map_call_ns + self.map_page_ns * pages as f64
    }
}

impl Default for Costs {
    fn default() -> Costs {
        Costs::DEFAULT
    }
}

fn known(costs: &[f64]) -> bool {
    costs.iter().all(|cost| cost.is_finite() && *cost >= 0.0)
}

/// Copying is always possible, so an unknown cost of it counts as 0; then all is copied.
fn sane(cost: f64) -> f64 {
    if known(&[cost]) { cost } else { 0.0 }
}
