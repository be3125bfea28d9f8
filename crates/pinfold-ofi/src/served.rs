//! The owner's side of memory that peers use: what they ask its endpoint for.
//!
//! Peers ask for the library's key of a region once, and then read and write it without the owner.
//! Atomic operations are done here, one element at a time, by the processor's own compare-and-swap,
//! so that all of all peers are of one order; elements of 16 bytes, and those that are not aligned,
//! under one lock. A peer also tells here that it has written with a word for the owner's queue, or
//! used a region that is counted.
#![allow(unsafe_code)]
// Invariant: memory is touched only inside of a region that is registered, with its rights, and
// where a page was there a moment ago.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering},
    },
};

use pinfold::{Active, Endpoint, PeerId};
use pinfold_sys::mem::{fault_safe_change, fault_safe_copy};

use crate::{
    arithmetic::{self, Call, Op},
    ffi::flags::{FI_REMOTE_READ, FI_REMOTE_WRITE},
    guard::{Answer, Code},
    regions::{REMOTE, Regions},
    served_wire::{Change, Found, Note, Read},
};

/// The handlers' numbers.
pub const FIND: u32 = 0x6f66_6901;
pub const CHANGE: u32 = 0x6f66_6902;
pub const NOTE: u32 = 0x6f66_6903;

/// News of peers, which wait for the endpoint's next turn: handlers run while its state is open.
#[derive(Default)]
pub struct News {
    queue: Mutex<VecDeque<(PeerId, Note)>>,
    /// The endpoint has a counter of what peers do.
    is_counted: AtomicBool,
}

impl News {
    /// The oldest.
    pub fn take(&self) -> Option<(PeerId, Note)> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// From now on the endpoint counts what peers do.
    pub fn count(&self) {
        self.is_counted.store(true, Ordering::SeqCst);
    }

    fn is_counted(&self) -> bool {
        self.is_counted.load(Ordering::SeqCst)
    }

    fn add(&self, peer: PeerId, note: Note) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back((peer, note));
    }
}

/// Has an endpoint serve the regions of its domain.
///
/// # Errors
/// The library's, as a code.
pub fn serve(endpoint: &Endpoint, number: u64, regions: &Arc<Regions>, news: &Arc<News>) -> Answer {
    let failed = |_| Code(libc::ENOMEM);
    let (of, to) = (Arc::clone(regions), Arc::clone(news));
    let find = move |active: Active<'_>| {
        let found = find(&active, number, &of)
            .map(|found| Found { is_counted: found.is_counted || to.is_counted(), ..found });
        let _ = active.reply(&Found::bytes(found.as_ref()));
    };
    endpoint.handle(FIND, find).map_err(failed)?;
    let (of, to) = (Arc::clone(regions), Arc::clone(news));
    let change = move |active: Active<'_>| {
        let done = change(active.payload(), &of);
        if let Ok((access, _)) = &done
            && to.is_counted()
        {
            let note = Note { key: 0, access: *access, len: 0, data: None };
            to.add(active.peer(), note);
        }
        let _ = active.reply_owned(answer(done.map(|(_, fetched)| fetched)));
    };
    endpoint.handle(CHANGE, change).map_err(failed)?;
    let (of, to) = (Arc::clone(regions), Arc::clone(news));
    let note = move |active: Active<'_>| {
        if let Some(note) = Note::read(active.payload()) {
            if let Ok(region) = of.get(note.key) {
                region.used(note.access);
            }
            to.add(active.peer(), note);
        }
        let _ = active.reply(&[]);
    };
    endpoint.handle(NOTE, note).map_err(failed)
}

/// A peer asks for a region.
fn find(active: &Active<'_>, number: u64, regions: &Regions) -> Answer<Found> {
    let key: [u8; 8] = active.payload().try_into().map_err(|_| Code::INVALID)?;
    let region = regions.get(u64::from_le_bytes(key))?;
    if region.access & REMOTE == 0 {
        return Err(Code(libc::EACCES));
    }
    Ok(Found {
        base: region.base,
        start: region.memory.start as u64,
        len: region.memory.len() as u64,
        access: region.access,
        is_counted: region.is_counted(),
        key: region.exposed_by(active.endpoint(), number)?,
    })
}

/// The answer of an operation: a code, and the old elements.
fn answer(done: Answer<Vec<u8>>) -> Vec<u8> {
    let (code, mut fetched) = match done {
        Ok(fetched) => (0, fetched),
        Err(Code(code)) => (code, Vec::new()),
    };
    fetched.splice(0..0, code.to_le_bytes());
    fetched
}

/// A peer asks for an atomic operation. All of it is checked before anything is changed. Returns
/// the accesses that it took, and the old elements.
fn change(asked: &[u8], regions: &Regions) -> Answer<(u64, Vec<u8>)> {
    let Change { call, op, of, ranges, operands, compares } =
        Read::change(asked).ok_or(Code::INVALID)?;
    let bytes = of.bytes();
    let access = match (op, call) {
        (Op::Read, _) => FI_REMOTE_READ,
        (_, Call::Change) => FI_REMOTE_WRITE,
        _ => REMOTE,
    };
    let mut places = Vec::with_capacity(ranges.len());
    for range in &ranges {
        let region = regions.get(range.key)?;
        let len = (range.count as usize).checked_mul(bytes).ok_or(Code::INVALID)?;
        let at = region.place(range.at, len, access)?;
        if len > 0 && is_absent(at, len, access) {
            return Err(Code(libc::EFAULT));
        }
        places.push((at, range.count as usize, region));
    }
    let fetches = call != Call::Change;
    let mut fetched = Vec::new();
    let (mut operands, mut compares) = (operands.chunks(bytes), compares.chunks(bytes));
    for (at, count, region) in &places {
        for index in 0..*count {
            let with = operands.next().map_or(0, arithmetic::bits);
            let compare = compares.next().map_or(0, arithmetic::bits);
            let new = |was| arithmetic::changed(op, of, was, with, compare);
            // SAFETY: inside of a region that is registered with these rights, and there.
            let was = unsafe { update(at + index * bytes, bytes, new) };
            if fetches {
                fetched.extend_from_slice(&was.to_le_bytes()[..bytes]);
            }
        }
        region.used(access);
    }
    Ok((access, fetched))
}

