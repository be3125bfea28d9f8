//! The two ways to reassemble a message on the 601: copying, and remapping with a search in the
//! library's own page-pool bitmap.

use std::ops::Range;

use pinfold::reassembly::window::{Bitmap, Inner, PAPER_PAGES, Windows, Work};

use super::{
    BITMAP_AT, DATA_AT, PAGE_BYTES, PAPER, TABLE_AT,
    machine::{Caching, Machine},
    page_table::GROUP_BYTES,
};

/// The segment that messages are put into: any but 0.
const SEGMENT: u32 = 7;
/// Addresses of the code of each loop.
const COPY_AT: u64 = 0x1_0000;
const CALL_AT: u64 = 0x1_1000;
const SEARCH_AT: u64 = 0x1_2000;
const ENTRY_AT: u64 = 0x1_3000;
/// Bits of a word of the paper's map.
const WORD_BITS: u64 = 32;
/// Words of a line.
const LINE_WORDS: u64 = 16;

/// The state of the page pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// The addresses are known.
    None,
    /// All pages are free.
    Minimal,
    /// Every other page is taken, and the message fits only at the end; for one page, all but the
    /// last are taken.
    Worst,
}

/// A bitmap in which a search of so many pages is the paper's worst case (section 4.1).
///
/// # Errors
/// The library's bitmap refused a page; in words.
pub fn worst(pages: u32) -> Result<Bitmap, String> {
    let mut map = Bitmap::searching(PAPER_PAGES, Inner::Forward);
    for _ in 0..PAPER_PAGES {
        map.alloc(1, 1).map_err(|why| why.to_string())?;
    }
    let end = PAPER_PAGES - pages;
    // The page before the run is taken, so that it is as long as the message.
    let odd = (0..end.saturating_sub(1)).filter(|page| pages > 1 && page % 2 == 0);
    for page in odd.chain(end..PAPER_PAGES) {
        map.free(page).map_err(|why| why.to_string())?;
    }
    map.search_from(0);
    Ok(map)
}

/// Copying so many pages, µs.
pub fn copy(pages: u64, caching: impl Into<Caching>) -> f64 {
    let mut machine = Machine::new(PAPER, caching);
    machine.flush();
    let words = PAGE_BYTES / 4;
    machine.execute(COPY_AT, machine.with.copy_word, pages * words);
    for line in 0..pages * words / LINE_WORDS {
        let from = DATA_AT + line * 4 * LINE_WORDS;
        machine.words(from, LINE_WORDS, false);
        machine.words(from + pages * PAGE_BYTES, LINE_WORDS, true);
    }
    machine.us()
}

/// The times of a remapping, µs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Remapped {
    /// The search for addresses.
    pub search_us: f64,
    /// All of it.
    pub us: f64,
    /// The work of the library's search.
    pub work: Work,
}

/// Remapping a message of so many pages.
///
/// # Errors
/// The bitmap or the page table had no room; in words.
pub fn remap(pages: u32, search: Search, caching: impl Into<Caching>) -> Result<Remapped, String> {
    let mut machine = Machine::new(PAPER, caching);
    let map = match search {
        Search::None => None,
        Search::Minimal => Some(Bitmap::searching(PAPER_PAGES, Inner::Forward)),
        Search::Worst => Some(worst(pages)?),
    };
    remap_on(&mut machine, pages, map)
}

/// The same on a machine and with a map that are there.
///
/// # Errors
/// The bitmap or the page table had no room; in words.
pub fn remap_on(
    machine: &mut Machine,
    pages: u32,
    map: Option<Bitmap>,
) -> Result<Remapped, String> {
    remap_by(machine, pages, map, 1)
}

/// The same with a map of which each bit stands for so many pages.
///
/// # Errors
/// The bitmap or the page table had no room; in words.
pub fn remap_slots(machine: &mut Machine, pages: u32, map: Bitmap) -> Result<Remapped, String> {
    remap_by(machine, pages, Some(map), pages)
}

/// Remaps, by a map of which each bit stands for `slot` pages.
fn remap_by(
    machine: &mut Machine,
    pages: u32,
    map: Option<Bitmap>,
    slot: u32,
) -> Result<Remapped, String> {
    machine.flush();
    let with = machine.with;
    machine.execute(CALL_AT, with.call, 1);
    let (before_us, mut work, mut start) = (machine.us(), Work::default(), 0);
    if let Some(mut map) = map {
        let found;
        (found, work) = search_on(machine, &mut map, pages / slot)?;
        start = found * slot;
    }
    let search_us = machine.us() - before_us;
    for at in 0..pages {
        let page = (start + at) as u16;
        let frame = (DATA_AT / PAGE_BYTES) as u32 + at;
        let put = machine.table.insert(SEGMENT, page, frame);
        let put = put.map_err(|looked| format!("{looked} entries for page {page} are taken"))?;
        machine.execute(ENTRY_AT, with.entry + with.look * u64::from(put.looked), 1);
        // The entries that are looked at, the new one, and the page's number in a list.
        let group = TABLE_AT + u64::from(put.group) * GROUP_BYTES;
        machine.words(group, u64::from(put.looked), false);
        machine.words(group + 8 * put.slot as u64, 2, true);
        machine.words(DATA_AT - PAGE_BYTES * 8 + u64::from(at) * 4, 1, false);
    }
    let us = machine.us();
    for at in 0..pages {
        machine.table.remove(SEGMENT, (start + at) as u16);
    }
    Ok(Remapped { search_us, us, work })
}

