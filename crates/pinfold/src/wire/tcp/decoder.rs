//! From a stream of bytes to frames, as far as they have come.

use super::frame::{BODY_BYTES_MAX, Frame, HEAD_BYTES, Head, Violation};

/// Takes heads and bodies out of a stream. Payloads are left to the caller, who reads them to where they
/// belong and [says so](Decoder::skip).
///
/// It needs no memory but its own, whatever comes.
#[derive(Debug)]
pub(crate) struct Decoder {
    bytes: [u8; HEAD_BYTES + BODY_BYTES_MAX],
    /// How many of them have come.
    have: usize,
    /// What the first of them say, once they are all there.
    head: Option<Head>,
    /// Bytes of the last frame's payload that are still to come.
    payload: u64,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder { bytes: [0; HEAD_BYTES + BODY_BYTES_MAX], have: 0, head: None, payload: 0 }
    }

    /// Takes bytes of heads and bodies, up to and including those of one frame: how many, and the frame
    /// if it is complete. Takes none as long as a payload is [to come](Decoder::payload_left).
    ///
    /// # Errors
    /// A [`Violation`], now and always after.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Option<Frame>), Violation> {
        if self.payload > 0 {
            return Ok((0, None));
        }
        let mut used = self.fill(bytes, HEAD_BYTES);
        if self.have < HEAD_BYTES {
            return Ok((used, None));
        }
        let head = match self.head {
            Some(head) => head,
            None => {
                let (head, _) = self.bytes.split_first_chunk().expect("a head is shorter");
                *self.head.insert(Head::decode(head)?)
            }
        };
        let len = HEAD_BYTES + head.body_bytes();
        used += self.fill(&bytes[used..], len);
        if self.have < len {
            return Ok((used, None));
        }
        // What makes no sense stays where it is, and is found again.
        let frame = head.with(&self.bytes[HEAD_BYTES..len])?;
        (self.have, self.head, self.payload) = (0, None, frame.payload);
        Ok((used, Some(frame)))
    }

    /// Takes bytes until there are `len`; how many.
    fn fill(&mut self, bytes: &[u8], len: usize) -> usize {
        let used = bytes.len().min(len.saturating_sub(self.have));
        self.bytes[self.have..self.have + used].copy_from_slice(&bytes[..used]);
        self.have += used;
        used
    }

    /// Bytes of the last frame's payload that are still to come.
    pub(crate) fn payload_left(&self) -> u64 {
        self.payload
    }

    /// Says that `bytes` of the payload were taken from the stream.
    ///
    /// # Panics
    /// If so many were not to come.
    pub(crate) fn skip(&mut self, bytes: u64) {
        self.payload = self.payload.checked_sub(bytes).expect("more than the payload was taken");
    }

    /// Whether the stream may end here: between two frames.
    pub(crate) fn is_between(&self) -> bool {
        self.have == 0 && self.payload == 0
    }
}
