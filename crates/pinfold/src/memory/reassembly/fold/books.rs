//! The ranges of the window that are taken, and the number of mappings. No I/O.
//!
//! Invariant: `maps_left` and the mappings of all ranges that are taken or lost are `maps_max`.

use std::ops::Range;

use super::{
    super::{
        HUGE_PAGES, PAGE_BYTES,
        window::{DefaultWindows, Windows},
    },
    receipt::Why,
};

/// A range of the window that a message has. Comes from [`Books::take`] and goes back once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lodging {
    /// Byte offsets in the window.
    pub(super) bytes: Range<usize>,
    area: usize,
    page: u32,
    maps: u32,
}

impl Lodging {
    /// Returns whether the range is in the half for huge pages.
    pub(super) fn is_huge(&self) -> bool {
        self.area == 1
    }
}

/// The window in two areas of the same length, one for messages with huge pages: where small pages
/// once were, the kernel keeps a table for them, and splits huge pages that come there.
#[derive(Debug)]
pub(super) struct Books {
    areas: [DefaultWindows; 2],
    area_bytes: usize,
    maps_left: u32,
    pub(super) live: u32,
    pub(super) lost_pages: u32,
}

/// Mappings that a range takes, and each mapped part in it: each may split the mapping around it in
/// two.
const MAPS: u32 = 2;

impl Books {
    /// A window of so many bytes, and so many mappings.
    pub(super) fn new(bytes: usize, maps_max: u32) -> Books {
        let area_bytes = bytes / 2;
        let area = || DefaultWindows::new((area_bytes / PAGE_BYTES) as u32);
        Books { areas: [area(), area()], area_bytes, maps_left: maps_max, live: 0, lost_pages: 0 }
    }

    /// Parts of a message that may be mapped, at most.
    pub(super) fn parts_max(&self) -> u32 {
        self.maps_left.saturating_sub(MAPS) / MAPS
    }

    pub(super) fn maps_left(&self) -> u32 {
        self.maps_left
    }

    /// Takes addresses for so many bytes, of which `parts` parts will be mapped.
    pub(super) fn take(&mut self, bytes: u64, huge: bool, parts: u32) -> Result<Lodging, Why> {
        let wanted = parts.saturating_add(1).saturating_mul(MAPS);
        let maps = self.maps_left.checked_sub(wanted);
        let maps = maps.ok_or(Why::NoMaps { wanted, left: self.maps_left })?;
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES as u64)).unwrap_or(u32::MAX);
        let (area, align) = if huge { (1, HUGE_PAGES) } else { (0, 1) };
        let page = self.areas[area].alloc(pages, align).map_err(Why::Full)?;
        self.maps_left = maps;
        self.live += 1;
        let start = area * self.area_bytes + page as usize * PAGE_BYTES;
        let bytes = start..start + pages as usize * PAGE_BYTES;
        Ok(Lodging { bytes, area, page, maps: wanted })
    }

    /// Gives addresses back.
    pub(super) fn give(&mut self, lodging: Lodging) {
        let freed = self.areas[lodging.area].free(lodging.page);
        debug_assert!(freed.is_ok(), "ranges come back once: {freed:?}");
        self.maps_left += lodging.maps;
        self.live -= 1;
    }

    /// Notes that addresses are never to be used again, nor the mappings there.
    pub(super) fn lose(&mut self, lodging: Lodging) {
        self.lost_pages += (lodging.bytes.len() / PAGE_BYTES) as u32;
        self.live -= 1;
    }

    /// Pages of the window that messages have.
    pub(super) fn pages(&self) -> u32 {
        self.areas.iter().map(|area| area.count().taken).sum::<u32>() - self.lost_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_mappings_come_back() {
        let huge = HUGE_PAGES as usize * PAGE_BYTES;
        let mut books = Books::new(4 * huge, 10);
        assert_eq!(books.parts_max(), 4);
        let one = books.take(5000, false, 0).unwrap();
        assert_eq!((one.bytes.clone(), one.is_huge()), (0..8192, false));
        let two = books.take(huge as u64 + 1, true, 2).unwrap();
        assert_eq!((two.bytes.clone(), two.is_huge()), (2 * huge..3 * huge + 4096, true));
        assert_eq!((books.maps_left(), books.parts_max(), books.live), (2, 0, 2));
        assert_eq!(books.take(1, false, 1), Err(Why::NoMaps { wanted: 4, left: 2 }));
        assert!(matches!(books.take(1, true, 0), Err(Why::Full(_))));
        assert_eq!((books.maps_left(), books.pages()), (2, 2 + 513));
        books.give(one);
        books.lose(two);
        assert_eq!((books.maps_left(), books.pages(), books.lost_pages), (4, 0, 513));
        assert!(matches!(books.take(1, true, 0), Err(Why::Full(_))));
        assert!(books.take(u64::MAX, false, 0).is_err());
    }
}
