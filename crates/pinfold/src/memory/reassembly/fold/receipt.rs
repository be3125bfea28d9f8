//! The receipt of a message: the ways taken, and the reasons.

use std::fmt;

use pinfold_sys::mem::userfault::{self, Stop};
use rustix::io::Errno;

use super::super::{gather::Reasons, window::AllocError};

/// The place of the bytes of a message.
///
/// ```
/// use pinfold::{Arena, Endpoint, FoldPlace};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-fold-place-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let arena = Arena::new()?;
/// endpoint.give_vectored(itself, 1, [arena.alloc(3000)?, arena.alloc(5000)?])?;
/// let view = endpoint.recv_view(peer, 1)?;
/// let folded = view.folded().expect("it came in two pieces");
/// let copied = match folded.place {
///     FoldPlace::InPlace => 0,
///     FoldPlace::Window => folded.copied, // The rest was mapped or moved.
///     FoldPlace::Memory(_) => folded.bytes,
/// };
/// assert_eq!(folded.copied, copied);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The place where they came: they were contiguous.
    InPlace,
    /// In the window.
    Window,
    /// In memory of the folder's or the caller's, copied.
    Memory(Why),
}

/// The reason why a message did not go into the window.
///
/// ```
/// use pinfold::{Arena, Endpoint, FoldPlace, NotInPlace};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-fold-why-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let arena = Arena::new()?;
/// endpoint.give_vectored(itself, 1, [arena.alloc(3000)?, arena.alloc(5000)?])?;
/// let view = endpoint.recv_view(peer, 1)?;
/// let folded = view.folded().expect("it came in two pieces");
/// // Pieces this short cost less to copy than to map.
/// assert_eq!(folded.place, FoldPlace::Memory(NotInPlace::Cheapest));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// To copy all of it is cheapest.
    Cheapest,
    /// The caller has memory.
    Asked,
    /// There is no window.
    NoWindow,
    /// The window is full.
    Full(AllocError),
    /// So many mappings may not be made just now.
    NoMaps {
        /// Mappings that it would take.
        wanted: u32,
        /// Mappings that may be made.
        left: u32,
    },
    /// The kernel refused to open a range of it, or to map a part there.
    Os(Errno),
}

/// The reason why no pages are moved at all.
///
/// ```
/// use pinfold::{Endpoint, Message, Path, PathSet, Unmoved};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-fold-unmoved-{}", std::process::id());
/// // Messages that the library stores come in pieces where its memory for them has holes.
/// let only = PathSet::only(&[Path::Inline, Path::Eager]);
/// let endpoint = Endpoint::builder().listen(&name).paths(only).move_pages(false).build()?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// # let next = |len: usize| -> pinfold::Result<Message> {
/// #     let sending = endpoint.send_owned(itself, 1, vec![1; len]);
/// #     let message = endpoint.recv(peer, 1)?;
/// #     sending.wait().0?;
/// #     Ok(message)
/// # };
/// // `next` sends a message and receives it; then every second one is dropped.
/// let mut held = (0..15).map(|_| next(2 << 20)).collect::<pinfold::Result<Vec<_>>>()?;
/// for at in (0..8).rev() {
///     held.remove(2 * at);
/// }
/// let message = next(8 << 20)?;
/// let folded = message.folded().expect("it came in pieces");
/// assert_eq!((folded.moved, folded.unmoved), (0, Some(Unmoved::Unwanted)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmoved {
    /// Moving is not wanted: [`Builder::move_pages`](crate::Builder::move_pages), or the folder's
    /// settings.
    Unwanted,
    /// A filter on system calls is in force. Some filters end a process that asks for a
    /// userfaultfd, so the folder did not ask.
    Filtered,
    /// All pieces are so short that the folder did not measure the costs.
    Short,
    /// Another thread is just measuring whether and how fast pages are moved.
    Unready,
    /// The kernel refused the userfaultfd that moving needs.
    Refused(userfault::Reason, Errno),
    /// This process is a child of the one that the message came to.
    Child,
}

