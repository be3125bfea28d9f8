//! Pages put behind addresses of this process before anybody writes there, where no file and no
//! other process has a say.
//!
//! Only private memory of no file is touched: a page of a file's would be read, or become a dirty
//! one or a block on the disk; and none that a userfaultfd has, whose page comes when some program
//! says so, perhaps never. Contents always stay. Pages that are there already are left alone, and
//! so are swapped-out ones, for those would be read in.
//!
//! All of it is asked anew each time. If another thread maps something else to these addresses, or
//! has a userfaultfd take them, within the microsecond between question and call, that memory is
//! touched.

use std::{io, ops::Range};

use rustix::{io::Errno, param::page_size};

use crate::{
    cpu::clock,
    mem::{
        fault_safe_copy,
        maps::Maps,
        pagemap::{PAGES, Pagemap, State},
        userfault::{Claims, Reason},
    },
};

/// Bytes that one call looks at, with pages of 4 KiB. If all is there it takes 1.2 µs.
pub const LOOK: u64 = 4096 * PAGES as u64;

/// A question that takes longer, since all mappings are read for it (before Linux 6.11), is not
/// worth it.
const QUESTION_NS_MAX: u64 = 20_000;

/// The files and descriptors that pages are put with. Speaks of the process that opened it: of no
/// use in its children.
#[derive(Debug)]
pub struct Prefault {
    maps: Maps,
    pages: Pagemap,
    /// `None`: there are no userfaultfds, or they do not matter here.
    claims: Option<Claims>,
}

/// The outcome of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// Bytes from the first address on that are dealt with.
    pub seen: u64,
    /// Bytes put there, in whole pages.
    pub made: u64,
}

/// The reason why nothing was put there.
#[derive(Debug)]
pub enum Unput {
    /// It is not memory that may be touched: a file's, shared, a userfaultfd's, not writable, or
    /// none.
    NotOurs,
    /// There is no memory just now, or the kernel could not tell the pages' states, or not soon.
    NotNow(io::Error),
    /// The kernel cannot (before Linux 5.14), or a filter says no.
    Never(io::Error),
}

impl Prefault {
    /// Opens three descriptors; some 30 µs. `asks`: whether a `userfaultfd(2)` may be opened, by
    /// which the memory of others is found out. Without it they are taken to have none of the
    /// memory.
    ///
    /// # Errors
    /// If there is no `/proc`, it may not be read, or a userfaultfd cannot be had though there may
    /// be others.
    pub fn open(asks: bool) -> io::Result<Prefault> {
        let claims = match asks.then(Claims::open).transpose() {
            Err(error) if error.reason() == Reason::Absent => None,
            Err(error) => return Err(io::Error::other(error)),
            Ok(claims) => claims,
        };
        Ok(Prefault { maps: Maps::open()?, pages: Pagemap::open()?, claims })
    }

    /// Puts pages where there are none, or none that are this process's alone, of the `len` bytes
    /// from `addr` on: the first such run, of up to `most` bytes, at least a page. Looks no
    /// further than [`LOOK`] bytes.
    ///
    /// 64 KiB take 10 µs, a quarter of a microsecond of it for questions; where a huge page comes,
    /// that one takes 85.
    ///
    /// # Errors
    /// [`Unput`]; nothing is changed.
    pub fn put(&self, addr: u64, len: u64, most: u64) -> Result<Put, Unput> {
        let page = page_size() as u64;
        let first = addr / page;
        let end = addr.checked_add(len).ok_or(Unput::NotOurs)?.div_ceil(page);
        let count = ((end - first) as usize).min(PAGES);
        let mut states = [State::default(); PAGES];
        self.pages.read(first, &mut states[..count]).map_err(Unput::NotNow)?;
        let seen = |pages: u64| (first + pages).saturating_mul(page).saturating_sub(addr).min(len);
        let states = &states[..count];
        let Some(run) = run(states, (most / page).max(1) as usize) else {
            return Ok(Put { seen: seen(count as u64), made: 0 });
        };
        let at = |index: usize| (first + index as u64).saturating_mul(page) as usize;
        let asked_at = clock::now_ns();
        let part = self.maps.private_anonymous_at(at(run.start)..at(run.end));
        let part = part.map_err(Unput::NotNow)?.ok_or(Unput::NotOurs)?;
        if !self.maps.asks() && clock::now_ns() - asked_at > QUESTION_NS_MAX {
            return Err(Unput::NotNow(Errno::TIMEDOUT.into()));
        }
        if self.claims.as_ref().is_some_and(|claims| claims.has(part.clone())) {
            return Err(Unput::NotOurs);
        }
        fault_safe_copy::put_pages(part.start as u64, part.len() as u64).map_err(why)?;
        let pages = part.len() / page as usize;
        let made = states[run.start..run.start + pages].iter().filter(|state| lacks(**state));
        let made = made.count() as u64 * page;
        Ok(Put { seen: seen((run.start + pages) as u64), made })
    }
}

