#![allow(unsafe_code)]
//! Copies of slices, for all programs: each line of code that makes some is a site of its own.
//!
//! Threads learn and count for themselves, so that none waits for another.
//!
//! **Invariant.** Blocks given to the handler lie inside slices that are borrowed for the whole
//! call.

use std::{
    cell::RefCell,
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

use super::{
    super::{Caller, Reader, Site, Sites},
    Counts, Done, Handler, Hints, InForce, Piece, SHORT, Tally,
};

/// Blocks that cannot be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// They are of different lengths.
    Lengths {
        /// Length of the source, bytes.
        from: usize,
        /// Length of the destination, bytes.
        to: usize,
    },
    /// One of them is not inside the memory.
    Outside {
        /// The source.
        from: Range<usize>,
        /// The destination; it may end at [`usize::MAX`] where it would go beyond.
        to: Range<usize>,
        /// Length of the memory, bytes.
        size: usize,
    },
    /// One of many pieces is not inside its slices.
    Piece {
        /// The number of pieces before it, all of which have been copied.
        at: usize,
        /// The piece, by its offsets.
        piece: Piece,
        /// Length of the source, bytes.
        from: usize,
        /// Length of the destination, bytes.
        to: usize,
    },
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockError::Lengths { from, to } => {
                write!(f, "{from} bytes cannot be copied to {to}; name blocks of one length")
            }
            BlockError::Outside { from, to, size } => {
                write!(f, "bytes {from:?} cannot be moved to {to:?}: there are {size}")
            }
            BlockError::Piece { at, piece: Piece { from: start, to: place, len }, from, to } => {
                write!(
                    f,
                    "piece {at}, {len} bytes from {start} to {place}, is not inside: there are {from} \
                     and {to}"
                )
            }
        }
    }
}

impl std::error::Error for BlockError {}

/// The sites and the tally of one thread.
pub(super) struct Local {
    pub(super) copies: Sites,
    zeroings: Sites,
    pub(super) handler: Handler<InForce>,
}

/// The tallies of the threads that live, and the counts of those that ended.
#[derive(Default)]
struct Threads {
    living: Vec<Arc<Tally>>,
    gone: Counts,
}

fn threads() -> &'static Mutex<Threads> {
    static THREADS: OnceLock<Mutex<Threads>> = OnceLock::new();
    THREADS.get_or_init(Mutex::default)
}

impl Local {
    fn new() -> Local {
        let handler = Handler::new(InForce);
        threads().lock().living.push(Arc::clone(handler.tally()));
        Local { copies: Sites::new(), zeroings: Sites::new(), handler }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut threads = threads().lock();
        let tally = self.handler.tally();
        threads.living.retain(|living| !Arc::ptr_eq(living, tally));
        threads.gone += &tally.counts();
    }
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::new());
}

/// Has this thread's handler do something. `None`: the thread is about to end.
#[inline]
pub(super) fn locally<R>(what: impl FnOnce(&mut Local) -> R) -> Option<R> {
    LOCAL.try_with(|local| Some(what(&mut *local.try_borrow_mut().ok()?))).ok().flatten()
}

/// Copies `from` to `to`, which `reader` reads next.
///
/// The line this is called from is the site that learns. Copies of less than 256 bytes take as long
/// as `memcpy`; others some tens of nanoseconds more, at most.
///
/// # Errors
/// [`BlockError::Lengths`] if the two differ in length; nothing is copied.
#[inline]
#[track_caller]
pub fn copy(to: &mut [u8], from: &[u8], reader: Reader) -> Result<Done, BlockError> {
    if to.len() != from.len() {
        return Err(BlockError::Lengths { from: from.len(), to: to.len() });
    }
    if to.len() < SHORT {
        to.copy_from_slice(from);
        return Ok(Done::by_libc(to.len()));
    }
    let caller = Caller::here();
    let done = locally(|local| {
        let site = local.copies.site(caller, to.len());
        let hints = Hints { reader, ..Hints::default() };
        let (source, target, len) = (from.as_ptr(), to.as_mut_ptr(), to.len());
        // SAFETY: both are slices of that length.
        learnt(site, |site| unsafe { local.handler.copy(site, hints, source, target, len) })
    });
    Ok(done.unwrap_or_else(|| {
        to.copy_from_slice(from);
        Done::by_libc(to.len())
    }))
}

