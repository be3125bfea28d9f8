//! What the two sides say to each other: records, and the tags they travel under.
//!
//! ```text
//! sender                                            receiver
//!   Hello (versions, files or a stream, totals) --->
//!                                              <--- Ready (version)
//!   File | Stream, blocks, End (length, digest) --->   for each file, or once
//!   Finish (totals) ------------------------------->
//!                                              <--- Done (totals): all of it is there, verified
//!   Bye ------------------------------------------->
//! ```
//!
//! Either side may send `Abort` at any time instead; the other answers `Bye`. Records and blocks
//! of the sender share one order: they are received by one mask. A block is the bare contents,
//! so that it can go straight from and into the buffers that are read and written.
//!
//! A record is one byte of kind, a fixed part, and for some a variable part to the end. All
//! numbers are little-endian. Decoding checks everything; nothing in a record is trusted.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{I64, U16, U32, U64},
};

use super::{
    digest::Digest,
    name::{BadName, RelativeName},
};

/// The version of these records.
pub(super) const VERSION: u16 = 1;

/// Bytes in a block at most.
pub(super) const BLOCK_BYTES: usize = 1 << 20;

/// The longest record, bytes.
pub(super) const RECORD_BYTES_MAX: usize = 8192;

/// The longest text in an `Abort`, bytes; longer texts are cut.
const TEXT_BYTES_MAX: usize = 2048;

/// `Hello` starts with it, so that a program that speaks something else is told apart.
const MAGIC: [u8; 4] = *b"pfXF";

/// The tags of a transfer.
pub(super) mod tag {
    const BASE: u64 = u64::from_be_bytes(*b"pfxfer\0\0");
    /// Sender to receiver: a record of the flow. Only the lowest bit differs from [`BLOCK`].
    pub(in super::super) const RECORD: u64 = BASE;
    /// Sender to receiver: a block of contents.
    pub(in super::super) const BLOCK: u64 = BASE | 1;
    /// Sender to receiver: `Hello`.
    pub(in super::super) const HELLO: u64 = BASE | 2;
    /// Receiver to sender: `Ready` and `Done`.
    pub(in super::super) const REPLY: u64 = BASE | 4;
    /// Both ways: `Abort` and `Bye`, which overtake what waits in the flow.
    pub(in super::super) const LAST: u64 = BASE | 6;
}

/// What a sender has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Files with names.
    Files,
    /// One stream without a name or a known length.
    Stream,
}

/// The first record of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The oldest version the sender speaks.
    pub(super) version_min: u16,
    /// The newest version the sender speaks.
    pub(super) version_max: u16,
    /// What is coming.
    pub(super) content: Content,
    /// How many files and bytes are coming, as far as known; zero for a stream.
    pub(super) expected: Totals,
}

/// A file that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileOffer {
    /// Its name below the receiver's directory.
    pub(super) name: RelativeName,
    /// Its length, bytes. Exactly so many follow.
    pub(super) size: u64,
    /// Its permission bits, at most `0o777`.
    pub(super) mode: u32,
    /// When it was last modified: seconds since 1970, and nanoseconds below a second.
    pub(super) modified: (i64, u32),
}

/// How much a transfer moves, or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Files; a stream counts as none.
    pub(super) files: u64,
    /// Bytes of contents.
    pub(super) bytes: u64,
}