fn why(error: io::Error) -> Unput {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::ACCESS) => Unput::Never(error),
        Some(Errno::NOMEM | Errno::AGAIN) => Unput::NotNow(error),
        _ => Unput::NotOurs,
    }
}

/// Returns whether a write would have to wait for a page: there is none, or it is shared since a
/// `fork(2)`, or it is that of zeroes. Not if it was swapped out.
fn lacks(state: State) -> bool {
    !state.is_swapped() && (!state.is_present() || !state.is_exclusive())
}

/// The first pages in a row that are lacking, `most` of them at most. Some that are there may be
/// among them, since to leave them out would take another call.
fn run(states: &[State], most: usize) -> Option<Range<usize>> {
    let start = states.iter().position(|state| lacks(*state))?;
    let rest = &states[start..(start + most).min(states.len())];
    let rest = &rest[..rest.iter().position(|state| state.is_swapped()).unwrap_or(rest.len())];
    let last = rest.iter().rposition(|state| lacks(*state))?;
    Some(start..start + last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::userfault::Pages;

    const SWAPPED: State = State::SWAPPED;

    #[test]
    fn runs_begin_and_end_with_what_is_lacking_and_have_nothing_swapped() {
        let (own, none) = (State::PRESENT.and(State::EXCLUSIVE), State::default());
        assert_eq!(run(&[], 4), None);
        assert_eq!(run(&[own, own, SWAPPED], 4), None);
        assert_eq!(run(&[own, none, none, own], 4), Some(1..3));
        assert_eq!(run(&[none, own, State::PRESENT, own], 4), Some(0..3));
        assert_eq!(run(&[none; 4], 2), Some(0..2));
        assert_eq!(run(&[own, none, SWAPPED, none], 9), Some(1..2));
        assert_eq!(run(&[none, SWAPPED.and(State::EXCLUSIVE), none], 9), Some(0..1));
    }

    /// `None` if this kernel cannot, as its refusal says.
    fn prefault() -> Option<Prefault> {
        let prefault = Prefault::open(true).ok()?;
        let pages = Pages::new(page_size(), false).ok()?;
        match prefault.put(pages.addr() as u64, 1, 1) {
            Err(Unput::Never(_)) => None,
            done => done.is_ok().then_some(prefault),
        }
    }

    #[test]
    fn pages_come_in_steps_and_what_is_there_takes_none() {
        let Some(prefault) = prefault() else { return };
        let page = page_size() as u64;
        let mut pages = Pages::new(200 * page_size(), false).unwrap();
        pages.as_mut_slice()[2 * page_size()] = 7;
        let at = pages.addr() as u64;
        // It begins and ends within pages.
        let put = prefault.put(at + 100, 2 * page, 16 * page).unwrap();
        assert_eq!(put, Put { seen: 2 * page - 100, made: 2 * page });
        assert_eq!(pages.resident(0..200 * page_size()).unwrap(), 3);
        let put = prefault.put(at, 200 * page, 4 * page).unwrap();
        assert_eq!(put, Put { seen: 7 * page, made: 4 * page });
        // Pages that are there already are looked at, as far as one look goes.
        let put = prefault.put(at, 7 * page, 16 * page).unwrap();
        assert_eq!(put, Put { seen: 7 * page, made: 0 });
        pages.as_mut_slice().fill(1);
        let put = prefault.put(at, 200 * page, 16 * page).unwrap();
        assert_eq!(put, Put { seen: 64 * page, made: 0 });
    }

    #[test]
    fn what_is_not_ours_is_left_alone() {
        let Some(prefault) = prefault() else { return };
        let page = page_size();
        let file = crate::mem::memfd::create_sealed("pinfold-test", 4 * page).unwrap();
        let map =
            crate::mem::mapping::SharedMapping::map(std::os::fd::AsFd::as_fd(&file), 4 * page);
        let map = map.unwrap();
        let at = map.as_ptr().addr() as u64;
        assert!(matches!(prefault.put(at, 4096, 4096), Err(Unput::NotOurs)));
        assert!(!map.is_resident(0..1).unwrap());
        assert!(matches!(prefault.put(1 << 30, 4096, 4096), Err(Unput::NotOurs)));
        assert!(matches!(prefault.put(u64::MAX - 5, 6, 4096), Err(Unput::NotOurs)));
        assert!(matches!(
            prefault.put(u64::MAX - 5, 5, 4096),
            Err(Unput::NotOurs | Unput::NotNow(_))
        ));
    }
}
