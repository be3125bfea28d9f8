//! The 64-byte descriptor: one header word and seven words of body.
//!
//! The header is written last and read first; it carries the sequence number that tells a fresh
//! descriptor from what the slot held a lap ago, so a consumer finds a message by reading the
//! very line the message is in.
//!
//! ```text
//! bits  0..16  sequence number, never 0
//! bits 16..20  kind
//! bit  20      wrap: the next descriptor is in slot 0
//! bit  21      skip: the next descriptor is not in the next slot but in the one after
//! bits 22..26  acknowledgement: descriptors of the other direction that were consumed, modulo 16
//! bits 26..32  bytes carried inline; of Eager and Rts what the message is for: a `Verb`
//! bits 32..64  aux: the low half of a tag, or the number of a stream
//! ```
//!
//! A 64-bit tag and 56 bytes do not fit beside a header in one line. So an inline descriptor
//! carries the low half of its tag; the high half is what the lane's last [`Kind::InlineWide`] or
//! [`Kind::TagHigh`] said. Programs send long runs with one high half (a communicator, a
//! context), so almost every message takes one line.

use super::{active::Verb, layout::DESCRIPTOR_WORDS};

/// Bytes that fit into a descriptor beside its header (U-Net/MM's inline messages, section 3).
pub(crate) const INLINE_MAX: usize = 56;
/// Bytes that fit beside the header and a whole tag.
pub(crate) const INLINE_WIDE_MAX: usize = 48;

/// The words of a descriptor after its header.
pub(crate) type Body = [u64; DESCRIPTOR_WORDS - 1];

/// What a descriptor says.
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
    /// A message that waits in its sender's memory until it is matched: [`Rts`].
    Rts = 6,
    /// The receiver matched a waiting message and says how it should come: [`Cts`].
    Cts = 7,
    /// The receiver has taken a waiting message out of its sender's memory: [`Fin`].
    Fin = 8,
    /// The sender has written pieces into the receiver's memory: [`Wrote`].
    Wrote = 9,
    /// The sender takes a waiting message back; aux is its stream.
    Cancel = 10,
    /// A whole active message of up to 48 bytes after its [`Label`](super::active::Label); aux is
    /// the handler's number.
    Active = 11,
    /// Asks for a region: [`Open`]; aux is the question's number.
    Open = 12,
    /// The answer to that: [`Opened`]; aux is the question's number.
    Opened = 13,
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
            _ => return None,
        })
    }
}

const KIND_SHIFT: u32 = 16;
const KIND_MASK: u64 = 0xf;
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
        let ack = (consumed & ACK_MASK) << ACK_SHIFT;
        let marks = if wrap { WRAP } else { 0 } | (skip as u64) << SKIP_SHIFT;
        self.0 | seq as u64 | marks | ack
    }

    #[inline]
    pub(crate) const fn from_word(word: u64) -> Header {
        Header(word)
    }

    #[inline]
    pub(crate) const fn seq(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    pub(crate) fn kind(self) -> Option<Kind> {
        Kind::from_bits(self.0 >> KIND_SHIFT & KIND_MASK)
    }

    /// Whether this is an ordinary inline message: the one kind with a fast path.
    #[inline]
    pub(crate) const fn is_inline(self) -> bool {
        self.0 >> KIND_SHIFT & KIND_MASK == Kind::Inline as u64
    }

    #[inline]
    pub(crate) const fn wraps(self) -> bool {
        self.0 & WRAP != 0
    }

    /// Slots between this descriptor's and the next one's, unless it [wraps](Header::wraps): 0 or 1.
    #[inline]
    pub(crate) const fn skips(self) -> u32 {
        (self.0 >> SKIP_SHIFT & 1) as u32
    }

    /// How many more descriptors of the other direction its writer had consumed than `known`, at
    /// the least: it says so modulo 16.
    #[inline]
    pub(crate) const fn acknowledges_beyond(self, known: u64) -> u64 {
        (self.0 >> ACK_SHIFT).wrapping_sub(known) & ACK_MASK
    }

    /// Bytes carried inline, at most what fits; whatever the peer wrote.
    #[inline]
    pub(crate) const fn inline_len(self, max: usize) -> Option<usize> {
        let len = (self.0 >> LEN_SHIFT & LEN_MASK) as usize;
        if len <= max { Some(len) } else { None }
    }

    /// What the message is for that this `Eager` or `Rts` begins.
    #[inline]
    pub(crate) const fn verb(self) -> Option<Verb> {
        Verb::from_bits(self.0 >> LEN_SHIFT & LEN_MASK)
    }

    /// Whether this is of `kind`, `Eager` or `Rts`, and its message for a receive: one comparison.
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
}

