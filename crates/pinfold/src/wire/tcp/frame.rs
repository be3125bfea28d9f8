//! Frames: descriptors on their way to another host.
//!
//! The descriptors of a lane go over a connection as frames. Each is four words, then the words of
//! the descriptor's body that its kind needs, then the bulk bytes of its piece. Words are
//! little-endian.
//!
//! ```text
//! word 0  the descriptor's number, from 1 on; 0: a signal, which is no descriptor.
//!         bit 63: the sender waits for an acknowledgement
//! word 1  descriptors of the other direction that have come, ever
//! word 2  credit of the other direction that was given back, ever
//! word 3  the descriptor's header without what the ring adds; of a signal its number
//! ```
//!
//! All bytes of a long message, or all that were asked for, can follow in one frame: its piece then
//! begins at `u32::MAX`, and their number is the message's length, or the second word of the body.
//!
//! Descriptors that name memory of their sender's mean nothing on another host. They do not cross.

use super::super::{
    active::ACTIVE_MAX,
    descriptor::{Body, Eager, Header, INLINE_MAX, INLINE_WIDE_MAX, Kind, Piece},
    layout::BULK_BYTES_MAX,
    region::{By, Open, Opened},
    rendezvous::{Cts, Fin, Place, Rts},
    served_rma::{Use, Used},
};

/// Bytes that each frame begins with.
pub(crate) const HEAD_BYTES: usize = 32;

const WANTS_WORD: u64 = 1 << 63;

/// Flags of an announcement: it lacked only credit; the first bytes of the message follow.
const RTS_UNASKED: u64 = 1;
const RTS_HEADED: u64 = 2;

/// The signals, which are no descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Signal {
    /// No more than the fields of every frame.
    Word = 0,
    /// The sender has closed the connection in good order; nothing follows.
    Goodbye = 1,
}

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brings {
    Signal(Signal),
    /// A descriptor: its number, its header, and the number of words of body that follow.
    Descriptor {
        number: u64,
        header: Header,
        words: usize,
    },
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Descriptors of the other direction that have come.
    pub received: u64,
    /// Credit of the other direction that was given back.
    pub released: u64,
    /// True if the sender waits for an acknowledgement.
    pub wants_word: bool,
    pub brings: Brings,
}

/// The words of its body that a descriptor needs. `None`: it does not cross.
fn words(header: Header) -> Option<usize> {
    let inline = |max: usize| header.inline_len(max).map(|len| len.div_ceil(8));
    match header.kind()? {
        Kind::Inline => inline(INLINE_MAX),
        Kind::InlineWide => inline(INLINE_WIDE_MAX).map(|words| 1 + words),
        Kind::Active => inline(ACTIVE_MAX).map(|words| 1 + words),
        Kind::TagHigh | Kind::Cancel => Some(0),
        Kind::Eager => Some(3),
        Kind::Data => Some(2),
        Kind::Rts => Some(4),
        Kind::Cts => Some(3),
        Kind::Fin => Some(2),
        Kind::Open => Some(4),
        Kind::Opened => Some(2),
        Kind::Use => Use::words(header),
        Kind::Used => Used::words(header),
        Kind::Wrote | Kind::InlineFirst | Kind::InlineRest => None,
    }
}

impl Head {
    /// The head as bytes.
    pub(crate) fn bytes(&self) -> [u8; HEAD_BYTES] {
        let (number, word) = match self.brings {
            Brings::Signal(signal) => (0, signal as u64),
            Brings::Descriptor { number, header, .. } => (number, header.bare()),
        };
        let flag = if self.wants_word { WANTS_WORD } else { 0 };
        let mut bytes = [0; HEAD_BYTES];
        let all = [number | flag, self.received, self.released, word];
        for (out, word) in bytes.chunks_exact_mut(8).zip(all) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes bytes that a peer sent. `None`: no honest peer sends that.
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let mut words_read = [0; HEAD_BYTES / 8];
        read_words(bytes, &mut words_read);
        let [number, received, released, word] = words_read;
        let wants_word = number & WANTS_WORD != 0;
        let brings = match number & !WANTS_WORD {
            0 => Brings::Signal(match word {
                0 => Signal::Word,
                1 => Signal::Goodbye,
                _ => return None,
            }),
            number => {
                let header = Header::from_word(word);
                if header.bare() != word {
                    return None;
                }
                Brings::Descriptor { number, header, words: words(header)? }
            }
        };
        Some(Head { received, released, wants_word, brings })
    }
}