/// Copies `len` bytes for a part of this library that copies in many threads and without a lock;
/// each thread learns for itself. Nothing is learnt, and the C library copies, in a thread that is
/// about to end.
///
/// # Safety
/// As for [`Handler::copy`].
pub(crate) unsafe fn copy_for(
    caller: Caller,
    reader: Reader,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> Done {
    let done = locally(|local| {
        let site = local.copies.site(caller, len);
        let hints = Hints { reader, ..Hints::default() };
        // SAFETY: as the caller promised.
        learnt(site, |site| unsafe { local.handler.copy(site, hints, from, to, len) })
    });
    done.unwrap_or_else(|| {
        // SAFETY: as the caller promised.
        unsafe { std::ptr::copy(from, to, len) };
        Done::by_libc(len)
    })
}

/// Fills `to` with zeros, which `reader` reads next. As [`copy`].
#[inline]
#[track_caller]
pub fn zero(to: &mut [u8], reader: Reader) -> Done {
    if to.len() < SHORT {
        to.fill(0);
        return Done::by_libc(to.len());
    }
    let caller = Caller::here();
    let done = locally(|local| {
        let site = local.zeroings.site(caller, to.len());
        let hints = Hints { reader, ..Hints::default() };
        // SAFETY: a slice of that length.
        let zero =
            |site: &mut _| unsafe { local.handler.zero(site, hints, to.as_mut_ptr(), to.len()) };
        learnt(site, zero)
    });
    done.unwrap_or_else(|| {
        to.fill(0);
        Done::by_libc(to.len())
    })
}

/// Copies the bytes of `memory` in the range `from` to where `to` begins. They may overlap: `to`
/// then holds the bytes that were in `from` before.
///
/// # Errors
/// [`BlockError::Outside`] if either is not inside `memory`; nothing is moved.
#[inline]
#[track_caller]
pub fn move_within(
    memory: &mut [u8],
    from: Range<usize>,
    to: usize,
    reader: Reader,
) -> Result<Done, BlockError> {
    let size = memory.len();
    let len = from.end.checked_sub(from.start);
    let end = len.and_then(|len| to.checked_add(len));
    let (Some(len), Some(end)) = (len, end) else {
        return Err(BlockError::Outside { from, to: to..usize::MAX, size });
    };
    if from.end > size || end > size {
        return Err(BlockError::Outside { from, to: to..end, size });
    }
    let caller = Caller::here();
    let done = (len >= SHORT).then(|| {
        locally(|local| {
            let site = local.copies.site(caller, len);
            let hints = Hints { reader, ..Hints::default() };
            let base = memory.as_mut_ptr();
            // SAFETY: both lie inside the slice, as was checked.
            learnt(site, |site| unsafe {
                local.handler.copy(site, hints, base.add(from.start), base.add(to), len)
            })
        })
    });
    Ok(done.flatten().unwrap_or_else(|| {
        memory.copy_within(from, to);
        Done::by_libc(len)
    }))
}

/// Makes a copy and tells its site the time that it took.
#[inline]
pub(super) fn learnt(site: &mut Site, copy: impl FnOnce(&mut Site) -> Done) -> Done {
    let done = copy(site);
    done.learn(site, 0);
    done
}

/// The copies of [`copy`], [`copy_pieces`](super::copy_pieces), [`zero`] and [`move_within`] in
/// this process, in all threads, and those outside the locks of endpoints: by one-sided operations,
/// out of views, of parts of long messages. [`Endpoint::copies`](crate::Endpoint::copies) has the
/// latter for one endpoint, beside its messages.
pub fn counts() -> Counts {
    let threads = threads().lock();
    let mut counts = threads.gone.clone();
    threads.living.iter().for_each(|tally| counts += &tally.counts());
    counts
}
