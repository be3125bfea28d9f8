//! The settings of a folder.

use pinfold_sys::mem::maps;

use super::super::{HUGE_BYTES, PAGE_BYTES, gather::Costs};

/// The resources that a [`Folder`](super::Folder) may use, and the costs it goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Addresses to reserve, bytes; 8 GiB. Half of them are for messages with huge pages. Rounded
    /// up to 4 MiB; where there are not so many, a half, a quarter and so on. 0: no window.
    pub window_bytes: usize,
    /// Mappings that may be in use by messages at the same time. `None`: a sixteenth of
    /// `vm.max_map_count`. A message in the window takes 2, and 2 more for each part that is
    /// mapped.
    pub maps_max: Option<u32>,
    /// Memory to keep for messages that are copied, bytes; 32 MiB.
    pub stock_bytes_max: usize,
    /// The costs on this machine. `None`: measured when the first message is folded, once in a
    /// process, in a few milliseconds.
    pub costs: Option<Costs>,
    /// True if pages may be moved at all.
    pub moves: bool,
    /// True if the plan counts that pages moved have to be moved back: for programs that fold as
    /// much as they can, where `false` is for those that want each message as soon as possible.
    pub counts_return: bool,
    /// True if messages are folded right after they were written, so that copies of them come out
    /// of the caches. Of no effect where [`costs`](Settings::costs) are given.
    pub just_written: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            window_bytes: 8 << 30,
            maps_max: None,
            stock_bytes_max: 32 << 20,
            costs: None,
            moves: true,
            counts_return: false,
            just_written: false,
        }
    }
}

/// The least window worth having, bytes.
pub(super) const WINDOW_MIN: usize = 2 * HUGE_BYTES;

impl Settings {
    /// The window's length as it is asked for first, bytes.
    pub(super) fn window(&self) -> usize {
        let max = PAGE_BYTES << 31;
        self.window_bytes.min(max).next_multiple_of(WINDOW_MIN)
    }

    /// The mappings that may be made.
    pub(super) fn maps(&self) -> u32 {
        self.maps_max.unwrap_or_else(|| maps::count_max() / 16)
    }
}