impl From<&userfault::Error> for Unmoved {
    fn from(error: &userfault::Error) -> Unmoved {
        Unmoved::Refused(error.reason(), error.errno())
    }
}

/// The receipt of a message: the ways taken, and the reasons.
///
/// Identity: unless it is [in place](Place::InPlace), `moved + mapped + copied == bytes`.
///
/// ```
/// use pinfold::{Arena, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-fold-receipt-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let arena = Arena::new()?;
/// endpoint.give_vectored(itself, 1, [arena.alloc(3000)?, arena.alloc(5000)?])?;
/// let view = endpoint.recv_view(peer, 1)?;
/// let folded = view.folded().expect("it came in two pieces");
/// assert_eq!((folded.bytes, folded.pieces), (8000, 2));
/// assert_eq!(folded.moved + folded.mapped + folded.copied, folded.bytes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receipt {
    /// Bytes of the message.
    pub bytes: u64,
    /// Pieces that it came in.
    pub pieces: u32,
    /// Its place.
    pub place: Place,
    /// Its bytes whose pages were moved.
    pub moved: u64,
    /// Its bytes whose pages were mapped.
    pub mapped: u64,
    /// Its bytes that were copied.
    pub copied: u64,
    /// The reasons why pieces were to be moved, or not.
    pub moving: Reasons,
    /// The reasons why pieces were to be mapped, or not.
    pub mapping: Reasons,
    /// The expected time of the plan, nanoseconds.
    pub expected_ns: f64,
    /// Times that the kernel would not move pages that were to be moved.
    pub stops: u32,
    /// The reason for the first of them.
    pub stop: Option<Stop>,
    /// The reason why no pages are moved at all, if so.
    pub unmoved: Option<Unmoved>,
}

impl Receipt {
    pub(crate) fn new(bytes: u64, pieces: usize, place: Place) -> Receipt {
        Receipt {
            bytes,
            pieces: pieces as u32,
            place,
            moved: 0,
            mapped: 0,
            copied: 0,
            moving: Reasons::default(),
            mapping: Reasons::default(),
            expected_ns: 0.0,
            stops: 0,
            stop: None,
            unmoved: None,
        }
    }
}

impl fmt::Display for Unmoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unmoved::Unwanted => f.write_str("it is switched off"),
            Unmoved::Filtered => f.write_str(
                "a filter on system calls is in force, and nobody asked for a userfaultfd: where the filter \
                 passes that, say so by Builder::move_pages",
            ),
            Unmoved::Short => f.write_str("all pieces are short"),
            Unmoved::Unready => f.write_str("another thread is finding out how"),
            Unmoved::Refused(reason, errno) => {
                write!(f, "userfaultfd: {}; {reason}", std::io::Error::from(*errno))
            }
            Unmoved::Child => f.write_str("it came to this process's parent"),
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Cheapest => f.write_str("to copy is cheapest"),
            Why::Asked => f.write_str("the caller has memory"),
            Why::NoWindow => f.write_str("there is no window"),
            Why::Full(error) => write!(f, "the window is full: {error}"),
            Why::NoMaps { wanted, left } => {
                write!(f, "{wanted} mappings are wanted, {left} are left")
            }
            Why::Os(errno) => write!(f, "the kernel refused the window: {errno}"),
        }
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Receipt { bytes, pieces, moved, mapped, copied, .. } = self;
        write!(f, "{bytes} bytes in {pieces} pieces: ")?;
        match self.place {
            Place::InPlace => return f.write_str("in a row already"),
            Place::Window => f.write_str("in the window")?,
            Place::Memory(why) => write!(f, "in memory, {why}")?,
        }
        write!(
            f,
            "; {moved} moved ({}), {mapped} mapped ({}), {copied} copied; {:.0} ns expected",
            self.moving, self.mapping, self.expected_ns
        )?;
        if let Some(stop) = self.stop {
            write!(f, "; not moved {} times: {stop:?}", self.stops)?;
        }
        match self.unmoved {
            Some(why) => write!(f, "; nothing is moved: {why}"),
            None => Ok(()),
        }
    }
}
