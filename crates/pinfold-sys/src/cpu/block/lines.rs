//! The loops over cache lines, one for all sets of instructions that go by lines: as in Calhoun's
//! Fig. 4.1, a block of the source is fetched, then copied line by line; then comes the next. Lines
//! of the destination are asked for a little ahead of the loop: another core takes a while to give
//! one up, and meanwhile as many others as possible should be asked for and written, without a
//! pause between blocks.

use super::{
    Prefetch, Stores, fence, fetch, libc,
    sizes::{AHEAD, BLOCK, LINE, SHORT},
};

/// Moves of one line by a set of instructions.
pub(super) trait Line {
    /// Copies the line at `from + AT` to `to + AT`.
    ///
    /// # Safety
    /// The processor has the instructions; that line of `from` can be read, that of `to` written.
    /// To stream, `to` is a multiple of [`LINE`].
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8);

    /// Copies four lines.
    ///
    /// # Safety
    /// As for [`Line::copy`], of each.
    #[inline(always)]
    unsafe fn copy_four<const STREAMING: bool>(from: *const u8, to: *mut u8) {
        // SAFETY: as the caller promised.
        unsafe {
            Self::copy::<0, STREAMING>(from, to);
            Self::copy::<LINE, STREAMING>(from, to);
            Self::copy::<{ 2 * LINE }, STREAMING>(from, to);
            Self::copy::<{ 3 * LINE }, STREAMING>(from, to);
        }
    }

    /// Zeroes the line at `to + AT`.
    ///
    /// # Safety
    /// As for [`Line::copy`].
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8);

    /// Work that these instructions want done after the last of them.
    ///
    /// # Safety
    /// The processor has the instructions.
    #[inline(always)]
    unsafe fn leave() {}
}

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has the instructions of `L` and `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy<L: Line>(
    prefetch: Prefetch,
    stores: Stores,
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    // SAFETY: as the caller promised; the loops are for blocks that are not short.
    unsafe {
        match stores {
            _ if len < SHORT => libc::copy(prefetch, from, to, len),
            Stores::Temporal => copy_long::<L, false>(prefetch, from, to, len),
            Stores::Streaming => copy_long::<L, true>(prefetch, from, to, len),
        }
    }
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has the instructions of `L` and `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero<L: Line>(prefetch: Prefetch, stores: Stores, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised; the loops are for blocks that are not short.
    unsafe {
        match stores {
            _ if len < SHORT => libc::zero(prefetch, to, len),
            Stores::Temporal => zero_long::<L, false>(prefetch, to, len),
            Stores::Streaming => zero_long::<L, true>(prefetch, to, len),
        }
    }
}

/// Bytes that the loops go by.
const FOUR: usize = 4 * LINE;

/// Zeroes four lines.
///
/// # Safety
/// As for [`Line::zero`], of each.
#[inline(always)]
unsafe fn zero_four<L: Line, const STREAMING: bool>(to: *mut u8) {
    // SAFETY: as the caller promised.
    unsafe {
        L::zero::<0, STREAMING>(to);
        L::zero::<LINE, STREAMING>(to);
        L::zero::<{ 2 * LINE }, STREAMING>(to);
        L::zero::<{ 3 * LINE }, STREAMING>(to);
    }
}

/// Bytes from `to` to the next line.
fn head(to: *mut u8) -> usize {
    to.addr().wrapping_neg() % LINE
}

/// As [`copy`], of [`SHORT`] bytes or more.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn copy_long<L: Line, const STREAMING: bool>(
    prefetch: Prefetch,
    mut from: *const u8,
    mut to: *mut u8,
    len: usize,
) {
    let head = head(to);
    let mut left = len - head;
    // SAFETY: there are at least two lines, so the whole line at either end, wherever it begins,
    // lies within the caller's memory; all others begin where the last one ended, and end before
    // `left` does. After the head `to` is a multiple of a line.
    unsafe {
        // Lines that overlap the first and the last whole one: two stores to one line cost nothing
        // in the cache. If they were streamed, such a line would have to come back from memory.
        if STREAMING {
            libc::copy(Prefetch::None, from, to, head);
        } else {
            L::copy::<0, false>(from, to);
        }
        (from, to) = (from.add(head), to.add(head));
        if prefetch == Prefetch::Destination {
            fetch::to_write(to, left.min(AHEAD));
            while left >= AHEAD + FOUR {
                fetch::to_write(to.add(AHEAD), FOUR);
                L::copy_four::<STREAMING>(from, to);
                (from, to) = (from.add(FOUR), to.add(FOUR));
                left -= FOUR;
            }
        }
        while left >= LINE {
            let block = left.min(BLOCK) / LINE * LINE;
            if prefetch == Prefetch::Source {
                fetch::to_read(from, block);
            }
            let end = to.add(block);
            for _ in 0..block / FOUR {
                L::copy_four::<STREAMING>(from, to);
                (from, to) = (from.add(FOUR), to.add(FOUR));
            }
            while to != end {
                L::copy::<0, STREAMING>(from, to);
                (from, to) = (from.add(LINE), to.add(LINE));
            }
            left -= block;
        }
        if STREAMING {
            libc::copy(Prefetch::None, from, to, left);
        } else {
            L::copy::<0, false>(from.add(left).sub(LINE), to.add(left).sub(LINE));
        }
        L::leave();
    }
    if STREAMING {
        fence();
    }
}

/// As [`zero`], of [`SHORT`] bytes or more.
///
/// # Safety
/// As for [`zero`].
#[inline(always)]
unsafe fn zero_long<L: Line, const STREAMING: bool>(
    prefetch: Prefetch,
    mut to: *mut u8,
    len: usize,
) {
    let head = head(to);
    let mut left = len - head;
    // SAFETY: as in `copy_long`.
    unsafe {
        if STREAMING {
            libc::zero(Prefetch::None, to, head);
        } else {
            L::zero::<0, false>(to);
        }
        to = to.add(head);
        if prefetch == Prefetch::Destination {
            fetch::to_write(to, left.min(AHEAD));
            while left >= AHEAD + FOUR {
                fetch::to_write(to.add(AHEAD), FOUR);
                zero_four::<L, STREAMING>(to);
                to = to.add(FOUR);
                left -= FOUR;
            }
        }
        while left >= LINE {
            let block = left.min(BLOCK) / LINE * LINE;
            let end = to.add(block);
            for _ in 0..block / FOUR {
                zero_four::<L, STREAMING>(to);
                to = to.add(FOUR);
            }
            while to != end {
                L::zero::<0, STREAMING>(to);
                to = to.add(LINE);
            }
            left -= block;
        }
        if STREAMING {
            libc::zero(Prefetch::None, to, left);
        } else {
            L::zero::<0, false>(to.add(left).sub(LINE));
        }
        L::leave();
    }
    if STREAMING {
        fence();
    }
}
