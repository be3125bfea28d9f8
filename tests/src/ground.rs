//! Places in memory and the changes that can be made to them, for tests of code that uses memory
//! that changes.
#![allow(unsafe_code)]
// Invariant: a place is reached only under its lock, and by reference only through `Place::bytes`.

use std::{ops::Range, ptr, sync::Mutex};

use rustix::{
    io::Errno,
    mm::{self, Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags},
};

use crate::stamp::{Random, mix};

/// Bytes of a page.
pub const PAGE: usize = 4096;

const HUGE: usize = 2 << 20;

/// Everything lies between here and [`SPARE`], the places next to each other.
const GROUND: usize = 1 << 44;
/// For each place as much again, where memory is moved to or from.
const SPARE: usize = 1 << 34;

/// A range of memory that is always mapped while no thread has the lock.
pub struct Place {
    /// Its addresses; the same in every process.
    pub range: Range<usize>,
    huge: bool,
    newest: u64,
}

/// Places next to each other, of 1 to 16 pages, and two of huge pages; each with a lock. Once in a
/// process.
pub fn places(count: usize) -> Vec<Mutex<Place>> {
    let mut next = GROUND;
    let place = |at: usize| {
        let huge = at + 2 >= count;
        if huge {
            next = next.next_multiple_of(HUGE);
        }
        let len = if huge { HUGE } else { (1 + at % 16) * PAGE };
        let place = Place { range: next..next + len, huge, newest: 0 };
        next += len;
        place.map(place.range.clone());
        Mutex::new(place)
    };
    (0..count).map(place).collect()
}

/// The word of a line of memory that was stamped with a number.
fn word(stamp: u64, line: usize) -> u64 {
    mix(stamp) ^ line as u64
}

impl Place {
    /// Changes the memory in one of many ways, or not at all; its contents are lost.
    pub fn change(&mut self, random: &mut Random) {
        let range = self.range.clone();
        let part = self.part(random);
        let spare = |range: &Range<usize>| range.start + SPARE..range.end + SPARE;
        match random.below(20) {
            0 | 1 => {
                self.unmap(range.clone());
                self.map(range);
            }
            2 => {
                self.unmap(part.clone());
                self.map(part);
            }
            3 => self.map(range),
            4 => self.map(part),
            5 => {
                self.remap(range.clone(), spare(&range));
                self.map(range.clone());
                self.unmap(spare(&range));
            }
            6 => {
                self.map(spare(&range));
                self.touch(spare(&range));
                self.remap(spare(&range), range);
            }
            7 => {
                self.map(spare(&part));
                self.touch(spare(&part));
                self.remap(spare(&part), part);
            }
            8 => self.advise(range, Advice::LinuxDontNeed),
            9 => self.advise(part, Advice::LinuxDontNeed),
            10 => self.advise(part, Advice::LinuxFree),
            // Mappings and huge pages are split, and come together again.
            11 => {
                self.protect(part.clone(), MprotectFlags::READ);
                self.protect(part, MprotectFlags::READ | MprotectFlags::WRITE);
            }
            12 if random.below(30) == 0 => fork(),
            // No watcher is told of the changes that follow.
            13 if random.below(2) == 0 => {
                crate::changes::shm_over(&part).expect("shmat");
                self.map(part);
            }
            14 => crate::changes::renew_by_guards(&part),
            _ => {}
        }
    }

    /// Stamps every line with a number that was stamped nowhere before.
    pub fn stamp(&mut self, stamp: u64) {
        self.newest = stamp;
        for at in self.range.clone().step_by(64) {
            let line = word(stamp, at / 64);
            let at = ptr::with_exposed_provenance_mut::<[u64; 8]>(at);
            // SAFETY: within the place, mapped, and no reference to it is about.
            unsafe { at.write([line; 8]) };
        }
    }

    /// Says which stamp it is to hold, without writing it.
    pub fn expect(&mut self, stamp: u64) {
        self.newest = stamp;
    }

