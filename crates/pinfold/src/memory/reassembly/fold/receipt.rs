//! What was done with a message, and why.

use std::fmt;

use pinfold_sys::mem::userfault::{self, Stop};
use rustix::io::Errno;

use super::super::{gather::Reasons, window::AllocError};

/// Where the bytes of a message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where they came: they lay in a row.
    InPlace,
    /// In the window.
    Window,
    /// In memory of the folder's or the caller's, copied.
    Memory(Why),
}

/// Why a message did not go into the window.
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
    /// The kernel refused to open a range of it, or to map something there.
    Os(Errno),
}

/// Why no pages are moved at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmoved {
    /// It is not wanted: [`Settings::moves`](super::Settings::moves),
    /// [`Builder::move_pages`](crate::Builder::move_pages).
    Unwanted,
    /// A filter on system calls is in force. Some end who asks for a userfaultfd, so nobody asked.
    Filtered,
    /// All pieces are so short that nobody asked what it takes.
    Short,
    /// Another thread is just finding out whether and how fast they are moved.
    Unready,
    /// The kernel refused what it takes.
    Refused(userfault::Reason, Errno),
    /// This process is a child of the one that the message came to.
    Child,
}

impl From<&userfault::Error> for Unmoved {
    fn from(error: &userfault::Error) -> Unmoved {
        Unmoved::Refused(error.reason(), error.errno())
    }
}

/// What was done with a message, and why.
///
/// Identity: unless it is [in place](Place::InPlace), `moved + mapped + copied == bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receipt {
    /// Bytes of the message.
    pub bytes: u64,
    /// Pieces that it came in.
    pub pieces: u32,
    /// Where it is.
    pub place: Place,
    /// Its bytes whose pages were moved.
    pub moved: u64,
    /// Its bytes whose pages were mapped.
    pub mapped: u64,
    /// Its bytes that were copied.
    pub copied: u64,
    /// Why pieces were to be moved, or not.
    pub moving: Reasons,
    /// Why pieces were to be mapped, or not.
    pub mapping: Reasons,
    /// What was expected of what was to be done, nanoseconds.
    pub expected_ns: f64,
    /// How often the kernel would not move what was to be moved, and why at first.
    pub stops: u32,
    /// Why it would not at first.
    pub stop: Option<Stop>,
    /// Why no pages are moved at all, if so.
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
