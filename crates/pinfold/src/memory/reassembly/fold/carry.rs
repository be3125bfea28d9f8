#![allow(unsafe_code)]
//! The carrying out of a plan in a range of the window, and its undoing.
//!
//! **Invariants.** A [`Carried`] has its range alone; the pages it moved there came from the places
//! in `moved`, and nothing else lies at those places now. After it was undone, no byte of the
//! message can be seen in the window.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use pinfold_sys::mem::userfault::{Mover, Stop};
use rustix::io::Errno;

use super::{
    super::{
        HUGE_BYTES, PAGE_BYTES,
        gather::{How, Piece, Plan},
    },
    Scattered,
    books::Lodging,
    copying::Copying,
    folder::{Inner, Window},
    receipt::{Receipt, Why},
};

/// Bytes that were moved, or copied.
#[derive(Clone, Copy, Debug)]
struct Gone {
    /// The address they came from.
    from: usize,
    /// Their place in the message.
    to: usize,
    len: usize,
}

/// A part of a file that is to be mapped.
pub(super) struct Part<'a> {
    file: BorrowedFd<'a>,
    offset: u64,
    to: usize,
    len: usize,
}

/// A message in the window.
pub(super) struct Carried {
    lodging: Lodging,
    moved: Vec<Gone>,
    mapped: bool,
    /// The ranges that were copied there.
    copied: Vec<Gone>,
    /// Some small pages were moved there.
    small: bool,
}

/// Refusals by the kernel after which the rest is copied at once.
const STOPS_MAX: u32 = 16;

/// The parts that a plan maps. Neighbours in the plan may be of different files.
pub(super) fn parts<'a, M: Scattered>(
    message: &'a M,
    pieces: &[Piece],
    plan: &Plan,
) -> Vec<Part<'a>> {
    let (mut parts, mut files): (Vec<Part<'a>>, _) = (Vec::new(), Vec::new());
    if plan.mapping.cheapest > 0 {
        message.files(pieces.len(), &mut files);
    }
    let (mut at, mut begin) = (0, 0);
    for step in plan.steps.iter().filter(|step| step.how == How::Map) {
        let mut to = step.to;
        while to < step.to + step.len {
            while at + 1 < pieces.len() && begin + pieces[at].len <= to {
                begin += pieces[at].len;
                at += 1;
            }
            let last = at + 1 == pieces.len();
            let end = if last { u64::MAX } else { begin + pieces[at].len };
            let end = end.min(step.to + step.len);
            let Some(file) = files.get(at).copied().flatten() else { return Vec::new() };
            let offset = step.from + (to - step.to);
            match parts.last_mut() {
                Some(part)
                    if part.file.as_raw_fd() == file.as_raw_fd()
                        && part.to + part.len == to as usize
                        && part.offset + part.len as u64 == offset =>
                {
                    part.len += (end - to) as usize;
                }
                _ => parts.push(Part { file, offset, to: to as usize, len: (end - to) as usize }),
            }
            to = end;
        }
    }
    parts
}

