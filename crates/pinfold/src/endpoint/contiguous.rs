#![allow(unsafe_code)]
//! A message that its sender gave away in several parts, in a row.
//!
//! **Invariant.** From [`Contiguous::as_ptr`] on, [`Contiguous::len`] bytes can be read while it
//! lives, by pointers alone: their owner can write them, unless they are a copy, which
//! [`Contiguous::own`] returns. The cells lie in mappings that the row keeps.
//!
//! Parts are mapped behind each other in a window that all endpoints of a process share. It is made
//! for the first message that comes in parts, and stays: addresses, without memory.

use std::sync::{
    OnceLock,
    atomic::{Ordering, fence},
};

use rustix::io::Errno;

use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    memory::{
        arena::Cells,
        reassembly::{
            HUGE_BYTES,
            fold::{self, FoldError, Folded, Folder, PeerPart, Place, Settings, Unfolded, Why},
            gather::Costs,
        },
    },
    policy::route,
    protocol::handoff::{
        parts::{LentPart, Parts},
        vectored,
    },
    transport::shm::lane::Tie,
    wire::rendezvous::By,
    worker::shared::Shared,
};

/// Bytes of freed copies that are kept for the next ones.
const STOCK_BYTES: usize = 32 << 20;

/// The folder, which maps parts of peers behind each other. `None`: there is no page of memory for
/// it now.
fn folder() -> Option<&'static Folder> {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    if let Some(folder) = FOLDER.get() {
        return Some(folder);
    }
    let costs = (!route::measures()).then_some(Costs::DEFAULT);
    let settings =
        Settings { moves: false, stock_bytes_max: STOCK_BYTES, costs, ..Settings::default() };
    let refused = |error: &_| tracing::debug!(%error, "parts of a message are copied to the heap");
    let made = Folder::new(settings).inspect_err(refused).ok()?;
    Some(FOLDER.get_or_init(|| made))
}

/// The bytes in a row.
// Every holder boxes it.
#[allow(clippy::large_enum_variant)]
enum Row {
    Folded(Folded<Vec<PeerPart>>),
    /// A copy, where nothing folds.
    Copied(Vec<u8>),
}

/// A message whose parts were brought into a row.
pub(crate) struct Contiguous {
    row: Row,
    /// The peer's number for the message, if its memory is in use: the row is no copy.
    theirs: Option<(u32, Tie)>,
    /// The cells by which it can be written, in the order of the message, each with the bytes
    /// before it.
    cells: Vec<(usize, Cells)>,
    receipt: Receipt,
    folded: fold::Receipt,
}

// SAFETY: the memory of the cells stays as long as the row, and can be used on any thread.
unsafe impl Send for Contiguous {}
// SAFETY: as for `Send`.
unsafe impl Sync for Contiguous {}

impl Contiguous {
    /// Brings a peer's message of `len` bytes into a row. If it was copied for that, or could not
    /// be, the peer is told.
    ///
    /// # Errors
    /// [`Error::LimitReached`] where there is no memory to copy it; [`Error::Withdrawn`] if either
    /// side closed the connection while it was copied; [`Error::Os`] if the sender has no memory
    /// behind its file.
    pub(crate) fn of(shared: &Shared, peer: PeerId, len: u64, parts: Parts) -> Result<Contiguous> {
        let Parts { parts, sid, tie } = parts;
        let made = Contiguous::made(parts, len, (sid, &tie));
        let mut engine = shared.enter()?;
        match &made {
            Ok(Contiguous { receipt, theirs, .. }) => {
                vectored::count_contiguous(
                    &engine.core.status,
                    peer,
                    receipt.path,
                    len,
                    receipt.copied_user,
                );
                if theirs.is_none() {
                    vectored::give_parts_back(&mut engine, peer, sid, By::Mapping, 0);
                }
            }
            Err(error) => {
                vectored::give_parts_back(&mut engine, peer, sid, By::Mapping, errno_of(error))
            }
        }
        drop(engine);
        made
    }

