//! Plans that make the pieces of a message contiguous: each is moved, mapped or copied, by the way
//! that is expected to be cheapest.
//!
//! Pure: [`plan`] is handed the places of the pieces and the costs ([`Costs`]), and hands back
//! steps. A plan is never expected to cost more than copying everything.
//!
//! Pages can only take the place of bytes that lie alike: at the same offset in their page, and for
//! huge pages in their 2 MiB. So of a piece only the whole pages can be moved or mapped, the bytes
//! before and behind them are copied, and a piece whose place in the message is at another offset
//! of a page can only be copied. The last page of the message is whole if its piece has
//! [`room`](Piece::room) behind its bytes.

mod choose;
mod costs;
mod shape;
#[cfg(test)]
mod tests;

use std::{fmt, ops::Range};

pub use self::{choose::plan, costs::Costs};

/// The memory behind the addresses of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Private pages of this process, which can be moved (`UFFDIO_MOVE`).
    Anonymous,
    /// A file that can be mapped a second time.
    File {
        /// The offset of the first byte in it.
        offset: u64,
    },
    /// Neither: it can be read, and that is all.
    Other,
}

/// Contiguous bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address of the first byte.
    pub at: u64,
    /// Bytes of the message.
    pub len: u64,
    /// Bytes from `at` on that may go with them, at least `len`: whole pages of a pool.
    pub room: u64,
    /// True if all of its aligned 2 MiB are huge pages.
    pub huge: bool,
    /// The memory behind its addresses.
    pub backing: Backing,
}

/// The place where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A window: reserved addresses from a multiple of `align` on, with nothing behind them.
    Window {
        /// Bytes; a power of two. Below a page nothing can be moved or mapped, below 2 MiB no huge
        /// page stays one.
        align: u64,
        /// Mappings that this process may still make.
        maps_max: u32,
    },
    /// Memory of the caller's, which is there already. All is copied.
    Memory,
}

/// The way in which bytes get to their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// Their pages are moved: `UFFDIO_MOVE`.
    Move,
    /// Their file is mapped there: `mmap(MAP_FIXED)`.
    Map,
    /// They are copied.
    Copy,
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The way.
    pub how: How,
    /// The address of the first byte; of mapped ones, its place in the file.
    pub from: u64,
    /// Its place in the message.
    pub to: u64,
    /// Bytes; whole pages if they are moved or mapped.
    pub len: u64,
}

/// The reasons why pieces were moved or mapped, or not, with the number of pieces of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons {
    /// Wholly or in part, because it is cheapest.
    pub cheapest: u32,
    /// Another way is cheaper.
    pub dearer: u32,
    /// They have no whole page that lies in its page as it will in the message.
    pub misaligned: u32,
    /// Their memory is of another kind.
    pub backing: u32,
    /// No mapping is left to be made.
    pub no_maps: u32,
    /// Its costs are not known.
    pub unmeasured: u32,
    /// The message does not go into a window.
    pub no_window: u32,
}

/// The steps, in the order of the message, and the reasons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Together they put every byte of the message in its place, once.
    pub steps: Vec<Step>,
    /// The expected cost of the steps, nanoseconds; at most `copy_ns`.
    pub cost_ns: f64,
    /// The cost of copying everything, nanoseconds.
    pub copy_ns: f64,
    /// About moving.
    pub moving: Reasons,
    /// About mapping.
    pub mapping: Reasons,
}

impl Plan {
    /// Bytes that get to their place in that way. Moved and mapped pages may bring some that are
    /// not of the message.
    pub fn bytes(&self, how: How) -> u64 {
        self.steps.iter().filter(|step| step.how == how).map(|step| step.len).sum()
    }

    /// The way of all bytes, if there is only one.
    pub fn only(&self) -> Option<How> {
        let how = self.steps.first()?.how;
        self.steps.iter().all(|step| step.how == how).then_some(how)
    }

    fn add(&mut self, step: Step) {
        match self.steps.last_mut() {
            // Of pieces that lie next to each other.
            Some(last)
                if last.how == step.how
                    && last.from + last.len == step.from
                    && last.to + last.len == step.to =>
            {
                last.len += step.len;
            }
            _ => self.steps.push(step),
        }
    }
}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.cheapest, "cheapest"),
            (self.dearer, "dearer"),
            (self.misaligned, "not aligned"),
            (self.backing, "other memory"),
            (self.no_maps, "no mappings left"),
            (self.unmeasured, "not measured"),
            (self.no_window, "no window"),
        ];
        let mut some = all.into_iter().filter(|(count, _)| *count > 0).peekable();
        if some.peek().is_none() {
            return f.write_str("no pieces");
        }
        for (at, (count, what)) in some.enumerate() {
            write!(f, "{}{what}: {count}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [moved, mapped, copied] = [How::Move, How::Map, How::Copy].map(|how| self.bytes(how));
        write!(
            f,
            "{moved} bytes moved ({}), {mapped} mapped ({}), {copied} copied; {:.0} ns, to copy all {:.0}",
            self.moving, self.mapping, self.cost_ns, self.copy_ns
        )
    }
}

/// A range of bytes of the message.
type Bytes = Range<u64>;
