//! The questions of a peer to the agent of a process, and the answers: the payloads of requests and
//! answers, words in the order of this machine. Bytes of memory follow the words. The memory is
//! [opened](super::region::Open) before.

use super::{change::Change, rendezvous::Exported};

/// The exposed memory, and the right to ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub id: u64,
    pub secret: [u64; 2],
}

/// The question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The memory behind an address, to be mapped. `writes`: it is to be written, too.
    Translate { address: u64, writes: bool },
    /// Bytes.
    Read { address: u64, len: u64 },
    /// A write of the bytes that follow.
    Write { address: u64 },
    /// An atomic operation on a word. A second operand follows.
    Change { address: u64, change: Change },
}

/// Words before the bytes of a question.
pub(crate) const ASK_WORDS: usize = 6;

/// Bytes that are read or written at a time, at most.
pub(crate) const PART_MAX: usize = 64 << 10;

/// Bytes before those of an answer to [`Ask::Read`].
pub(crate) const ANSWER_HEAD: usize = 8;

/// The first verb of [`Ask::Change`]; the code of the change is added.
const CHANGE: u64 = 32;

impl Ask {
    /// The question as a payload, with room for `more` bytes.
    pub(crate) fn payload(self, claim: Claim, more: usize) -> Vec<u8> {
        let words = self.words(claim);
        let other = match self {
            Ask::Change { change, .. } if Change::has_other(change.code()) => Some(change.other),
            _ => None,
        };
        let mut payload = Vec::with_capacity(8 * (ASK_WORDS + 1) + more);
        payload.extend(words.iter().chain(&other).flat_map(|word| word.to_ne_bytes()));
        payload
    }

    fn words(self, claim: Claim) -> [u64; ASK_WORDS] {
        let (verb, address, more) = match self {
            Ask::Translate { address, writes } => (2, address, writes.into()),
            Ask::Read { address, len } => (3, address, len),
            Ask::Write { address } => (4, address, 0),
            Ask::Change { address, change } => {
                (CHANGE + change.code() as u64, address, change.with)
            }
        };
        [verb, claim.id, claim.secret[0], claim.secret[1], address, more]
    }

    /// The question of a request, and the bytes that follow.
    pub(crate) fn read(payload: &[u8]) -> Option<(Ask, Claim, &[u8])> {
        let (words, mut bytes) = words_of::<ASK_WORDS>(payload)?;
        let [verb, id, one, two, address, more] = words;
        let ask = match (verb, more) {
            (2, 0 | 1) => Ask::Translate { address, writes: more == 1 },
            (3, len) => Ask::Read { address, len },
            (4, _) => Ask::Write { address },
            (CHANGE.., with) => {
                let code = (verb - CHANGE) as usize;
                if code >= Change::CODES {
                    return None;
                }
                let mut other = 0;
                if Change::has_other(code) {
                    ([other], bytes) = words_of(bytes)?;
                }
                Ask::Change { address, change: Change::of_code(code, with, other)? }
            }
            _ => return None,
        };
        Some((ask, Claim { id, secret: [one, two] }, bytes))
    }
}

/// The reason for a refusal, of the agent or of the owner of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Nothing is exposed by that key, or no longer.
    Unknown,
    /// It may only be read.
    ReadOnly,
    /// It is not inside the exposed range.
    Outside,
    /// A word does not lie at a multiple of its size.
    Misaligned,
    /// There is no memory, or none that may be used so.
    NotMapped,
    /// The peer has more operations under way than it may.
    Full,
    /// The question makes no sense, or the answer would be too long.
    Senseless,
    /// The owner has no means to change a word there.
    NoMeans,
}

impl Refused {
    pub(crate) const ALL: [Refused; 8] = [
        Refused::Unknown,
        Refused::ReadOnly,
        Refused::Outside,
        Refused::Misaligned,
        Refused::NotMapped,
        Refused::Full,
        Refused::Senseless,
        Refused::NoMeans,
    ];
}

/// The exposed range, as its owner says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    pub start: u64,
    pub len: u64,
    pub writable: bool,
    /// The address of the word that says whether it stands, also its place in memory that was
    /// handed over before this answer, if it was; and the word's value while it stands.
    pub flag: u64,
    pub exported: Option<Exported>,
    pub stamp: u64,
    /// The reason why the kernel may not be used, by the number of a [`Refusal`](crate::Refusal)
    /// as the owner sees it; 0 if it may.
    pub cma: u16,
}

/// The memory behind an address, which was handed over before this answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// The first address of it, and its length.
    pub start: u64,
    pub len: u64,
    pub writable: bool,
    pub memory: Exported,
    pub flag: Exported,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Mapped(Behind),
    /// Nothing that can be mapped, in a range with the address.
    Plain {
        start: u64,
        len: u64,
    },
    /// Read: the bytes follow. Or written.
    Done,
    /// The old value of a word that was changed.
    Was(u64),
    Refused(Refused),
}

