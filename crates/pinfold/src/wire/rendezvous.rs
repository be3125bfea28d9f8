//! The messages of both sides about a message that waits in its sender's memory.

use pinfold_sys::process::RemoteSegment;

use super::descriptor::{Body, Piece};

/// Scattered memory of the process that wrote this.
///
/// With one part `at` is its address; with more it is the address of an array of `parts`
/// address-and-length pairs (`struct iovec`) that lies still while the transfer lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub at: u64,
    pub parts: u32,
}

impl Place {
    /// Bytes of the list of parts at `at`; 0 for one part, which lies there itself.
    pub(crate) fn list_len(self) -> u64 {
        match self.parts {
            0 | 1 => 0,
            many => u64::from(many) * size_of::<RemoteSegment>() as u64,
        }
    }
}

/// A message waits in its sender's memory; aux is its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rts {
    pub tag: u64,
    pub len: u64,
    pub place: Place,
    /// The sender wants it streamed through the ring, not read out of its memory.
    pub stream: bool,
    /// The sender would rather send it through the ring than have it read out of its memory.
    pub prefers_ring: bool,
    /// It lacked nothing but credit: it would have gone without an announcement.
    pub unasked: bool,
    /// The sender has given the memory away: the receiver may keep it until it says [`Fin`].
    pub given: bool,
    /// Its place in an arena of the sender's, if the receiver was sent that arena.
    pub exported: Option<Exported>,
    /// If it lies there in several parts, a [list](super::list) of them in the bulk bytes, and no
    /// exported extent.
    pub list: Option<Piece>,
    /// Its number among the donated buffers whose return is counted; 0 if it is not.
    pub number: u64,
    /// Its first 8 bytes, in the order of memory, zeros beyond its end, if its sender tells them:
    /// never of a message that was given away.
    pub head: Option<u64>,
}

/// A place in an arena of the process that wrote this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exported {
    /// The number of the extent; never 0.
    pub extent: u64,
    pub offset: u64,
}

impl Exported {
    const fn words(exported: Option<Exported>) -> [u64; 2] {
        match exported {
            Some(exported) => [exported.extent, exported.offset],
            None => [0, 0],
        }
    }

    const fn read(extent: u64, offset: u64) -> Option<Exported> {
        if extent == 0 { None } else { Some(Exported { extent, offset }) }
    }
}

const STREAM: u64 = 1 << 32;
const GIVEN: u64 = 1 << 33;
const LISTED: u64 = 1 << 34;
const UNASKED: u64 = 1 << 35;
const PREFERS_RING: u64 = 1 << 36;
const HEADED: u64 = 1 << 37;

impl Rts {
    /// True if its sender took the receiver to have it mapped.
    pub(crate) const fn is_offered(&self) -> bool {
        self.exported.is_some() || self.list.is_some()
    }

    pub(crate) const fn body(self) -> [u64; 7] {
        let flags = if self.stream { STREAM } else { 0 }
            | if self.given { GIVEN } else { 0 }
            | if self.unasked { UNASKED } else { 0 }
            | if self.prefers_ring { PREFERS_RING } else { 0 }
            | if self.head.is_some() && !self.given { HEADED } else { 0 };
        let (flags, [extent, offset]) = match self.list {
            Some(list) => (flags | LISTED, [list.body()[0], 0]),
            None => (flags, Exported::words(self.exported)),
        };
        let parts = self.place.parts as u64 | flags;
        let last = match self.head {
            Some(head) if !self.given => head,
            _ => self.number,
        };
        [self.tag, self.len, self.place.at, parts, extent, offset, last]
    }

    pub(crate) const fn read(body: &Body) -> Rts {
        Rts {
            tag: body[0],
            len: body[1],
            place: Place { at: body[2], parts: body[3] as u32 },
            stream: body[3] & STREAM != 0,
            given: body[3] & GIVEN != 0,
            unasked: body[3] & UNASKED != 0,
            prefers_ring: body[3] & PREFERS_RING != 0,
            exported: if body[3] & LISTED == 0 { Exported::read(body[4], body[5]) } else { None },
            list: if body[3] & LISTED == 0 { None } else { Some(Piece::from_word(body[4])) },
            number: if body[3] & HEADED == 0 || body[3] & GIVEN != 0 { body[6] } else { 0 },
            head: if body[3] & (GIVEN | HEADED) == HEADED { Some(body[6]) } else { None },
        }
    }
}

/// The way in which a matched message should come; aux is the sender's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cts {
    /// As pieces through the ring; only the first `want` bytes. The receiver grants the sender
    /// `credit` bytes by now, which may be more than before. `errno`: the kernel's error when the
    /// receiver tried to read the message, if it did; else 0. `stored`: no receive has asked for
    /// the message, and its cost counts against the credit. `request`: the receiver may take the
    /// rest of it over.
    Stream { want: u64, credit: u64, errno: u32, stored: bool, request: Option<Request> },
    /// The sender copies into the receiver's memory, from the back, all that it can claim.
    Put(Put),
}