/// Words out of a frame's bytes, as many as there is room for.
pub(crate) fn read_words(bytes: &[u8], words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let bytes = <[u8; 8]>::try_from(bytes);
        *word = u64::from_le_bytes(bytes.unwrap_or_default());
    }
}

/// The part of a descriptor that crosses: the number of words of its body, changed to what they are
/// to be there, and its piece. `None`: it does not cross.
pub(crate) fn crossing(header: Header, body: &mut Body) -> Option<(usize, Option<Piece>)> {
    let piece = match header.kind()? {
        Kind::Eager => Some(Eager::read(body).piece),
        Kind::Data => {
            body[1] = 0;
            Some(Piece::read(body))
        }
        Kind::Rts if Rts::read(body).given => return None,
        Kind::Cts if !matches!(Cts::read(body), Some(Cts::Stream { .. })) => return None,
        _ if !may_cross(header, body)? => return None,
        _ => None,
    };
    // The facts that the other side needs come first.
    match header.kind()? {
        Kind::Rts => {
            let Rts { unasked, head, .. } = Rts::read(body);
            body[2] = u64::from(unasked) | if head.is_some() { RTS_HEADED } else { 0 };
            body[3] = head.unwrap_or(0);
        }
        Kind::Cts => {
            if let Some(Cts::Stream { want, credit, stored, .. }) = Cts::read(body) {
                body[..3].copy_from_slice(&[want, credit, stored.into()]);
            }
        }
        _ => {}
    }
    Some((words(header)?, piece))
}

/// Returns whether a descriptor about regions may cross: one that has the owner perform operations
/// does. Descriptors of other kinds all do.
fn may_cross(header: Header, body: &Body) -> Option<bool> {
    Some(match header.kind()? {
        Kind::Open => matches!(Open::read(body), Some(Open { by: By::Owner, .. })),
        Kind::Opened => {
            let opened = Opened::read(body);
            matches!(opened, Some(Opened::Unknown | Opened::Served(_) | Opened::Agent(_)))
        }
        Kind::Use => Use::read(header, body).is_some(),
        Kind::Used => Used::read(header, body).is_some(),
        _ => true,
    })
}

/// The bytes behind the words of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    Nothing,
    /// The bytes of the descriptor's piece.
    Piece(u32),
    /// This many bytes of its message.
    Long(u64),
}

/// The stand-in for the piece where a long message follows.
const LONG: Piece = Piece { offset: u32::MAX, len: 0, sample: 0 };

/// The words of the frame that begins a long message whose bytes all follow.
pub(crate) fn long_eager(tag: u64, len: u64) -> [u64; 3] {
    Eager { tag, len, piece: LONG }.body()
}

/// The words of the frame that brings the `bytes` bytes of a message that were asked for.
pub(crate) fn long_data(bytes: u64) -> [u64; 2] {
    [LONG.body()[0], bytes]
}