    /// Bytes of it.
    ///
    /// # Panics
    /// If they are not inside.
    pub fn bytes(&mut self, part: &Range<usize>) -> &mut [u8] {
        assert!(self.range.start <= part.start && part.end <= self.range.end);
        // SAFETY: within the place, mapped, and borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(at(part).cast(), part.len()) }
    }

    /// Returns whether these are the bytes of `part`, as they were stamped last.
    pub fn is_right(&self, part: &Range<usize>, bytes: &[u8]) -> bool {
        let byte = |at: usize| word(self.newest, at / 64).to_ne_bytes()[at % 8];
        part.len() == bytes.len() && part.clone().zip(bytes).all(|(at, found)| byte(at) == *found)
    }

    /// A range of bytes of it, of any alignment.
    pub fn any(&self, random: &mut Random) -> Range<usize> {
        let most = self.range.len().min(16 * PAGE) as u64;
        let len = if random.below(2) == 0 { most } else { 1 + random.below(most) } as usize;
        let from = random.below((self.range.len() - len + 1) as u64) as usize;
        self.range.start + from..self.range.start + from + len
    }

    /// A range of pages of it.
    fn part(&self, random: &mut Random) -> Range<usize> {
        let pages = (self.range.len() / PAGE) as u64;
        let from = random.below(pages);
        let count = 1 + random.below((pages - from).min(16));
        let start = self.range.start + from as usize * PAGE;
        start..start + count as usize * PAGE
    }

    fn map(&self, range: Range<usize>) {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the place's, or its spare's.
        unsafe { mm::mmap_anonymous(at(&range), range.len(), prot, flags) }.expect("mmap");
        if self.huge {
            self.advise(range, Advice::LinuxHugepage);
        }
    }

    fn unmap(&self, range: Range<usize>) {
        // SAFETY: as for `map`.
        unsafe { mm::munmap(at(&range), range.len()) }.expect("munmap");
    }

    /// Moves memory. A partly watched range is more than one mapping, which the kernel does not
    /// move at once: then page by page.
    fn remap(&self, from: Range<usize>, to: Range<usize>) {
        let moved = |from: Range<usize>, to: Range<usize>| {
            let flags = MremapFlags::MAYMOVE;
            // SAFETY: as for `map`.
            unsafe { mm::mremap_fixed(at(&from), from.len(), to.len(), flags, at(&to)) }.map(drop)
        };
        if moved(from.clone(), to.clone()) == Err(Errno::FAULT) {
            for (from, to) in from.step_by(PAGE).zip(to.step_by(PAGE)) {
                // The kernel may have moved some pages before it gave up (Linux 6.17).
                let done = moved(from..from + PAGE, to..to + PAGE);
                assert!(matches!(done, Ok(()) | Err(Errno::FAULT)), "mremap: {done:?}");
            }
        }
    }

    fn advise(&self, range: Range<usize>, advice: Advice) {
        // SAFETY: as for `map`.
        unsafe { mm::madvise(at(&range), range.len(), advice) }.expect("madvise");
    }

    fn protect(&self, range: Range<usize>, prot: MprotectFlags) {
        // SAFETY: as for `map`.
        unsafe { mm::mprotect(at(&range), range.len(), prot) }.expect("mprotect");
    }

    fn touch(&self, range: Range<usize>) {
        for page in range.step_by(PAGE) {
            // SAFETY: mapped right before, by the same thread.
            unsafe { ptr::with_exposed_provenance_mut::<u8>(page).write_volatile(0xEE) };
        }
    }
}

fn at(range: &Range<usize>) -> *mut std::ffi::c_void {
    ptr::with_exposed_provenance_mut(range.start)
}

/// A child that exits at once.
fn fork() {
    assert_eq!(crate::host::fork(|| 0), crate::host::Ended::Code(0));
}