/// The word in which the sender of a message through the ring claims what it is about to copy: one
/// that does not run claims nothing, and the receiver takes the rest over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its number, below [`REQUESTS`](super::layout::REQUESTS).
    pub word: u32,
    pub generation: u16,
}

impl Request {
    const PRESENT: u64 = 1 << 63;

    const fn word(request: Option<Request>) -> u64 {
        match request {
            Some(Request { word, generation }) => {
                Request::PRESENT | (word as u64) << 16 | generation as u64
            }
            None => 0,
        }
    }

    const fn read(word: u64) -> Option<Request> {
        if word & Request::PRESENT == 0 {
            return None;
        }
        Some(Request { word: (word >> 16) as u32, generation: word as u16 })
    }
}

/// The sender's part of a transfer that it copies itself, alone or beside the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    /// Bytes of the message that are wanted.
    pub want: u64,
    /// The destination, in the receiver's memory.
    pub place: Place,
    /// The destination in an arena of the receiver's that the sender may write, if the sender was
    /// sent that arena.
    pub exported: Option<Exported>,
    /// The claim line, its generation, and the bytes of a claimed chunk (a power of two, as
    /// an exponent).
    pub claim: u32,
    pub generation: u16,
    pub chunk_shift: u8,
}

impl Cts {
    pub(crate) const fn body(self) -> [u64; 7] {
        match self {
            Cts::Stream { want, credit, errno, stored, request } => {
                [1, want, credit, errno as u64, stored as u64, Request::word(request), 0]
            }
            Cts::Put(push) => {
                let [extent, offset] = Exported::words(push.exported);
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
            1 => Some(Cts::Stream {
                want: body[1],
                credit: body[2],
                errno: body[3] as u32,
                stored: body[4] != 0,
                request: Request::read(body[5]),
            }),
            2 => Some(Cts::Put(Put {
                want: body[1],
                place: Place { at: body[2], parts: body[3] as u32 },
                exported: Exported::read(body[5], body[6]),
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
    /// The time that moving the bytes took at the receiver, ns; 0 if it was not measured.
    pub took_ns: u64,
    /// True if the message was taken back by its sender (the answer to [`Kind::Cancel`]).
    pub cancelled: bool,
    /// The way in which the receiver got the bytes.
    pub by: By,
}

/// The way in which one side reached memory of the other: the receiver the sender's, or the other
/// way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum By {
    /// Through the kernel.
    Kernel = 0,
    /// In its mapping of the other's arena.
    Mapping = 1,
    /// Through the kernel, or not at all, since it has no mapping of the arena that was named.
    NoMapping = 2,
    /// The receiver looked at it where it is.
    View = 3,
}

impl By {
    pub(crate) const fn read(bits: u64) -> By {
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
    /// 0, or the `errno` that stopped the sender. For a message that was to come as pieces: its
    /// memory cannot be read.
    pub errno: u32,
    /// Chunks it claimed and wrote, counted from the back.
    pub chunks: u32,
    /// The way in which it wrote them.
    pub by: By,
    /// It cannot write there, or no further: the receiver has to get the message in another way.
    pub short: bool,
}

/// The most chunks of one transfer.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::padded, *};

    proptest! {
        #[test]
        fn bodies_survive(a: u64, b: u64, c: u64, d: u32, e: u32, f: u16, g: u8, h: bool, i: bool) {
            let place = Place { at: c, parts: d };
            let exported = (c != 0 && i).then_some(Exported { extent: c, offset: a });
            let list = None;
            let number = if i { c } else { 0 };
            let head = (h && !i).then_some(c);
            let rts = Rts {
                tag: a,
                len: b,
                place,
                stream: h,
                prefers_ring: i,
                unasked: i,
                given: i,
                exported,
                list,
                number,
                head,
            };
            prop_assert_eq!(Rts::read(&padded(&rts.body())), rts);
            let list = Some(Piece { offset: d, len: e & 0xff_ffff, sample: g });
            let listed = Rts { exported: None, list, ..rts };
            prop_assert_eq!(Rts::read(&padded(&listed.body())), listed);
            let push = Put { want: a, place, exported, claim: e, generation: f, chunk_shift: g };
            let bare = Put { exported: None, ..push };
            let request = i.then_some(Request { word: e, generation: f });
            let stream = Cts::Stream { want: a, credit: b, errno: d, stored: h, request };
            for cts in [stream, Cts::Put(push), Cts::Put(bare)] {
                prop_assert_eq!(Cts::read(&padded(&cts.body())), Some(cts));
            }
            let by = [By::Kernel, By::Mapping, By::NoMapping, By::View][usize::from(g % 4)];
            let fin = Fin { errno: d, took_ns: a, cancelled: h, by };
            prop_assert_eq!(Fin::read(&padded(&fin.body())), fin);
            let wrote = Wrote { errno: d, chunks: e & 0xff_ffff, by, short: h };
            prop_assert_eq!(Wrote::read(&padded(&wrote.body())), wrote);
        }

        #[test]
        fn any_words_are_read_without_panic(words: [u64; 7]) {
            let _ = Cts::read(&words);
            let wrote = Wrote::read(&words);
            prop_assert!(u64::from(wrote.chunks) <= CHUNKS_MAX);
        }
    }
}