/// The search for so many bits, which are taken. Returns the first, and the work of the library.
fn search_on(machine: &mut Machine, map: &mut Bitmap, bits: u32) -> Result<(u32, Work), String> {
    let (from, had) = (map.rover(), map.work());
    let found = map.alloc(bits, 1).map_err(|why| why.to_string())?;
    let work = Work {
        candidates: map.work().candidates - had.candidates,
        words: map.work().words - had.words,
    };
    search_code(machine, map.count().pages, from, found..found + bits, work);
    Ok((found, work))
}

/// The time of the search alone for so many pages from a page on, in a flushed machine, µs; the map
/// is as it was afterwards. With the time of [`Search::None`] it is that of a remapping, but for
/// what the entries would find in the cache after the search.
///
/// # Errors
/// The bitmap had no room; in words.
pub fn search_us(
    machine: &mut Machine,
    map: &mut Bitmap,
    from: u32,
    pages: u32,
) -> Result<f64, String> {
    machine.flush();
    machine.execute(CALL_AT, machine.with.call, 1);
    let before_us = machine.us();
    map.search_from(from);
    let (found, _) = search_on(machine, map, pages)?;
    let us = machine.us() - before_us;
    map.free(found).map_err(|why| why.to_string())?;
    Ok(us)
}

/// The search's instructions and its reads of the map, from the work that the library's search
/// counted. Words of the paper have 32 bits, the library's 64.
fn search_code(machine: &mut Machine, of: u32, from: u32, found: Range<u32>, work: Work) {
    let with = machine.with;
    let (first, last) = (u64::from(from) / WORD_BITS, u64::from(found.end - 1) / WORD_BITS);
    // A search that ends before its beginning has gone around.
    let all = u64::from(of).div_ceil(WORD_BITS);
    let words = if last >= first { last - first + 1 } else { all - first + last + 1 };
    machine.execute(SEARCH_AT, with.search, 1);
    machine.execute(SEARCH_AT + 4 * with.search, with.word, words);
    let behind = SEARCH_AT + 4 * (with.search + with.word);
    machine.execute(behind, with.candidate, work.candidates);
    for line in 0..words.div_ceil(LINE_WORDS) {
        let count = LINE_WORDS.min(words - line * LINE_WORDS);
        let at = (first + line * LINE_WORDS) % all;
        machine.words(BITMAP_AT + at * 4, count, false);
    }
    // The pages that are now taken are marked in the map.
    let marked = u64::from(found.start) / WORD_BITS..=last;
    for word in marked.step_by(LINE_WORDS as usize) {
        machine.words(BITMAP_AT + word * 4, 1, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_map_has_as_many_runs_as_can_be() {
        for pages in [1, 2, 16, 6144] {
            let mut map = worst(pages).unwrap();
            let before = map.work().candidates;
            assert_eq!(map.alloc(pages, 1), Ok(PAPER_PAGES - pages));
            let runs = u64::from((PAPER_PAGES - pages).saturating_sub(1).div_ceil(2));
            let expected = if pages == 1 { 1 } else { runs + 1 };
            assert_eq!(map.work().candidates - before, expected, "{pages} pages");
        }
    }

    #[test]
    fn without_search_there_is_no_time_for_it() {
        let none = remap(4, Search::None, true).unwrap();
        let minimal = remap(4, Search::Minimal, true).unwrap();
        assert_eq!((none.search_us, none.work.candidates), (0.0, 0));
        assert_eq!(minimal.work, Work { candidates: 1, words: 1 });
        assert!((minimal.us - none.us - minimal.search_us).abs() < 2.0, "{none:?} {minimal:?}");
    }

    #[test]
    fn a_search_and_the_entries_are_a_remapping() {
        for pages in [1, 2, 16, 300] {
            let (mut machine, mut map) = (Machine::new(PAPER, true), worst(pages).unwrap());
            let search = search_us(&mut machine, &mut map, 0, pages).unwrap();
            assert_eq!(search_us(&mut machine, &mut map, 0, pages).unwrap(), search);
            let sum = search + remap(pages, Search::None, true).unwrap().us;
            let whole = remap(pages, Search::Worst, true).unwrap().us;
            assert!((sum / whole - 1.0).abs() < 0.01, "{pages} pages: {sum} against {whole} µs");
        }
    }

    #[test]
    fn the_table_is_as_it_was_afterwards() {
        let mut machine = Machine::new(PAPER, true);
        let first = remap_on(&mut machine, 100, None).unwrap();
        assert_eq!(remap_on(&mut machine, 100, None).unwrap(), first);
    }
}
