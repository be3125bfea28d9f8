//! Memory of a peer's: the handle, and the operations on memory that the caller lends them.

use std::{
    fmt,
    marker::PhantomData,
    ops::Range,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use smallvec::SmallVec;

use super::{
    RegionKey, Rights,
    access::{Access, Inner},
    atomics::{AtomicChange, AtomicWord},
};
use crate::{Error, Path, PeerId, Receipt, Refusal, Result, worker::shared::Shared};

/// Memory of a peer's by offsets: the first byte is at 0, wherever it lies there.
///
/// ```
/// use pinfold::{Endpoint, RemoteRegion, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-remote-region-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote: RemoteRegion = endpoint.open_region(itself, &region.key().unwrap())?;
/// remote.write(10, b"at ten")?;
/// let mut bytes = [0; 3];
/// region.read(13, &mut bytes)?;
/// assert_eq!(&bytes, b"ten");
/// # Ok(())
/// # }
/// ```
pub type RemoteRegion = Remote<ByOffset>;

/// Memory of a peer's by its addresses there ([`Remote::addresses`]).
///
/// ```
/// use pinfold::{Endpoint, Progress, RemoteSpace, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-remote-space-{}", std::process::id());
/// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
/// let user = Endpoint::new()?;
/// let peer = user.connect(&name)?;
/// let registered = owner.register(vec![7; 100], Rights::Read)?;
/// let space: RemoteSpace = user.open_space(peer, &registered.key())?;
/// let at = registered.addresses().start as u64 + 10; // An address in the owner's process.
/// let mut bytes = [0; 3];
/// space.read(at, &mut bytes)?;
/// assert_eq!(bytes, [7; 3]);
/// # Ok(())
/// # }
/// ```
pub type RemoteSpace = Remote<ByAddress>;

/// The numbers that name places in memory of a peer's: [`ByOffset`] or [`ByAddress`].
///
/// ```
/// use pinfold::{Addressing, Endpoint, Progress, Remote, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-addressing-{}", std::process::id());
/// /// Reads the byte at a place, by offset or by address.
/// fn byte_at<N: Addressing>(memory: &Remote<N>, at: u64) -> pinfold::Result<u8> {
///     let mut byte = [0];
///     memory.read(at, &mut byte)?;
///     Ok(byte[0])
/// }
///
/// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
/// let user = Endpoint::new()?;
/// let peer = user.connect(&name)?;
/// let registered = owner.register(b"bytes".to_vec(), Rights::Read)?;
/// let (key, start) = (registered.key(), registered.addresses().start as u64);
/// assert_eq!(byte_at(&user.open_region(peer, &key)?, 1)?, b'y');
/// assert_eq!(byte_at(&user.open_space(peer, &key)?, start + 1)?, b'y');
/// # Ok(())
/// # }
/// ```
pub trait Addressing: sealed::Policy {}

/// Places are offsets from the first byte.
///
/// ```
/// use pinfold::{ByOffset, Endpoint, Remote, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-by-offset-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(5, Rights::ReadWrite)?;
/// let remote: Remote<ByOffset> = endpoint.open_region(itself, &region.key().unwrap())?;
/// remote.write(0, b"first")?; // Offset 0 is the first byte, wherever the region lies.
/// assert_eq!(region.to_vec()?, b"first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum ByOffset {}

/// Places are addresses in the owner's process.
///
/// ```
/// use pinfold::{ByAddress, Endpoint, Progress, Remote, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-by-address-{}", std::process::id());
/// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
/// let user = Endpoint::new()?;
/// let peer = user.connect(&name)?;
/// let registered = owner.register(vec![0; 5], Rights::ReadWrite)?;
/// let space: Remote<ByAddress> = user.open_space(peer, &registered.key())?;
/// let start = registered.addresses().start as u64; // The buffer's address at its owner.
/// assert_eq!(space.addresses().start, start);
/// space.write(start, b"first")?;
/// let mut bytes = [0; 5];
/// registered.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum ByAddress {}

impl Addressing for ByOffset {}
impl Addressing for ByAddress {}

mod sealed {
    pub trait Policy: Copy + Send + Sync + 'static {
        const BY_ADDRESS: bool;
    }

    impl Policy for super::ByOffset {
        const BY_ADDRESS: bool = false;
    }

    impl Policy for super::ByAddress {
        const BY_ADDRESS: bool = true;
    }
}