/// Why a side gives up, for the exit status of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Anything but the others.
    Other,
    /// The contents did not arrive as they were sent.
    Integrity,
    /// The receiver takes no transfer from this sender now.
    Refused,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The sender introduces itself.
    Hello(Hello),
    /// The receiver is ready.
    Ready {
        /// The version both speak from here on.
        version: u16,
    },
    /// A file follows.
    File(FileOffer),
    /// The stream follows.
    Stream,
    /// The file or stream is complete.
    End {
        /// Its length, bytes.
        bytes: u64,
        /// The digest of what the sender read.
        digest: Digest,
    },
    /// Everything was sent.
    Finish(Totals),
    /// Everything is written and verified.
    Done(Totals),
    /// The side that sends it gives up.
    Abort {
        /// The kind of failure.
        cause: Cause,
        /// The reason, for a person. Printed escaped.
        text: String,
    },
    /// The answer to `Done` and `Abort`: the side that sends it leaves.
    Bye,
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRecord {
    /// The kind byte is unknown, or there is none.
    #[error("unknown kind of record")]
    Kind,
    /// The record is too short or too long for its kind.
    #[error("a record of the wrong length")]
    Length,
    /// A field has a value it cannot have.
    #[error("a record with an impossible {0}")]
    Value(&'static str),
    /// The name of a file is not acceptable.
    #[error("a file name that is not acceptable: {0}")]
    Name(#[from] BadName),
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HelloWire {
    magic: [u8; 4],
    version_min: U16,
    version_max: U16,
    content: u8,
    expected: TotalsWire,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ReadyWire {
    version: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct FileWire {
    size: U64,
    mode: U32,
    modified_seconds: I64,
    modified_nanoseconds: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EndWire {
    bytes: U64,
    digest: [u8; 32],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TotalsWire {
    files: U64,
    bytes: U64,
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const READY: u8 = 2;
    pub(super) const FILE: u8 = 3;
    pub(super) const STREAM: u8 = 4;
    pub(super) const END: u8 = 5;
    pub(super) const FINISH: u8 = 6;
    pub(super) const DONE: u8 = 7;
    pub(super) const ABORT: u8 = 8;
    pub(super) const BYE: u8 = 9;
}

impl Record {
    /// The bytes of the record, at most [`RECORD_BYTES_MAX`].
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Record::Hello(hello) => {
                let content = match hello.content {
                    Content::Files => 0,
                    Content::Stream => 1,
                };
                let wire = HelloWire {
                    magic: MAGIC,
                    version_min: hello.version_min.into(),
                    version_max: hello.version_max.into(),
                    content,
                    expected: hello.expected.into(),
                };
                assemble(kind::HELLO, &wire, &[])
            }
            Record::Ready { version } => {
                assemble(kind::READY, &ReadyWire { version: (*version).into() }, &[])
            }
            Record::File(offer) => {
                let wire = FileWire {
                    size: offer.size.into(),
                    mode: offer.mode.into(),
                    modified_seconds: offer.modified.0.into(),
                    modified_nanoseconds: offer.modified.1.into(),
                };
                assemble(kind::FILE, &wire, offer.name.as_bytes())
            }
            Record::Stream => vec![kind::STREAM],
            Record::End { bytes, digest } => {
                assemble(kind::END, &EndWire { bytes: (*bytes).into(), digest: digest.0 }, &[])
            }
            Record::Finish(totals) => assemble(kind::FINISH, &TotalsWire::from(*totals), &[]),
            Record::Done(totals) => assemble(kind::DONE, &TotalsWire::from(*totals), &[]),
            Record::Abort { cause, text } => {
                let cause = match cause {
                    Cause::Other => 0u8,
                    Cause::Integrity => 1,
                    Cause::Refused => 2,
                };
                assemble(kind::ABORT, &cause, cut(text).as_bytes())
            }
            Record::Bye => vec![kind::BYE],
        }
    }

    /// Reads a record, checking all of it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Record, BadRecord> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(BadRecord::Length);
        }
        let (&kind, body) = bytes.split_first().ok_or(BadRecord::Kind)?;
        Ok(match kind {
            kind::HELLO => decode_hello(fixed(body)?)?,
            kind::READY => {
                let wire: ReadyWire = fixed(body)?;
                Record::Ready { version: wire.version.get() }
            }
            kind::FILE => decode_file(body)?,
            kind::STREAM => {
                let () = fixed(body)?;
                Record::Stream
            }
            kind::END => {
                let wire: EndWire = fixed(body)?;
                Record::End { bytes: wire.bytes.get(), digest: Digest(wire.digest) }
            }
            kind::FINISH => Record::Finish(fixed::<TotalsWire>(body)?.into()),
            kind::DONE => Record::Done(fixed::<TotalsWire>(body)?.into()),
            kind::ABORT => {
                let (&cause, text) = body.split_first().ok_or(BadRecord::Length)?;
                let cause = match cause {
                    1 => Cause::Integrity,
                    2 => Cause::Refused,
                    _ => Cause::Other,
                };
                let text = cut(&String::from_utf8_lossy(text)).to_owned();
                Record::Abort { cause, text }
            }
            kind::BYE => {
                let () = fixed(body)?;
                Record::Bye
            }
            _ => return Err(BadRecord::Kind),
        })
    }

    /// What to call the record in a message.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Record::Hello(_) => "hello",
            Record::Ready { .. } => "ready",
            Record::File(_) => "file",
            Record::Stream => "stream",
            Record::End { .. } => "end",
            Record::Finish(_) => "finish",
            Record::Done(_) => "done",
            Record::Abort { .. } => "abort",
            Record::Bye => "bye",
        }
    }
}

fn decode_hello(wire: HelloWire) -> Result<Record, BadRecord> {
    if wire.magic != MAGIC {
        return Err(BadRecord::Value("signature"));
    }
    if wire.version_min > wire.version_max {
        return Err(BadRecord::Value("range of versions"));
    }
    let content = match wire.content {
        0 => Content::Files,
        1 => Content::Stream,
        _ => return Err(BadRecord::Value("kind of content")),
    };
    Ok(Record::Hello(Hello {
        version_min: wire.version_min.get(),
        version_max: wire.version_max.get(),
        content,
        expected: wire.expected.into(),
    }))
}

fn decode_file(body: &[u8]) -> Result<Record, BadRecord> {
    let (wire, name) = FileWire::read_from_prefix(body).map_err(|_| BadRecord::Length)?;
    let mode = wire.mode.get();
    if mode & !0o777 != 0 {
        return Err(BadRecord::Value("mode"));
    }
    // The kernel takes file offsets as i64.
    let size = wire.size.get();
    if size > i64::MAX as u64 {
        return Err(BadRecord::Value("size"));
    }
    let modified = (wire.modified_seconds.get(), wire.modified_nanoseconds.get());
    if modified.1 >= 1_000_000_000 {
        return Err(BadRecord::Value("time"));
    }
    Ok(Record::File(FileOffer { name: RelativeName::new(name)?, size, mode, modified }))
}

/// A record of `kind` from its fixed and its variable part.
fn assemble(kind: u8, part: &(impl IntoBytes + Immutable), rest: &[u8]) -> Vec<u8> {
    [&[kind], part.as_bytes(), rest].concat()
}

/// The fixed part of a record that has no other.
fn fixed<T: FromBytes>(body: &[u8]) -> Result<T, BadRecord> {
    T::read_from_bytes(body).map_err(|_| BadRecord::Length)
}

/// The first [`TEXT_BYTES_MAX`] bytes of `text`, or a little less to keep characters whole.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl From<Totals> for TotalsWire {
    fn from(totals: Totals) -> TotalsWire {
        TotalsWire { files: totals.files.into(), bytes: totals.bytes.into() }
    }
}

