//! `Slots`: the words of this process that peers read and write during the trial of paths.
//!
//! A slow peer may use them long after this side has given the greeting up, for a system call that
//! has begun cannot be taken back. So these words are never used for anything else: they lie in
//! pages that are never freed, each slot serves one greeting at a time, and a slot that was given
//! back rests while the others have their turn. Giving it back wipes the mark, without which an
//! honest peer writes nothing. Nothing is locked, so that a child forked at any moment can go on
//! with its own copy.
#![allow(unsafe_code)]
// Invariant: a page that was published stays where it is, and stays pages of slots, until the
// process ends. All words of a slot are atomic, since others write them at any time.

use std::{
    alloc::{Layout, alloc_zeroed, handle_alloc_error},
    iter,
    ops::Deref,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering},
};

/// Number of slots that fill a page of memory, together with the link to the next page.
const SLOTS_A_PAGE: usize = 63;

/// 16 bytes that others may touch.
#[derive(Debug, Default)]
#[repr(C)]
struct Words([AtomicU64; 2]);

impl Words {
    fn get(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (half, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0) {
            // Pairs with no store in this process: the message that causes this read was sent after
            // the peer's write.
            *half = word.load(Ordering::Acquire).to_ne_bytes();
        }
        bytes
    }

    fn set(&self, bytes: [u8; 16]) {
        for (word, half) in self.0.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_ne_bytes(*half), Ordering::Release);
        }
    }

    fn addr(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}

/// The words that one greeting shows to its peer.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    nonce: Words,
    // A peer reads the nonce and the mark at once.
    mark: Words,
    scratch: Words,
    /// True while a greeting has it. Acquired by the next one, released by the last.
    taken: AtomicBool,
}

impl Slot {
    /// The nonce that the peer has to read.
    pub(crate) fn nonce(&self) -> [u8; 16] {
        self.nonce.get()
    }

    /// The mark behind the nonce.
    pub(crate) fn mark(&self) -> [u8; 16] {
        self.mark.get()
    }

    /// The bytes that the peer has written.
    pub(crate) fn scratch(&self) -> [u8; 16] {
        self.scratch.get()
    }

    pub(crate) fn nonce_addr(&self) -> u64 {
        self.nonce.addr()
    }

    pub(crate) fn scratch_addr(&self) -> u64 {
        self.scratch.addr()
    }
}

#[repr(C, align(4096))]
struct Page {
    slots: [Slot; SLOTS_A_PAGE],
    older: Option<&'static Page>,
}

const _: () = {
    assert!(size_of::<Slot>() == 64);
    assert!(std::mem::offset_of!(Slot, mark) == std::mem::offset_of!(Slot, nonce) + 16);
    assert!(size_of::<Page>() == 4096);
};

/// A slot, for as long as one greeting lasts.
#[derive(Debug)]
pub(crate) struct Lease(&'static Slot);

impl Deref for Lease {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The mark goes first, so that a peer that reads it from now on writes nothing.
        self.0.mark.set([0; 16]);
        self.0.nonce.set([0; 16]);
        self.0.taken.store(false, Ordering::Release);
    }
}

/// The slots: as many as are ever needed at a time.
pub(crate) struct Slots {
    /// The page made last; null or leaked. Released with the page's contents.
    newest: AtomicPtr<Page>,
    /// Index at which a search begins. A hint only: it lets slots rest.
    next: AtomicUsize,
}

/// The slots of this process.
pub(crate) static SLOTS: Slots = Slots::new();

impl Slots {
    const fn new() -> Slots {
        Slots { newest: AtomicPtr::new(ptr::null_mut()), next: AtomicUsize::new(0) }
    }

    /// Takes a slot. Its scratch has not been written yet, except by a peer of an earlier greeting
    /// that was about to write when the greeting was given up.
    pub(crate) fn take(&self, nonce: [u8; 16], mark: [u8; 16]) -> Lease {
        let slot = loop {
            match self.find_free() {
                Some(slot) => break slot,
                None => self.grow(),
            }
        };
        slot.scratch.set([0; 16]);
        slot.nonce.set(nonce);
        slot.mark.set(mark);
        Lease(slot)
    }

    /// Returns whether the 16 bytes at `addr` are a scratch of this process, now and for ever.
    pub(crate) fn has_scratch_at(&self, addr: u64) -> bool {
        self.all().any(|slot| slot.scratch_addr() == addr)
    }