impl Piece {
    const fn word(self) -> u64 {
        self.offset as u64 | (self.len as u64) << 32
    }

    const fn from_word(word: u64) -> Piece {
        Piece { offset: word as u32, len: (word >> 32) as u32 }
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

/// Scattered memory of the process that wrote this.
///
/// With one part `at` is its address; with more it is the address of an array of `parts`
/// address-and-length pairs (`struct iovec`) that lies still while the transfer lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub at: u64,
    pub parts: u32,
}

/// A message waits in its sender's memory; aux is its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rts {
    pub tag: u64,
    pub len: u64,
    pub place: Place,
    /// The sender wants it streamed through the ring, not read out of its memory.
    pub stream: bool,
    /// The sender has given the memory away: the receiver may keep it until it says [`Fin`].
    pub given: bool,
    /// Where it lies in an arena of the sender's, if the receiver was sent that.
    pub shelf: Option<Shelf>,
    /// Its number among the gifts whose return is counted; 0 if it is not.
    pub number: u64,
}

/// A place in an arena of the process that wrote this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shelf {
    /// The number of the extent; never 0.
    pub extent: u64,
    pub offset: u64,
}

impl Shelf {
    const fn words(shelf: Option<Shelf>) -> [u64; 2] {
        match shelf {
            Some(shelf) => [shelf.extent, shelf.offset],
            None => [0, 0],
        }
    }

    const fn read(extent: u64, offset: u64) -> Option<Shelf> {
        if extent == 0 { None } else { Some(Shelf { extent, offset }) }
    }
}

const STREAM: u64 = 1 << 32;
const GIVEN: u64 = 1 << 33;

impl Rts {
    pub(crate) const fn body(self) -> [u64; 7] {
        let flags = if self.stream { STREAM } else { 0 } | if self.given { GIVEN } else { 0 };
        let [extent, offset] = Shelf::words(self.shelf);
        let parts = self.place.parts as u64 | flags;
        [self.tag, self.len, self.place.at, parts, extent, offset, self.number]
    }

    pub(crate) const fn read(body: &Body) -> Rts {
        Rts {
            tag: body[0],
            len: body[1],
            place: Place { at: body[2], parts: body[3] as u32 },
            stream: body[3] & STREAM != 0,
            given: body[3] & GIVEN != 0,
            shelf: Shelf::read(body[4], body[5]),
            number: body[6],
        }
    }
}

/// How a matched message should come; aux is the sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cts {
    /// As pieces through the ring; only the first `want` bytes.
    Stream { want: u64 },
    /// The sender copies into the receiver's memory, from the back, whatever it can claim.
    Push(Push),
}

/// The sender's part of a transfer that it copies itself, alone or beside the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Push {
    /// Bytes of the message that are wanted.
    pub want: u64,
    /// Where they go, in the receiver's memory.
    pub place: Place,
    /// Where that lies in an arena of the receiver's that the sender may write, if the sender was
    /// sent that.
    pub shelf: Option<Shelf>,
    /// The claim line, its generation, and the bytes of a claimed chunk (a power of two, as
    /// an exponent).
    pub claim: u32,
    pub generation: u16,
    pub chunk_shift: u8,
}

impl Cts {
    pub(crate) const fn body(self) -> [u64; 7] {
        match self {
            Cts::Stream { want } => [1, want, 0, 0, 0, 0, 0],
            Cts::Push(push) => {
                let [extent, offset] = Shelf::words(push.shelf);
                [
                    2,
                    push.want,
                    push.place.at,
                    push.place.parts as u64 | (push.claim as u64) << 32,
                    push.generation as u64 | (push.chunk_shift as u64) << 16,
                    extent,
                    offset,
                ]
            }
        }
    }

    pub(crate) const fn read(body: &Body) -> Option<Cts> {
        match body[0] {
            1 => Some(Cts::Stream { want: body[1] }),
            2 => Some(Cts::Push(Push {
                want: body[1],
                place: Place { at: body[2], parts: body[3] as u32 },
                shelf: Shelf::read(body[5], body[6]),
                claim: (body[3] >> 32) as u32,
                generation: body[4] as u16,
                chunk_shift: (body[4] >> 16) as u8,
            })),
            _ => None,
        }
    }
}

/// The receiver is done with a waiting message; aux is its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fin {
    /// 0, or the `errno` that stopped the receiver.
    pub errno: u32,
    /// What moving the bytes took at the receiver, ns; 0 if it was not measured.
    pub took_ns: u64,
    /// Whether the message was taken back by its sender (the answer to [`Kind::Cancel`]).
    pub cancelled: bool,
    /// How the receiver came by the bytes.
    pub by: By,
}

