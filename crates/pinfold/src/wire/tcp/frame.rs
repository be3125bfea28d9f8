//! What follows the greeting over TCP: frames, each a head of 32 bytes, a body of up to 56 whose size
//! depends on the kind, and a payload that goes from its memory and into its memory.
//!
//! ```text
//! bytes  0      kind
//!        1      flags: what they mean depends on the kind
//!        2..4   bytes of the body, which the kind tells as well
//!        4..8   credit: see `credit`
//!        8..16  sequence number; 0 for what is not repeated: Ack, KeepAlive
//!       16..24  the last sequence number that the sender of the frame has received
//!       24..32  bytes of the payload
//! ```
//!
//! Nothing protects a frame but the connection it comes over: who can write into that can do what a peer
//! can. What a peer says is checked here, as far as it can be without knowing what went before.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

use super::{super::active::Verb, offer::SEQ_MAX};

pub(crate) mod body;
#[cfg(test)]
pub(super) mod tests;

use body::What;

pub(crate) const HEAD_BYTES: usize = size_of::<RawHead>();
pub(crate) const BODY_BYTES_MAX: usize = body::WORDS_MAX * 8;

/// The longest payload of a frame. A longer message is sent in pieces, so that a connection that breaks
/// costs no more than this.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 1 << 24;

/// The longest message, and the last offset.
pub(crate) const LEN_MAX: u64 = i64::MAX as u64;

/// One frame, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// 1 and up; 0 if it has none.
    pub seq: u64,
    /// The last that its sender has received.
    pub acked: u64,
    pub credit: u32,
    /// Bytes that follow.
    pub payload: u64,
    pub what: What,
}

/// What a frame is, as one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message's first piece, which may be all of it.
    First = 1,
    /// A further piece.
    More = 2,
    /// A message waits in its sender's memory: ready to send.
    Rts = 3,
    /// The receiver has a place for it: clear to send.
    Cts = 4,
    /// Its sender takes it back.
    Cancel = 5,
    /// The receiver is done with one that waited.
    Fin = 6,
    /// One-sided: bytes to be written.
    Write = 7,
    /// One-sided: bytes to be read.
    Read = 8,
    /// One-sided: a word to be changed.
    Atomic = 9,
    /// What became of one of these three.
    Answer = 10,
    /// A whole active message.
    Active = 11,
    /// Nothing but the head.
    Ack = 12,
    /// Nothing but a sign of life.
    KeepAlive = 13,
    /// Nothing more will come.
    Goodbye = 14,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::First,
        Kind::More,
        Kind::Rts,
        Kind::Cts,
        Kind::Cancel,
        Kind::Fin,
        Kind::Write,
        Kind::Read,
        Kind::Atomic,
        Kind::Answer,
        Kind::Active,
        Kind::Ack,
        Kind::KeepAlive,
        Kind::Goodbye,
    ];

    fn from_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Whether its frames are numbered, and sent again if they were not received.
    pub(crate) const fn is_numbered(self) -> bool {
        !matches!(self, Kind::Ack | Kind::KeepAlive)
    }

    /// Whether a payload may follow.
    const fn has_payload(self) -> bool {
        matches!(self, Kind::First | Kind::More | Kind::Write | Kind::Answer | Kind::Active)
    }

    const fn body_bytes(self) -> usize {
        8 * match self {
            Kind::First | Kind::Rts => 3,
            Kind::More | Kind::Cts | Kind::Fin => 2,
            Kind::Cancel | Kind::Active | Kind::Goodbye => 1,
            Kind::Write => 5,
            Kind::Read => 6,
            Kind::Atomic => 7,
            Kind::Answer => 3,
            Kind::Ack | Kind::KeepAlive => 0,
        }
    }
}

/// What no honest peer sends. What went before is not known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it sends frames of kind {0}, which there is not")]
    Kind(u8),
    #[error("it sets flags {flags:#x} on a frame of kind {kind:?}")]
    Flags { kind: Kind, flags: u8 },
    #[error("a frame of kind {kind:?} has a body of {bytes} bytes")]
    Body { kind: Kind, bytes: u16 },
    #[error("a frame of kind {kind:?} has a payload of {bytes} bytes")]
    Payload { kind: Kind, bytes: u64 },
    #[error("a frame of kind {kind:?} has the number {seq}")]
    Sequence { kind: Kind, seq: u64 },
    #[error("it acknowledges {0}, which is no number of a frame")]
    Acknowledged(u64),
    #[error("a frame of kind {kind:?} names {value} where that cannot be: {what}")]
    Value { kind: Kind, what: &'static str, value: u64 },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    kind: u8,
    flags: u8,
    body: U16,
    credit: U32,
    seq: U64,
    acked: U64,
    payload: U64,
}

const _: () = assert!(HEAD_BYTES == 32 && BODY_BYTES_MAX == 56);

/// A head whose values are in range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    kind: Kind,
    flags: u8,
    credit: u32,
    seq: u64,
    acked: u64,
    payload: u64,
}

impl Head {
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Violation> {
        let raw: RawHead = zerocopy::transmute!(*bytes);
        let kind = Kind::from_byte(raw.kind).ok_or(Violation::Kind(raw.kind))?;
        if usize::from(raw.body.get()) != kind.body_bytes() {
            return Err(Violation::Body { kind, bytes: raw.body.get() });
        }
        let (seq, acked, payload) = (raw.seq.get(), raw.acked.get(), raw.payload.get());
        if kind.is_numbered() != (1..=SEQ_MAX).contains(&seq) || !kind.is_numbered() && seq != 0 {
            return Err(Violation::Sequence { kind, seq });
        }
        if acked > SEQ_MAX {
            return Err(Violation::Acknowledged(acked));
        }
        if payload > if kind.has_payload() { PAYLOAD_BYTES_MAX } else { 0 } {
            return Err(Violation::Payload { kind, bytes: payload });
        }
        Ok(Head { kind, flags: raw.flags, credit: raw.credit.get(), seq, acked, payload })
    }

    /// Bytes that follow before the payload.
    pub(super) fn body_bytes(&self) -> usize {
        self.kind.body_bytes()
    }

    /// The frame with this body.
    pub(super) fn with(&self, bytes: &[u8]) -> Result<Frame, Violation> {
        let mut words = [0; body::WORDS_MAX];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        let what = What::read(self.kind, self.flags, &words, self.payload)?;
        let Head { credit, seq, acked, payload, .. } = *self;
        Ok(Frame { seq, acked, credit, payload, what })
    }
}

/// Head and body as they are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    bytes: [u8; HEAD_BYTES + BODY_BYTES_MAX],
    len: usize,
}

impl std::ops::Deref for Encoded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Frame {
    /// Head and body. The payload is to follow.
    pub(crate) fn encode(&self) -> Encoded {
        let kind = self.what.kind();
        let (flags, words) = self.what.write();
        let raw = RawHead {
            kind: kind as u8,
            flags,
            body: (kind.body_bytes() as u16).into(),
            credit: self.credit.into(),
            seq: self.seq.into(),
            acked: self.acked.into(),
            payload: self.payload.into(),
        };
        let len = HEAD_BYTES + kind.body_bytes();
        let mut bytes = [0; HEAD_BYTES + BODY_BYTES_MAX];
        bytes[..HEAD_BYTES].copy_from_slice(raw.as_bytes());
        for (bytes, word) in bytes[HEAD_BYTES..].chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Encoded { bytes, len }
    }
}

/// What a message is for, as flags.
fn verb_of(kind: Kind, flags: u8) -> Result<Verb, Violation> {
    Verb::from_bits(flags.into()).ok_or(Violation::Flags { kind, flags })
}