/// Memory of a peer's: a [`Region`](crate::Region), addresses that it has
/// [exposed](crate::Endpoint::expose), or a buffer that it has
/// [registered](crate::Endpoint::register). A handle: clones are the same memory, and can be used
/// from many threads.
///
/// Operations go the cheapest way that there is, and receipts say which:
///
/// - [`Path::Mapped`], where the memory is mapped here: a region, or memory in an arena of the
///   peer's. They are loads and stores; they take no lock, and the owner has no part in them. Some
///   nanoseconds for a region, some 50 for other memory.
/// - [`Path::Cma`]: the kernel copies, 1 to 2 µs.
/// - [`Path::Eager`]: the peer's endpoint does them, while it makes progress, since it is on
///   another host, or the kernel denies the copy. Of a region, writes of up to 16 bytes and reads
///   of up to 48 fit into the messages that this takes; from 16 KiB on the bytes go straight from
///   the one side's memory to the other's. Each operation is done once, or fails if the connection
///   ends for good. They wait for no receive, and at most 16 of each kind are out at a time: others
///   wait in their order.
///
/// A write, read or atomic operation that succeeds came before the memory was revoked, and used the
/// memory that was there then, however often the peer has mapped something else at an address
/// before. When it returns, the bytes have left the caller's memory, which is the caller's again
/// (PM 1.2's `WriteDone`); other processors see them in the order of the operations, some hops
/// between cores later. After [`Remote::flush`] they are stored there for all (`SendDone`; Tezuka
/// and others, *Pin-down Cache*, section 5); bytes that the kernel wrote are at once. A message
/// that is sent to the owner after a write is received after it.
///
/// ```
/// use pinfold::{Endpoint, Path, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-remote-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// assert_eq!(remote.write(0, b"written")?.path, Path::Mapped); // The bytes were stored there.
/// assert_eq!(remote.fetch_add(8, 5u64)?, 0); // The old value of the word.
/// let mut bytes = [0; 16];
/// remote.read(0, &mut bytes)?;
/// assert_eq!((&bytes[..7], bytes[8]), (&b"written"[..], 5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Remote<N: Addressing>(pub(super) Arc<Inner>, PhantomData<N>);

/// Parts of an operation.
type Few<T> = SmallVec<[T; 4]>;

impl<N: Addressing> Remote<N> {
    pub(crate) fn open(shared: &Arc<Shared>, peer: PeerId, key: &RegionKey) -> Result<Remote<N>> {
        Inner::open(shared, peer, key).map(Remote::of)
    }

    /// Memory that was opened.
    pub(super) fn of(inner: Inner) -> Remote<N> {
        Remote(Arc::new(inner), PhantomData)
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.0.extent.len
    }

    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The peer that owns it.
    pub fn peer(&self) -> PeerId {
        self.0.peer
    }

    /// Its addresses in the peer's process, when it was opened.
    pub fn addresses(&self) -> Range<u64> {
        let start = self.0.extent.start;
        start..start + self.0.extent.len
    }

    /// The rights of this side.
    pub fn rights(&self) -> Rights {
        if self.0.extent.writable { Rights::ReadWrite } else { Rights::Read }
    }

    /// The path of its operations. Parts of memory by address that lie in an arena of the peer's
    /// are mapped nevertheless, so the path is never [`Path::Mapped`] there, but the one to all
    /// else.
    pub fn path(&self) -> Path {
        self.0.path()
    }

