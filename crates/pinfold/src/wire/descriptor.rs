//! The 64-byte descriptor: one header word and seven words of body.
//!
//! The header is written last and read first; it carries the sequence number that tells a fresh
//! descriptor from the one that the slot held a lap ago, so a consumer finds a message by reading
//! the very line the message is in.
//!
//! ```text
//! bits  0..15  sequence number, never 0
//! bits 15..20  kind
//! bit  20      wrap: the next descriptor is in slot 0
//! bit  21      skip: the next descriptor is not in the next slot but in the one after
//! bits 22..26  acknowledgement: descriptors of the other direction that were consumed, modulo 16
//! bits 26..32  bytes carried inline; of Eager and Rts what the message is for: a `Verb`; what a Use is, or a Used
//! bits 32..64  aux: the low half of a tag, or the number of a stream
//! ```
//!
//! A 64-bit tag and 56 bytes do not fit beside a header in one line. So an inline descriptor
//! carries the low half of its tag; the high half is that of the lane's last [`Kind::InlineWide`]
//! or [`Kind::TagHigh`]. Programs send long runs with one high half (a communicator, a context), so
//! almost every message takes one line.
//!
//! Messages of up to 112 bytes can take two descriptors, one after the other
//! ([`Kind::InlineFirst`]), and no bulk bytes.

use super::{
    active::Verb,
    layout::{BULK_BYTES_MAX, DESCRIPTOR_WORDS},
};

/// Bytes that fit into a descriptor beside its header (U-Net/MM's inline messages, section 3).
pub(crate) const INLINE_MAX: usize = 56;
/// Bytes that fit into two descriptors beside their headers.
pub(crate) const INLINE_TWO_MAX: usize = 2 * INLINE_MAX;
/// Bytes that fit beside the header and a whole tag.
pub(crate) const INLINE_WIDE_MAX: usize = 48;

/// The words of a descriptor after its header.
pub(crate) type Body = [u64; DESCRIPTOR_WORDS - 1];

/// The kind of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A whole message of up to 56 bytes; aux is the low half of its tag.
    Inline = 1,
    /// A whole message of up to 48 bytes after its whole tag, whose high half stays in force.
    InlineWide = 2,
    /// Aux is the high half of the tags that follow.
    TagHigh = 3,
    /// The first piece of a message: [`Eager`].
    Eager = 4,
    /// A further piece of a message: [`Piece`]; aux is its stream.
    Data = 5,
    /// A message that waits in its sender's memory until it is matched:
    /// [`Rts`](super::rendezvous::Rts).
    Rts = 6,
    /// The receiver matched a waiting message and says how it should come:
    /// [`Cts`](super::rendezvous::Cts).
    Cts = 7,
    /// The receiver has taken a waiting message out of its sender's memory:
    /// [`Fin`](super::rendezvous::Fin).
    Fin = 8,
    /// The sender has written pieces into the receiver's memory:
    /// [`Wrote`](super::rendezvous::Wrote).
    Wrote = 9,
    /// The sender takes a waiting message back; aux is its stream.
    Cancel = 10,
    /// A whole active message of up to 48 bytes after its [`Label`](super::active::Label); aux is
    /// the handler's number.
    Active = 11,
    /// Asks for a region: [`Open`](super::region::Open); aux is the question's number.
    Open = 12,
    /// The answer to that: [`Opened`](super::region::Opened); aux is the question's number.
    Opened = 13,
    /// Asks the owner of a region to do something to it: [`Use`](super::served_rma::Use); aux is
    /// the operation's number.
    Use = 14,
    /// The answer to that: [`Used`](super::served_rma::Used); aux is the operation's number.
    Used = 15,
    /// The first 56 bytes of a whole message of 57 to 112: the bytes carried inline are those of
    /// the next descriptor, an [`InlineRest`](Kind::InlineRest), which was published before this
    /// one. Aux is the low half of its tag.
    InlineFirst = 16,
    /// The rest of that message.
    InlineRest = 17,
}

impl Kind {
    fn from_bits(bits: u64) -> Option<Kind> {
        Some(match bits {
            1 => Kind::Inline,
            2 => Kind::InlineWide,
            3 => Kind::TagHigh,
            4 => Kind::Eager,
            5 => Kind::Data,
            6 => Kind::Rts,
            7 => Kind::Cts,
            8 => Kind::Fin,
            9 => Kind::Wrote,
            10 => Kind::Cancel,
            11 => Kind::Active,
            12 => Kind::Open,
            13 => Kind::Opened,
            14 => Kind::Use,
            15 => Kind::Used,
            16 => Kind::InlineFirst,
            17 => Kind::InlineRest,
            _ => return None,
        })
    }
}

