//! The receipt of a completed operation: how it was done.

use std::fmt;

use super::{Path, Refusal, SendDriver, SendMode, refusal::Code};
use crate::{
    copy::{Algorithm, Largest},
    memory::translate::level::TranslationLevel,
};

/// How one operation was done: the path, the bytes copied by each side, and why each other path was
/// refused.
///
/// Bytes are counted on the side that holds the receipt: an eager message of *n* bytes is *n*
/// `copied_user` at the sender (into the ring) and *n* again at the receiver (out of it). Where
/// both sides copy at once, each counts its part: by `cma` and `mapped` the counts of both receipts
/// add up to the bytes received.
///
/// ```
/// use pinfold::{Endpoint, Path};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-receipt-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.send_by(Path::Eager, itself, 1, &[7; 1000])?;
/// let receipt = endpoint.recv(peer, 1)?.receipt();
/// assert_eq!((receipt.path, receipt.bytes, receipt.copied_user), (Path::Eager, 1000, 1000));
/// for (path, why) in receipt.refusals() {
///     println!("not {path}: {why}");
/// }
/// assert!(receipt.to_string().starts_with("1000 bytes by eager"), "{receipt}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The path that was taken.
    pub path: Path,
    /// Bytes of the message that this side sent or took in.
    pub bytes: u64,
    /// Bytes copied by this process at user level.
    pub copied_user: u64,
    /// Bytes copied by the kernel in calls of this process, also where it was not to copy them.
    pub copied_kernel: u64,
    why: Why,
    by: Largest,
    sent: Option<Sent>,
    /// Bytes of a receive's memory whose pages were put there in advance, in [`PREFAULT_UNIT`]s.
    ready: u8,
}

/// The unit of [`Receipt::prefaulted`], bytes.
const PREFAULT_UNIT: u64 = 64 << 10;

/// How a message was sent to another host from the memory it lay in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    By(SendMode, By),
    /// Encrypted, so only a copy came into question.
    Encrypted,
}

/// The driver, and the level of the translation stack that had the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Calls,
    Ring(Option<TranslationLevel>),
}

// A receipt is returned for every message: well within a cache line.
const _: () = assert!(size_of::<Receipt>() == 40);

/// The reason against each path that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Why([Code; Path::ALL.len()]);

impl Why {
    pub(crate) const NOT_ASKED: Why = Why([Code::NONE; Path::ALL.len()]);
}

impl Receipt {
    /// A receipt for `bytes` over `path`, nothing copied yet.
    pub const fn new(path: Path, bytes: u64) -> Receipt {
        Receipt {
            path,
            bytes,
            copied_user: 0,
            copied_kernel: 0,
            why: Why::NOT_ASKED,
            by: Largest::NONE,
            sent: None,
            ready: 0,
        }
    }

    /// A receipt for `bytes` over `path`, each copied once at user level.
    ///
    /// Made of its parts where it is returned: to copy a receipt that was just written would wait
    /// for all stores before it, those to memory that the peer looks at among them.
    #[inline(always)]
    pub(crate) const fn copied(path: Path, bytes: u64, why: Why, by: Largest) -> Receipt {
        let (copied_user, copied_kernel, sent, ready) = (bytes, 0, None, 0);
        Receipt { path, bytes, copied_user, copied_kernel, why, by, sent, ready }
    }

    /// The algorithm by which this process copied the bytes, or the largest part of them. `None`:
    /// it copied none at user level.
    ///
    /// Parts of less than 2 KiB count as the C library's, [`Algorithm::LIBC`].
    pub const fn copied_by(&self) -> Option<Algorithm> {
        if self.copied_user > 0 { Some(self.by.algorithm()) } else { None }
    }

    /// How the message was sent to another host, if it was sent from the memory it lay in. `None`:
    /// it was not, or this receipt is of a receive.
    ///
    /// [`Receipt::copied_kernel`] tells whether the kernel copied. [`SendMode::Cached`] says that
    /// the memory was still pinned when the message had been sent; memory that was pinned for this
    /// message alone was sent [`SendMode::PerSend`].
    pub const fn sent_by(&self) -> Option<SendMode> {
        match self.sent {
            Some(Sent::By(mode, _)) => Some(mode),
            Some(Sent::Encrypted) => Some(SendMode::Plain),
            None => None,
        }
    }

    /// The driver that asked the kernel to send the message, where [`Receipt::sent_by`] tells how:
    /// an io_uring, or calls where there is none, where it is not wanted
    /// ([`Builder::io_uring`](crate::Builder::io_uring)), and for [`SendMode::Plain`].
    pub const fn send_driver(&self) -> Option<SendDriver> {
        match self.sent {
            Some(Sent::By(_, By::Ring(_))) => Some(SendDriver::Ring),
            Some(Sent::By(_, By::Calls) | Sent::Encrypted) => Some(SendDriver::Calls),
            None => None,
        }
    }

