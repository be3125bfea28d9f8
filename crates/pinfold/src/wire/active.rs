//! Active messages: the fields of a descriptor for a message to a handler.
//!
//! A short one is a descriptor of its own kind: aux is the handler's number, the first word of the
//! body the verb and the token, and up to 48 bytes follow. A longer one comes as any message does;
//! the header of its first descriptor carries the verb where others carry a length, and the tag is
//! the handler's number and the token.

use super::descriptor::Body;

/// Bytes of an active message that fit into a descriptor.
pub(crate) const ACTIVE_MAX: usize = 48;

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verb {
    /// For a receive that matches its tag.
    Tagged = 0,
    /// For a handler.
    Call = 1,
    /// For a handler, which is to answer.
    Request = 2,
    /// The answer to a request.
    Reply = 3,
    /// A request has no answer; the number says [why](Failure).
    Failed = 4,
    /// For the agent, which is to answer: a [question](super::space::Ask).
    Serve = 5,
}

impl Verb {
    pub(crate) const fn from_bits(bits: u64) -> Option<Verb> {
        Some(match bits {
            0 => Verb::Tagged,
            1 => Verb::Call,
            2 => Verb::Request,
            3 => Verb::Reply,
            4 => Verb::Failed,
            5 => Verb::Serve,
            _ => return None,
        })
    }

    /// True if it is to be answered.
    pub(crate) const fn is_asking(self) -> bool {
        matches!(self, Verb::Request | Verb::Serve)
    }

    /// True if it ends a request: its receiver has set a place aside for it.
    pub(crate) const fn is_answer(self) -> bool {
        matches!(self, Verb::Reply | Verb::Failed)
    }
}

/// The addressee of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub verb: Verb,
    /// The handler's number; in a failure, the reason.
    pub id: u32,
    /// The requester's number for the request; repeated in the answer.
    pub token: u32,
}

impl Label {
    pub(crate) const fn word(self) -> u64 {
        self.token as u64 | (self.verb as u64) << 32
    }

    /// The label of a short message. `None`: its verb makes no sense.
    pub(crate) const fn read(aux: u32, body: &Body) -> Option<Label> {
        match Verb::from_bits(body[0] >> 32) {
            None | Some(Verb::Tagged) => None,
            Some(verb) => Some(Label { verb, id: aux, token: body[0] as u32 }),
        }
    }

    /// The tag field of a longer message.
    pub(crate) const fn tag(self) -> u64 {
        self.id as u64 | (self.token as u64) << 32
    }

    pub(crate) const fn from_tag(verb: Verb, tag: u64) -> Label {
        Label { verb, id: tag as u32, token: (tag >> 32) as u32 }
    }
}

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Failure {
    NoHandler = 1,
    Panicked = 2,
    NoAnswer = 3,
    TooLong = 4,
}

impl Failure {
    pub(crate) const fn from_id(id: u32) -> Option<Failure> {
        Some(match id {
            1 => Failure::NoHandler,
            2 => Failure::Panicked,
            3 => Failure::NoAnswer,
            4 => Failure::TooLong,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_survive(verb in 1u64..=5, id: u32, token: u32, rest: [u64; 6]) {
            let verb = Verb::from_bits(verb).unwrap();
            let label = Label { verb, id, token };
            let mut body = [0; 7];
            body[0] = label.word();
            body[1..].copy_from_slice(&rest);
            prop_assert_eq!(Label::read(id, &body), Some(label));
            prop_assert_eq!(Label::from_tag(verb, label.tag()), label);
        }

        #[test]
        fn any_words_are_read_without_panic(aux: u32, body: [u64; 7]) {
            if let Some(label) = Label::read(aux, &body) {
                prop_assert_ne!(label.verb, Verb::Tagged);
                prop_assert_eq!(label.word(), body[0]);
            }
            prop_assert_eq!(Failure::from_id(aux).is_some(), (1..=4).contains(&aux));
        }
    }
}