    /// The reason why it is not mapped; `None` if it is, or may be in part.
    pub fn why_not_mapped(&self) -> Option<Refusal> {
        self.0.why_not_mapped()
    }

    /// The offset of a place.
    #[inline(always)]
    pub(super) fn offset(&self, at: u64, len: usize) -> Result<u64> {
        if !N::BY_ADDRESS {
            return Ok(at);
        }
        let outside = || Error::OutOfBounds { offset: at, len: len as u64, size: self.len() };
        at.checked_sub(self.0.extent.start).ok_or_else(outside)
    }

    /// An error with a place in it, in the caller's words.
    #[cold]
    pub(super) fn told(&self, mut error: Error) -> Error {
        if N::BY_ADDRESS
            && let Error::OutOfBounds { offset, .. } | Error::Misaligned { offset, .. } = &mut error
        {
            *offset = offset.wrapping_add(self.0.extent.start);
        }
        error
    }

    /// Writes `data` at a place. Eight aligned bytes are always written together, unless the kernel
    /// writes them. One copy; a write of 8 bytes to a region takes some nanoseconds here and a hop
    /// between cores until it is seen.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]: nothing was written. [`Error::Revoked`],
    /// [`Error::Withdrawn`] or [`Error::PeerGone`] if the owner is gone or either side has closed
    /// the connection: the bytes may or may not have been written. [`Error::NotMapped`]: there is
    /// no memory, or it may not be written, at least at some of the addresses.
    /// [`Error::PathRefused`] if the kernel now denies an access to addresses that it allowed when
    /// the pair met, and the endpoint is [`strict`](crate::Builder::strict). [`Error::Os`] if a
    /// hostile owner has no memory behind a region, or the kernel now denies an access to it;
    /// [`Error::Forked`].
    #[inline]
    pub fn write(&self, at: u64, data: &[u8]) -> Result<Receipt> {
        let offset = self.offset(at, data.len())?;
        let written = match &self.0.access {
            Access::Mapped(mapped) => match mapped.write(offset, data) {
                Ok(by) => return Ok(self.0.wrote(data.len(), by)),
                Err(error) => Err(error),
            },
            _ => self.0.write_part(offset, data),
        };
        written.map_err(|error| self.told(error))
    }

    /// Reads the bytes at a place. Eight aligned bytes are always read together, unless the kernel
    /// reads them.
    ///
    /// # Errors
    /// As [`Remote::write`], except for `ReadOnly`; the bytes in `into` mean nothing then.
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<Receipt> {
        let offset = self.offset(at, into.len())?;
        let read = match &self.0.access {
            Access::Mapped(mapped) => match mapped.read(offset, into) {
                Ok(by) => return Ok(self.0.read(into.len(), by)),
                Err(error) => Err(error),
            },
            _ => self.0.read_part(offset, into),
        };
        read.map_err(|error| self.told(error))
    }

    /// Writes several parts, in order. The bounds of all of them are checked before the first is
    /// written. The kernel writes up to 64 parts in a call, and the peer's endpoint is asked for
    /// several at a time. The receipt's path is that of the slowest part.
    ///
    /// # Errors
    /// As [`Remote::write`]; [`Error::NotMapped`] may name the first of several parts.
    pub fn write_vectored(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        let written = if N::BY_ADDRESS {
            let parts = parts.iter().map(|(at, data)| Ok((self.offset(*at, data.len())?, *data)));
            self.0.write_parts(&parts.collect::<Result<Few<_>>>()?)
        } else {
            self.0.write_parts(parts)
        };
        written.map_err(|error| self.told(error))
    }

    /// Reads several parts, likewise.
    ///
    /// # Errors
    /// As [`Remote::write_vectored`], except for `ReadOnly`.
    pub fn read_vectored(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let read = if N::BY_ADDRESS {
            let parts =
                parts.iter_mut().map(|(at, into)| Ok((self.offset(*at, into.len())?, &mut **into)));
            self.0.read_parts(&mut parts.collect::<Result<Few<_>>>()?)
        } else {
            self.0.read_parts(parts)
        };
        read.map_err(|error| self.told(error))
    }