    /// The level of the translation stack that had the memory which the message was sent from: of
    /// several parts, the slowest. `None`: the stack was not asked, since the message was copied or
    /// pinned by the kernel for itself. A message of [`SendMode::Cached`] has one, and so has one
    /// whose memory was pinned by the stack for this message alone.
    ///
    /// ```
    /// use pinfold::{Path, Receipt};
    ///
    /// assert_eq!(Receipt::new(Path::Eager, 8).translated(), None);
    /// ```
    pub const fn translated(&self) -> Option<TranslationLevel> {
        match self.sent {
            Some(Sent::By(_, By::Ring(level))) => level,
            _ => None,
        }
    }

    /// Bytes of the memory of a receive whose pages were put there while it waited for its message,
    /// rounded up to 64 KiB: [`Builder::prepare_receives`](crate::Builder::prepare_receives). 0 for
    /// sends, and if all pages were there.
    pub const fn prefaulted(&self) -> u64 {
        self.ready as u64 * PREFAULT_UNIT
    }

    /// Notes the bytes prefaulted.
    pub(crate) fn note_prefaulted(&mut self, bytes: u64) {
        self.ready = u8::try_from(bytes.div_ceil(PREFAULT_UNIT)).unwrap_or(u8::MAX);
    }

    /// Notes how the message was sent, and which level of the translation stack had its memory.
    pub(crate) const fn note_sent(
        &mut self,
        mode: SendMode,
        driver: SendDriver,
        translated: Option<TranslationLevel>,
    ) {
        let by = match driver {
            SendDriver::Calls => By::Calls,
            SendDriver::Ring => By::Ring(translated),
        };
        self.sent = Some(Sent::By(mode, by));
    }

    /// Why no [`SendMode`] but [`SendMode::Plain`] came into question, nor an io_uring, where that
    /// was settled before any was tried: [`Refusal::Encrypted`]. `None` for all other messages, and
    /// for those that are not sent from the memory they lay in.
    pub const fn send_refused(&self) -> Option<Refusal> {
        if let Some(Sent::Encrypted) = self.sent { Some(Refusal::Encrypted) } else { None }
    }

    /// Notes that the last part of the message was sent as that of `other`, if that went past the
    /// lane.
    pub(crate) fn note_sent_as(&mut self, other: &Receipt) {
        let slowest = self.translated().max(other.translated());
        self.sent = other.sent.or(self.sent);
        if let Some(Sent::By(_, By::Ring(level))) = &mut self.sent {
            *level = slowest;
        }
    }

    /// Adds the receipt of a further part. The path, and why not others, are those of the slowest.
    pub(crate) fn add(&mut self, part: &Receipt) {
        self.bytes += part.bytes;
        self.copied_user += part.copied_user;
        self.copied_kernel += part.copied_kernel;
        self.note_sent_as(part);
        self.note_copies(part.by);
        if (part.path as usize) < self.path as usize {
            (self.path, self.why) = (part.path, part.why);
        }
    }

    /// Notes that the message was sent encrypted.
    pub(crate) const fn note_encrypted(&mut self) {
        self.sent = Some(Sent::Encrypted);
    }

    /// Notes how some more of the message's bytes were copied.
    #[inline]
    pub(crate) const fn note_copies(&mut self, by: Largest) {
        self.by = self.by.and(by);
    }

    /// Why the other paths were not taken.
    #[inline(always)]
    pub(crate) const fn why(&self) -> Why {
        self.why
    }

    /// Why `path` was not taken; `None` for the path that was, and for paths that were not
    /// considered.
    pub const fn refused(&self, path: Path) -> Option<Refusal> {
        self.why.0[path as usize].refusal()
    }

    /// Notes why `path` was not taken.
    pub(crate) const fn refuse(&mut self, path: Path, why: Refusal) {
        self.why.0[path as usize] = Code::of(why);
    }

    /// Notes that `path` was taken in the end, and why not the one that had been chosen.
    pub(crate) const fn took(&mut self, path: Path, why_not: Refusal) {
        if self.path as usize != path as usize {
            self.refuse(self.path, why_not);
            self.why.0[path as usize] = Code::NONE;
            self.path = path;
        }
    }

    /// Every refused path and why.
    pub fn refusals(&self) -> impl Iterator<Item = (Path, Refusal)> + '_ {
        Path::ALL.into_iter().filter_map(|path| Some((path, self.refused(path)?)))
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes by {}, {} copied here", self.bytes, self.path, self.copied_user)?;
        if let Some(algorithm) = self.copied_by() {
            write!(f, " by {algorithm}")?;
        }
        write!(f, ", {} copied by the kernel", self.copied_kernel)?;
        if let (Some(mode), Some(driver)) = (self.sent_by(), self.send_driver()) {
            write!(f, ", sent {} by {}", mode.name(), driver.name())?;
            if let Some(why) = self.send_refused() {
                write!(f, " since {why}")?;
            }
            if let Some(level) = self.translated() {
                write!(f, ", translated by {level}")?;
            }
        }
        if self.prefaulted() > 0 {
            write!(f, ", up to {} bytes of memory made ready before", self.prefaulted())?;
        }
        for (path, why) in self.refusals() {
            write!(f, "; not {path}: {why}")?;
        }
        Ok(())
    }
}
