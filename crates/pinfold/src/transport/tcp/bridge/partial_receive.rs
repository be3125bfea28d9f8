//! A piece that is coming, or a long message: how much of it is there, and where.

use crate::wire::descriptor::{Body, Header, Piece};

/// If no more than so many bytes of a long message are still to come, credit is sent with its end:
/// before that the peer can send nothing else.
const SOON_BYTES: u64 = 256 << 10;

/// A message of which bytes are still to come.
pub(super) struct PartialReceive {
    /// The header of its frame.
    pub(super) frame: Header,
    /// The header of its next descriptor.
    pub(super) header: Header,
    pub(super) body: Body,
    /// Bytes that the frame has behind its words.
    pub(super) len: u64,
    pub(super) is_long: bool,
    /// Bytes of it that are not in the lane yet, nor in `range`, nor in their place.
    pub(super) left: u64,
    /// True if its bytes go to their place without the lane.
    pub(super) direct: bool,
    pub(super) range: Option<Piece>,
    /// Bytes of the range that are there.
    pub(super) filled: u32,
}

impl PartialReceive {
    /// Nothing of it has come.
    pub(super) fn new(
        frame: Header,
        header: Header,
        body: Body,
        len: u64,
        is_long: bool,
    ) -> PartialReceive {
        let (left, direct, range, filled) = (len, is_long, None, 0);
        PartialReceive { frame, header, body, len, is_long, left, direct, range, filled }
    }

    /// Returns whether it is a long message of which little is left.
    pub(super) fn ends_soon(&self) -> bool {
        self.is_long && self.left <= SOON_BYTES
    }

    /// Bytes that have come.
    pub(super) fn reached(&self) -> u64 {
        self.len - self.left - self.range.map_or(0, |range| u64::from(range.len - self.filled))
    }
}
