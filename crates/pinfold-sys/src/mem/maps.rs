//! The kinds of memory at each address, by `/proc/self/maps`; and how many mappings there may be.
#![allow(unsafe_code)]
// Invariant: the one ioctl is given one structure of ours, of the size that its number says, which
// lives through the call and has no pointers in it.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::fd::AsRawFd,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Mappings that a process may have: `vm.max_map_count`, and where that cannot be read the default
/// of Linux.
pub fn count_max() -> u32 {
    let said = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
    said.and_then(|text| text.trim().parse().ok()).unwrap_or(65_530)
}

/// `struct procmap_query` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`: Linux 6.11.
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;
/// `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`
const OR_NEXT: u64 = 16;
const VMA_SHARED: u64 = 8;

/// The mappings of the process that opened it.
#[derive(Debug)]
pub struct Maps {
    file: Mutex<File>,
    asks: AtomicBool,
}

/// One mapping.
struct Mapping {
    range: Range<usize>,
    private_anonymous: bool,
}

impl Maps {
    /// Opens those of this process.
    ///
    /// # Errors
    /// If there is no `/proc`, or it may not be read.
    pub fn open() -> io::Result<Maps> {
        let file = Mutex::new(File::open("/proc/self/maps")?);
        Ok(Maps { file, asks: AtomicBool::new(true) })
    }

    /// True if the kernel is asked about one mapping at a time, as far as is known.
    pub(crate) fn asks(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    /// Returns whether all of `range` is mapped, and is memory of no file and of no other process:
    /// nothing but calls on these addresses changes its contents. One system call for each mapping
    /// in it, about 0.5 µs; before Linux 6.11 all mappings of the process are read, some 100 ns for
    /// each.
    ///
    /// # Errors
    /// The kernel's error; not expected.
    pub fn is_private_anonymous(&self, range: Range<usize>) -> io::Result<bool> {
        let mut next = range.start;
        for mapping in self.within(&range, usize::MAX)? {
            if mapping.range.start != next || !mapping.private_anonymous {
                return Ok(false);
            }
            next = mapping.range.end;
        }
        Ok(next == range.end)
    }

    /// As much from the beginning of `range` on as is one mapping of such memory; `None`: there is
    /// none, or memory of another kind. Costs as much as
    /// [`is_private_anonymous`](Maps::is_private_anonymous) of one mapping.
    ///
    /// # Errors
    /// The kernel's error; not expected.
    pub fn private_anonymous_at(&self, range: Range<usize>) -> io::Result<Option<Range<usize>>> {
        let first = self.within(&range, 1)?.into_iter().next();
        let here = first.filter(|it| it.private_anonymous && it.range.start == range.start);
        Ok(here.map(|mapping| mapping.range))
    }

    /// The mapped parts of `range`, mapping by mapping. Costs as much as
    /// [`is_private_anonymous`](Maps::is_private_anonymous).
    ///
    /// # Errors
    /// The kernel's error; not expected.
    pub fn mapped_within(&self, range: &Range<usize>) -> io::Result<Vec<Range<usize>>> {
        let all = self.within(range, usize::MAX)?;
        Ok(all.into_iter().map(|mapping| mapping.range).collect())
    }

    /// The mappings that have any of `range`, each as far as it does, in order; the first `most` of
    /// them, or more. They do not overlap, even if one grows over another one meanwhile.
    fn within(&self, range: &Range<usize>, most: usize) -> io::Result<Vec<Mapping>> {
        if self.asks() {
            match self.asked(range, most) {
                // `ENOSYS` is the answer of emulators of single programs.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::ENOSYS)) => {
                    self.asks.store(false, Ordering::Relaxed);
                }
                done => return done,
            }
        }
        self.read(range)
    }

