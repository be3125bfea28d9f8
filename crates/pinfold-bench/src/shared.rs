//! Memory that both processes of the pair map.
#![allow(unsafe_code)]
// Invariant: a `Shared` owns its mapping, and nothing that it hands out lives longer. Words are
// only ever handed out as atomics. Runs of bytes are copied in and out through raw pointers, and
// the two sides take turns on them: a subject passes a chunk with an atomic word, released by the
// side that wrote and acquired by the side that reads. The other side runs this same program; were
// it not to keep its turn, wrong bytes would come out, and be noticed.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU32, AtomicU64},
};

use pinfold::copy::{Algorithm, Block, Done, Handler, Hints, InForce, Reader, Site, plan};
use pinfold_sys::{
    cpu::{block, partner::Blocks},
    mem::{mapping::SharedMapping, memfd},
};

use super::fail::{Fail, Result};

/// Bytes in a cache line.
pub(crate) const LINE: usize = 64;

/// One cache line of words.
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [AtomicU64; 8]);

const _: () = assert!(size_of::<Line>() == LINE && align_of::<Line>() == LINE);

/// The choice of how bytes are copied in or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Always so.
    By(Algorithm),
    /// As the plan says for the `Reader` of the copy, of whose place nothing else is known.
    Planned(Reader),
    /// Not at all: the lines are written by this algorithm, with zeros, or only read. The cost of a
    /// copy's other side, the program's own memory, is left out.
    Lines(Algorithm),
}

impl Way {
    #[inline]
    fn algorithm(self, from: *const u8, to: *const u8, len: usize) -> Algorithm {
        match self {
            Way::By(algorithm) | Way::Lines(algorithm) => algorithm,
            Way::Planned(reader) => {
                let (from, to) = (from.addr(), to.addr());
                plan().pick(&Block { len, from, to, reader, ..Block::default() })
            }
        }
    }
}

/// A mapping that both sides have; zero at first, every page present.
pub(crate) struct Shared {
    map: SharedMapping,
}

impl Shared {
    /// Makes one of `len` bytes, a multiple of the page size, and the descriptor to pass on.
    pub(crate) fn create(name: &str, len: usize) -> Result<(Shared, OwnedFd)> {
        let file = memfd::create_sealed(name, len).map_err(Fail::os("memfd_create"))?;
        Ok((Shared::map(&file, len)?, file))
    }

    /// Maps the memory that the other side made.
    pub(crate) fn open(file: &OwnedFd, len: usize) -> Result<Shared> {
        memfd::check_sealed(file.as_fd(), len)
            .map_err(|why| Fail::Protocol(format!("shared memory: {why}")))?;
        Shared::map(file, len)
    }

    fn map(file: &OwnedFd, len: usize) -> Result<Shared> {
        let map = SharedMapping::map(file.as_fd(), len).map_err(Fail::os("mmap"))?;
        map.populate(0..len).map_err(Fail::os("madvise"))?;
        Ok(Shared { map })
    }

    /// The mapping as cache lines.
    #[inline]
    pub(crate) fn lines(&self) -> &[Line] {
        // SAFETY: the mapping is page-aligned, so aligned for lines; it holds `len / LINE` whole
        // lines; it is initialised (the kernel zeroes it); any bytes are valid atomics; and
        // atomics may change under a shared reference. It lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast(), self.map.len() / LINE) }
    }

    /// The first half of the first word of a line, for a futex. Such a line's first word is
    /// used in this way only.
    #[inline]
    pub(crate) fn word32(&self, line: usize) -> &AtomicU32 {
        // SAFETY: the pointer comes from a reference to eight aligned bytes, of which these are
        // the first four; they live as long as `self`, and are only ever used as an `AtomicU32`.
        unsafe { AtomicU32::from_ptr(self.lines()[line].0[0].as_ptr().cast()) }
    }

    /// Copies `bytes` to `offset`, and returns the algorithm. It is this side's turn on those
    /// bytes.
    #[inline]
    pub(crate) fn copy_in(&self, way: Way, offset: usize, bytes: &[u8]) -> Algorithm {
        self.check(offset, bytes.len());
        // SAFETY: the range lies in the mapping (just checked), `bytes` is this process's own
        // memory and no part of it, and no reference to the range exists.
        unsafe {
            let to = self.map.as_ptr().add(offset);
            let algorithm = way.algorithm(bytes.as_ptr(), to, bytes.len());
            match way {
                Way::Lines(_) => block::zero(algorithm, to, bytes.len()),
                _ => block::copy(algorithm, bytes.as_ptr(), to, bytes.len()),
            }
            algorithm
        }
    }

    /// Copies `bytes` to `offset` by the choice of `site`; `is_timed`: it may learn from this copy,
    /// and try something else. It is this side's turn on those bytes.
    #[inline]
    pub(crate) fn copy_in_for(
        &self,
        (handler, site, hints): (&mut Handler<InForce>, &mut Site, Hints),
        offset: usize,
        bytes: &[u8],
        is_timed: bool,
    ) -> Option<Done> {
        self.check(offset, bytes.len());
        // SAFETY: as for `copy_in`.
        unsafe {
            let to = self.map.as_ptr().add(offset);
            if is_timed {
                return Some(handler.copy(site, hints, bytes.as_ptr(), to, bytes.len()));
            }
            handler.copy_untimed(site, hints, bytes.as_ptr(), to, bytes.len());
            None
        }
    }

    /// Copies the bytes at `offset` into all of `into`, and returns the algorithm. It is this
    /// side's turn on those bytes.
    #[inline]
    pub(crate) fn copy_out(&self, way: Way, offset: usize, into: &mut [u8]) -> Algorithm {
        self.check(offset, into.len());
        // SAFETY: as for `copy_in`, the other way round.
        unsafe {
            let from = self.map.as_ptr().add(offset);
            let algorithm = way.algorithm(from, into.as_ptr(), into.len());
            match way {
                Way::Lines(_) => Blocks::one(from, into.len()).read(),
                _ => block::copy(algorithm, from, into.as_mut_ptr(), into.len()),
            }
            algorithm
        }
    }

    /// The same by the choice of `site`, which learns from it.
    #[inline]
    pub(crate) fn copy_out_for(
        &self,
        (handler, site, hints): (&mut Handler<InForce>, &mut Site, Hints),
        offset: usize,
        into: &mut [u8],
    ) -> Algorithm {
        self.check(offset, into.len());
        // SAFETY: as for `copy_in`, the other way round.
        let done = unsafe {
            let from = self.map.as_ptr().add(offset);
            handler.copy(site, hints, from, into.as_mut_ptr(), into.len())
        };
        done.learn(site, 0);
        done.algorithm
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.map.len()), "outside the shared memory");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn both_sides_see_the_same() {
        let (here, file) = Shared::create("pinfold-test", 8192).unwrap();
        let there = Shared::open(&file, 8192).unwrap();
        here.lines()[3].0[1].store(7, Ordering::Release);
        assert_eq!(there.lines()[3].0[1].load(Ordering::Acquire), 7);
        let libc = Way::By(Algorithm::LIBC);
        assert_eq!(here.copy_in(libc, 4097, b"abc"), Algorithm::LIBC);
        let mut out = [0; 3];
        // Too short for a choice.
        let planned = there.copy_out(Way::Planned(Reader::Me), 4097, &mut out);
        assert_eq!(planned, Algorithm::LIBC);
        assert_eq!(&out, b"abc");
        assert_eq!(here.lines().len(), 128);
        assert!(Shared::open(&file, 4096).is_err());
    }
}
