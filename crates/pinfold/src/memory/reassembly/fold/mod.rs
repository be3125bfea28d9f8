//! Messages in pieces become contiguous: by moving their pages, by mapping them a second time, or
//! by copying.
//!
//! - [`Folder`]: a window of reserved addresses, the mover of pages into it, and memory for copies.
//! - [`Scattered`]: messages that can be folded: one of a [`pool`](super::pool), or several parts.
//! - [`PeerPart`]: such a part in memory that another process shares, a [`PeerMemory`].
//! - [`Folded`]: the result; contiguous, until it is dropped or [unfolded](Folded::unfold).
//! - [`Receipt`]: the bytes that were moved, mapped and copied, and why.
//!
//! [`gather::plan`](super::gather::plan) decides what to do with each piece. A piece that cannot be
//! moved or mapped after all (a page is pinned, the window is full, mappings run out, there is no
//! userfaultfd) is copied: nothing fails that a copy can do.
//!
//! # Where a message is afterwards
//! In place, if its bytes lay in a row already: then nothing is done. In the window, if moving and
//! mapping save more than it takes to open a range of it. Else in memory of the folder's, which is
//! kept from message to message so that copying meets no page that is missing.
//!
//! # What others see
//! A range of the window can be neither read nor written but while a message is there. Pages come
//! back to the pool they were taken from, each to its own place, before another message can have
//! that place; those that cannot be moved back are given to the system. So no byte of a message is
//! where another will be, but in memory of the pool or of the folder, which show it to no other.
//!
//! A message out of a file is mapped for reading only. As [`&[u8]`](std::ops::Deref) it can be read
//! only if no other process can write to it ([`Quiet`]).

mod books;
mod carry;
mod copying;
mod error;
mod folded;
mod folder;
mod measure;
mod peer;
mod receipt;
mod scattered;
mod settings;
mod stock;
#[cfg(test)]
mod tests;

pub use self::{
    error::{FoldError, Unfolded},
    folded::Folded,
    folder::{Folder, FolderCount},
    measure::Measured,
    peer::{PeerMemory, PeerPart},
    receipt::{Place, Receipt, Unmoved, Why},
    scattered::{Quiet, Scattered},
    settings::Settings,
};
