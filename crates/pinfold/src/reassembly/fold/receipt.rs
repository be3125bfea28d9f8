//! What was done with a message, and why.

use std::fmt;

use pinfold_sys::userfault::Stop;
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
}

impl Receipt {
    pub(super) fn new(bytes: u64, pieces: usize, place: Place) -> Receipt {
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
        match self.stop {
            Some(stop) => write!(f, "; not moved {} times: {stop:?}", self.stops),
            None => Ok(()),
        }
    }
}