    fn all(&self) -> impl Iterator<Item = &'static Slot> {
        // SAFETY: null, or a page that was made by `grow` and is never freed or moved again. Its
        // plain part was written before it was published, which this load acquires; the rest is
        // atomic. No mutable reference to a published page exists.
        let newest: Option<&'static Page> = unsafe { self.newest.load(Ordering::Acquire).as_ref() };
        iter::successors(newest, |page| page.older).flat_map(|page| &page.slots)
    }

    /// Takes the free slot that has rested longest, more or less.
    fn find_free(&self) -> Option<&'static Slot> {
        let count = self.all().count();
        let first = self.next.load(Ordering::Relaxed).checked_rem(count)?;
        let in_turn = self.all().skip(first).chain(self.all().take(first));
        let (at, slot) = in_turn.enumerate().find(|(_, slot)| {
            let taken = &slot.taken;
            taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        self.next.store(first + at + 1, Ordering::Relaxed);
        Some(slot)
    }

    fn grow(&self) {
        // The page is made where it stays: it is too long for a stack.
        let layout = Layout::new::<Page>();
        // SAFETY: the layout's size is not 0. Zeros are valid slots, and no link.
        let page = unsafe { alloc_zeroed(layout) }.cast::<Page>();
        if page.is_null() {
            handle_alloc_error(layout);
        }
        let mut newest = self.newest.load(Ordering::Acquire);
        loop {
            // SAFETY: `page` is this call's own until it is published, below; `newest` is null or
            // a published page, as in `all`.
            unsafe { (*page).older = newest.as_ref() };
            let result =
                self.newest.compare_exchange(newest, page, Ordering::AcqRel, Ordering::Acquire);
            match result {
                Ok(_) => return,
                Err(other) => newest = other,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_greeting_has_a_slot_of_its_own() {
        let slots = Slots::new();
        let leases: Vec<Lease> =
            (0..3 * SLOTS_A_PAGE as u8).map(|i| slots.take([i; 16], [!i; 16])).collect();
        let addrs: HashSet<u64> = leases.iter().map(|lease| lease.scratch_addr()).collect();
        assert_eq!(addrs.len(), leases.len());
        for (lease, i) in leases.iter().zip(0..) {
            assert_eq!(
                (lease.nonce(), lease.mark(), lease.scratch()),
                ([i; 16], [!i; 16], [0; 16])
            );
            assert!(slots.has_scratch_at(lease.scratch_addr()));
            assert!(!slots.has_scratch_at(lease.scratch_addr() + 8));
            assert!(!slots.has_scratch_at(lease.nonce_addr()));
        }
    }

    #[test]
    fn a_slot_given_back_is_wiped_and_rests() {
        let slots = Slots::new();
        let _long = slots.take([9; 16], [9; 16]);
        let lease = slots.take([1; 16], [2; 16]);
        let (slot, addr) = (lease.0, lease.scratch_addr());
        drop(lease);
        assert_eq!((slot.nonce(), slot.mark()), ([0; 16], [0; 16]));
        // A late peer writes.
        slot.scratch.set([7; 16]);
        for _ in 2..SLOTS_A_PAGE {
            assert_ne!(slots.take([3; 16], [4; 16]).scratch_addr(), addr);
        }
        let again = slots.take([5; 16], [6; 16]);
        assert_eq!(again.scratch_addr(), addr, "no page was added");
        assert_eq!((again.mark(), again.scratch()), ([6; 16], [0; 16]));
    }

    #[test]
    fn bytes_keep_their_order() {
        let words = Words::default();
        let bytes = std::array::from_fn(|i| i as u8);
        words.set(bytes);
        assert_eq!(words.get(), bytes);
        assert_eq!(
            words.0[0].load(Ordering::Relaxed),
            u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7])
        );
    }

    #[test]
    fn threads_never_share_a_slot() {
        static SHARED: Slots = Slots::new();
        let (threads, rounds) = if cfg!(miri) { (3, 1) } else { (8, 2000) };
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    for _ in 0..rounds {
                        let leases: [Lease; 12] =
                            std::array::from_fn(|i| SHARED.take([thread; 16], [i as u8; 16]));
                        for (lease, i) in leases.iter().zip(0..) {
                            assert_eq!((lease.nonce(), lease.mark()), ([thread; 16], [i; 16]));
                        }
                    }
                });
            }
        });
        assert_eq!(SHARED.all().filter(|slot| slot.taken.load(Ordering::Relaxed)).count(), 0);
    }
}
