//! Frames that were sent and may have to be sent again: descriptors, not data. The bytes of pieces
//! stay in the lane, those of long messages with their senders, until the peer has said that it has
//! them.
//!
//! **Invariant.** It holds exactly the frames from the first that is not acknowledged to the last
//! that was sent, in the order of their numbers.

use std::collections::VecDeque;

use pinfold_sys::process::Segment as Part;
use smallvec::SmallVec;

use crate::{
    transport::shm::ring::Violation,
    wire::descriptor::{Body, Header, Piece},
};

/// The memory of a message, in few parts mostly.
pub(super) type Parts = SmallVec<[Part; 1]>;

/// A frame.
pub(super) struct Frame {
    pub header: Header,
    pub body: Body,
    /// Words of the body that it has.
    pub words: usize,
    pub follows: Bytes,
}

/// The bytes behind a frame's words.
pub(super) enum Bytes {
    Nothing,
    /// Bulk bytes of the lane.
    Bulk(Piece),
    /// A message in its sender's memory, and its name there.
    Message {
        name: u64,
        parts: Parts,
    },
}

impl Bytes {
    /// The number of bytes.
    fn len(&self) -> u64 {
        match self {
            Bytes::Nothing => 0,
            Bytes::Bulk(piece) => piece.len.into(),
            Bytes::Message { parts, .. } => parts.iter().map(|part| part.len as u64).sum(),
        }
    }
}

impl Frame {
    /// The bytes from number `skip` on, part by part.
    ///
    /// # Errors
    /// There are not so many.
    pub(super) fn bytes_from(
        &self,
        skip: u64,
        mut each: impl FnMut(Stretch),
    ) -> Result<(), Violation> {
        if skip > self.follows.len() {
            return Err(Violation("it has got more of a frame than there is"));
        }
        match &self.follows {
            Bytes::Nothing => {}
            Bytes::Bulk(piece) => {
                let skip = skip as u32;
                let (offset, len) = (piece.offset + skip, piece.len - skip);
                each(Stretch::Bulk(Piece { offset, len, sample: piece.sample }));
            }
            Bytes::Message { parts, .. } => {
                let mut skip = skip as usize;
                for part in parts {
                    let less = skip.min(part.len);
                    skip -= less;
                    each(Stretch::Part(Part {
                        ptr: part.ptr.wrapping_add(less),
                        len: part.len - less,
                    }));
                }
            }
        }
        Ok(())
    }
}

/// Bytes of a frame that lie together.
pub(super) enum Stretch {
    Bulk(Piece),
    Part(Part),
}

/// Frames that the peer has not acknowledged.
#[derive(Default)]
pub(super) struct Retransmit {
    acknowledged: u64,
    /// The frames among them that were descriptors of the lane.
    lane_acknowledged: u64,
    frames: VecDeque<Frame>,
    /// Long messages among them.
    messages: usize,
}

impl Retransmit {
    /// Keeps a frame: its number.
    pub(super) fn push(&mut self, frame: Frame) -> u64 {
        self.messages += usize::from(matches!(frame.follows, Bytes::Message { .. }));
        self.frames.push_back(frame);
        self.last()
    }

    /// The number of the last frame; 0 if there was none.
    pub(super) fn last(&self) -> u64 {
        self.acknowledged + self.frames.len() as u64
    }

    /// The number up to which the peer has acknowledged them.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Descriptors of the lane among those.
    pub(super) fn lane_acknowledged(&self) -> u64 {
        self.lane_acknowledged
    }

    /// Long messages that are not acknowledged.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    /// The peer has got the frames up to this number: names the long messages among them to `each`.
    ///
    /// # Errors
    /// A frame of that number was not sent.
    pub(super) fn acknowledge(
        &mut self,
        upto: u64,
        mut each: impl FnMut(u64),
    ) -> Result<(), Violation> {
        if upto > self.last() {
            return Err(Violation("it acknowledged what was not sent"));
        }
        while self.acknowledged < upto
            && let Some(frame) = self.frames.pop_front()
        {
            self.acknowledged += 1;
            match frame.follows {
                Bytes::Message { name, .. } => {
                    self.messages -= 1;
                    each(name);
                }
                _ => self.lane_acknowledged += 1,
            }
        }
        Ok(())
    }