    /// As [`Contiguous::of`], without telling the peer.
    fn made(parts: Vec<LentPart>, len: u64, (sid, tie): (u32, &Tie)) -> Result<Contiguous> {
        let (row, cells, folded) = row(parts, len)?;
        let mut receipt = Receipt::new(Path::Handoff, len);
        receipt.copied_user = folded.copied;
        let mut contiguous = Contiguous { row, theirs: None, cells, receipt, folded };
        if !matches!(folded.place, Place::Memory(_)) {
            contiguous.theirs = Some((sid, tie.clone()));
            // A copy is written here alone.
            if folded.copied > 0 {
                contiguous.cells.clear();
            }
            return Ok(contiguous);
        }
        // The copy comes before the look.
        fence(Ordering::Acquire);
        if tie.is_cut() {
            return Err(Error::Withdrawn);
        }
        contiguous.cells.clear();
        if let Row::Folded(message) = &mut contiguous.row {
            drop(message.take_parts());
        }
        let cheapest = folded.place == Place::Memory(Why::Cheapest);
        let why = if cheapest { Refusal::Slower } else { Refusal::NotMapped };
        contiguous.receipt.took(Path::Mapped, why);
        Ok(contiguous)
    }

    /// The receipt: how it came.
    pub(crate) fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// The receipt of bringing its parts into a row.
    pub(crate) fn folded(&self) -> &fold::Receipt {
        &self.folded
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.receipt.bytes as usize
    }

    /// The first byte. The peer's bytes are absent in a child of `fork(2)`.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        match &self.row {
            Row::Folded(folded) => folded.as_ptr(),
            Row::Copied(bytes) => bytes.as_ptr(),
        }
    }

    /// The connection by which it can be withdrawn, and the peer's number for it, if its bytes are
    /// the peer's.
    pub(crate) fn theirs(&self) -> Option<&(u32, Tie)> {
        self.theirs.as_ref()
    }

    /// Its bytes, if they are not the peer's.
    pub(crate) fn own(&self) -> Option<&[u8]> {
        let (at, len) = (self.as_ptr(), self.len());
        // SAFETY: they were copied to memory that is this value's, and nothing writes there any
        // more.
        self.theirs.is_none().then(|| unsafe { std::slice::from_raw_parts(at, len) })
    }

    /// True if it can be written.
    pub(crate) fn is_writable(&self) -> bool {
        !self.cells.is_empty()
    }

    /// Writes bytes that lie inside, if it can be written.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let first = self.cells.partition_point(|(begin, cells)| begin + cells.len() <= offset);
        let mut done = 0;
        for (begin, cells) in &self.cells[first..] {
            let at = offset + done - begin;
            let len = (cells.len() - at).min(from.len() - done);
            cells.write(at, &from[done..][..len]);
            done += len;
            if done == from.len() {
                break;
            }
        }
    }
}

fn errno_of(error: &Error) -> u32 {
    let errno = match error {
        Error::Os { source, .. } => source.raw_os_error(),
        _ => None,
    };
    errno.unwrap_or(Errno::NOMEM.raw_os_error()).unsigned_abs()
}

/// Parts in a row, the cells by which they can be written, and the receipt of folding.
type Made = (Row, Vec<(usize, Cells)>, fold::Receipt);

fn row(lent: Vec<LentPart>, len: u64) -> Result<Made> {
    let (mut parts, mut cells, mut begin) = (Vec::with_capacity(lent.len()), Vec::new(), 0);
    for LentPart { memory, offset, len } in lent {
        let part = memory.part(offset..offset + len)?;
        // An arena lies in huge pages where they can be had.
        let huge = part.suits_huge() && begin % HUGE_BYTES as u64 == 0;
        cells.extend(part.cells().map(|cells| (begin as usize, cells)));
        parts.push(part.assume_huge(huge));
        begin += len;
    }
    // A word that a program writes as one must not be in two parts.
    let whole = cells.iter().skip(1).all(|(begin, _)| begin % 8 == 0);
    if cells.len() < parts.len() || !whole {
        cells.clear();
    }
    let no_memory = || Error::LimitReached {
        what: "the memory for one message, in bytes,",
        limit: len,
        remedy: "receive it in parts, or into memory of your own",
    };
    let pieces = parts.len();
    let parts = match folder().map(|folder| folder.fold(parts)) {
        Some(Ok(message)) => {
            // No part of it could be moved.
            let folded = fold::Receipt { unmoved: None, ..*message.receipt() };
            return Ok((Row::Folded(message), cells, folded));
        }
        Some(Err(Unfolded { error: FoldError::NoMemory { .. }, .. })) => return Err(no_memory()),
        // In a child of `fork(2)` that has endpoints of its own.
        Some(Err(unfolded)) => unfolded.message,
        None => return Err(no_memory()),
    };
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len as usize).map_err(|_| no_memory())?;
    parts.iter().for_each(|part| part.copy_to(&mut bytes));
    let mut folded = fold::Receipt::new(len, pieces, Place::Memory(Why::NoWindow));
    folded.copied = bytes.len() as u64;
    Ok((Row::Copied(bytes), cells, folded))
}
