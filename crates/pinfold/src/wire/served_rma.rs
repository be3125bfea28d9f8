//! Operations on regions of peers on other hosts: the request to the owner, and its answer.
//!
//! The header's bits that count inline bytes of other descriptors hold the code of an operation or
//! answer:
//!
//! ```text
//! Use     0       read; word 4 is how many bytes
//!         1       write; word 4 is how many bytes, which follow as the stream of the operation's number
//!         2..=18  write of 0 to 16 bytes, from word 4 on
//!         32..    atomic operation: 4 times what it does, and the kind of its word; operands from word 4 on
//!         The words before are the region's number, its secret, and the offset.
//! Used    0       written
//!         1       the word 0 is what the word was
//!         2       the bytes that were read follow as the stream that word 0 names
//!         3..=6   refused
//!         8..=56  0 to 48 bytes that were read
//! ```

pub(crate) use super::change::{Change, Word};
use super::{
    descriptor::{Body, Header, Kind},
    space::{Claim, Refused},
};

/// Bytes of a write that fit into its descriptor.
pub(crate) const BRIEF_MAX: usize = 16;
/// Bytes of a read that fit into the descriptor of the answer.
pub(crate) const BYTES_MAX: usize = 48;

const READ: usize = 0;
const WRITE: usize = 1;
const BRIEF: usize = 2;
const CHANGE: usize = 32;

const DONE: usize = 0;
const WAS: usize = 1;
const COMES: usize = 2;
const REFUSED: usize = 3;
const BYTES: usize = 8;

/// An operation on a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub claim: Claim,
    pub offset: u64,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Read {
        len: u64,
    },
    /// A write of bytes that follow.
    Write {
        len: u64,
    },
    /// A write of bytes that are here: so many of the words.
    Brief {
        len: usize,
        words: [u64; BRIEF_MAX / 8],
    },
    Change(Change),
}

impl Use {
    /// The code in the header of the descriptor.
    const fn code(&self) -> usize {
        match self.what {
            What::Read { .. } => READ,
            What::Write { .. } => WRITE,
            What::Brief { len, .. } => BRIEF + len,
            What::Change(change) => CHANGE + change.code(),
        }
    }

    /// The header of its descriptor; `number` is the operation's.
    pub(crate) const fn header(&self, number: u32) -> Header {
        Header::new(Kind::Use, self.code() as u8, number)
    }

    pub(crate) const fn body(&self) -> Body {
        let Claim { id, secret } = self.claim;
        let (a, b) = match self.what {
            What::Read { len } | What::Write { len } => (len, 0),
            What::Brief { words, .. } => (words[0], words[1]),
            What::Change(change) => (change.with, change.other),
        };
        [id, secret[0], secret[1], self.offset, a, b, 0]
    }

    /// Words of the body that a descriptor with this header needs.
    pub(crate) fn words(header: Header) -> Option<usize> {
        Some(match header.code() {
            READ | WRITE => 5,
            code @ BRIEF..=18 => 4 + (code - BRIEF).div_ceil(8),
            code @ CHANGE.. => 5 + usize::from(Change::has_other(code - CHANGE)),
            _ => return None,
        })
    }

    /// `None`: no honest peer asks that.
    pub(crate) fn read(header: Header, body: &Body) -> Option<Use> {
        let &[id, one, two, offset, a, b, _] = body;
        let what = match header.code() {
            READ => What::Read { len: a },
            WRITE => What::Write { len: a },
            code @ BRIEF..=18 => What::Brief { len: code - BRIEF, words: [a, b] },
            code @ CHANGE.. => What::Change(Change::of_code(code - CHANGE, a, b)?),
            _ => return None,
        };
        Some(Use { claim: Claim { id, secret: [one, two] }, offset, what })
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    Written,
    /// The old value of a word that was changed.
    Was(u64),
    /// The bytes that were read follow as this stream.
    Comes {
        stream: u32,
    },
    Refused(Refused),
    /// Bytes that were read: so many of the words.
    Bytes {
        len: usize,
        words: [u64; BYTES_MAX / 8],
    },
}

/// Reasons for a refusal that a descriptor can carry: the first of [`Refused::ALL`].
const REASONS: usize = 4;

impl Used {
    const fn code(&self) -> usize {
        match self {
            Used::Written => DONE,
            Used::Was(_) => WAS,
            Used::Comes { .. } => COMES,
            Used::Refused(why) => match *why as usize {
                why @ 0..REASONS => REFUSED + why,
                _ => REFUSED,
            },
            Used::Bytes { len, .. } => BYTES + *len,
        }
    }

    /// The header of its descriptor; `number` is the operation's.
    pub(crate) const fn header(&self, number: u32) -> Header {
        Header::new(Kind::Used, self.code() as u8, number)
    }