    fn asked(&self, range: &Range<usize>, most: usize) -> io::Result<Vec<Mapping>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Vec::new();
        let mut next = range.start;
        while next < range.end && found.len() < most {
            let (size, query_addr) = (size_of::<Query>() as u64, next as u64);
            let mut query = Query { size, query_flags: OR_NEXT, query_addr, ..Query::default() };
            // SAFETY: a `Query` is the structure of that number; it names no memory to be written.
            if unsafe { libc::ioctl(file.as_raw_fd(), PROCMAP_QUERY, &raw mut query) } < 0 {
                let error = io::Error::last_os_error();
                // There is no mapping behind.
                return if error.raw_os_error() == Some(libc::ENOENT) {
                    Ok(found)
                } else {
                    Err(error)
                };
            }
            let private_anonymous = query.vma_flags & VMA_SHARED == 0 && query.inode == 0;
            let its = query.vma_start as usize..query.vma_end as usize;
            found.extend(Mapping { range: its, private_anonymous }.cut(&(next..range.end)));
            next = query.vma_end as usize;
        }
        Ok(found)
    }

    fn read(&self, range: &Range<usize>) -> io::Result<Vec<Mapping>> {
        let mut text = String::new();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        Ok(within(range, text.lines().filter_map(parse)))
    }
}

/// The parts of `mappings` that are in `range`, and not in one before.
fn within(range: &Range<usize>, mappings: impl Iterator<Item = Mapping>) -> Vec<Mapping> {
    let mut next = range.start;
    let cut = mappings.filter_map(|mapping| {
        let mapping = mapping.cut(&(next..range.end))?;
        next = mapping.range.end;
        Some(mapping)
    });
    cut.collect()
}

impl Mapping {
    /// Its part of `range`, if any.
    fn cut(mut self, range: &Range<usize>) -> Option<Mapping> {
        self.range = self.range.start.max(range.start)..self.range.end.min(range.end);
        (!self.range.is_empty()).then_some(self)
    }
}

/// A line of the file: addresses, rights, offset, device, inode, name.
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let at = |hex| usize::from_str_radix(hex, 16).ok();
    let is_private = words.next()?.ends_with('p');
    let is_anonymous = words.nth(2)? == "0";
    Some(Mapping { range: at(start)?..at(end)?, private_anonymous: is_private && is_anonymous })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::userfault::Pages;

    static STATIC: u64 = 1;

    #[test]
    fn what_has_grown_meanwhile_counts_once() {
        let mapping = |range| Mapping { range, private_anonymous: true };
        let read = [1..3, 3..5, 4..7, 5..6, 8..9].map(mapping);
        let found = within(&(2..9), read.into_iter()).into_iter().map(|it| it.range);
        assert!(found.eq([2..3, 3..5, 5..7, 8..9]));
    }

    #[test]
    fn kinds_are_told_apart_in_both_ways() {
        let mut pages = Pages::new(3 * 4096, false).unwrap();
        pages.as_mut_slice().fill(1);
        let own = pages.addr()..pages.addr() + pages.len();
        let file = (&raw const STATIC).addr() / 4096 * 4096;
        // SAFETY: no address is asked for.
        let shared = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0)
        };
        let maps = Maps::open().unwrap();
        for asks in [true, false] {
            maps.asks.store(asks, Ordering::Relaxed);
            let says = |range: Range<usize>| maps.is_private_anonymous(range).unwrap();
            assert!(says(own.clone()) && says(own.start..own.start + 1));
            assert!(!says(file..file + 4096));
            assert!(!says(shared.addr()..shared.addr() + 4096));
            assert!(!says(4096..8192));
            assert!(!says(own.start..own.start + (1 << 46)));
            let at = |range: Range<usize>| maps.private_anonymous_at(range).unwrap();
            assert_eq!(at(own.start + 4096..own.end), Some(own.start + 4096..own.end));
            assert_eq!(at(file..file + 4096), None);
            assert_eq!((at(4096..8192), at(4096..own.end)), (None, None));
            assert_eq!(at(shared.addr()..shared.addr() + 4096), None);
            let within = |range: Range<usize>| maps.mapped_within(&range).unwrap();
            assert_eq!(within(4096..8192), []);
            let part = own.start + 1..own.start + 9;
            assert_eq!(within(part.clone()), std::slice::from_ref(&part));
            let (all, here) = (within(0..1 << 47), (&raw const own).addr());
            assert!(all.len() > 5 && all.iter().any(|range| range.contains(&here)));
            assert!(all.windows(2).all(|two| two[0].end <= two[1].start));
        }
        // SAFETY: mapped above, and not used.
        unsafe { libc::munmap(shared, 4096) };
    }
}
