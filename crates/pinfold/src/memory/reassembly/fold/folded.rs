#![allow(unsafe_code)]
//! A message that is contiguous.
//!
//! **Invariants.** `len` bytes from `at` on can be read while a [`Folded`] lives, and written if
//! `is_private`; no other code in this process writes there, nor, if the message is [`Quiet`], in
//! another. The message is taken out once: by `unfold`, by drop, or never in a child of `fork(2)`.

use std::{
    fmt,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{self, NonNull},
    slice,
    sync::Arc,
};

use super::{Quiet, Receipt, Scattered, carry::Carried, folder::Inner, stock::Buffer};

/// The place of the bytes.
pub(super) enum Kept {
    /// In the message.
    Message,
    /// In memory of the folder's.
    Memory(Buffer),
    /// In the window.
    Window(Carried),
}

/// A message that is contiguous.
///
/// Dropped, it gives its pages back, and its bytes are seen nowhere. In a child of `fork(2)` it
/// keeps everything: there it is a copy of its parent's, and can be read only if it is not in
/// place.
pub struct Folded<M: Scattered> {
    inner: Arc<Inner>,
    message: ManuallyDrop<M>,
    /// `None` when the message was taken out.
    kept: Option<Kept>,
    at: NonNull<u8>,
    is_private: bool,
    /// True if the caller may have written to it.
    changed: bool,
    receipt: Receipt,
}

// SAFETY: the memory belongs to the value and no thread, and is reached by the rules of references.
unsafe impl<M: Scattered> Send for Folded<M> {}
// SAFETY: as for `Send`; nothing changes behind `&`.
unsafe impl<M: Scattered> Sync for Folded<M> {}

impl<M: Scattered> Folded<M> {
    pub(super) fn new(
        inner: Arc<Inner>,
        message: M,
        kept: Kept,
        at: NonNull<u8>,
        receipt: Receipt,
    ) -> Folded<M> {
        let is_private = message.is_private()
            && match &kept {
                Kept::Message | Kept::Memory(_) => true,
                Kept::Window(carried) => carried.is_private(),
            };
        let (message, kept) = (ManuallyDrop::new(message), Some(kept));
        Folded { inner, message, kept, at, is_private, changed: false, receipt }
    }

    /// The receipt: the way the message was made contiguous, and the reasons.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.receipt.bytes as usize
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first byte. All can be read while this lives; if another process may write them, by
    /// pointers alone.
    pub fn as_ptr(&self) -> *const u8 {
        self.at.as_ptr()
    }

    /// Copies its bytes from `offset` on to `to`, as many as there are and have room. Returns how
    /// many; 0 in a child of `fork(2)` if it is in place.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> usize {
        if matches!(self.kept, Some(Kept::Message)) && self.inner.is_child() {
            return 0;
        }
        let len = self.len().saturating_sub(offset).min(to.len());
        if len > 0 {
            // SAFETY: within the message; `to` cannot overlap it.
            unsafe { self.as_ptr().add(offset).copy_to_nonoverlapping(to.as_mut_ptr(), len) };
        }
        len
    }

    /// The message in its pieces again: its pages back in their place and its bytes in them, with
    /// those written by [`as_mut`](Folded::as_mut).
    ///
    /// To move pages back costs as much as to move them. In a child of `fork(2)` nothing is moved.
    pub fn unfold(mut self) -> M {
        if self.changed {
            self.write_back();
        }
        self.end(true);
        // SAFETY: `kept` is `None` now, so drop does not take it again.
        unsafe { ManuallyDrop::take(&mut self.message) }
    }

    /// Writes the copied bytes back to the message.
    fn write_back(&mut self) {
        match (&self.kept, self.inner.window()) {
            // SAFETY: bytes that were given out to be written are private, and then the message can
            // be written.
            (Some(Kept::Window(carried)), Some(window)) => unsafe { carried.write_back(window) },
            (Some(Kept::Memory(_)), _) => {
                let (mut pieces, mut from) = (Vec::new(), self.as_ptr());
                self.message.gather(&mut pieces);
                for piece in pieces {
                    let to = ptr::with_exposed_provenance_mut::<u8>(piece.at as usize);
                    // SAFETY: as above; the pieces are as long together as the message.
                    unsafe {
                        from.copy_to_nonoverlapping(to, piece.len as usize);
                        from = from.add(piece.len as usize);
                    }
                }
            }
            _ => {}
        }
    }

    /// Ends the message, once. Returns whether no byte of it can be seen any more, and its pages
    /// may go to others.
    fn end(&mut self, keep: bool) -> bool {
        let kept = self.kept.take();
        if self.inner.is_child() {
            // The pages belong to the parent's pool, and a lock may be held by a thread that is not
            // here.
            std::mem::forget(kept);
            return false;
        }
        match (kept, self.inner.window()) {
            (Some(Kept::Window(carried)), Some(window)) => {
                carried.undo(&self.inner, window, &mut *self.message, keep)
            }
            (Some(Kept::Memory(buffer)), _) => {
                self.inner.stock.put(buffer);
                true
            }
            _ => true,
        }
    }
}

impl<M: Scattered> Folded<Vec<M>> {
    /// The message's parts, if its bytes were copied to other memory: the parts are used no more,
    /// and [`unfold`](Folded::unfold) has none of them. Otherwise none.
    pub fn take_parts(&mut self) -> Vec<M> {
        match self.kept {
            Some(Kept::Memory(_)) if !self.inner.is_child() => std::mem::take(&mut *self.message),
            _ => Vec::new(),
        }
    }
}

impl<M: Quiet> Folded<M> {
    /// Its bytes, to be changed: if no other process can see them, which is so if none of them came
    /// in a file.
    pub fn as_mut(&mut self) -> Option<&mut [u8]> {
        self.changed |= self.is_private;
        // SAFETY: private memory of the message alone, which can be written; borrowed as `&mut`.
        self.is_private.then(|| unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len()) })
    }
}

impl<M: Quiet> Deref for Folded<M> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes can be read, and no code changes them while they are borrowed.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len()) }
    }
}

impl<M: Scattered> Drop for Folded<M> {
    fn drop(&mut self) {
        if self.kept.is_some() && self.end(false) {
            // SAFETY: `kept` was there, so the message was not taken yet. Otherwise its pages may
            // still be seen, and do not go to the next message.
            unsafe { ManuallyDrop::drop(&mut self.message) };
        }
    }
}

impl<M: Scattered> fmt::Debug for Folded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folded({})", self.receipt)
    }
}
