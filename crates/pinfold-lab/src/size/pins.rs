//! The budget of the pin-down cache: the library's own cache, replayed under each budget that the
//! limit allows.

use pinfold::translate::{
    SpaceId,
    pincache::{Area, Budget, BudgetError, Handle, PinCache, Pinner, Refused},
};

use super::trace::Trace;
use crate::models::pm::PAGE_BYTES;

/// A back end that pins nothing: only the cache's decisions are wanted.
struct Nothing;

impl Pinner for Nothing {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        Ok(Handle(area.start))
    }

    fn unpin(&mut self, _: Handle, _: Area) {}
}

/// Hits and misses of the messages that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages whose buffer was pinned.
    pub hits: u64,
    /// The others.
    pub misses: u64,
}

impl Counts {
    /// The part of hits, 0 to 1; 0 if there are no messages.
    pub fn hit_part(self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

/// The budget that is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    /// The least power of two, bytes, within the limit that has the fewest misses; 0: none has
    /// fewer than no cache.
    pub budget_bytes: u64,
    /// By part of the mix.
    pub counts: Vec<Counts>,
}

impl Pins {
    /// All misses.
    pub fn misses(&self) -> u64 {
        self.counts.iter().map(|counts| counts.misses).sum()
    }
}

/// Replays the messages of the parts that are `pinned`, under a budget. Says also if it never
/// lacked room.
fn replay(trace: &Trace, pinned: &[bool], bytes: u64) -> Result<(Vec<Counts>, bool), BudgetError> {
    let mut cache = PinCache::new(Nothing, Budget::of_bytes(bytes))?;
    let mut counts = vec![Counts::default(); pinned.len()];
    for (at, used) in trace.all.iter().enumerate().filter(|(_, used)| pinned[used.part]) {
        let hold = cache.begin(SpaceId(0), used.address, used.bytes);
        if at >= trace.filling() {
            let counts = &mut counts[used.part];
            let is_hit = hold.as_ref().is_ok_and(|hold| !hold.pinned());
            *(if is_hit { &mut counts.hits } else { &mut counts.misses }) += 1;
        }
        if let Ok(hold) = hold {
            cache.end(hold);
        }
    }
    let counters = cache.counters();
    Ok((counts, counters.evictions == 0 && counters.too_large == 0))
}

/// The budget for a trace, within a limit. Only powers of two are tried, so that all that a limit
/// allows a higher one allows, too.
///
/// # Errors
/// None for these budgets.
pub fn size(trace: &Trace, pinned: &[bool], limit_bytes: u64) -> Result<Pins, BudgetError> {
    let mut best = Pins { budget_bytes: 0, counts: vec![Counts::default(); pinned.len()] };
    for used in trace.all.iter().skip(trace.filling()).filter(|used| pinned[used.part]) {
        best.counts[used.part].misses += 1;
    }
    if best.misses() == 0 {
        return Ok(best);
    }
    let mut bytes = PAGE_BYTES;
    while bytes <= limit_bytes {
        let (counts, had_room) = replay(trace, pinned, bytes)?;
        let pins = Pins { budget_bytes: bytes, counts };
        if pins.misses() < best.misses() {
            best = pins;
        }
        if had_room {
            break;
        }
        bytes *= 2;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::{Used, testing::inputs};

    #[test]
    fn more_memory_never_has_more_misses_and_the_limit_holds() {
        for mix in ["64K:1", "16K:8,256K:1", "20000:5,1M:1,300K:2"] {
            let mut inputs = inputs(mix);
            inputs.peers = 40;
            let (trace, pinned) = (Trace::of(&inputs), vec![true; inputs.mix.len()]);
            let mut before = u64::MAX;
            for limit in (10..28).flat_map(|shift| [1u64 << shift, 3 << (shift - 1)]) {
                let pins = size(&trace, &pinned, limit).unwrap();
                assert!(pins.budget_bytes <= limit, "{pins:?}");
                assert!(pins.misses() <= before, "{mix} {limit}: {pins:?}, before {before}");
                before = pins.misses();
            }
            assert!(before < trace.all.len() as u64 / 2, "nothing ever hits: {before}");
        }
    }

    #[test]
    fn three_buffers_in_turn_need_room_for_three() {
        // Four pages each: 16 KiB hold one, 32 KiB two, of which the next is never one, 64 KiB all.
        let used = |at: u64| Used { part: 0, address: (at % 3) << 20, bytes: 16_384 };
        let trace = Trace { all: (0..60).map(used).collect(), buffers: 3 };
        for (limit, budget_bytes, misses) in [
            (4095, 0, 30),
            (16_384, 0, 30),
            (65_535, 0, 30),
            (65_536, 65_536, 0),
            (1 << 30, 65_536, 0),
        ] {
            let pins = size(&trace, &[true], limit).unwrap();
            assert_eq!((pins.budget_bytes, pins.misses()), (budget_bytes, misses), "{limit}");
        }
        let none = size(&trace, &[false], 1 << 30).unwrap();
        assert_eq!((none.budget_bytes, none.misses()), (0, 0));
    }
}