/// Words of the longest answer.
const ANSWER_WORDS: usize = 8;

/// The code of [`Answered::Was`].
const WAS: u64 = 64;

impl Answered {
    pub(crate) fn words(self) -> Vec<u64> {
        match self {
            Answered::Mapped(it) => {
                let Behind { start, len, writable, memory, flag } = it;
                let [memory, flag] =
                    [memory, flag].map(|exported| [exported.extent, exported.offset]);
                vec![2, start, len, writable.into(), memory[0], memory[1], flag[0], flag[1]]
            }
            Answered::Plain { start, len } => vec![3, start, len],
            Answered::Done => vec![4],
            Answered::Was(word) => vec![WAS, word],
            Answered::Refused(why) => vec![5 + why as u64],
        }
    }

    /// Decodes an answer; the bytes that were read follow [`ANSWER_HEAD`].
    pub(crate) fn read(payload: &[u8]) -> Option<Answered> {
        let mut words = [0; ANSWER_WORDS];
        for (word, bytes) in words.iter_mut().zip(payload.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().ok()?);
        }
        let writable = |word| match word {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        Some(match words[0] {
            2 => Answered::Mapped(Behind {
                start: words[1],
                len: words[2],
                writable: writable(words[3])?,
                memory: Exported { extent: words[4], offset: words[5] },
                flag: Exported { extent: words[6], offset: words[7] },
            }),
            3 => Answered::Plain { start: words[1], len: words[2] },
            4 => Answered::Done,
            WAS => Answered::Was(words[1]),
            code => {
                Answered::Refused(*Refused::ALL.get(usize::try_from(code.checked_sub(5)?).ok()?)?)
            }
        })
    }
}

/// Words as the bytes of a payload.
pub(crate) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words_of<const N: usize>(payload: &[u8]) -> Option<([u64; N], &[u8])> {
    let (head, rest) = payload.split_at_checked(8 * N)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(head.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some((words, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::change::Word;

    #[test]
    fn changes_that_cannot_be_are_refused() {
        let claim = Claim { id: 1, secret: [2, 3] };
        let read = |verb: u64, with: u64, other: &[u64]| {
            let words = [&[verb, claim.id, 2, 3, 64, with], other].concat();
            Ask::read(&bytes_of(&words)).is_some()
        };
        let replace = CHANGE + 4 * 7 + Word::U32 as u64;
        assert!(read(CHANGE, 1 << 40 >> 9, &[]) && read(replace, 1, &[2]));
        assert!(!read(CHANGE, 1 << 32, &[]) && !read(replace, 1, &[1 << 32]));
        assert!(!read(replace, 1, &[]) && !read(CHANGE - 1, 1, &[]) && !read(64, 1, &[]));
    }

    proptest! {
        #[test]
        fn questions_and_answers_survive(a: u64, b: u64, c: u64, d: u64, f: bool, bytes: Vec<u8>) {
            let claim = Claim { id: a, secret: [b, c] };
            let change = |does, word, with, other| {
                Ask::Change { address: d, change: Change { does, word, with, other } }
            };
            let asks = [
                Ask::Translate { address: d, writes: f },
                Ask::Read { address: d, len: b },
                Ask::Write { address: d },
                change(0, Word::U64, b, 0),
                change(5, Word::I32, b >> 32, 0),
                change(7, Word::I64, b, c),
                change(7, Word::U32, b >> 32, c >> 32),
            ];
            for ask in asks {
                let mut payload = ask.payload(claim, 0);
                payload.extend(&bytes);
                prop_assert_eq!(Ask::read(&payload), Some((ask, claim, &bytes[..])));
            }
            let exported = |n| Exported { extent: n, offset: d };
            let answers = [
                Answered::Mapped(Behind { start: a, len: b, writable: f, memory: exported(a), flag: exported(b) }),
                Answered::Plain { start: a, len: d },
                Answered::Done,
                Answered::Was(d),
            ];
            let refusals = Refused::ALL.map(Answered::Refused);
            for answer in answers.into_iter().chain(refusals) {
                let mut payload = bytes_of(&answer.words());
                payload.extend(&bytes);
                prop_assert_eq!(Answered::read(&payload), Some(answer));
            }
            prop_assert_eq!(bytes_of(&Answered::Done.words()).len(), ANSWER_HEAD);
        }

        #[test]
        fn any_bytes_are_read_without_panic(mut bytes: Vec<u8>, first in 0u64..70) {
            let _ = (Ask::read(&bytes), Answered::read(&bytes));
            bytes.splice(..bytes.len().min(8), first.to_ne_bytes());
            let _ = (Ask::read(&bytes), Answered::read(&bytes));
        }
    }
}
