#![allow(unsafe_code)]
//! A buffer of the program's that peers can use.
//!
//! **Invariant.** From its registration until the exposure of its bytes has ended, nothing in this
//! process forms a reference to them: they are reached as [`Cells`], or by the agent, and the
//! buffer lies in a `MaybeUninit`, so that moving it claims nothing about them. If the exposure
//! does not end, the buffer is leaked.

use std::{
    fmt,
    mem::MaybeUninit,
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64},
};

use super::{RegionKey, Rights, exposed::Exposed};
use crate::{Endpoint, Error, OwnedBufMut, Result, error::inside, memory::arena::Cells};

/// A buffer of the program's that peers can use by its key, until it is taken back
/// ([`Registered::into_inner`]) or dropped. libfabric's memory region, UCX's mapped memory.
///
/// Peers open it by [`Endpoint::open_region`], and use offsets, or by [`Endpoint::open_space`], and
/// use addresses. Those on this host have the kernel copy, or map it where it lies in an arena
/// ([`SharedBuf`](crate::SharedBuf), [`ArenaBuf`](crate::ArenaBuf)); for others, and for words that
/// are not mapped, the endpoint's agent does the operations, while the endpoint makes progress.
/// Nothing is pinned, and nothing is copied.
///
/// ```
/// use pinfold::{Endpoint, Progress, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-registered-{}", std::process::id());
/// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
/// let user = Endpoint::new()?;
/// let peer = user.connect(&name)?;
/// let registered = owner.register(vec![0; 4096], Rights::ReadWrite)?;
/// let remote = user.open_region(peer, &registered.key())?;
/// remote.write(96, b"from a peer")?;
/// // Taken back, the buffer is the program's alone.
/// let buffer = registered.into_inner().map_err(|kept| kept.0)?;
/// assert_eq!(&buffer[96..107], b"from a peer");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, it is registered no more"]
pub struct Registered<B: OwnedBufMut> {
    exposed: Exposed,
    /// Initialised; `None` when it has been taken out.
    buffer: Option<MaybeUninit<B>>,
    /// The bytes, from a multiple of 8 on: those before the first are not touched.
    cells: Cells,
    /// The first byte.
    first: usize,
}

impl Endpoint {
    /// Lets peers that show the key read, or read and write, this buffer. Costs some µs.
    ///
    /// Memory that no buffer owns is [exposed](Endpoint::expose), which is `unsafe`.
    ///
    /// # Errors
    /// As for [`Endpoint::expose`]; the buffer is dropped.
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// # let name = format!("local:doc-registered-{}", std::process::id());
    /// use pinfold::{Endpoint, Progress, RegionKey, Rights};
    ///
    /// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
    /// let registered = owner.register(vec![7u8; 1 << 20], Rights::ReadWrite)?;
    /// let key = registered.key().to_bytes();
    ///
    /// // A peer that was sent the key.
    /// let user = Endpoint::new()?;
    /// let peer = user.connect(&name)?;
    /// let remote = user.open_region(peer, &RegionKey::from_bytes(&key)?)?;
    /// let mut word = [0; 8];
    /// remote.read(1000, &mut word)?;
    /// assert_eq!(word, [7; 8]);
    /// remote.write(1000, b"from far")?;
    /// assert_eq!(remote.fetch_add(8, 1u64)?, u64::from_ne_bytes([7; 8]));
    ///
    /// let buffer = registered.into_inner().map_err(|kept| kept.0)?;
    /// assert_eq!(&buffer[1000..1008], b"from far");
    /// assert!(remote.read(0, &mut word).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn register<B: OwnedBufMut>(&self, buffer: B, rights: Rights) -> Result<Registered<B>> {
        let mut buffer = MaybeUninit::new(buffer);
        // SAFETY: initialised just now.
        let (at, len) = unsafe { buffer.assume_init_mut() }.bytes_mut();
        let start = at.expose_provenance();
        // SAFETY: `OwnedBufMut`: the bytes are the buffer's alone, which is kept until the exposure
        // has ended; they are reached as cells only, which tolerate it.
        let exposed = match unsafe { self.expose(start..start + len, rights) } {
            Ok(exposed) => exposed,
            Err(error) => {
                // SAFETY: initialised, and not used after this.
                drop(unsafe { buffer.assume_init() });
                return Err(error);
            }
        };
        let first = start % size_of::<u64>();
        let base = NonNull::new(at.wrapping_sub(first)).unwrap_or(NonNull::dangling());
        // SAFETY: the bytes from `first` on are valid as long as the buffer is kept; those before
        // it are never touched: every use is checked to lie behind.
        let cells = unsafe { Cells::new(base, first + len) };
        Ok(Registered { exposed, buffer: Some(buffer), cells, first })
    }
}

