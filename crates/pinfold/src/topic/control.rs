//! The messages by which publishers and subscribers come together: active messages that ask, and
//! their answers.
//!
//! ```text
//! publisher             subscriber
//!     Here   ->                        to each subscriber that it calls
//!               <- Join                the answer
//!
//!               <- Join                to each publisher that it calls
//!     Answer ->                        the answer
//! ```
//!
//! After either Join the publisher gives samples.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64, U128},
};

use super::{
    kind::{Kind, SCHEMA_MAX},
    payload::Shape,
};

/// "PFTP".
const MAGIC: u32 = 0x5054_4650;
/// Counts changes of these messages, and of [stamps](super::stamp).
const EDITION: u16 = 1;

/// A message between a publisher and a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// A publisher is at this place.
    Here { place: u32, kind: Kind },
    /// A subscriber wants samples.
    Join(Join),
    /// A publisher's answer.
    Answer { answer: Answer, kind: Kind },
}

/// A subscriber's wishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Join {
    /// Its name, by which a publisher knows it on another connection.
    pub subscriber: u128,
    pub kind: Kind,
    /// How many of the last samples it wants.
    pub history: u32,
    /// True if it wants every sample.
    pub every: bool,
}

/// A publisher's answer to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Joined,
    /// It has joined by another connection, which both keep.
    JoinedBefore,
    OtherType,
    Full,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    edition: U16,
    verb: u8,
    /// The answer; or 1 if every sample is wanted.
    detail: u8,
    bytes: U64,
    align: U32,
    is_slice: u8,
    schema_len: u8,
    unused: [u8; 2],
    place: U32,
    history: U32,
    subscriber: U128,
    schema: [u8; SCHEMA_MAX],
}

const HERE: u8 = 1;
const JOIN: u8 = 2;
const ANSWER: u8 = 3;

const ANSWERS: [Answer; 4] =
    [Answer::Joined, Answer::JoinedBefore, Answer::OtherType, Answer::Full];

impl Control {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (verb, kind) = match self {
            Control::Here { kind, .. } => (HERE, kind),
            Control::Join(Join { kind, .. }) => (JOIN, kind),
            Control::Answer { kind, .. } => (ANSWER, kind),
        };
        let mut schema = [0; SCHEMA_MAX];
        schema[..kind.schema.len()].copy_from_slice(kind.schema.as_bytes());
        let mut raw = Raw {
            magic: MAGIC.into(),
            edition: EDITION.into(),
            verb,
            detail: 0,
            bytes: kind.shape.bytes.into(),
            align: kind.shape.align.into(),
            is_slice: kind.shape.is_slice.into(),
            schema_len: kind.schema.len() as u8,
            unused: [0; 2],
            place: 0.into(),
            history: 0.into(),
            subscriber: 0.into(),
            schema,
        };
        match self {
            Control::Here { place, .. } => raw.place = (*place).into(),
            Control::Join(join) => {
                raw.subscriber = join.subscriber.into();
                raw.history = join.history.into();
                raw.detail = join.every.into();
            }
            Control::Answer { answer, .. } => {
                raw.detail = ANSWERS.iter().position(|one| one == answer).unwrap_or(0) as u8;
            }
        }
        raw.as_bytes().to_vec()
    }

    /// `None`: it is none, or of a library that does it otherwise.
    pub(super) fn decode(bytes: &[u8]) -> Option<Control> {
        let raw = Raw::ref_from_bytes(bytes).ok()?;
        if raw.magic.get() != MAGIC || raw.edition.get() != EDITION {
            return None;
        }
        let schema = raw.schema.get(..usize::from(raw.schema_len))?;
        let kind = Kind {
            shape: Shape {
                bytes: raw.bytes.get(),
                align: raw.align.get(),
                is_slice: flag(raw.is_slice)?,
            },
            schema: str::from_utf8(schema).ok()?.to_owned(),
        };
        let place = raw.place.get();
        match raw.verb {
            HERE => Some(Control::Here { place, kind }),
            JOIN => {
                let (subscriber, history) = (raw.subscriber.get(), raw.history.get());
                Some(Control::Join(Join { subscriber, kind, history, every: flag(raw.detail)? }))
            }
            ANSWER => {
                let answer = *ANSWERS.get(usize::from(raw.detail))?;
                Some(Control::Answer { answer, kind })
            }
            _ => None,
        }
    }
}

fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        (any::<u64>(), any::<u32>(), any::<bool>(), "[a-zé]{0,32}").prop_map(
            |(bytes, align, is_slice, schema)| Kind {
                shape: Shape { bytes, align, is_slice },
                schema,
            },
        )
    }

    fn controls() -> impl Strategy<Value = Control> {
        let here = (any::<u32>(), kinds()).prop_map(|(place, kind)| Control::Here { place, kind });
        let join = (any::<u128>(), kinds(), any::<u32>(), any::<bool>()).prop_map(
            |(subscriber, kind, history, every)| {
                Control::Join(Join { subscriber, kind, history, every })
            },
        );
        let answer = (0..ANSWERS.len(), kinds())
            .prop_map(|(at, kind)| Control::Answer { answer: ANSWERS[at], kind });
        prop_oneof![here, join, answer]
    }

    proptest! {
        #[test]
        fn controls_come_as_they_went(control in controls()) {
            let bytes = control.encode();
            prop_assert_eq!(Control::decode(&bytes), Some(control));
            prop_assert_eq!(Control::decode(&bytes[1..]), None);
        }

        #[test]
        fn no_bytes_are_too_odd(
            control in controls(),
            at in 0..size_of::<Raw>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = control.encode();
            bytes[at] = byte;
            if let Some(control) = Control::decode(&bytes) {
                prop_assert_eq!(Control::decode(&control.encode()), Some(control));
            }
        }
    }
}
