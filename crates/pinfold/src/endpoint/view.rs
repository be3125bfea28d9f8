#![allow(unsafe_code)]
//! A received message that is looked at where it is.
//!
//! **Invariant.** The loan is given back when the view is dropped, not before, and the view keeps
//! or borrows its endpoint; so the mapping is there, and the view's range lies inside it. A process
//! that gave memory away can still write it, so no safe function forms a reference to the bytes
//! unless the file is frozen; a copy counts only if the connection had not been cut afterwards, for
//! only then had the memory not gone back to its owner.

use std::{
    fmt,
    ops::Deref,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use super::contiguous::Contiguous;
use crate::{
    Error, FrozenBuf, Path, PeerId, Receipt, Result,
    error::inside,
    memory::{
        arena::Cells,
        imported_extents::{Held, Loan},
        reassembly::fold,
        store::Whole,
    },
    protocol::handoff::vectored,
    wire::rendezvous::By,
    worker::{
        abandoned,
        fast_view::{self, Lent},
        op::{Arrived, Lending},
        shared::Shared,
        unlocked_copy::Purpose,
    },
};

/// A received message, in the sender's memory if the sender gave that away
/// ([`Endpoint::handoff`](crate::Endpoint::handoff)), else in memory of the library's. Dropping it
/// gives the memory back. It stays good when the sender closes or dies, as long as this endpoint is
/// open.
///
/// The sender must not write memory that it gave, and a sender that uses this library does not. But
/// another program might, at any time. So the bytes are used in place ([`View::bytes`]) where the
/// kernel keeps the sender from writing, since it gave a [`FrozenBuf`]; copied out
/// ([`View::read`]); or, if the sender is trusted, used in place all the same ([`View::as_slice`]).
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::{Arena, Endpoint};
///
/// let name = format!("local:doc-view-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let peer = endpoint.connect(&name)?; // Itself, for once.
/// let mut buf = Arena::new()?.alloc(5)?;
/// buf.copy_from_slice(b"given");
/// endpoint.give(peer, 1, buf)?;
/// let view = endpoint.recv_view(endpoint.accept()?, 1)?;
/// // Its sender could still write it.
/// assert_eq!(view.bytes(), None);
/// assert_eq!(view.to_vec()?, b"given");
/// # Ok(())
/// # }
/// ```
///
/// In a child made by `fork(2)` the memory is absent; reading it there is an error.
pub struct View<'a> {
    peer: PeerId,
    tag: u64,
    place: Place,
    shared: Keeper<'a>,
}

/// The endpoint: borrowed where possible, since counting costs a hop between cores while there are
/// stores on their way to the ring.
enum Keeper<'a> {
    BlockingOp(&'a Arc<Shared>),
    Owned(Arc<Shared>),
}

impl Deref for Keeper<'_> {
    type Target = Arc<Shared>;

    #[inline]
    fn deref(&self) -> &Arc<Shared> {
        match self {
            Keeper::BlockingOp(shared) => shared,
            Keeper::Owned(shared) => shared,
        }
    }
}

/// The fewest words possible: views are moved, and a move waits for the words to be written.
enum Place {
    /// Memory of the library's.
    Own(Box<Own>),
    /// The sender's memory, with its length in bytes.
    Theirs(Loan, u64),
    /// Contiguous memory, made of parts of the sender's.
    Parts(Box<Contiguous>),
    /// Moved to another view.
    Moved,
}

struct Own {
    bytes: Whole,
    receipt: Receipt,
}

impl View<'static> {
    /// # Errors
    /// As [`Contiguous::of`], of a message in several parts.
    pub(crate) fn new(shared: &Arc<Shared>, arrived: Arrived) -> Result<View<'static>> {
        let Arrived { peer, tag, len, mut receipt, bytes, loan } = arrived;
        let place = match loan {
            Some(Lending::One(loan)) => Place::Theirs(*loan, len),
            Some(Lending::Parts(parts)) => {
                Place::Parts(Box::new(Contiguous::of(shared, peer, len, *parts)?))
            }
            None => {
                let bytes = bytes.map(|bytes| *bytes).unwrap_or_default().whole();
                receipt.copied_user += bytes.copied();
                Place::Own(Box::new(Own { bytes, receipt }))
            }
        };
        Ok(View { peer, tag, place, shared: Keeper::Owned(Arc::clone(shared)) })
    }
}

impl<'a> View<'a> {
    #[inline(always)]
    pub(crate) fn lent(shared: &'a Arc<Shared>, lent: Lent) -> View<'a> {
        let Lent { peer, tag, len, loan } = lent;
        View { peer, tag, place: Place::Theirs(loan, len), shared: Keeper::BlockingOp(shared) }
    }

    /// The same view, independent of the handle of the endpoint that received it.
    pub fn into_owned(mut self) -> View<'static> {
        let place = std::mem::replace(&mut self.place, Place::Moved);
        let shared = Keeper::Owned(Arc::clone(&self.shared));
        View { peer: self.peer, tag: self.tag, place, shared }
    }