/// How one side came at memory of the other: the receiver at the sender's, or the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum By {
    /// Through the kernel.
    Kernel = 0,
    /// In its mapping of the other's arena.
    Mapping = 1,
    /// Through the kernel, or not at all, since it has no mapping of the arena that was named.
    NoMapping = 2,
    /// It looked at it where it is.
    View = 3,
}

impl By {
    const fn read(bits: u64) -> By {
        match bits {
            1 => By::Mapping,
            2 => By::NoMapping,
            3 => By::View,
            _ => By::Kernel,
        }
    }
}

const CANCELLED: u64 = 1 << 32;
const BY_SHIFT: u32 = 40;

impl Fin {
    pub(crate) const fn body(self) -> [u64; 2] {
        let cancelled = if self.cancelled { CANCELLED } else { 0 };
        [self.errno as u64 | cancelled | (self.by as u64) << BY_SHIFT, self.took_ns]
    }

    pub(crate) const fn read(body: &Body) -> Fin {
        Fin {
            errno: body[0] as u32,
            took_ns: body[1],
            cancelled: body[0] & CANCELLED != 0,
            by: By::read(body[0] >> BY_SHIFT),
        }
    }
}

/// The sender wrote chunks into the receiver's memory; aux is its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrote {
    /// 0, or the `errno` that stopped the sender.
    pub errno: u32,
    /// Chunks it claimed and wrote, counted from the back.
    pub chunks: u32,
    /// How it wrote them.
    pub by: By,
    /// It cannot write there, or no further: the receiver has to get the message in another way.
    pub short: bool,
}

/// Chunks of one transfer, at most.
pub(crate) const CHUNKS_MAX: u64 = 0xff_ffff;
const CHUNKS_SHIFT: u32 = 32;
const WROTE_BY_SHIFT: u32 = 56;
const WROTE_BY_MASK: u64 = 3;
const SHORT: u64 = 1 << 58;

impl Wrote {
    pub(crate) const fn body(self) -> [u64; 1] {
        let short = if self.short { SHORT } else { 0 };
        let chunks = (self.chunks as u64 & CHUNKS_MAX) << CHUNKS_SHIFT;
        [self.errno as u64 | chunks | (self.by as u64) << WROTE_BY_SHIFT | short]
    }

    pub(crate) const fn read(body: &Body) -> Wrote {
        Wrote {
            errno: body[0] as u32,
            chunks: (body[0] >> CHUNKS_SHIFT & CHUNKS_MAX) as u32,
            by: By::read(body[0] >> WROTE_BY_SHIFT & WROTE_BY_MASK),
            short: body[0] & SHORT != 0,
        }
    }
}

/// Asks the owner of a region for its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub id: u64,
    pub secret: [u64; 2],
    /// Where it lies in the owner's memory is asked for, not to be handed it.
    pub by_kernel: bool,
}

impl Open {
    pub(crate) const fn body(self) -> [u64; 4] {
        [self.id, self.secret[0], self.secret[1], self.by_kernel as u64]
    }

    pub(crate) const fn read(body: &Body) -> Option<Open> {
        let by_kernel = match body[3] {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Open { id: body[0], secret: [body[1], body[2]], by_kernel })
    }
}

/// The answer to who asked for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// There is none with this key.
    Unknown,
    /// It cannot be handed over just now.
    Unshared,
    /// It was handed over before.
    Here(Site),
    /// It may be read and written where it is.
    There(Spot),
    /// It may not, by the number of a [`Refusal`](crate::Refusal) as its owner sees it.
    Refused(u16),
}

/// Where a region lies in memory that was handed over, and the word that says whether it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub memory: Shelf,
    pub len: u64,
    pub flag: Shelf,
    /// What that word holds as long as the region stands; never 0.
    pub stamp: u64,
    pub writable: bool,
}

/// The same, by addresses of its owner's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub memory: u64,
    pub len: u64,
    pub flag: u64,
    pub stamp: u64,
    pub writable: bool,
}

impl Opened {
    pub(crate) const fn body(self) -> [u64; 7] {
        match self {
            Opened::Unknown => [1, 0, 0, 0, 0, 0, 0],
            Opened::Unshared => [2, 0, 0, 0, 0, 0, 0],
            Opened::Here(Site { memory, len, flag, stamp, writable }) => [
                if writable { 4 } else { 3 },
                memory.extent,
                memory.offset,
                len,
                flag.extent,
                flag.offset,
                stamp,
            ],
            Opened::There(Spot { memory, len, flag, stamp, writable }) => {
                [if writable { 6 } else { 5 }, memory, len, flag, stamp, 0, 0]
            }
            Opened::Refused(code) => [7, code as u64, 0, 0, 0, 0, 0],
        }
    }

