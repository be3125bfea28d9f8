//! The TLB of a network interface: the library's own, in the shape of U-Net/MM's, with any number
//! of entries.

use pinfold::translate::{
    Rights, SpaceId,
    tlb::{Geometry, GeometryError, Lookup, Tlb},
};

use super::trace::Trace;

/// Misses, % of the look-ups that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Misses {
    /// Of pages that were never looked up before: no TLB has them.
    pub compulsory: f64,
    /// The others.
    pub other: f64,
}

/// Groups of pages whose first use is known: more than a trace has.
const GROUPS: usize = 1 << 19;

/// The misses of a trace with so many entries, a power of two, and the victim list of the paper.
///
/// # Errors
/// There is no such TLB.
pub fn misses(trace: &Trace, entries: usize) -> Result<Misses, GeometryError> {
    let shape = Geometry { sets: entries, history_groups_max: GROUPS, ..Geometry::default() };
    let mut tlb: Tlb<u64> = Tlb::new(shape)?;
    let mut before = *tlb.counters();
    for (at, used) in trace.all.iter().enumerate() {
        if at == trace.filling() {
            before = *tlb.counters();
        }
        for page in used.pages() {
            if let Lookup::Miss = tlb.look_up(SpaceId(0), page, Rights::ReadWrite) {
                let _ = tlb.insert(SpaceId(0), page, Rights::ReadWrite, page);
            }
        }
    }
    let after = tlb.counters();
    let percent = 100.0 / (after.look_ups() - before.look_ups()).max(1) as f64;
    let compulsory = after.misses_compulsory - before.misses_compulsory;
    let all = after.misses() - before.misses();
    Ok(Misses {
        compulsory: compulsory as f64 * percent,
        other: (all - compulsory) as f64 * percent,
    })
}

/// The number of entries, a power of two, that has fewer misses than so many per cent, or none,
/// while half of it has more; compulsory ones do not count. `None` if no TLB is large enough.
/// Found by bisection: some five replays.
///
/// # Errors
/// None for these numbers.
pub fn wanted(trace: &Trace, percent: f64) -> Result<Option<(usize, Misses)>, GeometryError> {
    let is_enough = |found: &Misses| found.other < percent || found.other == 0.0;
    let (mut low, mut high) = (0, Geometry::SETS_MAX.ilog2());
    let mut best = misses(trace, 1 << high)?;
    if !is_enough(&best) {
        return Ok(None);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let found = misses(trace, 1 << middle)?;
        if is_enough(&found) {
            (high, best) = (middle, found);
        } else {
            low = middle + 1;
        }
    }
    Ok(Some((1 << high, best)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::{Used, testing::inputs};

    #[test]
    fn a_loop_needs_entries_for_its_pages_beyond_the_victims() {
        // 32 entries and 16 victims hold 48 of 64 pages: at least each fourth misses.
        let used = |at: u64| Used { part: 0, address: (at % 64) * 4096, bytes: 4096 };
        let trace = Trace { all: (0..640).map(used).collect(), buffers: 64 };
        let (entries, found) = wanted(&trace, 1.0).unwrap().unwrap();
        assert_eq!((entries, found), (64, Misses::default()));
        assert!(misses(&trace, 32).unwrap().other >= 25.0);
    }

    #[test]
    fn a_stricter_figure_never_wants_fewer_entries() {
        let mut inputs = inputs("16K:2,64K:1");
        inputs.peers = 32;
        let trace = Trace::of(&inputs);
        let mut before = usize::MAX;
        for percent in [0.0, 0.1, 1.0, 10.0, 50.0, 100.0] {
            let (entries, found) = wanted(&trace, percent).unwrap().unwrap();
            assert!(entries <= before, "{percent}: {entries}");
            assert!(found.other < percent || found.other == 0.0, "{percent}: {found:?}");
            before = entries;
        }
        assert!(before < 1024, "{before}");
    }

    #[test]
    fn buffers_that_are_never_used_again_miss_and_no_tlb_helps() {
        let mut inputs = inputs("4K:1");
        inputs.reuse_percent = 0;
        let trace = Trace::of(&inputs);
        let found = Misses { compulsory: 100.0, other: 0.0 };
        assert_eq!(wanted(&trace, 1.0).unwrap(), Some((1, found)));
    }
}
