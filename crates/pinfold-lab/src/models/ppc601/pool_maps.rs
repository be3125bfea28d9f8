//! The page pools of the random test (sections 2.5 and 4.2): 3,000 bitmaps from a Fibonacci
//! generator.

use pinfold::reassembly::window::{Bitmap, Inner, PAPER_PAGES, Windows};

/// The modulus (section 2.5).
const MODULUS: u64 = 0x7FFF_FFFF;
/// X(0) and X(-1).
const SEEDS: (u32, u32) = (17, 37);
/// Maps of each series (section 4.2).
pub const MAPS: u32 = 1000;
/// Calls of the generator for each map of the three series.
pub const FREES: [u32; 3] = [500, 50, 25];

/// X(n+1) = (X(n) + X(n-1)) mod 0x7FFFFFFF.
#[derive(Clone, Debug)]
pub struct Fibonacci {
    now: u32,
    before: u32,
}

impl Default for Fibonacci {
    /// The paper's.
    fn default() -> Fibonacci {
        Fibonacci { now: SEEDS.0, before: SEEDS.1 }
    }
}

impl Fibonacci {
    /// The next number.
    pub fn word(&mut self) -> u32 {
        let sum = (u64::from(self.now) + u64::from(self.before)) % MODULUS;
        (self.now, self.before) = (sum as u32, self.now);
        self.now
    }

    /// The page of the next number: its low 16 bits. The paper does not say which it takes.
    pub fn page(&mut self) -> u32 {
        self.word() % PAPER_PAGES
    }
}

/// The maps, one after the other. None has a run at its end yet: see [`with_run`].
#[derive(Clone, Debug)]
pub struct Maps {
    random: Fibonacci,
    /// All pages taken.
    full: Bitmap,
    map: Bitmap,
    free: Vec<bool>,
    transitions: u32,
    made: u32,
}

impl Maps {
    /// Before the first of them.
    ///
    /// # Errors
    /// The library's bitmap refused a page; in words.
    pub fn new() -> Result<Maps, String> {
        let mut full = Bitmap::searching(PAPER_PAGES, Inner::Forward);
        for _ in 0..PAPER_PAGES {
            full.alloc(1, 1).map_err(|why| why.to_string())?;
        }
        let (map, free) = (full.clone(), vec![false; PAPER_PAGES as usize]);
        Ok(Maps { random: Fibonacci::default(), full, map, free, transitions: 0, made: 0 })
    }

    /// Makes the next map. False after the last.
    ///
    /// # Errors
    /// The library's bitmap refused to free a page that is taken; in words.
    pub fn advance(&mut self) -> Result<bool, String> {
        let Some(&frees) = FREES.get((self.made / MAPS) as usize) else { return Ok(false) };
        if self.made.is_multiple_of(MAPS) {
            self.map.clone_from(&self.full);
            self.free.fill(false);
            self.transitions = 0;
        }
        for _ in 0..frees {
            let page = self.random.page();
            self.release(page)?;
        }
        self.made += 1;
        Ok(true)
    }

    /// Frees a page, unless it is free.
    fn release(&mut self, page: u32) -> Result<(), String> {
        let at = page as usize;
        if self.free[at] {
            return Ok(());
        }
        self.map.free(page).map_err(|why| why.to_string())?;
        self.free[at] = true;
        for beside in [at.checked_sub(1), Some(at + 1)].into_iter().flatten() {
            match self.free.get(beside) {
                Some(true) => self.transitions -= 1,
                Some(false) => self.transitions += 1,
                None => {}
            }
        }
        Ok(())
    }

    /// The map.
    pub fn map(&self) -> &Bitmap {
        &self.map
    }

    /// Maps made.
    pub fn made(&self) -> u32 {
        self.made
    }

    /// The part of the pages that is taken, %.
    pub fn level(&self) -> f64 {
        level(&self.map)
    }

    /// Neighbouring pages of which one is free and one is taken.
    pub fn transitions(&self) -> u32 {
        self.transitions
    }
}

/// The part of a map's pages that is taken, %.
pub fn level(map: &Bitmap) -> f64 {
    100.0 * f64::from(map.count().taken) / f64::from(PAPER_PAGES)
}

/// A map with a free run of so many pages at its end.
///
/// # Errors
/// The library's bitmap refused to free a page that is taken; in words.
pub fn with_run(map: &Bitmap, pages: u32) -> Result<Bitmap, String> {
    let mut map = map.clone();
    for page in PAPER_PAGES - pages..PAPER_PAGES {
        match map.free(page) {
            Ok(_) | Err(pinfold::reassembly::window::FreeError::Free { .. }) => {}
            Err(why) => return Err(why.to_string()),
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_papers() {
        let mut random = Fibonacci::default();
        let first: Vec<u32> = (0..5).map(|_| random.word()).collect();
        assert_eq!(first, [54, 71, 125, 196, 321]);
        // At the modulus a sum begins anew.
        let mut random = Fibonacci { now: 0x7FFF_FFFE, before: 3 };
        assert_eq!((random.word(), random.word()), (2, 1));
    }

    #[test]
    fn frees_accumulate_over_a_thousand_maps_and_begin_anew() {
        let mut maps = Maps::new().unwrap();
        let mut levels = Vec::new();
        while maps.advance().unwrap() {
            levels.push(maps.level());
            let (free, count) = (&maps.free, maps.map.count());
            assert_eq!(free.iter().filter(|free| **free).count() as u32, count.free());
            if maps.made() % 500 == 7 {
                let pairs = free.windows(2).filter(|pair| pair[0] != pair[1]).count();
                assert_eq!(pairs as u32, maps.transitions());
            }
        }
        assert_eq!(levels.len(), 3000);
        let rises: Vec<usize> = (1..3000).filter(|&at| levels[at] > levels[at - 1]).collect();
        assert_eq!(rises, [1000, 2000]);
        // 500, 50 and 25 pages, less those that were drawn twice.
        for (at, frees) in [(0, 500.0), (1000, 50.0), (2000, 25.0)] {
            let freed = (100.0 - levels[at]) / 100.0 * 65_536.0;
            assert!(freed <= frees + 1e-6 && freed > 0.9 * frees, "{at}: {freed}");
        }
    }

    #[test]
    fn a_run_at_the_end_is_free_whatever_was_there() {
        let mut maps = Maps::new().unwrap();
        for _ in 0..200 {
            maps.advance().unwrap();
        }
        let mut map = with_run(maps.map(), 300).unwrap();
        map.search_from(PAPER_PAGES - 300);
        assert_eq!(map.alloc(300, 1), Ok(PAPER_PAGES - 300));
        assert_eq!(level(&with_run(maps.map(), 0).unwrap()), maps.level());
    }
}
