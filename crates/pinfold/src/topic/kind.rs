//! `Kind`: the samples that a side expects, to be compared with the other's.

use std::fmt;

use super::payload::{Payload, Shape};
use crate::{Error, Result};

/// Bytes of the longest name of a schema.
pub(super) const SCHEMA_MAX: usize = 64;

/// The layout of samples, and the name of their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub shape: Shape,
    /// At most [`SCHEMA_MAX`] bytes.
    pub schema: String,
}

/// The reason why a side is refused by the other.
#[derive(Clone, Debug)]
pub(super) enum Refused {
    /// The other has samples of this kind.
    OtherType(Kind),
    /// A publisher has all subscribers that it may have.
    Full,
}

impl Kind {
    /// # Errors
    /// [`Error::LimitReached`] if the name of the schema is too long.
    pub(super) fn of<T: Payload + ?Sized>(schema: &str) -> Result<Kind> {
        if schema.len() > SCHEMA_MAX {
            return Err(Error::LimitReached {
                what: "the name of a schema, in bytes,",
                limit: SCHEMA_MAX as u64,
                remedy: "take a shorter one",
            });
        }
        Ok(Kind { shape: T::SHAPE, schema: schema.to_owned() })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { shape: Shape { bytes, align, is_slice }, schema } = self;
        let slices = if *is_slice { "slices of " } else { "" };
        write!(f, "{slices}{bytes} bytes aligned to {align}")?;
        if !schema.is_empty() {
            write!(f, ", schema {schema:?}")?;
        }
        Ok(())
    }
}

impl Refused {
    /// The error of the side that is refused.
    pub(super) fn error(self, topic: &str, ours: &Kind) -> Error {
        match self {
            Refused::OtherType(theirs) => Error::OtherType {
                topic: topic.to_owned(),
                ours: ours.to_string(),
                theirs: theirs.to_string(),
            },
            Refused::Full => Error::LimitReached {
                what: "the number of a publisher's subscribers",
                limit: super::address::PLACES.into(),
                remedy: "drop some, or raise PublisherBuilder::subscribers_max",
            },
        }
    }
}
