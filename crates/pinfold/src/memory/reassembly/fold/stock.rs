#![allow(unsafe_code)]
//! Memory for messages that are copied, kept from one to the next: pages that are there already
//! take a copy half the time.
//!
//! **Invariant.** A [`Buffer`] owns its allocation, which no other code knows. It holds old
//! messages: only bytes that were written anew may be shown.

use std::{
    alloc::{Layout, alloc, dealloc},
    ptr::NonNull,
};

use parking_lot::Mutex;

use super::super::PAGE_BYTES;

/// Memory that one message has.
pub(super) struct Buffer {
    pub(super) at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to the value and no thread.
unsafe impl Send for Buffer {}
// SAFETY: as above; nothing changes behind `&`.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new(len: usize) -> Option<Buffer> {
        // An eighth more at most, so that the next message may be a little longer.
        let step = (len.max(1).checked_next_power_of_two()? / 8).max(PAGE_BYTES);
        let size = len.max(1).checked_next_multiple_of(step)?;
        let layout = Layout::from_size_align(size, PAGE_BYTES).ok()?;
        // SAFETY: the layout is not empty.
        let at = NonNull::new(unsafe { alloc(layout) })?;
        Some(Buffer { at, layout })
    }

    fn room(&self) -> usize {
        self.layout.size()
    }

    /// Returns whether a message of so many bytes may have the buffer: not if it is much too long.
    fn fits(&self, len: usize) -> bool {
        len <= self.room() && self.room() <= (4 * len).max(1 << 16)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed only here.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}

/// Buffers that wait for messages.
pub(super) struct Stock {
    kept: Mutex<Vec<Buffer>>,
    bytes_max: usize,
}

/// Buffers that are kept, at most.
const KEPT_MAX: usize = 32;

impl Stock {
    pub(super) fn new(bytes_max: usize) -> Stock {
        Stock { kept: Mutex::new(Vec::new()), bytes_max }
    }

    /// Memory for so many bytes, used before if there is any. `None`: there is none.
    pub(super) fn take(&self, len: usize) -> Option<Buffer> {
        self.take_kept(len).or_else(|| Buffer::new(len))
    }

    /// The same out of the kept buffers.
    fn take_kept(&self, len: usize) -> Option<Buffer> {
        let mut kept = self.kept.lock();
        let fit = |(_, buffer): &(usize, &Buffer)| buffer.fits(len);
        let best = kept.iter().enumerate().filter(fit).min_by_key(|(_, buffer)| buffer.room());
        let at = best.map(|(at, _)| at)?;
        Some(kept.swap_remove(at))
    }

    /// Returns whether memory for so many bytes would be kept.
    pub(super) fn keeps(&self, len: usize) -> bool {
        len <= self.bytes_max
    }

    /// Keeps a buffer, if it may.
    pub(super) fn put(&self, buffer: Buffer) {
        let mut kept = self.kept.lock();
        let bytes: usize = kept.iter().map(Buffer::room).sum();
        if bytes + buffer.room() <= self.bytes_max && kept.len() < KEPT_MAX {
            kept.push(buffer);
        } else if buffer.room() <= self.bytes_max {
            // The buffer that came last is used next; the oldest go.
            let mut bytes = bytes + buffer.room();
            let mut count = kept.len() + 1;
            let gone = kept.iter().take_while(|old| {
                let over = bytes > self.bytes_max || count > KEPT_MAX;
                bytes -= if over { old.room() } else { 0 };
                count -= usize::from(over);
                over
            });
            let gone = gone.count();
            let old: Vec<Buffer> = kept.drain(..gone).collect();
            kept.push(buffer);
            drop(kept);
            drop(old);
        }
    }

    /// Bytes that are kept.
    pub(super) fn bytes(&self) -> usize {
        self.kept.lock().iter().map(Buffer::room).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_bounds() {
        let stock = Stock::new(1 << 20);
        let has = |len: usize| stock.kept.lock().iter().any(|buffer| buffer.fits(len));
        assert!(!has(100) && stock.keeps(1 << 20) && !stock.keeps((1 << 20) + 1));
        let a = stock.take(300 << 10).unwrap();
        let (at, room) = (a.at, a.room());
        assert!((300 << 10..=360 << 10).contains(&room));
        stock.put(a);
        assert!(has(290 << 10) && !has(30 << 10) && !has(400 << 10));
        let b = stock.take(290 << 10).unwrap();
        assert_eq!((b.at, stock.bytes()), (at, 0));
        let all: Vec<_> = (0..5).map(|_| stock.take(300 << 10).unwrap()).collect();
        all.into_iter().for_each(|buffer| stock.put(buffer));
        assert_eq!(stock.bytes() / room, (1 << 20) / room);
        stock.put(stock.take(2 << 20).unwrap());
        assert!(!has(2 << 20) && stock.bytes() > 0);
        (0..100).for_each(|_| stock.put(Buffer::new(1).unwrap()));
        assert!(stock.bytes() <= 1 << 20 && stock.kept.lock().len() <= KEPT_MAX);
        assert!(stock.take(usize::MAX).is_none());
        // The shortest that will do.
        let stock = Stock::new(1 << 20);
        [300, 100, 200].into_iter().for_each(|kib| stock.put(Buffer::new(kib << 10).unwrap()));
        assert!(stock.take(90 << 10).unwrap().room() < 200 << 10);
    }
}
