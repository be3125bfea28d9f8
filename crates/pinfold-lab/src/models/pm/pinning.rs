//! PM's pin-down cache: the library's own, over a back end whose pins cost what Table 2 says.

use std::{cell::Cell, rc::Rc};

use pinfold::translate::{
    SpaceId,
    pincache::{
        Area, Budget, BudgetError, Evict, Handle, Lru, NoPin, PinCache, PinCounters, Pinner,
        Refused,
    },
};

use super::PAGE_BYTES;

/// A hit (Table 2), µs.
pub const HIT_US: f64 = 0.53;
/// A miss, whatever the length (Table 2), µs.
pub const MISS_US: f64 = 40.0;
/// A miss, for each page (Table 2), µs.
pub const MISS_PAGE_US: f64 = 7.0;
/// Pages that may be pinned (section 5: 1,024 entries, 4 MB).
pub const PAGES_MAX: u64 = 1024;

/// A miss of so many pages, µs.
pub fn miss_us(pages: u64) -> f64 {
    MISS_US + MISS_PAGE_US * pages as f64
}

/// The pages of so many bytes that begin with a page.
pub fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES)
}

/// A back end whose pins take virtual time.
#[derive(Debug, Default)]
struct Virtual {
    took_us: Rc<Cell<f64>>,
    /// True if an unpin costs what a pin does.
    unpins_cost: bool,
}

impl Virtual {
    fn take(&self, area: Area) {
        self.took_us.set(self.took_us.get() + miss_us(area.len() / PAGE_BYTES));
    }
}

impl Pinner for Virtual {
    fn page_bytes(&self) -> u64 {
        PAGE_BYTES
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        self.take(area);
        Ok(Handle(area.start))
    }

    fn unpin(&mut self, _handle: Handle, area: Area) {
        if self.unpins_cost {
            self.take(area);
        }
    }

    /// The page table of the interface has an entry for each page.
    fn slots(&self, area: Area) -> u32 {
        (area.len() / PAGE_BYTES) as u32
    }
}

/// A process's pin-down cache on virtual time.
pub struct Pinning<E = Lru> {
    cache: PinCache<Virtual, E>,
    took_us: Rc<Cell<f64>>,
}

impl Pinning {
    /// PM's: 1,024 pages, the least recently used area goes. `unpins_cost`: an unpin costs what a
    /// pin does, which the paper does not say.
    ///
    /// # Errors
    /// None for these limits.
    pub fn of_pm(unpins_cost: bool) -> Result<Pinning, BudgetError> {
        Pinning::new(PAGES_MAX, Lru::default(), unpins_cost)
    }
}

impl<E: Evict> Pinning<E> {
    /// A cache of so many pages and this policy.
    ///
    /// # Errors
    /// No pages.
    pub fn new(pages_max: u64, evict: E, unpins_cost: bool) -> Result<Pinning<E>, BudgetError> {
        Pinning::of_areas(pages_max, pages_max, evict, unpins_cost)
    }

    /// The same where no area has fewer than `pages_max / areas_max` pages: the cache has memory
    /// for so many areas, [`Budget::ENTRIES_MAX`] at most, and no more are pinned at a time.
    ///
    /// # Errors
    /// No areas.
    pub fn of_areas(
        pages_max: u64,
        areas_max: u64,
        evict: E,
        unpins_cost: bool,
    ) -> Result<Pinning<E>, BudgetError> {
        let took_us = Rc::new(Cell::new(0.0));
        let budget = Budget {
            bytes_max: pages_max.saturating_mul(PAGE_BYTES),
            entries_max: areas_max.min(Budget::ENTRIES_MAX.into()) as u32,
            slots_max: u32::try_from(pages_max).unwrap_or(u32::MAX),
            // PM looks for the very area (section 5).
            merge_growth_max: 0,
        };
        let pinner = Virtual { took_us: Rc::clone(&took_us), unpins_cost };
        Ok(Pinning { cache: PinCache::with_policy(pinner, budget, evict)?, took_us })
    }

    /// A transfer of so many bytes from an address on. Returns what the cache took, µs: a hit in
    /// any case, and the pins and unpins.
    ///
    /// # Errors
    /// The bytes are none, or more than the whole budget.
    pub fn transfer(&mut self, address: u64, bytes: u64) -> Result<f64, NoPin> {
        self.took_us.set(0.0);
        let is_hit = self.is_hit(address, bytes)?;
        Ok(if is_hit { HIT_US } else { self.took_us.get() })
    }

    /// The same; returns whether it was a hit.
    ///
    /// # Errors
    /// As [`Pinning::transfer`].
    pub fn is_hit(&mut self, address: u64, bytes: u64) -> Result<bool, NoPin> {
        let hold = self.cache.begin(SpaceId(0), address, bytes)?;
        let is_hit = !hold.pinned();
        self.cache.end(hold);
        Ok(is_hit)
    }

