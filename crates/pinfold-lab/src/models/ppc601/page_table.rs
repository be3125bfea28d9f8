//! The PowerPC's hashed page table (*PowerPC 601 RISC Microprocessor User's Manual*, chapter 6).

/// Entries of a group.
pub const GROUP: usize = 8;
/// Bytes of a group.
pub const GROUP_BYTES: u64 = 64;
/// Groups of the smallest table, which needs no bits of SDR1's mask.
const GROUPS_MIN: u32 = 1 << 10;
/// Bits of the hash.
const HASH_MASK: u32 = (1 << 19) - 1;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    vsid: u32,
    page: u16,
    secondary: bool,
    frame: u32,
}

/// The place where a page is found or put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The group.
    pub group: u32,
    /// The entry in its group.
    pub slot: usize,
    /// True if the second hash led there.
    pub secondary: bool,
    /// Entries that were looked at, that one included.
    pub looked: u32,
}

/// A hashed page table.
#[derive(Clone, Debug)]
pub struct PageTable {
    groups: Vec<[Option<Entry>; GROUP]>,
    /// SDR1's mask, and the ten bits that are always used.
    mask: u32,
}

impl PageTable {
    /// An empty one of so many bytes: a power of two, at least 64 KB, else it is rounded up.
    pub fn new(bytes: u64) -> PageTable {
        let groups = (bytes / GROUP_BYTES).next_power_of_two().max(u64::from(GROUPS_MIN)) as usize;
        PageTable { groups: vec![[None; GROUP]; groups], mask: groups as u32 - 1 }
    }

    /// The group that the first or second hash of a page leads to.
    pub fn group(&self, vsid: u32, page: u16, secondary: bool) -> u32 {
        let hash = (vsid & HASH_MASK) ^ u32::from(page);
        (if secondary { !hash } else { hash }) & HASH_MASK & self.mask
    }

    /// The first entry that `is` what is looked for, in the order of the hardware.
    fn search(
        &self,
        vsid: u32,
        page: u16,
        is: impl Fn(&Option<Entry>, bool) -> bool,
    ) -> Result<Found, u32> {
        let mut looked = 0;
        for secondary in [false, true] {
            let group = self.group(vsid, page, secondary);
            for (slot, entry) in self.groups[group as usize].iter().enumerate() {
                looked += 1;
                if is(entry, secondary) {
                    return Ok(Found { group, slot, secondary, looked });
                }
            }
        }
        Err(looked)
    }

    /// Finds the entry of a page.
    ///
    /// # Errors
    /// There is none; the number of entries that were looked at.
    pub fn find(&self, vsid: u32, page: u16) -> Result<(Found, u32), u32> {
        let is = |entry: &Option<Entry>, secondary: bool| {
            entry.is_some_and(|entry| {
                (entry.vsid, entry.page, entry.secondary) == (vsid, page, secondary)
            })
        };
        let found = self.search(vsid, page, is)?;
        let entry = self.groups[found.group as usize][found.slot];
        Ok((found, entry.map_or(0, |entry| entry.frame)))
    }

    /// Puts a page into the first entry that is free.
    ///
    /// # Errors
    /// Both groups are full; the number of entries that were looked at.
    pub fn insert(&mut self, vsid: u32, page: u16, frame: u32) -> Result<Found, u32> {
        let found = self.search(vsid, page, |entry, _| entry.is_none())?;
        let entry = Entry { vsid, page, secondary: found.secondary, frame };
        self.groups[found.group as usize][found.slot] = Some(entry);
        Ok(found)
    }

    /// Takes a page out.
    pub fn remove(&mut self, vsid: u32, page: u16) {
        if let Ok((found, _)) = self.find(vsid, page) {
            self.groups[found.group as usize][found.slot] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hashes_are_those_of_the_manual() {
        // 512 KB are 8,192 groups: 13 bits of the hash.
        let table = PageTable::new(512 << 10);
        assert_eq!(table.group(0x12345, 0x6789, false), 0x144CC & 0x1FFF);
        assert_eq!(table.group(0x12345, 0x6789, true), !0x144CC & 0x1FFF);
        assert_eq!(PageTable::new(64 << 10).group(0x12345, 0x6789, false), 0x144CC & 0x3FF);
    }

    #[test]
    fn a_chain_goes_on_in_the_second_group() {
        let mut table = PageTable::new(512 << 10);
        // Pages 8,192 apart have the same 13 bits; so have spaces.
        let pages = (0..9).map(|at| (at / 8, (at % 8 * 0x2000) as u16));
        let pages = pages.map(|(space, page)| (space * 0x10000, page)).collect::<Vec<_>>();
        for (at, (vsid, page)) in pages.iter().enumerate() {
            let found = table.insert(*vsid, *page, at as u32).unwrap();
            let expected = match at {
                8 => Found { group: 0x1FFF, slot: 0, secondary: true, looked: 9 },
                _ => Found { group: 0, slot: at, secondary: false, looked: at as u32 + 1 },
            };
            assert_eq!(found, expected);
            assert_eq!(table.find(*vsid, *page), Ok((expected, at as u32)));
        }
        assert_eq!(table.find(0x20000, 0), Err(16));
        table.remove(0, 0x2000);
        assert_eq!(table.insert(0x20000, 0, 99).unwrap().slot, 1);
        // The page that is here by the second hash is not taken for one that is here by the first.
        assert_eq!(table.find(0x10000, 0x1FFF), Err(16));
    }

    proptest! {
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((0u32..3, 0u16..12, any::<bool>()), 1..120),
        ) {
            // Pages that share two groups: the table may be full for them.
            let (mut table, mut map) = (PageTable::new(64 << 10), BTreeMap::new());
            for (frame, (space, page, puts)) in steps.into_iter().enumerate() {
                let (vsid, page) = (space << 10, page << 10);
                if puts && !map.contains_key(&(vsid, page)) {
                    let put = table.insert(vsid, page, frame as u32);
                    prop_assert_eq!(put.is_ok(), map.len() < 16);
                    if put.is_ok() {
                        map.insert((vsid, page), frame as u32);
                    }
                } else if !puts {
                    table.remove(vsid, page);
                    map.remove(&(vsid, page));
                }
                for space in 0..3 {
                    for page in 0..12 {
                        let of = (space << 10, page << 10);
                        let found = table.find(of.0, of.1).ok().map(|found| found.1);
                        prop_assert_eq!(found, map.get(&of).copied());
                    }
                }
            }
        }
    }
}