/// The largest sequence number.
pub(crate) const SEQ_MAX: u16 = 0x7fff;
const KIND_SHIFT: u32 = 15;
const KIND_MASK: u64 = 0x1f;
const WRAP: u64 = 1 << 20;
const SKIP_SHIFT: u32 = 21;
const ACK_SHIFT: u32 = 22;
const ACK_MASK: u64 = 0xf;
const LEN_SHIFT: u32 = 26;
const LEN_MASK: u64 = 0x3f;
const AUX_SHIFT: u32 = 32;

/// A header word that was copied out of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header(u64);

impl Header {
    /// A header without its sequence number, marks and acknowledgement, which the ring adds.
    #[inline]
    pub(crate) const fn new(kind: Kind, len: u8, aux: u32) -> Header {
        debug_assert!(len < 64);
        Header((kind as u64) << KIND_SHIFT | (len as u64) << LEN_SHIFT | (aux as u64) << AUX_SHIFT)
    }

    #[inline]
    pub(crate) const fn sealed(self, seq: u16, wrap: bool, skip: bool, consumed: u64) -> u64 {
        debug_assert!(seq <= SEQ_MAX);
        let ack = (consumed & ACK_MASK) << ACK_SHIFT;
        let marks = if wrap { WRAP } else { 0 } | (skip as u64) << SKIP_SHIFT;
        self.0 | seq as u64 | marks | ack
    }

    /// The header without the fields that the ring adds.
    pub(crate) const fn bare(self) -> u64 {
        self.0 & (KIND_MASK << KIND_SHIFT | LEN_MASK << LEN_SHIFT | (u32::MAX as u64) << AUX_SHIFT)
    }

    #[inline]
    pub(crate) const fn from_word(word: u64) -> Header {
        Header(word)
    }

    #[inline]
    pub(crate) const fn seq(self) -> u16 {
        self.0 as u16 & SEQ_MAX
    }

    #[inline]
    pub(crate) fn kind(self) -> Option<Kind> {
        Kind::from_bits(self.0 >> KIND_SHIFT & KIND_MASK)
    }

    /// True if this is an ordinary inline message: the one kind with a fast path.
    #[inline]
    pub(crate) const fn is_inline(self) -> bool {
        self.0 >> KIND_SHIFT & KIND_MASK == Kind::Inline as u64
    }

    /// The bytes of the message of which this is the [`Kind::InlineFirst`], and whose rest is
    /// `rest`; `None` if no honest peer writes the two so.
    #[inline]
    pub(crate) fn inline_two_len(self, rest: Header) -> Option<usize> {
        let len = self.inline_len(INLINE_MAX).filter(|len| *len > 0)?;
        (rest.kind() == Some(Kind::InlineRest)).then_some(INLINE_MAX + len)
    }

    /// True if this is the first of two descriptors of a message.
    #[inline]
    pub(crate) const fn is_inline_first(self) -> bool {
        self.0 >> KIND_SHIFT & KIND_MASK == Kind::InlineFirst as u64
    }

    #[inline]
    pub(crate) const fn wraps(self) -> bool {
        self.0 & WRAP != 0
    }

    /// Slots between this descriptor's and the next one's, unless it [wraps](Header::wraps): 0 or
    /// 1.
    #[inline]
    pub(crate) const fn skips(self) -> u32 {
        (self.0 >> SKIP_SHIFT & 1) as u32
    }

    /// The least number of descriptors of the other direction that its writer had consumed beyond
    /// `known`: the field counts modulo 16.
    #[inline]
    pub(crate) const fn acknowledges_beyond(self, known: u64) -> u64 {
        (self.0 >> ACK_SHIFT).wrapping_sub(known) & ACK_MASK
    }

    /// Bytes carried inline, at most `max`, whatever the peer wrote.
    #[inline]
    pub(crate) const fn inline_len(self, max: usize) -> Option<usize> {
        let len = (self.0 >> LEN_SHIFT & LEN_MASK) as usize;
        if len <= max { Some(len) } else { None }
    }

    /// The number in place of the bytes carried inline, below 64: the code of a `Use` or `Used`.
    #[inline]
    pub(crate) const fn code(self) -> usize {
        (self.0 >> LEN_SHIFT & LEN_MASK) as usize
    }

    /// The purpose of the message that this `Eager` or `Rts` begins.
    #[inline]
    pub(crate) const fn verb(self) -> Option<Verb> {
        Verb::from_bits(self.0 >> LEN_SHIFT & LEN_MASK)
    }