impl From<TotalsWire> for Totals {
    fn from(wire: TotalsWire) -> Totals {
        Totals { files: wire.files.get(), bytes: wire.bytes.get() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_totals() -> impl Strategy<Value = Totals> {
        any::<(u64, u64)>().prop_map(|(files, bytes)| Totals { files, bytes })
    }

    fn any_record() -> impl Strategy<Value = Record> {
        let hello = (any::<u16>(), any::<u16>(), any::<bool>(), any_totals()).prop_map(
            |(a, b, stream, expected)| {
                Record::Hello(Hello {
                    version_min: a.min(b),
                    version_max: a.max(b),
                    content: if stream { Content::Stream } else { Content::Files },
                    expected,
                })
            },
        );
        let file = (
            "[a-zé \n]{1,80}(/[a-z.]{3,9}x){0,5}",
            0..=i64::MAX as u64,
            0..=0o777u32,
            any::<i64>(),
            0..1_000_000_000u32,
        )
            .prop_map(|(name, size, mode, seconds, nanoseconds)| {
                let name = RelativeName::new(name.as_bytes()).unwrap();
                Record::File(FileOffer { name, size, mode, modified: (seconds, nanoseconds) })
            });
        prop_oneof![
            hello,
            file,
            any::<u16>().prop_map(|version| Record::Ready { version }),
            Just(Record::Stream),
            (any::<u64>(), any::<[u8; 32]>())
                .prop_map(|(bytes, digest)| Record::End { bytes, digest: Digest(digest) }),
            any_totals().prop_map(Record::Finish),
            any_totals().prop_map(Record::Done),
            (0..3usize, ".{0,100}").prop_map(|(cause, text)| Record::Abort {
                cause: [Cause::Other, Cause::Integrity, Cause::Refused][cause],
                text,
            }),
            Just(Record::Bye),
        ]
    }

    proptest! {
        #[test]
        fn records_come_back(record in any_record()) {
            let bytes = record.encode();
            prop_assert!(bytes.len() <= RECORD_BYTES_MAX);
            prop_assert_eq!(Record::decode(&bytes), Ok(record));
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(record) = Record::decode(&bytes) {
                prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
            }
        }

        #[test]
        fn a_damaged_record_is_decoded_or_refused(
            record in any_record(), at in any::<prop::sample::Index>(), with in any::<u8>(),
            length in 0usize..300,
        ) {
            let mut bytes = record.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= with;
            bytes.resize(length, 0);
            if let Ok(record) = Record::decode(&bytes) {
                prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
            }
        }
    }

    #[test]
    fn impossible_values_are_refused() {
        let file = |mode: u32, size: u64, nanoseconds: u32, name: &[u8]| {
            let wire = FileWire {
                size: size.into(),
                mode: mode.into(),
                modified_seconds: 0.into(),
                modified_nanoseconds: nanoseconds.into(),
            };
            Record::decode(&assemble(kind::FILE, &wire, name))
        };
        assert!(file(0o777, 0, 0, b"a").is_ok());
        assert_eq!(file(0o4755, 0, 0, b"a"), Err(BadRecord::Value("mode")));
        assert_eq!(file(0, 1 << 63, 0, b"a"), Err(BadRecord::Value("size")));
        assert_eq!(file(0, 0, 1_000_000_000, b"a"), Err(BadRecord::Value("time")));
        assert_eq!(file(0, 0, 0, b"../a"), Err(BadRecord::Name(BadName::Parent)));
        assert_eq!(Record::decode(&[]), Err(BadRecord::Kind));
        assert_eq!(Record::decode(&[0]), Err(BadRecord::Kind));
        assert_eq!(Record::decode(&[kind::BYE, 0]), Err(BadRecord::Length));
        assert_eq!(Record::decode(&[kind::END; 5000][..40]), Err(BadRecord::Length));
        assert_eq!(
            Record::decode(&vec![kind::ABORT; RECORD_BYTES_MAX + 1]),
            Err(BadRecord::Length)
        );
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let record = Record::Abort { cause: Cause::Other, text: "é".repeat(3000) };
        let Ok(Record::Abort { text, .. }) = Record::decode(&record.encode()) else { panic!() };
        assert_eq!(text, "é".repeat(1024));
    }
}