    /// The peer that sent it.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Its tag.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The receipt: how it came.
    pub fn receipt(&self) -> Receipt {
        match &self.place {
            Place::Own(own) => own.receipt,
            Place::Theirs(_, len) => Receipt::new(Path::Handoff, *len),
            Place::Parts(contiguous) => contiguous.receipt(),
            Place::Moved => Receipt::new(Path::Handoff, 0),
        }
    }

    /// The receipt of making it contiguous, if it lay in several pieces: see
    /// [`Message::folded`](crate::Message::folded).
    pub fn folded(&self) -> Option<&fold::Receipt> {
        match &self.place {
            Place::Own(own) => own.bytes.folded(),
            Place::Parts(contiguous) => Some(contiguous.folded()),
            Place::Theirs(..) | Place::Moved => None,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.place {
            Place::Own(own) => own.bytes.len(),
            Place::Theirs(_, len) => *len as usize,
            Place::Parts(contiguous) => contiguous.len(),
            Place::Moved => 0,
        }
    }

    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes at `offset` out.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`]; [`Error::Withdrawn`] if this side has closed the connection, or the
    /// sender has cut it: the copied bytes mean nothing then; [`Error::Os`] if the sender has no
    /// memory behind its file; [`Error::Forked`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        let at = self.range(offset, into.len())?;
        let (to, len) = (into.as_mut_ptr(), into.len());
        // SAFETY: readable for so many bytes, by `range`; `into` is memory of this process's own.
        unsafe { self.shared.copy_unlocked(Purpose::VIEW, at, to, len) };
        self.confirm()
    }

    /// A copy of the bytes.
    ///
    /// # Errors
    /// As [`View::read`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies bytes in at `offset`, where the sender sees them; eight aligned bytes are always
    /// written together.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] unless the memory is of a [`SharedArena`](crate::SharedArena), and as
    /// [`View::read`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.range(offset, from.len())?;
        match &self.place {
            Place::Parts(contiguous) if contiguous.is_writable() => contiguous.write(offset, from),
            _ => _ = self.cells().ok_or(Error::ReadOnly)?.write(offset, from),
        }
        self.confirm()
    }

    /// True if it can be written.
    pub fn is_writable(&self) -> bool {
        match &self.place {
            Place::Parts(contiguous) => contiguous.is_writable(),
            _ => self.cells().is_some(),
        }
    }

    /// The bytes in place, if nobody can write them: they are in memory of this library's, since
    /// the sender did not give its memory away or that could not be mapped; or it gave a
    /// [`FrozenBuf`]. The first time a view of that kind takes two system calls for 256 KiB.
    ///
    /// `None`: the sender could still write them, or [`View::read`] would be an error.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Own(own) => Some(&own.bytes),
            Place::Parts(contiguous) => contiguous.own(),
            Place::Theirs(loan, _) if self.held(loan).mapping.is_frozen() => {
                let at = self.range(0, self.len()).ok()?;
                // SAFETY: so many bytes are mapped there, by `range`, as long as `self` is
                // borrowed: the loan is given back when the view is dropped, and until then the
                // mapping stays, also when the connection or the endpoint is closed. `range` has
                // found memory behind all of them. The file carries F_SEAL_WRITE, checked on the
                // very descriptor that was mapped: the kernel puts it on a file only while no
                // writable mapping and no pin of it exists, never takes it off, and from then on
                // refuses writes, writable mappings and holes to everybody. F_SEAL_SHRINK was
                // checked, too. So the bytes neither change nor go; what becomes of the connection
                // or of the sender does not matter to them.
                Some(unsafe { std::slice::from_raw_parts(at, self.len()) })
            }
            Place::Theirs(..) | Place::Moved => None,
        }
    }

    /// The same memory as a buffer of this process's, which it can keep, and pass on to other
    /// processes without a copy; they map the sender's file. To the sender the view is dropped by
    /// that: nobody can write the memory any more, so it takes no part in how long others use it,
    /// and neither does a process in the middle that ends. Some system calls.
    ///
    /// # Errors
    /// The view, as it was, if the sender did not give a [`FrozenBuf`] alone, its connection has
    /// ended, or its file cannot be mapped once more: [`FrozenBuf::copy_of`] is left then.
    pub fn into_frozen(self) -> std::result::Result<FrozenBuf, Self> {
        let Place::Theirs(loan, len) = &self.place else { return Err(self) };
        if self.bytes().is_none() {
            return Err(self);
        }
        let file = self.shared.enter().ok().and_then(|engine| engine.core.imported.file_of(loan));
        let Some((file, whole)) = file else { return Err(self) };
        match FrozenBuf::of_peer(file, whole as usize, loan.offset as usize, *len as usize) {
            Ok(frozen) => Ok(frozen),
            Err(error) => {
                tracing::debug!(%error, "a view cannot be passed on");
                Err(self)
            }
        }
    }

    /// The bytes in place.
    ///
    /// # Errors
    /// As [`View::read`].
    ///
    /// # Safety
    /// Nothing writes them while the slice is used: the sender is trusted not to, [`View::write`]
    /// does not write the memory either, and this side does not close the connection meanwhile.
    pub unsafe fn as_slice(&self) -> Result<&[u8]> {
        let at = self.range(0, self.len())?;
        self.confirm()?;
        // SAFETY: readable while `self` is borrowed; unchanging by contract.
        Ok(unsafe { std::slice::from_raw_parts(at, self.len()) })
    }

    /// The address of bytes in the view, ready to be touched.
    fn range(&self, offset: usize, len: usize) -> Result<*const u8> {
        inside(offset as u64, len as u64, self.len() as u64)?;
        match &self.place {
            Place::Own(own) => Ok(own.bytes[offset..].as_ptr()),
            Place::Moved => Ok(NonNull::dangling().as_ptr()),
            Place::Parts(contiguous) => {
                if contiguous.theirs().is_some() && self.shared.is_forked() {
                    return Err(Error::Forked);
                }
                // SAFETY: it has so many bytes, by `inside`.
                Ok(unsafe { contiguous.as_ptr().add(offset) })
            }
            Place::Theirs(loan, _) => {
                if self.shared.is_forked() {
                    return Err(Error::Forked);
                }
                let (at, bytes) = (loan.offset + offset as u64, len as u64);
                let mapping = &self.held(loan).mapping;
                let failed = |error| Error::os("madvise", "memory of a peer", error);
                mapping.prepare(at, bytes).map_err(failed)?;
                mapping.get(at, bytes).ok_or(Error::Withdrawn)
            }
        }
    }

    /// Checks that the bytes just copied were the sender's.
    fn confirm(&self) -> Result<()> {
        // The copy comes before the look.
        fence(Ordering::Acquire);
        let is_cut = match &self.place {
            Place::Theirs(loan, _) => self.held(loan).tie.is_cut(),
            Place::Parts(contiguous) => contiguous.theirs().is_some_and(|(_, tie)| tie.is_cut()),
            Place::Own(_) | Place::Moved => false,
        };
        if is_cut { Err(Error::Withdrawn) } else { Ok(()) }
    }

    fn held<'l>(&'l self, loan: &'l Loan) -> &'l Held {
        // SAFETY: `self` has the endpoint, and gives the loan back when it is dropped.
        unsafe { loan.held() }
    }

    fn cells(&self) -> Option<Cells> {
        let Place::Theirs(loan, len) = &self.place else { return None };
        let at = self.held(loan).mapping.get_mut(loan.offset, *len)?;
        // SAFETY: mapped writable while the view lives; a peer's memory is reached as raw bytes
        // here, and atomically. A view is not writable if the peer did not align its memory.
        NonNull::new(at)
            .filter(|at| at.addr().get().is_multiple_of(64))
            .map(|at| unsafe { Cells::new(at, self.len()) })
    }
}

impl Drop for View<'_> {
    #[inline]
    fn drop(&mut self) {
        let Place::Theirs(loan, _) = &self.place else {
            let Place::Parts(contiguous) = std::mem::replace(&mut self.place, Place::Moved) else {
                return;
            };
            return give_parts_back(&self.shared, self.peer, *contiguous);
        };
        if let Some(mut engine) = self.shared.fast_path()
            && fast_view::give_back_fast(&mut engine, self.peer, loan)
        {
            return;
        }
        give_back(&self.shared, self.peer, loan);
    }
}

#[cold]
#[inline(never)]
fn give_back(shared: &Shared, peer: PeerId, loan: &Loan) {
    if let Ok(mut engine) = shared.enter() {
        abandoned::give_back(&mut engine, peer, loan);
    }
}

#[cold]
#[inline(never)]
fn give_parts_back(shared: &Shared, peer: PeerId, contiguous: Contiguous) {
    let sid = contiguous.theirs().map(|(sid, _)| *sid);
    // Nothing is mapped any more when its owner has it again.
    drop(contiguous);
    if let (Some(sid), Ok(mut engine)) = (sid, shared.enter()) {
        vectored::give_parts_back(&mut engine, peer, sid, By::View, 0);
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("peer", &self.peer)
            .field("tag", &self.tag)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