/// The descriptor's body as it is here, from the words that came, and the bytes that follow them.
/// Words that might name memory are not taken over. `None`: no honest peer sends that.
pub(crate) fn arrived(header: Header, words: &Body) -> Option<(Body, Follows)> {
    let mut body = *words;
    let follows = match header.kind()? {
        Kind::Eager => {
            let eager = Eager::read(words);
            match eager.piece {
                LONG => Follows::Long(eager.len),
                piece if u64::from(piece.len) <= eager.len => Follows::Piece(piece.len),
                _ => return None,
            }
        }
        Kind::Data => match Piece::read(words) {
            LONG => Follows::Long(words[1]),
            piece => Follows::Piece(piece.len),
        },
        Kind::Rts => {
            let place = Place { at: 0, parts: 0 };
            let [tag, len, flags, head, ..] = *words;
            let (unasked, exported, list) = (flags & RTS_UNASKED != 0, None, None);
            let rts = Rts {
                tag,
                len,
                place,
                stream: true,
                prefers_ring: false,
                unasked,
                given: false,
                exported,
                list,
                number: 0,
                head: (flags & RTS_HEADED != 0).then_some(head),
            };
            body = rts.body();
            Follows::Nothing
        }
        Kind::Cts => {
            let [want, credit, stored, ..] = *words;
            let (errno, stored, request) = (0, stored != 0, None);
            body = Cts::Stream { want, credit, errno, stored, request }.body();
            Follows::Nothing
        }
        Kind::Fin => {
            let fin = Fin::read(words);
            body[..2].copy_from_slice(&fin.body());
            Follows::Nothing
        }
        _ if !may_cross(header, words)? => return None,
        _ => Follows::Nothing,
    };
    match follows {
        Follows::Piece(bytes) if bytes > BULK_BYTES_MAX => None,
        Follows::Long(bytes) if bytes > i64::MAX as u64 => None,
        _ => Some((body, follows)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::padded;
    use crate::wire::space::Claim;

    fn heads() -> impl Strategy<Value = Head> {
        let signal = prop_oneof![Just(Signal::Word), Just(Signal::Goodbye)];
        let kinds = prop::sample::select(vec![
            Kind::Inline,
            Kind::InlineWide,
            Kind::TagHigh,
            Kind::Eager,
            Kind::Data,
            Kind::Rts,
            Kind::Cts,
            Kind::Fin,
            Kind::Cancel,
            Kind::Active,
            Kind::Open,
            Kind::Opened,
        ]);
        let descriptor = (1..u64::MAX >> 1, kinds, 0..=48u8, any::<u32>()).prop_map(
            |(number, kind, len, aux)| {
                let header = Header::new(kind, len, aux);
                Brings::Descriptor { number, header, words: words(header).unwrap() }
            },
        );
        let brings = prop_oneof![signal.prop_map(Brings::Signal), descriptor];
        (any::<u64>(), any::<u64>(), any::<bool>(), brings).prop_map(
            |(received, released, wants_word, brings)| Head {
                received,
                released,
                wants_word,
                brings,
            },
        )
    }

    proptest! {
        #[test]
        fn heads_survive(head in heads()) {
            prop_assert_eq!(Head::read(&head.bytes()), Some(head));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: [u8; HEAD_BYTES], body: Body, kind in 0..16u64) {
            let mut bytes = bytes;
            for small in [false, true] {
                if small {
                    // Only the bits that headers made by `Header::new` can have.
                    bytes[24..28].fill(0);
                    bytes[26] = kind as u8;
                }
                let Some(head) = Head::read(&bytes) else { continue };
                prop_assert_eq!(head.bytes(), bytes);
                let Brings::Descriptor { header, words, .. } = head.brings else { continue };
                prop_assert!(words <= body.len());
                let Some((there, follows)) = arrived(header, &body) else { continue };
                match follows {
                    Follows::Piece(bytes) => prop_assert!(bytes <= BULK_BYTES_MAX),
                    Follows::Long(bytes) => prop_assert!(bytes <= i64::MAX as u64),
                    Follows::Nothing => {}
                }
                if header.kind() == Some(Kind::Rts) {
                    let rts = Rts::read(&there);
                    let is_bare = rts.exported.is_none() && rts.list.is_none();
                    prop_assert!(rts.stream && !rts.given && is_bare);
                    prop_assert_eq!((rts.place.at, rts.place.parts, rts.number), (0, 0, 0));
                }
                if header.kind() == Some(Kind::Cts) {
                    let streams = matches!(Cts::read(&there), Some(Cts::Stream { .. }));
                    prop_assert!(streams);
                }
            }
        }
    }

    #[test]
    fn what_no_honest_peer_sends_is_refused() {
        let signal = |number: u64| {
            let mut bytes = [0; HEAD_BYTES];
            bytes[24..].copy_from_slice(&number.to_le_bytes());
            Head::read(&bytes).is_some()
        };
        assert!(signal(0) && signal(1) && !signal(2) && !signal(u64::MAX));
        let follows = |kind, body: &[u64]| {
            arrived(Header::new(kind, 0, 7), &padded(body)).map(|(_, follows)| follows)
        };
        let most = i64::MAX as u64;
        assert_eq!(follows(Kind::Eager, &long_eager(1, most)), Some(Follows::Long(most)));
        assert_eq!(follows(Kind::Eager, &long_eager(1, most + 1)), None);
        assert_eq!(follows(Kind::Data, &long_data(most + 1)), None);
        let piece = |len| Piece { offset: 0, len, sample: 0 };
        let ring = BULK_BYTES_MAX;
        let data = |len| follows(Kind::Data, &piece(len).body());
        assert_eq!(data(ring), Some(Follows::Piece(ring)));
        assert_eq!(data(ring + 1), None);
        let eager =
            |len, of| follows(Kind::Eager, &Eager { tag: 1, len: of, piece: piece(len) }.body());
        assert_eq!((eager(8, 8), eager(9, 8)), (Some(Follows::Piece(8)), None));
        // Memory of the sender's means nothing here.
        let open =
            |by| follows(Kind::Open, &Open { claim: Claim { id: 1, secret: [2, 3] }, by }.body());
        assert_eq!(open(By::Owner), Some(Follows::Nothing));
        assert_eq!((open(By::Mapping), open(By::Kernel)), (None, None));
        assert_eq!(follows(Kind::Opened, &Opened::Unknown.body()), Some(Follows::Nothing));
        assert_eq!(follows(Kind::Opened, &Opened::Unshared.body()), None);
    }

    #[test]
    fn descriptors_cross_or_do_not() {
        let over = |kind, mut body: Body| {
            let header = Header::new(kind, 0, 7);
            let (words, piece) = crossing(header, &mut body)?;
            let mut sent = [0; 7];
            sent[..words].copy_from_slice(&body[..words]);
            let (there, follows) = arrived(header, &sent)?;
            let expected = piece.map_or(Follows::Nothing, |piece| Follows::Piece(piece.len));
            assert_eq!(follows, expected);
            Some(there)
        };
        let piece = Piece { offset: 64, len: 100, sample: 3 };
        let eager = Eager { tag: 1, len: 5000, piece }.body();
        assert_eq!(over(Kind::Eager, padded(&eager)), Some(padded(&eager)));
        let short = Eager { tag: 1, len: 50, piece }.body();
        assert_eq!(over(Kind::Eager, padded(&short)), None);
        let place = Place { at: 0xdead_0000, parts: 3 };
        let (exported, list) = (None, None);
        let (stream, unasked, given) = (true, true, false);
        let prefers_ring = false;
        let rts = Rts {
            tag: 5,
            len: 6,
            place,
            stream,
            prefers_ring,
            unasked,
            given,
            exported,
            list,
            number: 0,
            head: Some(8),
        };
        let nowhere = Place { at: 0, parts: 0 };
        let there = Rts { place: nowhere, ..rts };
        assert_eq!(over(Kind::Rts, rts.body()), Some(there.body()));
        assert_eq!(over(Kind::Rts, Rts { given: true, ..rts }.body()), None);
        for stored in [false, true] {
            let (want, credit, errno, request) = (77, 78, 0, None);
            let cts = Cts::Stream { want, credit, errno, stored, request }.body();
            assert_eq!(over(Kind::Cts, cts), Some(cts));
        }
        assert_eq!(over(Kind::Cts, padded(&[2, 3])), None);
        let long = arrived(Header::new(Kind::Eager, 0, 7), &padded(&long_eager(1, 1 << 40)));
        assert_eq!(long.map(|(_, follows)| follows), Some(Follows::Long(1 << 40)));
        let long = arrived(Header::new(Kind::Data, 0, 7), &padded(&long_data(1 << 40)));
        assert_eq!(long.map(|(_, follows)| follows), Some(Follows::Long(1 << 40)));
        assert_eq!(over(Kind::Open, [0; 7]), None);
        assert_eq!(over(Kind::Wrote, [0; 7]), None);
    }
}