    pub(crate) const fn body(&self) -> Body {
        let mut body = [0; 7];
        match self {
            Used::Written | Used::Refused(_) => {}
            Used::Was(word) => body[0] = *word,
            Used::Comes { stream } => body[0] = *stream as u64,
            Used::Bytes { words, .. } => {
                let mut at = 0;
                while at < words.len() {
                    body[at] = words[at];
                    at += 1;
                }
            }
        }
        body
    }

    /// Words of the body that a descriptor with this header needs.
    pub(crate) fn words(header: Header) -> Option<usize> {
        Some(match header.code() {
            DONE | REFUSED..=6 => 0,
            WAS | COMES => 1,
            code @ BYTES..=56 => (code - BYTES).div_ceil(8),
            _ => return None,
        })
    }

    /// `None`: no honest peer answers that.
    pub(crate) fn read(header: Header, body: &Body) -> Option<Used> {
        Some(match header.code() {
            DONE => Used::Written,
            WAS => Used::Was(body[0]),
            COMES => Used::Comes { stream: u32::try_from(body[0]).ok()? },
            code @ REFUSED..=6 => Used::Refused(Refused::ALL[code - REFUSED]),
            code @ BYTES..=56 => {
                let words = std::array::from_fn(|at| body[at]);
                Used::Bytes { len: code - BYTES, words }
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The body as it arrives: the words that are needed, and no more.
    fn cut(body: Body, words: Option<usize>) -> Body {
        let mut there = [0; 7];
        let words = words.expect("it has a known form");
        there[..words].copy_from_slice(&body[..words]);
        there
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let replace = |with, other| {
            let code = CHANGE as u8 + 4 * 7 + Word::U32 as u8;
            Use::read(Header::new(Kind::Use, code, 1), &[0, 0, 0, 0, with, other, 0]).is_some()
        };
        assert!(replace(1, 2) && replace(u32::MAX.into(), u32::MAX.into()));
        assert!(!replace(1 << 32, 2) && !replace(1, 1 << 32));
        let comes = |stream| {
            Used::read(Header::new(Kind::Used, COMES as u8, 1), &[stream, 0, 0, 0, 0, 0, 0])
        };
        assert_eq!(comes(7), Some(Used::Comes { stream: 7 }));
        assert_eq!(comes(1 << 32 | 7), None);
    }

    proptest! {
        #[test]
        fn both_survive(
            [id, one, two, offset, a, b] in any::<[u64; 6]>(),
            number in any::<u32>(),
            len in 0..=BRIEF_MAX,
            more in 0..=BYTES_MAX,
            does in 0u8..8,
            word in 0usize..4,
        ) {
            let claim = Claim { id, secret: [one, two] };
            let word = Word::ALL[word];
            let fit = |value: u64| if word.size() == 4 { value >> 32 } else { value };
            let other = if does == 7 { fit(b) } else { 0 };
            let words = [if len > 0 { a } else { 0 }, if len > 8 { b } else { 0 }];
            for what in [
                What::Read { len: a },
                What::Write { len: a },
                What::Brief { len, words },
                What::Change(Change { does, word, with: fit(a), other }),
            ] {
                let asked = Use { claim, offset, what };
                let header = asked.header(number);
                prop_assert_eq!((header.kind(), header.aux()), (Some(Kind::Use), number));
                let body = cut(asked.body(), Use::words(header));
                prop_assert_eq!(Use::read(header, &body), Some(asked));
            }
            let mut words = [a, b, offset, id, one, two];
            words[more.div_ceil(8)..].fill(0);
            let bytes = Used::Bytes { len: more, words };
            let reasons = Refused::ALL.into_iter().take(REASONS);
            let answers = [Used::Written, Used::Was(a), Used::Comes { stream: number }, bytes];
            for used in answers.into_iter().chain(reasons.map(Used::Refused)) {
                let header = used.header(number);
                prop_assert_eq!((header.kind(), header.aux()), (Some(Kind::Used), number));
                let body = cut(used.body(), Used::words(header));
                prop_assert_eq!(Used::read(header, &body), Some(used));
            }
        }

        #[test]
        fn any_words_are_read_without_panic(code in 0u8..64, aux: u32, body: Body) {
            let header = Header::new(Kind::Use, code, aux);
            prop_assert!(Use::words(header).is_some() || Use::read(header, &body).is_none());
            prop_assert!(Use::words(header).is_none_or(|words| words <= body.len()));
            if let Some(Use { what: What::Change(change), .. }) = Use::read(header, &body) {
                prop_assert!(change.does < 8 && change.word.has(change.with));
            }
            let header = Header::new(Kind::Used, code, aux);
            prop_assert!(Used::words(header).is_some() || Used::read(header, &body).is_none());
            prop_assert!(Used::words(header).is_none_or(|words| words <= body.len()));
        }
    }
}