/// Returns whether there is no memory for this use.
fn is_absent(at: usize, len: usize, access: u64) -> bool {
    if access & FI_REMOTE_WRITE != 0 {
        return match fault_safe_copy::put_pages(at as u64, len as u64) {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                // Memory that may not be written, or of a device; or a kernel without the call.
                // SAFETY: inside of a region, whose users are atomic ones.
                !unsafe { fault_safe_change::can_be_changed(at, len) }.unwrap_or(false)
            }
            Err(error) => matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EFAULT)),
        };
    }
    // SAFETY: it only reads.
    let checked = unsafe { fault_safe_copy::check_own(at as u64, len as u64, false) };
    checked.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
}

/// Changes one element. Returns its old bits.
///
/// # Safety
/// The memory may be read, and written unless the bits stay; other users of it are atomic ones.
unsafe fn update(at: usize, bytes: usize, new: impl Fn(u128) -> u128) -> u128 {
    static WIDE: Mutex<()> = Mutex::new(());
    macro_rules! swaps {
        ($atomic:ty, $word:ty) => {{
            let at = std::ptr::with_exposed_provenance_mut::<$word>(at);
            // SAFETY: aligned, as was looked at; the rest is the caller's.
            let word = unsafe { <$atomic>::from_ptr(at) };
            let mut was = word.load(Ordering::SeqCst);
            loop {
                let to = new(u128::from(was)) as $word;
                // Memory that is only read may be read-only.
                if to == was {
                    return u128::from(was);
                }
                match word.compare_exchange(was, to, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => return u128::from(was),
                    Err(now) => was = now,
                }
            }
        }};
    }
    match bytes {
        1 => swaps!(AtomicU8, u8),
        2 if at.is_multiple_of(2) => swaps!(AtomicU16, u16),
        4 if at.is_multiple_of(4) => swaps!(AtomicU32, u32),
        8 if at.is_multiple_of(8) => swaps!(AtomicU64, u64),
        _ => {
            let _held = WIDE.lock().unwrap_or_else(PoisonError::into_inner);
            let place = std::ptr::with_exposed_provenance_mut::<u8>(at);
            let mut old = [0; 16];
            // SAFETY: at most 16 bytes, which the caller says may be read.
            unsafe { std::ptr::copy_nonoverlapping(place, old.as_mut_ptr(), bytes) };
            let was = u128::from_le_bytes(old);
            let to = new(was);
            if to != was {
                // SAFETY: as above, and written.
                unsafe {
                    std::ptr::copy_nonoverlapping(to.to_le_bytes().as_ptr(), place, bytes);
                }
            }
            was
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served_wire::Range;

    fn asked(call: Call, op: i32, of: i32, range: Range, words: &[u64]) -> Vec<u8> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Change::asked(call, op, of, &[range], &bytes, &[])
    }

    #[test]
    fn nothing_is_where_nothing_is_mapped() {
        // Nothing can be, at the lowest addresses.
        assert!(is_absent(4096, 8, FI_REMOTE_WRITE) && is_absent(4096, 8, FI_REMOTE_READ));
        let word = 0u64;
        let at = (&raw const word).addr();
        assert!(!is_absent(at, 8, FI_REMOTE_WRITE) && !is_absent(at, 8, FI_REMOTE_READ));
    }

    #[test]
    fn operations_change_what_they_may_and_nothing_else() {
        let mut memory = [1u64, 2, 3];
        let start = memory.as_mut_ptr().expose_provenance();
        let regions = Regions::default();
        let region = regions.add(Some(9), start..start + 24, 0, REMOTE).unwrap();
        let range = |at, count| Range { at, key: 9, count };
        let (sum, uint64) = (2, 7);
        let done = change(&asked(Call::Fetch, sum, uint64, range(8, 2), &[10, 20]), &regions);
        let fetched: Vec<u8> = [2u64, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(done, Ok((REMOTE, fetched)));
        let outside = change(&asked(Call::Change, sum, uint64, range(16, 2), &[1, 1]), &regions);
        assert_eq!(outside, Err(Code(libc::EACCES)));
        let short = change(&asked(Call::Change, sum, uint64, range(0, 2), &[1]), &regions);
        assert_eq!(short, Err(Code::INVALID));
        // SAFETY: the array; nothing else uses it.
        assert_eq!(unsafe { std::ptr::read_volatile(&raw const memory) }, [1, 12, 23]);
        regions.remove(&region);
        let gone = change(&asked(Call::Change, sum, uint64, range(0, 1), &[1]), &regions);
        assert!(gone.is_err());
        for short in 0..40 {
            let _ = change(&vec![255; short], &regions);
        }
    }

    #[test]
    fn wide_and_unaligned_elements_are_whole() {
        let mut memory = [0u8; 40];
        let at = memory.as_mut_ptr().expose_provenance() + 1;
        // SAFETY: inside of the array, which nothing else uses.
        unsafe {
            assert_eq!(update(at, 16, |was| was + u128::MAX / 3), 0);
            assert_eq!(update(at, 16, |was| was), u128::MAX / 3);
            assert_eq!(update(at + 17, 4, |_| 7), 0);
            assert_eq!(update(at + 17, 1, |was| was), 7);
        }
    }
}