    /// Returns when all processors see this thread's writes, in this memory and others, and checks
    /// that it still stands. A hop between cores; a system call where the kernel copies; a message
    /// to the owner and back where that does the operations.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Withdrawn`], [`Error::PeerGone`], [`Error::Forked`].
    pub fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    /// Orders the operations of this thread before it ahead of those after it, as every observer
    /// sees them: reads and writes of this and other memory. (Writes alone keep their order
    /// anyway.)
    #[inline]
    pub fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn change<W: AtomicWord>(&self, at: u64, change: AtomicChange<W>) -> Result<W> {
        let offset = self.offset(at, size_of::<W>())?;
        self.0.change(offset, change).map_err(|error| self.told(error))
    }

    /// Adds `by` to the word at a place, wrapping at the end of its range, and returns its old
    /// value.
    ///
    /// Words that are mapped here are changed by this processor, in some nanoseconds if nothing
    /// else uses them. On another host the owner's endpoint changes words of regions, as long as a
    /// message there and back; it is done once, also if the connection breaks and another takes its
    /// place. Words behind addresses that are not mapped the peer's agent changes: a message there,
    /// the start of a process that shares the peer's memory and may come to harm instead of it, and
    /// a message back; some 100 µs. (The kernel changes no words.) Either is the processor's atomic
    /// instruction on the same memory, so operations of all peers, and the peer's own, are of one
    /// order.
    ///
    /// # Errors
    /// As [`Remote::write`], and [`Error::Misaligned`]; [`Error::PathRefused`] with the reason why
    /// a region is not mapped, on the same host: have the owner do it, by an active message; or if
    /// the peer cannot start a process.
    #[inline]
    pub fn fetch_add<W: AtomicWord>(&self, at: u64, by: W) -> Result<W> {
        self.change(at, AtomicChange::Add(by))
    }

    /// Makes the word at a place its bitwise and with `with`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn fetch_and<W: AtomicWord>(&self, at: u64, with: W) -> Result<W> {
        self.change(at, AtomicChange::And(with))
    }

    /// Makes the word at a place its bitwise or with `with`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn fetch_or<W: AtomicWord>(&self, at: u64, with: W) -> Result<W> {
        self.change(at, AtomicChange::Or(with))
    }

    /// Makes the word at a place its bitwise exclusive or with `with`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn fetch_xor<W: AtomicWord>(&self, at: u64, with: W) -> Result<W> {
        self.change(at, AtomicChange::Xor(with))
    }

    /// Makes the word at a place the lesser of itself and `with`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn fetch_min<W: AtomicWord>(&self, at: u64, with: W) -> Result<W> {
        self.change(at, AtomicChange::Min(with))
    }

    /// Makes the word at a place the greater of itself and `with`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn fetch_max<W: AtomicWord>(&self, at: u64, with: W) -> Result<W> {
        self.change(at, AtomicChange::Max(with))
    }

    /// Makes the word at a place `to`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn swap<W: AtomicWord>(&self, at: u64, to: W) -> Result<W> {
        self.change(at, AtomicChange::Swap(to))
    }

    /// Makes the word at a place `to` if it is `from`. Returns its old value.
    ///
    /// # Errors
    /// As for [`Remote::fetch_add`].
    #[inline]
    pub fn compare_swap<W: AtomicWord>(&self, at: u64, from: W, to: W) -> Result<W> {
        self.change(at, AtomicChange::Replace(from, to))
    }
}

impl<N: Addressing> fmt::Debug for Remote<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(if N::BY_ADDRESS { "RemoteSpace" } else { "RemoteRegion" })
            .field("peer", &self.peer())
            .field("len", &self.len())
            .field("rights", &self.rights())
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