    /// True if this is of `kind`, `Eager` or `Rts`, and its message for a receive: one comparison.
    #[inline]
    pub(crate) const fn begins_tagged(self, kind: Kind) -> bool {
        let mask = KIND_MASK << KIND_SHIFT | LEN_MASK << LEN_SHIFT;
        self.0 & mask == (kind as u64) << KIND_SHIFT
    }

    #[inline]
    pub(crate) const fn aux(self) -> u32 {
        (self.0 >> AUX_SHIFT) as u32
    }
}

/// A range of a direction's bulk bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte, counted from the start of the direction's bulk bytes.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Not 0 if the sender wants to hear, by this number, the time that copying it out takes:
    /// below [`FRAGMENT_SAMPLES_FROM`]. From there on, the time from the first piece, which
    /// this is, to the end of the message.
    pub sample: u8,
}

/// The first number by which senders ask about whole messages.
pub(crate) const FRAGMENT_SAMPLES_FROM: u8 = 0x80;

const SAMPLE_SHIFT: u32 = 56;
const PIECE_LEN_MASK: u64 = 0xff_ffff;

// The longest piece leaves room for the number.
const _: () = assert!(BULK_BYTES_MAX as u64 <= PIECE_LEN_MASK);

impl Piece {
    const fn word(self) -> u64 {
        self.offset as u64 | (self.len as u64) << 32 | (self.sample as u64) << SAMPLE_SHIFT
    }

    pub(super) const fn from_word(word: u64) -> Piece {
        let len = (word >> 32 & PIECE_LEN_MASK) as u32;
        Piece { offset: word as u32, len, sample: (word >> SAMPLE_SHIFT) as u8 }
    }

    /// The number of the question about a whole message, or 0.
    pub(crate) const fn sample_number(self) -> u8 {
        if self.sample >= FRAGMENT_SAMPLES_FROM { self.sample } else { 0 }
    }

    pub(crate) const fn body(self) -> [u64; 1] {
        [self.word()]
    }

    pub(crate) const fn read(body: &Body) -> Piece {
        Piece::from_word(body[0])
    }
}

/// The first piece of a message that goes through the ring without asking; aux is its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Eager {
    pub tag: u64,
    /// Bytes of the whole message.
    pub len: u64,
    pub piece: Piece,
}

impl Eager {
    pub(crate) const fn body(self) -> [u64; 3] {
        [self.tag, self.len, self.piece.word()]
    }

    pub(crate) const fn read(body: &Body) -> Eager {
        Eager { tag: body[0], len: body[1], piece: Piece::from_word(body[2]) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::padded, *};

    proptest! {
        #[test]
        fn any_header_word_is_read_without_panic(word: u64) {
            let header = Header::from_word(word);
            let _ = (header.kind(), header.wraps(), header.aux(), header.seq());
            prop_assert!(header.inline_len(INLINE_MAX).is_none_or(|len| len <= INLINE_MAX));
        }

        #[test]
        fn headers_survive(
            kind in 1u64..=17,
            len in 0u8..=56,
            aux: u32,
            seq in 1..=SEQ_MAX,
            wrap: bool,
            skip: bool,
            known in 0..u64::MAX / 2,
            more in 0u64..100,
        ) {
            let kind = Kind::from_bits(kind).unwrap();
            let word = Header::new(kind, len, aux).sealed(seq, wrap, skip, known + more);
            let header = Header::from_word(word);
            prop_assert_eq!(header.acknowledges_beyond(known), more % 16);
            prop_assert_eq!(header.kind(), Some(kind));
            prop_assert_eq!(header.inline_len(INLINE_MAX), Some(usize::from(len)));
            prop_assert_eq!((header.aux(), header.seq(), header.wraps()), (aux, seq, wrap));
            prop_assert_eq!(header.skips(), u32::from(skip));
            prop_assert_eq!(header.is_inline(), kind == Kind::Inline);
            prop_assert_eq!(header.verb().map(|verb| verb as u8), (len <= 5).then_some(len));
            for other in [Kind::Eager, Kind::Rts] {
                prop_assert_eq!(header.begins_tagged(other), kind == other && len == 0);
            }
        }

        #[test]
        fn bodies_survive(a: u64, b: u64, d: u32, e in 0u32..1 << 24, sample: u8) {
            let piece = Piece { offset: d, len: e, sample };
            prop_assert_eq!(Piece::read(&padded(&piece.body())), piece);
            let eager = Eager { tag: a, len: b, piece };
            prop_assert_eq!(Eager::read(&padded(&eager.body())), eager);
        }
    }
}
