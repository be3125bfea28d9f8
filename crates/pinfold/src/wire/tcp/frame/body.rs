//! The bodies of frames: up to seven words.

use super::{
    super::super::active::{Label, Verb},
    Kind, LEN_MAX, Violation, verb_of,
};

pub(super) const WORDS_MAX: usize = 7;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    First(MessageHead),
    More(Piece),
    Rts(MessageHead),
    /// The first `want` bytes of message `id` are to come as [`What::More`].
    Cts {
        id: u64,
        want: u64,
    },
    Cancel {
        id: u64,
    },
    /// `cancelled`: it was taken back in time.
    Fin {
        id: u64,
        cancelled: bool,
    },
    /// The payload goes there.
    Write(Spot),
    /// `len` bytes from there are to come as the payload of an answer.
    Read {
        from: Spot,
        len: u64,
    },
    Atomic(AtomicOp),
    Answer(Answer),
    /// The payload is all of it.
    Active(Label),
    Ack,
    /// `answer`: an Ack is to come at once.
    KeepAlive {
        answer: bool,
    },
    Goodbye(Goodbye),
}

/// How a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHead {
    /// Of an active message, its label.
    pub tag: u64,
    /// Bytes of the whole message.
    pub len: u64,
    /// Its number among the messages of its sender in the session; never 0.
    pub id: u64,
    pub verb: Verb,
}

/// Which part of a message the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub id: u64,
    pub offset: u64,
}

/// A place in a region of the receiver of this, and the number of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub region: u64,
    pub secret: [u64; 2],
    pub offset: u64,
    pub request: u64,
}

/// How a word is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Change {
    Add = 0,
    And = 1,
    Or = 2,
    Xor = 3,
    Min = 4,
    Max = 5,
    Swap = 6,
    /// To the second, if it is the first.
    Replace = 7,
}

const CHANGES: [Change; 8] = [
    Change::Add,
    Change::And,
    Change::Or,
    Change::Xor,
    Change::Min,
    Change::Max,
    Change::Swap,
    Change::Replace,
];

/// Which word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteWord {
    pub at: Spot,
    /// 64 bits, not 32.
    pub wide: bool,
    pub signed: bool,
}

/// A word, and what it becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtomicOp {
    pub word: RemoteWord,
    pub change: Change,
    /// As the bits of the word.
    pub by: u64,
    /// Only of [`Change::Replace`]; else 0.
    pub to: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub request: u64,
    pub status: Status,
    /// What the word was, of an atomic operation that was done; else 0.
    pub was: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    Done = 0,
    BadKey = 1,
    Revoked = 2,
    OutOfBounds = 3,
    ReadOnly = 4,
    /// There is no memory for it now.
    Exhausted = 5,
}

const STATUSES: [Status; 6] = [
    Status::Done,
    Status::BadKey,
    Status::Revoked,
    Status::OutOfBounds,
    Status::ReadOnly,
    Status::Exhausted,
];

/// Why nothing more will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Goodbye {
    /// The endpoint was closed.
    Closed = 1,
    /// It disconnected this peer.
    Disconnected = 2,
    /// This peer broke the protocol.
    Misbehaved = 3,
}

const GOODBYES: [Goodbye; 3] = [Goodbye::Closed, Goodbye::Disconnected, Goodbye::Misbehaved];

const WIDE: u8 = 1 << 3;
const SIGNED: u8 = 1 << 4;
const CHANGE: u8 = 7;

type Words = [u64; WORDS_MAX];