impl<B: OwnedBufMut> Registered<B> {
    /// The key that peers need to use it: to be sent to them in a message, say.
    pub fn key(&self) -> RegionKey {
        self.exposed.key()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.exposed.addresses().len()
    }

    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its addresses in this process.
    pub fn addresses(&self) -> Range<usize> {
        self.exposed.addresses()
    }

    /// The rights of peers.
    pub fn rights(&self) -> Rights {
        self.exposed.rights()
    }

    /// Copies the bytes at `offset` out. Peers may write meanwhile: the copy has some or all of
    /// their bytes.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        inside(offset as u64, into.len() as u64, self.len() as u64)?;
        self.cells.read(self.first + offset, into);
        Ok(())
    }

    /// Copies bytes in at `offset`; eight aligned bytes are always written together.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        inside(offset as u64, from.len() as u64, self.len() as u64)?;
        self.cells.write(self.first + offset, from);
        Ok(())
    }

    /// The 32-bit word at `offset`, if all of it is inside and its address is a multiple of 4. Its
    /// atomic operations and those of peers on it are of one kind.
    pub fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.first.checked_add(offset)?;
        // SAFETY: the buffer is kept while this is borrowed.
        unsafe { self.cells.word32(at) }
    }

    /// As [`Registered::word32`], of 64 bits, at an address that is a multiple of 8.
    pub fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.first.checked_add(offset)?;
        // SAFETY: the buffer is kept while this is borrowed.
        unsafe { self.cells.word64(at) }
    }

    /// Ends all use by peers, waits for those that are using it, 10 s at most, and gives the buffer
    /// back: no peer that keeps to the rules reads or writes it any more. (Peers that may do so by
    /// the kernel, or were handed its arena, may do so without a key, too.) Operations that had
    /// succeeded before have had their effect.
    ///
    /// # Errors
    /// [`Error::StillVisited`]: a peer has not left; peers cannot come any more, and this may be
    /// called again on what comes back. [`Error::Forked`]: the exposure is the parent's.
    pub fn into_inner(mut self) -> std::result::Result<B, Box<(Error, Registered<B>)>> {
        if let Err(error) = self.exposed.end() {
            return Err(Box::new((error, self)));
        }
        match self.buffer.take() {
            // SAFETY: initialised, and the exposure has ended.
            Some(buffer) => Ok(unsafe { buffer.assume_init() }),
            None => Err(Box::new((Error::Closed, self))),
        }
    }
}

impl<B: OwnedBufMut> Drop for Registered<B> {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        match self.exposed.end() {
            // SAFETY: initialised, and the exposure has ended.
            Ok(()) => drop(unsafe { buffer.assume_init() }),
            Err(error) => {
                tracing::warn!(%error, "a buffer stays, for a peer may be using it");
                self.exposed.give_up();
            }
        }
    }
}

impl<B: OwnedBufMut> fmt::Debug for Registered<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered")
            .field("len", &self.len())
            .field("rights", &self.rights())
            .finish_non_exhaustive()
    }
}