    pub(crate) const fn read(body: &Body) -> Option<Opened> {
        Some(match body[0] {
            1 => Opened::Unknown,
            2 => Opened::Unshared,
            kind @ (3 | 4) => Opened::Here(Site {
                memory: Shelf { extent: body[1], offset: body[2] },
                len: body[3],
                flag: Shelf { extent: body[4], offset: body[5] },
                stamp: body[6],
                writable: kind == 4,
            }),
            kind @ (5 | 6) => Opened::There(Spot {
                memory: body[1],
                len: body[2],
                flag: body[3],
                stamp: body[4],
                writable: kind == 6,
            }),
            7 if body[1] <= u16::MAX as u64 => Opened::Refused(body[1] as u16),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn padded(words: &[u64]) -> Body {
        let mut body = [0; DESCRIPTOR_WORDS - 1];
        body[..words.len()].copy_from_slice(words);
        body
    }

    proptest! {
        #[test]
        fn any_header_word_is_read_without_panic(word: u64) {
            let header = Header::from_word(word);
            let _ = (header.kind(), header.wraps(), header.aux(), header.seq());
            prop_assert!(header.inline_len(INLINE_MAX).is_none_or(|len| len <= INLINE_MAX));
        }

        #[test]
        fn headers_survive(
            kind in 1u64..=13,
            len in 0u8..=56,
            aux: u32,
            seq: u16,
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
            prop_assert_eq!(header.verb().map(|verb| verb as u8), (len <= 4).then_some(len));
            for other in [Kind::Eager, Kind::Rts] {
                prop_assert_eq!(header.begins_tagged(other), kind == other && len == 0);
            }
        }

        #[test]
        fn bodies_survive(a: u64, b: u64, c: u64, d: u32, e: u32, f: u16, g: u8, h: bool, i: bool) {
            let piece = Piece { offset: d, len: e };
            prop_assert_eq!(Piece::read(&padded(&piece.body())), piece);
            let eager = Eager { tag: a, len: b, piece };
            prop_assert_eq!(Eager::read(&padded(&eager.body())), eager);
            let place = Place { at: c, parts: d };
            let shelf = (c != 0 && i).then_some(Shelf { extent: c, offset: a });
            let rts = Rts { tag: a, len: b, place, stream: h, given: i, shelf, number: c };
            prop_assert_eq!(Rts::read(&padded(&rts.body())), rts);
            let push = Push { want: a, place, shelf, claim: e, generation: f, chunk_shift: g };
            let bare = Push { shelf: None, ..push };
            for cts in [Cts::Stream { want: a }, Cts::Push(push), Cts::Push(bare)] {
                prop_assert_eq!(Cts::read(&padded(&cts.body())), Some(cts));
            }
            let by = [By::Kernel, By::Mapping, By::NoMapping, By::View][usize::from(g % 4)];
            let fin = Fin { errno: d, took_ns: a, cancelled: h, by };
            prop_assert_eq!(Fin::read(&padded(&fin.body())), fin);
            let open = Open { id: a, secret: [b, c], by_kernel: h };
            prop_assert_eq!(Open::read(&padded(&open.body())), Some(open));
            prop_assert_eq!(Open::read(&[a, b, c, a.max(2), 0, 0, 0]), None);
            let memory = Shelf { extent: a, offset: b };
            let flag = Shelf { extent: c, offset: u64::from(d) };
            let site = Site { memory, len: c, flag, stamp: b, writable: h };
            let spot = Spot { memory: b, len: c, flag: a, stamp: u64::from(e), writable: h };
            for opened in [
                Opened::Unknown,
                Opened::Unshared,
                Opened::Here(site),
                Opened::There(spot),
                Opened::Refused(f),
            ] {
                prop_assert_eq!(Opened::read(&opened.body()), Some(opened));
            }
            let wrote = Wrote { errno: d, chunks: e & 0xff_ffff, by, short: h };
            prop_assert_eq!(Wrote::read(&padded(&wrote.body())), wrote);
        }

        #[test]
        fn a_cts_of_any_words_is_read_without_panic(words: [u64; 7]) {
            let _ = (Cts::read(&words), Open::read(&words), Opened::read(&words));
            let wrote = Wrote::read(&words);
            prop_assert!(u64::from(wrote.chunks) <= CHUNKS_MAX);
        }
    }
}