impl What {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            What::First(_) => Kind::First,
            What::More(_) => Kind::More,
            What::Rts(_) => Kind::Rts,
            What::Cts { .. } => Kind::Cts,
            What::Cancel { .. } => Kind::Cancel,
            What::Fin { .. } => Kind::Fin,
            What::Write(_) => Kind::Write,
            What::Read { .. } => Kind::Read,
            What::Atomic(_) => Kind::Atomic,
            What::Answer(_) => Kind::Answer,
            What::Active(_) => Kind::Active,
            What::Ack => Kind::Ack,
            What::KeepAlive { .. } => Kind::KeepAlive,
            What::Goodbye(_) => Kind::Goodbye,
        }
    }

    /// Flags and words.
    pub(super) fn write(&self) -> (u8, Words) {
        match *self {
            What::First(head) | What::Rts(head) => {
                (head.verb as u8, padded([head.tag, head.len, head.id]))
            }
            What::More(piece) => (0, padded([piece.id, piece.offset])),
            What::Cts { id, want } => (0, padded([id, want])),
            What::Cancel { id } => (0, padded([id])),
            What::Fin { id, cancelled } => (0, padded([id, cancelled.into()])),
            What::Write(spot) => (0, padded(spot.words())),
            What::Read { from, len } => {
                let [a, b, c, d, e] = from.words();
                (0, padded([a, b, c, d, e, len]))
            }
            What::Atomic(op) => {
                let wide = if op.word.wide { WIDE } else { 0 };
                let signed = if op.word.signed { SIGNED } else { 0 };
                let [a, b, c, d, e] = op.word.at.words();
                (op.change as u8 | wide | signed, [a, b, c, d, e, op.by, op.to])
            }
            What::Answer(answer) => (0, padded([answer.request, answer.was, answer.status as u64])),
            What::Active(label) => (label.verb as u8, padded([label.tag()])),
            What::Ack => (0, padded([])),
            What::KeepAlive { answer } => (answer.into(), padded([])),
            What::Goodbye(why) => (0, padded([why as u64])),
        }
    }

    pub(super) fn read(
        kind: Kind,
        flags: u8,
        words: &Words,
        payload: u64,
    ) -> Result<What, Violation> {
        let allowed = match kind {
            Kind::First | Kind::Rts | Kind::Active => 7,
            Kind::Atomic => CHANGE | WIDE | SIGNED,
            Kind::KeepAlive => 1,
            _ => 0,
        };
        if flags & !allowed != 0 {
            return Err(Violation::Flags { kind, flags });
        }
        let bad = |what, value| Violation::Value { kind, what, value };
        let named = |id, what| if id == 0 { Err(bad(what, id)) } else { Ok(id) };
        Ok(match kind {
            Kind::First | Kind::Rts => {
                let verb = verb_of(kind, flags)?;
                let head = MessageHead {
                    tag: words[0],
                    len: bounded(words[1]).ok_or_else(|| bad("a length", words[1]))?,
                    id: named(words[2], "a message")?,
                    verb,
                };
                if payload > head.len {
                    return Err(bad("a length, with more behind it", head.len));
                }
                if kind == Kind::First { What::First(head) } else { What::Rts(head) }
            }
            Kind::More => {
                let piece = Piece { id: named(words[0], "a message")?, offset: words[1] };
                end(piece.offset, payload).ok_or_else(|| bad("an offset", piece.offset))?;
                if payload == 0 {
                    return Err(Violation::Payload { kind, bytes: 0 });
                }
                What::More(piece)
            }
            Kind::Cts => What::Cts {
                id: named(words[0], "a message")?,
                want: bounded(words[1]).ok_or_else(|| bad("a length", words[1]))?,
            },
            Kind::Cancel => What::Cancel { id: named(words[0], "a message")? },
            Kind::Fin => What::Fin {
                id: named(words[0], "a message")?,
                cancelled: truth(words[1]).ok_or_else(|| bad("a yes or no", words[1]))?,
            },
            Kind::Write => {
                let spot = Spot::read(words);
                end(spot.offset, payload).ok_or_else(|| bad("an offset", spot.offset))?;
                What::Write(spot)
            }
            Kind::Read => {
                let (from, len) = (Spot::read(words), words[5]);
                // The answer's payload has to hold it.
                if len > super::PAYLOAD_BYTES_MAX {
                    return Err(bad("a length", len));
                }
                end(from.offset, len).ok_or_else(|| bad("an offset", from.offset))?;
                What::Read { from, len }
            }
            Kind::Atomic => What::Atomic(
                AtomicOp::read(flags, words).map_err(|(what, value)| bad(what, value))?,
            ),
            Kind::Answer => {
                let status = usize::try_from(words[2]).ok().and_then(|at| STATUSES.get(at));
                let status = *status.ok_or_else(|| bad("an outcome", words[2]))?;
                if status != Status::Done && (words[1], payload) != (0, 0) {
                    return Err(bad("an outcome, and yet results", words[2]));
                }
                What::Answer(Answer { request: words[0], status, was: words[1] })
            }
            Kind::Active => {
                let verb = verb_of(kind, flags)?;
                if verb == Verb::Tagged {
                    return Err(Violation::Flags { kind, flags });
                }
                What::Active(Label::from_tag(verb, words[0]))
            }
            Kind::Ack => What::Ack,
            Kind::KeepAlive => What::KeepAlive { answer: flags == 1 },
            Kind::Goodbye => {
                let why = GOODBYES.into_iter().find(|&why| why as u64 == words[0]);
                What::Goodbye(why.ok_or_else(|| bad("a reason", words[0]))?)
            }
        })
    }
}

impl Spot {
    fn words(self) -> [u64; 5] {
        [self.region, self.secret[0], self.secret[1], self.offset, self.request]
    }

    fn read(words: &Words) -> Spot {
        Spot { region: words[0], secret: [words[1], words[2]], offset: words[3], request: words[4] }
    }
}

impl AtomicOp {
    fn read(flags: u8, words: &Words) -> Result<AtomicOp, (&'static str, u64)> {
        let (at, by, to) = (Spot::read(words), words[5], words[6]);
        let wide = flags & WIDE != 0;
        let bytes = if wide { 8 } else { 4 };
        if at.offset % bytes != 0 || end(at.offset, bytes).is_none() {
            return Err(("an offset", at.offset));
        }
        let change = CHANGES[usize::from(flags & CHANGE)];
        if change != Change::Replace && to != 0 {
            return Err(("a second operand", to));
        }
        if let Some(long) = [by, to].into_iter().find(|&word| !wide && word > u32::MAX.into()) {
            return Err(("an operand of 32 bits", long));
        }
        let word = RemoteWord { at, wide, signed: flags & SIGNED != 0 };
        Ok(AtomicOp { word, change, by, to })
    }
}

fn padded<const N: usize>(words: [u64; N]) -> Words {
    let mut all = [0; WORDS_MAX];
    all[..N].copy_from_slice(&words);
    all
}

fn bounded(len: u64) -> Option<u64> {
    (len <= LEN_MAX).then_some(len)
}

/// Where `len` bytes at `offset` end.
fn end(offset: u64, len: u64) -> Option<u64> {
    offset.checked_add(len).and_then(bounded)
}

fn truth(word: u64) -> Option<bool> {
    match word {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}