    /// The frames that are not acknowledged, with their numbers.
    pub(super) fn again(&self) -> impl Iterator<Item = (u64, &Frame)> {
        (self.acknowledged + 1..).zip(&self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::descriptor::Kind;

    fn frame(follows: Bytes) -> Frame {
        Frame { header: Header::new(Kind::Data, 0, 1), body: [0; 7], words: 2, follows }
    }

    fn message(name: u64, lens: &[usize]) -> Frame {
        let part = |len: &usize| Part { ptr: std::ptr::without_provenance_mut(0x1000), len: *len };
        frame(Bytes::Message { name, parts: lens.iter().map(part).collect() })
    }

    #[test]
    fn frames_are_kept_until_they_are_acknowledged() {
        let mut retransmit = Retransmit::default();
        assert_eq!(retransmit.push(frame(Bytes::Nothing)), 1);
        assert_eq!(retransmit.push(message(77, &[3])), 2);
        assert_eq!(retransmit.push(frame(Bytes::Bulk(Piece { offset: 0, len: 9, sample: 0 }))), 3);
        assert_eq!(retransmit.push(message(78, &[3])), 4);
        let mut done = Vec::new();
        assert!(retransmit.acknowledge(5, |name| done.push(name)).is_err());
        assert_eq!((retransmit.acknowledged(), retransmit.messages()), (0, 2));
        for (upto, lane, names) in
            [(1, 1, vec![]), (1, 1, vec![]), (3, 2, vec![77]), (4, 2, vec![78])]
        {
            retransmit.acknowledge(upto, |name| done.push(name)).unwrap();
            assert_eq!((retransmit.acknowledged(), retransmit.lane_acknowledged()), (upto, lane));
            assert_eq!(std::mem::take(&mut done), names);
            assert!(retransmit.again().map(|(number, _)| number).eq(upto + 1..=4));
        }
        // An older word takes nothing back.
        retransmit.acknowledge(2, |_| panic!()).unwrap();
        assert_eq!(
            (retransmit.acknowledged(), retransmit.last(), retransmit.messages()),
            (4, 4, 0)
        );
    }

    #[test]
    fn a_frame_goes_on_in_its_middle() {
        let lens = |frame: &Frame, skip| {
            let mut lens = Vec::new();
            let done = frame.bytes_from(skip, |stretch| match stretch {
                Stretch::Bulk(piece) => lens.push((piece.offset as usize, piece.len as usize)),
                Stretch::Part(part) => lens.push((part.ptr.addr() - 0x1000, part.len)),
            });
            done.map(|()| lens).map_err(|why| why.0)
        };
        let message = message(1, &[10, 0, 20]);
        assert_eq!(lens(&message, 0), Ok(vec![(0, 10), (0, 0), (0, 20)]));
        assert_eq!(lens(&message, 4), Ok(vec![(4, 6), (0, 0), (0, 20)]));
        assert_eq!(lens(&message, 13), Ok(vec![(10, 0), (0, 0), (3, 17)]));
        assert_eq!(lens(&message, 30), Ok(vec![(10, 0), (0, 0), (20, 0)]));
        assert!(lens(&message, 31).is_err());
        let piece = frame(Bytes::Bulk(Piece { offset: 64, len: 9, sample: 0 }));
        assert_eq!(lens(&piece, 2), Ok(vec![(66, 7)]));
        assert!(lens(&piece, 10).is_err() && lens(&piece, u64::MAX).is_err());
        assert!(lens(&frame(Bytes::Nothing), 1).is_err());
    }
}
