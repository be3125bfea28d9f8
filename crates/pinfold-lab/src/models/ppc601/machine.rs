//! Accesses of the 601: translation, cache, memory.

use super::{
    BITMAP_AT, BITMAP_BYTES, CACHE, ITLB, PAGE_BYTES, Parameters, TABLE_AT, TABLE_BYTES, UTLB,
    page_table::{GROUP, GROUP_BYTES, PageTable},
};
use crate::models::{
    cache::{Access, Cache},
    sets::Sets,
};

/// A TLB: for each page the frame that a walk found.
#[derive(Clone, Debug)]
pub struct Translations(Sets<u32>);

impl Translations {
    /// An empty one of so many sets and ways; `sets` has to be a power of two, else it is rounded
    /// up.
    pub fn new((sets, ways): (usize, usize)) -> Translations {
        Translations(Sets::new(sets, ways))
    }

    /// The frame of a page. The least recently used page of the set makes room for it if it was not
    /// there, and `walk` finds it.
    pub fn look_up(&mut self, page: u64, walk: impl FnOnce() -> u32) -> u32 {
        if let Some(frame) = self.0.touch(page) {
            return *frame;
        }
        let frame = walk();
        self.0.fill(page, frame);
        frame
    }

    fn flush(&mut self) {
        self.0.clear();
    }
}

/// The memory that the first-level cache is used for (section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// Code, data and stack: supervisor space.
    pub supervisor: bool,
    /// The page table and the bitmap: page table space.
    pub page_table: bool,
}

impl From<bool> for Caching {
    /// All memory, or none.
    fn from(all: bool) -> Caching {
        Caching { supervisor: all, page_table: all }
    }
}

impl Caching {
    /// Returns whether the line at a real address is cached.
    fn is_cached(self, address: u64) -> bool {
        let table = TABLE_AT..TABLE_AT + TABLE_BYTES;
        let bitmap = BITMAP_AT..BITMAP_AT + BITMAP_BYTES;
        if table.contains(&address) || bitmap.contains(&address) {
            self.page_table
        } else {
            self.supervisor
        }
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its parameters.
    pub with: Parameters,
    /// The page table.
    pub table: PageTable,
    cache: Cache,
    caching: Caching,
    utlb: Translations,
    itlb: Translations,
    cycles: u64,
    walks: u64,
}

impl Machine {
    /// One whose memory is mapped as it is, in segment 0.
    pub fn new(with: Parameters, caching: impl Into<Caching>) -> Machine {
        let caching = caching.into();
        let mut table = PageTable::new(TABLE_BYTES);
        for page in 0..super::MEMORY_BYTES / PAGE_BYTES {
            // Cannot fail: two pages of memory share a group of eight.
            let _ = table.insert(0, page as u16, page as u32);
        }
        let cache = Cache::new(CACHE.0, CACHE.1, CACHE.2);
        let (utlb, itlb) = (Translations::new(UTLB), Translations::new(ITLB));
        Machine { with, table, cache, caching, utlb, itlb, cycles: 0, walks: 0 }
    }

    /// Empties cache and TLBs and begins to count.
    pub fn flush(&mut self) {
        self.cache.flush();
        self.utlb.flush();
        self.itlb.flush();
        (self.cycles, self.walks) = (0, 0);
    }

    /// The time since the last flush, µs.
    pub fn us(&self) -> f64 {
        self.cycles as f64 / self.with.mhz
    }

    /// Walks through the page table since the last flush.
    pub fn walks(&self) -> u64 {
        self.walks
    }

    /// Instructions of code at an address, one behind the other, `turns` times.
    pub fn execute(&mut self, code: u64, count: u64, turns: u64) {
        self.cycles += count * turns * self.with.instruction;
        let lines = code / 64..(code + 4 * count).div_ceil(64);
        for line in lines {
            self.translate(line * 64, true);
            if self.caching.supervisor {
                self.line(line * 64, false);
            }
        }
        if !self.caching.supervisor {
            // A bus of 8 bytes brings two instructions at a time.
            self.cycles += count.div_ceil(2) * turns * self.with.single;
        }
    }

    /// Reads or writes `count` words behind an address, all in one line.
    pub fn words(&mut self, address: u64, count: u64, writes: bool) {
        self.translate(address, false);
        if self.caching.is_cached(address) {
            self.line(address, writes);
        } else {
            self.cycles += count * self.with.single;
        }
    }

    /// An access to a line by its real address.
    fn line(&mut self, address: u64, writes: bool) {
        self.cycles += match self.cache.access(address, writes) {
            Access::Hit => 0,
            Access::Miss => self.with.fetch,
            Access::WriteBack(_) => self.with.fetch + self.with.write_back,
        };
    }