/// Puts a message into the window. If that cannot be done, no byte of it was touched, and the
/// reason is returned.
pub(super) fn carry(
    inner: &Inner,
    window: &Window,
    lodging: Lodging,
    plan: &Plan,
    parts: &[Part<'_>],
    receipt: &mut Receipt,
) -> Result<Carried, Why> {
    let start = lodging.bytes.start;
    let mut done = window.reserved.open(lodging.bytes.clone());
    for part in parts {
        if done.is_err() {
            break;
        }
        let range = start + part.to..start + part.to + part.len;
        // SAFETY: the range is the message's, and nothing is there yet; `Scattered` promises that
        // the part is in the file.
        done = unsafe { window.reserved.map(range, part.file, part.offset) };
    }
    if let Err(error) = done {
        take_away(inner, window, lodging, true, window.mover.as_deref());
        return Err(Why::Os(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
    }
    let (bytes, mapped) = (receipt.bytes as usize, !parts.is_empty());
    let (moved, copied) = (Vec::new(), Vec::new());
    let mut carried = Carried { lodging, moved, mapped, copied, small: false };
    for step in &plan.steps {
        let gone = Gone { from: step.from as usize, to: step.to as usize, len: step.len as usize };
        match step.how {
            How::Map => receipt.mapped += (bytes.min(gone.to + gone.len) - gone.to) as u64,
            How::Copy => carried.copied.push(gone),
            How::Move => {
                let before = carried.moved.len();
                carried.bring(window, gone, receipt);
                for gone in &carried.moved[before..] {
                    receipt.moved += (bytes.min(gone.to + gone.len) - gone.to) as u64;
                }
            }
        }
    }
    let at = window.reserved.as_ptr().wrapping_add(start);
    let copying = Copying::new(carried.copied.iter().map(|copy| copy.len).sum(), at);
    for Gone { from, to, len } in &mut carried.copied {
        *len = (*len).min(bytes - *to);
        let from = ptr::with_exposed_provenance(*from);
        // SAFETY: the message's bytes, which it keeps; the range is open there and the message's
        // alone.
        unsafe { copying.copy(from, at.add(*to), *len) };
        receipt.copied += *len as u64;
    }
    Ok(carried)
}

impl Carried {
    /// The first byte.
    pub(super) fn at(&self, window: &Window) -> *mut u8 {
        window.reserved.as_ptr().wrapping_add(self.lodging.bytes.start)
    }

    /// Returns whether all bytes can be written and are this message's alone.
    pub(super) fn is_private(&self) -> bool {
        !self.mapped
    }

    /// Tells the message which huge pages were torn, as byte ranges of it.
    pub(super) fn tear<M: Scattered>(&self, message: &mut M) {
        for gone in &self.moved {
            let (first, last) = self.huge(gone);
            for (start, end) in [(gone.to, first), (last, gone.to + gone.len)] {
                if start < end {
                    message.torn(start as u64..end as u64);
                }
            }
        }
    }

    /// The range, by offsets in the message, in which pages were moved as huge ones, if they were
    /// huge.
    fn huge(&self, gone: &Gone) -> (usize, usize) {
        let end = gone.to + gone.len;
        let first = gone.to.next_multiple_of(HUGE_BYTES);
        let last = end / HUGE_BYTES * HUGE_BYTES;
        let alike = self.lodging.is_huge() && gone.from % HUGE_BYTES == gone.to % HUGE_BYTES;
        if alike && first < last { (first, last) } else { (end, end) }
    }

    /// Moves pages there; those that the kernel will not move are left to be copied.
    fn bring(&mut self, window: &Window, step: Gone, receipt: &mut Receipt) {
        let start = window.reserved.as_ptr().addr() + self.lodging.bytes.start;
        let Some(mover) = &window.mover else { return self.copied.push(step) };
        let mut done = 0;
        while done < step.len {
            let from = step.from + done..step.from + step.len;
            // SAFETY: the pages are the message's, which promises that no thread uses them now; the
            // destination is the message's range, registered.
            let moved = unsafe { mover.move_pages(start + step.to + done, from, false) };
            let (bytes, stop) = match moved {
                Ok(moved) => (moved.bytes, moved.stop),
                Err(error) => (0, Some(Stop::Other(error.errno()))),
            };
            if bytes > 0 {
                let gone = Gone { from: step.from + done, to: step.to + done, len: bytes };
                let (first, last) = self.huge(&gone);
                self.small |= last - first < bytes;
                self.moved.push(gone);
                done += bytes;
            }
            let Some(stop) = stop else { continue };
            receipt.stops += 1;
            receipt.stop.get_or_insert(stop);
            let left = step.len - done;
            let huge = [step.from + done, step.to + done].iter().all(|at| at % HUGE_BYTES == 0);
            let len = match stop {
                _ if receipt.stops >= STOPS_MAX => left,
                Stop::Busy if huge && self.lodging.is_huge() => HUGE_BYTES.min(left),
                Stop::Busy | Stop::Hole | Stop::Taken => PAGE_BYTES.min(left),
                _ => left,
            };
            self.copied.push(Gone { from: step.from + done, to: step.to + done, len });
            done += len;
        }
    }

    /// Writes the bytes that were copied there back to their old places.
    ///
    /// # Safety
    /// That is memory of the message that can be written.
    pub(super) unsafe fn write_back(&self, window: &Window) {
        for Gone { from, to, len } in &self.copied {
            let back = ptr::with_exposed_provenance_mut::<u8>(*from);
            // SAFETY: as the caller promised; the window is another place.
            unsafe { self.at(window).add(*to).copy_to_nonoverlapping(back, *len) };
        }
    }

    /// Takes the message out of the window again, its pages back to where they were. With `keep`
    /// its bytes are there afterwards; without, pages that are dearer to move than to replace, or
    /// that the kernel will not move, are given to the system. Returns whether no byte of it can be
    /// seen in the window.
    pub(super) fn undo<M: Scattered>(
        mut self,
        inner: &Inner,
        window: &Window,
        message: &mut M,
        keep: bool,
    ) -> bool {
        // Only small pages that lie where huge ones go leave a trace when all went back.
        let mut clear =
            self.mapped || !self.copied.is_empty() || (self.small && self.lodging.is_huge());
        // A filter that has come since may be one that kills a process for this request.
        let mover = window.mover.as_deref().filter(|mover| mover.may_ask());
        for gone in std::mem::take(&mut self.moved) {
            let (first, last) = self.huge(&gone);
            let huge = (last - first) / HUGE_BYTES;
            let pages = (gone.len - (last - first)) / PAGE_BYTES;
            let back = keep || (mover.is_some() && inner.is_back_cheaper(pages, huge));
            let all = back && self.put_back(window, mover, gone, message, keep);
            if !back {
                message.left(gone.to as u64..(gone.to + gone.len) as u64);
            }
            clear |= !all;
        }
        take_away(inner, window, self.lodging, clear, mover)
    }

    /// Returns whether all pages went back by moving.
    fn put_back<M: Scattered>(
        &self,
        window: &Window,
        mover: Option<&Mover>,
        gone: Gone,
        message: &mut M,
        keep: bool,
    ) -> bool {
        let at = self.at(window);
        let (mut done, mut all) = (0, true);
        while done < gone.len {
            let from = at.addr() + gone.to + done..at.addr() + gone.to + gone.len;
            let moved = mover.map_or(Err(Stop::Kind), |mover| {
                // SAFETY: the folded message is about to end, so no thread uses its bytes; their
                // old place is the message's, and was registered, or the kernel refuses.
                unsafe { mover.move_pages(gone.from + done, from, false) }
                    .map_err(|error| Stop::Other(error.errno()))
            });
            let stop = match moved {
                Ok(moved) => {
                    done += moved.bytes;
                    moved.stop
                }
                Err(stop) => Some(stop),
            };
            let Some(stop) = stop else { continue };
            all = false;
            let taken = stop == Stop::Taken;
            let len = match stop {
                Stop::Busy | Stop::Hole | Stop::Taken => PAGE_BYTES,
                _ => gone.len - done,
            };
            let len = len.min(gone.len - done);
            if keep {
                let to = ptr::with_exposed_provenance_mut::<u8>(gone.from + done);
                // SAFETY: as above; the pages are the message's again, and the window's range is
                // open.
                unsafe { at.add(gone.to + done).copy_to_nonoverlapping(to, len) };
            } else if !taken {
                let start = (gone.to + done) as u64;
                message.left(start..start + len as u64);
            }
            if taken {
                // Another thread touched a page that was not there; its contents are unknown.
                message.expose();
            }
            done += len;
        }
        all
    }
}

/// Closes a range, with or without pages in it, and gives it back; if there is a mover that may not
/// be asked, a range that has to be cleared is not used again. Returns whether no byte of it can be
/// seen.
fn take_away(
    inner: &Inner,
    window: &Window,
    lodging: Lodging,
    clear: bool,
    mover: Option<&Mover>,
) -> bool {
    let mut bytes = lodging.bytes.clone();
    if clear && lodging.is_huge() {
        // Whole blocks are the message's there, and the table for small pages goes with a whole one
        // only.
        bytes.end = bytes.end.next_multiple_of(HUGE_BYTES);
    }
    let at = window.reserved.as_ptr().addr();
    // SAFETY: the range is of a message that is not there any more, or never was.
    let done = unsafe {
        if clear {
            window.reserved.clear(bytes.clone()).and_then(|()| match mover {
                // The range is registered again, so that pages can be moved there.
                Some(mover) => Ok(mover.register(at + bytes.start..at + bytes.end)?),
                None if window.mover.is_some() => Err(Errno::PERM.into()),
                None => Ok(()),
            })
        } else {
            window.reserved.close(bytes.clone())
        }
    };
    let mut books = inner.books.lock();
    match done {
        Ok(()) => {
            books.give(lodging);
            true
        }
        Err(error) => {
            // SAFETY: as above; the range is never given out again.
            let gone = unsafe { window.reserved.abandon(bytes) };
            books.lose(lodging);
            tracing::warn!(%error, gone, "a range of the window is lost");
            gone
        }
    }
}