    /// The cache's counters.
    pub fn counters(&self) -> PinCounters {
        self.cache.counters()
    }
}

/// The cost of a mix of hits and misses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixed {
    /// The mean of a transfer, µs.
    pub mean_us: f64,
    /// The hits among the transfers that counted.
    pub hits: u64,
    /// The misses.
    pub misses: u64,
}

/// Runs `count` transfers of so many bytes through PM's cache, `hits` of each 100 of them of the
/// area before, the others of an area that is not pinned. The misses that fill the cache do not
/// count.
///
/// # Errors
/// The bytes are none, or more than the cache holds.
pub fn mixed(bytes: u64, hits: u64, count: u64, unpins_cost: bool) -> Result<Mixed, String> {
    let words = |why: &dyn std::fmt::Display| format!("a transfer of {bytes} bytes: {why}");
    let mut pinning = Pinning::of_pm(unpins_cost).map_err(|why| words(&why))?;
    let stride = pages(bytes) * PAGE_BYTES;
    let fill = PAGES_MAX / pages(bytes).max(1) + 1;
    // Areas one behind the other, more than the cache holds: of least recently used ones, the
    // next is never pinned.
    let areas = fill + 1;
    let mut area = 0;
    for _ in 0..fill {
        area += 1;
        pinning.transfer((area % areas) * stride, bytes).map_err(|why| words(&why))?;
    }
    let before = pinning.counters();
    let mut sum = 0.0;
    for at in 0..count {
        // Evenly spread: as many of the first n as their part of them.
        let is_hit = (at + 1) * hits / 100 > at * hits / 100;
        area += u64::from(!is_hit);
        sum += pinning.transfer((area % areas) * stride, bytes).map_err(|why| words(&why))?;
    }
    let after = pinning.counters();
    Ok(Mixed {
        mean_us: sum / count.max(1) as f64,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_of_three_pages() {
        let mut pinning = Pinning::of_pm(false).unwrap();
        // 8,193 bytes from a page's beginning are in three pages: 40 + 3 * 7.
        assert_eq!(pinning.transfer(0, 8193), Ok(61.0));
        assert_eq!(pinning.transfer(0, 8193), Ok(HIT_US));
        assert_eq!(pinning.transfer(4096, 1), Ok(HIT_US));
        // Two bytes over a page's end are in two pages.
        assert_eq!(pinning.transfer(5 * 4096 - 1, 2), Ok(54.0));
        assert_eq!(pinning.counters().pins, 2);
        assert_eq!(pinning.transfer(0, 4097 * 1024), Err(NoPin::TooLarge));
    }

    #[test]
    fn a_budget_may_have_more_pages_than_a_cache_has_areas() {
        // 8 GiB are 2^21 pages, and areas of 1 MiB fill them one by one.
        let mut pinning = Pinning::of_areas(1 << 21, 1 << 13, Lru::default(), false).unwrap();
        for at in 0..1 << 13 {
            assert_eq!(pinning.is_hit(at << 20, 1 << 20), Ok(false));
        }
        assert_eq!(pinning.counters().now.bytes, 8 << 30);
        assert_eq!(pinning.is_hit(0, 1 << 20), Ok(true));
        assert_eq!(pinning.is_hit(8 << 30, 1 << 20), Ok(false));
        assert_eq!(pinning.counters().evictions, 1);
        assert!(Pinning::new(1 << 21, Lru::default(), false).is_ok());
        assert!(Pinning::of_areas(1, 0, Lru::default(), false).is_err());
    }

    #[test]
    fn the_least_recently_used_area_goes_and_may_cost() {
        let mut pinning = Pinning::of_pm(true).unwrap();
        for at in 0..4 {
            // Four areas of 256 pages fill the 1,024 entries.
            assert_eq!(pinning.transfer(at << 20, 1 << 20), Ok(40.0 + 256.0 * 7.0));
        }
        assert_eq!(pinning.transfer(0, 1 << 20), Ok(HIT_US));
        assert_eq!(pinning.transfer(4 << 20, 1 << 20), Ok(2.0 * (40.0 + 256.0 * 7.0)));
        assert_eq!(pinning.transfer(0, 1 << 20), Ok(HIT_US));
        assert_eq!(pinning.transfer(1 << 20, 1 << 20), Ok(2.0 * (40.0 + 256.0 * 7.0)));
    }

    #[test]
    fn mixes_hit_as_often_as_they_are_to() {
        for hits in [0, 25, 50, 75, 100] {
            let mixed = mixed(8192, hits, 400, false).unwrap();
            assert_eq!((mixed.hits, mixed.misses), (4 * hits, 400 - 4 * hits), "{mixed:?}");
            let part = hits as f64 / 100.0;
            let expected = part * HIT_US + (1.0 - part) * 54.0;
            assert!((mixed.mean_us - expected).abs() < 1e-9, "{mixed:?}");
        }
    }
}