    fn translate(&mut self, address: u64, is_code: bool) {
        let page = address / PAGE_BYTES;
        let (table, mut walked) = (&self.table, None);
        let walk = || match table.find((page >> 16) as u32, page as u16) {
            Ok((found, frame)) => {
                walked = Some(found);
                frame
            }
            // A page that is not mapped faults; no benchmark touches one.
            Err(_) => 0,
        };
        if is_code {
            let utlb = &mut self.utlb;
            self.itlb.look_up(page, || utlb.look_up(page, walk));
        } else {
            self.utlb.look_up(page, walk);
        }
        let Some(found) = walked else { return };
        self.walks += 1;
        // A page that is here by the second hash was looked for in the first one's group before.
        let first = self.table.group((page >> 16) as u32, page as u16, false);
        let behind = found.looked.saturating_sub(GROUP as u32);
        let groups = [(first, found.looked - behind), (found.group, behind)];
        for (group, looked) in groups.into_iter().filter(|group| group.1 > 0) {
            self.cycles += u64::from(looked);
            if self.caching.page_table {
                self.line(TABLE_AT + u64::from(group) * GROUP_BYTES, false);
            } else {
                self.cycles += u64::from(looked) * self.with.single;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::PAPER, *};

    #[test]
    fn three_pages_of_a_set_are_too_many_for_two_ways() {
        let mut utlb = Translations::new(UTLB);
        let mut walks = 0;
        // Pages 128 apart are of one set.
        for page in [0, 128, 0, 256, 128, 1] {
            assert_eq!(
                utlb.look_up(page, || {
                    walks += 1;
                    page as u32 + 7
                }),
                page as u32 + 7
            );
        }
        // 256 takes the place of 128, which has to be looked up again.
        assert_eq!(walks, 5);
    }

    #[test]
    fn an_access_costs_walk_fetch_and_write_back() {
        let mut machine = Machine::new(PAPER, true);
        machine.flush();
        machine.words(0, 16, true);
        // The walk looks at one entry and fetches its group's line; then comes the line itself.
        assert_eq!((machine.cycles, machine.walks()), (1 + 48 + 48, 1));
        machine.words(4, 1, false);
        assert_eq!(machine.cycles, 97);
        // Eight lines of the same set drive out the dirty one.
        for at in 1..=8 {
            machine.words(at * 4096, 1, false);
        }
        let walks = machine.walks();
        assert_eq!(walks, 9);
        // The walks' groups are neighbours, all in the set of the table's beginning and one more.
        assert!(machine.cycles >= 97 + 8 * 48 + 37, "{}", machine.cycles);
    }

    #[test]
    fn a_page_by_the_second_hash_costs_both_groups() {
        let mut machine = Machine::new(PAPER, true);
        let (space, page) = (3u32, 0x1234);
        // Two pages of memory are in the page's first group; six of other spaces fill it.
        for other in 1..=6 {
            let put = machine.table.insert(space ^ other << 13, page, other).unwrap();
            assert!(!put.secondary);
        }
        // The second group has two pages of memory as well, so this is its third entry.
        let put = machine.table.insert(space, page, 7).unwrap();
        assert_eq!((put.secondary, put.looked), (true, 11));
        machine.flush();
        machine.words((u64::from(space) << 16 | u64::from(page)) << 12, 1, false);
        // Eleven entries in the lines of two groups, and the line itself.
        assert_eq!((machine.cycles, machine.walks()), (11 + 3 * 48, 1));
    }

    #[test]
    fn each_space_is_cached_or_not() {
        let kernel = Caching { supervisor: true, page_table: false };
        let mut machine = Machine::new(PAPER, kernel);
        machine.flush();
        // The walk looks at one entry, which is not cached; the line is.
        machine.words(0, 16, true);
        assert_eq!(machine.cycles, 1 + 18 + 48);
        machine.words(BITMAP_AT, 2, false);
        assert_eq!(machine.cycles, 67 + 1 + 18 + 2 * 18);
        let table = Caching { supervisor: false, page_table: true };
        let mut machine = Machine::new(PAPER, table);
        machine.flush();
        machine.words(BITMAP_AT, 2, false);
        assert_eq!(machine.cycles, 1 + 48 + 48);
        // The page behind the bitmap is data; the entry of its walk is beside the other's group.
        machine.words(BITMAP_AT + BITMAP_BYTES, 2, false);
        assert_eq!(machine.cycles, 97 + 1 + 48 + 2 * 18);
    }

    #[test]
    fn without_cache_each_word_is_an_access() {
        let mut machine = Machine::new(PAPER, false);
        machine.flush();
        machine.words(0, 16, true);
        assert_eq!(machine.cycles, 1 + 18 + 16 * 18);
        machine.execute(0x1000, 3, 10);
        // A walk that finds page 1 as the first of its group, 30 instructions, 2 fetches a turn.
        assert_eq!(machine.cycles, 307 + 30 + 19 + 20 * 18);
    }
}
