//! Locking and pinning memory: `mlock(2)`, and buffers registered with an io_uring behind the
//! library's pin-down cache.

use pinfold::translate::{
    SpaceId,
    pincache::{Area, Budget, Handle, PinCache, PinCounters, Pinner, Refused},
};
use pinfold_sys::mem::pin::{Locked, Pin, Registered, Slot};

use super::{
    copying::{cached, copy},
    memory::{Block, PAGE_BYTES, check},
    timing::{median_cycles, median_ns},
};

/// Frames that are locked in one turn, one behind the other in memory.
const FRAMES: usize = 32;
/// The space of all areas here.
const SPACE: SpaceId = SpaceId(0);

/// The costs of a frame, cycles of the time stamp counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LockCost {
    /// Locking its pages.
    pub lock: f64,
    /// Copying its bytes within the cache.
    pub copy: f64,
    /// Unlocking its pages.
    pub unlock: f64,
}

/// Locks, copies and unlocks frames of so many bytes, `turns` times.
///
/// # Errors
/// Memory cannot be locked, or a byte came out wrong; in words.
pub fn lock_cost(bytes: usize, turns: usize) -> Result<LockCost, String> {
    let locked = Locked::new().map_err(|why| why.to_string())?;
    let from = Block::new(FRAMES * bytes, 3);
    let mut to = Block::new(bytes, 4);
    let start = from.address();
    let frame = |at: usize| start + at * bytes..start + (at + 1) * bytes;
    let mut slots: Vec<Slot> = Vec::new();
    let (mut locks, mut unlocks) = (Vec::new(), Vec::new());
    let clock = pinfold_sys::cpu::clock::ticks;
    for _ in 0..turns.max(1) {
        let mut act = |at| locked.pin(frame(at)).map(|slot| slots.push(slot));
        let before = clock();
        (0..FRAMES).try_for_each(&mut act).map_err(|why| why.to_string())?;
        locks.push(clock().saturating_sub(before) as f64 / FRAMES as f64);
        let before = clock();
        let mut all = slots.drain(..);
        all.try_for_each(|slot| locked.unpin(slot)).map_err(|why| why.to_string())?;
        unlocks.push(clock().saturating_sub(before) as f64 / FRAMES as f64);
    }
    let copied = median_cycles(turns, FRAMES, |at| {
        copy(cached(), &from.get()[at * bytes..(at + 1) * bytes], to.get_mut());
        Ok::<(), String>(())
    })?;
    check(to.get(), (FRAMES - 1) * bytes, 3)?;
    let median = super::timing::median;
    Ok(LockCost { lock: median(&mut locks), copy: copied, unlock: median(&mut unlocks) })
}

/// The back end of a pin-down cache that registers buffers with a ring.
struct Ring {
    ring: Registered,
    slots: Vec<Option<Slot>>,
}

impl Pinner for Ring {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES as u64
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        let slot = self.ring.pin(area.start as usize..area.end as usize);
        let slot = slot.map_err(|_| Refused::NoMemory)?;
        let at = slot.index() as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        self.slots[at] = Some(slot);
        Ok(Handle(at as u64))
    }

    fn unpin(&mut self, handle: Handle, _area: Area) {
        if let Some(slot) = self.slots.get_mut(handle.0 as usize).and_then(Option::take) {
            // Only a slot of another ring is refused.
            let _ = self.ring.unpin(slot);
        }
    }
}

/// The costs of the library's pin-down cache over registered buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheCost {
    /// A transfer whose area is pinned, ns.
    pub hit_ns: f64,
    /// One whose area takes the place of another, ns: pinning and unpinning.
    pub miss_ns: f64,
    /// The counters of the cache that missed.
    pub counters: PinCounters,
}

/// Measures hits and misses of areas of so many pages: of a cache with room for one area, two areas
/// in turns always miss.
///
/// # Errors
/// Buffers cannot be registered here, or not so large ones, or the cache has counted something
/// else; in words.
pub fn cache_cost(pages: usize, turns: usize, calls: usize) -> Result<CacheCost, String> {
    let bytes = (pages * PAGE_BYTES) as u64;
    let budget = Budget { entries_max: 1, merge_growth_max: 0, ..Budget::of_bytes(bytes) };
    let ring = Registered::new(2).map_err(|why| why.to_string())?;
    let pinner = Ring { ring, slots: Vec::new() };
    let mut cache = PinCache::new(pinner, budget).map_err(|why| why.to_string())?;
    let block = Block::new(2 * pages * PAGE_BYTES, 5);
    let start = block.address() as u64;
    let mut transfer = |at: u64| {
        let hold = cache.begin(SPACE, start + at * bytes, bytes).map_err(|why| why.to_string())?;
        cache.end(hold);
        Ok::<(), String>(())
    };
    let hit_ns = median_ns(turns, calls, |_| transfer(0))?;
    let miss_ns = median_ns(turns, calls, |call| transfer(call as u64 % 2))?;
    let counters = cache.counters();
    check(block.get(), 0, 5)?;
    let all = (turns + 1) * calls;
    // Two transfers are of the other kind: the very first, and the first one of the second area's
    // turns, whose area is there.
    if counters.hits + counters.misses != 2 * all as u64 || counters.evictions < all as u64 - 1 {
        return Err(format!("the cache has counted {counters:?} in {all} hits and as many misses"));
    }
    Ok(CacheCost { hit_ns, miss_ns, counters })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_made_and_ended() {
        // Where nothing may be locked, the reason is in words.
        match lock_cost(520, 2) {
            Ok(cost) => {
                assert!(cost.lock > 0.0 && cost.copy > 0.0 && cost.unlock > 0.0, "{cost:?}")
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }

    #[test]
    fn a_cache_of_one_area_misses_two_in_turns() {
        match cache_cost(2, 3, 8) {
            Ok(cost) => {
                // One pin for the first transfer, then one for each change of the area: 4 turns of
                // 8 calls, of which the first call is of the area that is there.
                assert_eq!(cost.counters.pins, 1 + 4 * 8 - 1, "{cost:?}");
                assert_eq!(cost.counters.now.entries, 1, "{cost:?}");
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
