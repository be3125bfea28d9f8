//! The protocol between the two sides: records, and the tags they travel under.
//!
//! ```text
//! sender                                            receiver
//!   Hello (versions, files or a stream, totals) --->
//!                                              <--- Ready (version)
//!   Directory --------------------------------------->   before what lies in it
//!   File | Stream, blocks and Holes, End (length, digest) --->   for each file, or once
//!   Finish (totals) ------------------------------->
//!                                              <--- Done (totals): all of it is there, verified
//!   Bye ------------------------------------------->
//! ```
//!
//! Either side may send `Abort` at any time instead; the other answers `Bye`. Records and blocks
//! of the sender share one order: they are received by one mask. A block is the bare contents,
//! so that it can go straight from and into the buffers that are read and written.
//!
//! `Hello` stays as it is in all versions, so that two sides of different ones can say so.
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
pub(crate) const VERSION: u16 = 3;

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

/// The kind of contents that a sender has.
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
    /// The contents that are coming.
    pub(super) content: Content,
    /// The number of files and bytes that are coming, as far as known; zero for a stream.
    pub(super) expected: Totals,
}

/// A file that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileOffer {
    /// Its name below the receiver's directory.
    pub(super) name: RelativeName,
    /// Its length, bytes, holes included. Exactly so many follow. `None` if it is not known before
    /// the end.
    pub(super) size: Option<u64>,
    /// Its permission bits and its time.
    pub(super) attributes: Attributes,
}

/// A directory, in which some of the next entries may lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectoryOffer {
    /// Its name below the receiver's directory.
    pub(super) name: RelativeName,
    /// Its permission bits and its time.
    pub(super) attributes: Attributes,
}

/// The attributes of a file or a directory beside its name and its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Permission bits, at most `0o777`.
    pub(super) mode: u32,
    /// The time of the last modification: seconds since 1970, and nanoseconds below a second.
    pub(super) modified: (i64, u32),
}

/// The amount that a transfer moves, or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Files; a stream counts as none.
    pub(super) files: u64,
    /// Directories. Not told in a `Hello`.
    pub(super) directories: u64,
    /// Bytes of contents, holes included.
    pub(super) bytes: u64,
}

/// The reason why a side gives up, for the exit status of the other.
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
    /// A directory is there.
    Directory(DirectoryOffer),
    /// The stream follows.
    Stream,
    /// The next bytes of the file are a hole.
    Hole {
        /// The length of the hole, at least 1.
        bytes: u64,
    },
    /// The file or stream is complete.
    End {
        /// Its length, bytes.
        bytes: u64,
        /// The digest of the contents that the sender read.
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

/// The reason why bytes are no record.
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
    expected: ExpectedWire,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ExpectedWire {
    files: U64,
    bytes: U64,
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
    attributes: AttributesWire,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct AttributesWire {
    mode: U32,
    modified_seconds: I64,
    modified_nanoseconds: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct EndWire {
    bytes: U64,
    digest: [u8; 16],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct TotalsWire {
    files: U64,
    directories: U64,
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
    pub(super) const DIRECTORY: u8 = 10;
    pub(super) const HOLE: u8 = 11;
}

/// Stands for a size that is not known before the end.
const SIZE_UNKNOWN: u64 = u64::MAX;

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
                    expected: ExpectedWire {
                        files: hello.expected.files.into(),
                        bytes: hello.expected.bytes.into(),
                    },
                };
                assemble(kind::HELLO, &wire, &[])
            }
            Record::Ready { version } => {
                assemble(kind::READY, &ReadyWire { version: (*version).into() }, &[])
            }
            Record::File(offer) => {
                let wire = FileWire {
                    size: offer.size.unwrap_or(SIZE_UNKNOWN).into(),
                    attributes: offer.attributes.into(),
                };
                assemble(kind::FILE, &wire, offer.name.as_bytes())
            }
            Record::Directory(offer) => {
                let wire = AttributesWire::from(offer.attributes);
                assemble(kind::DIRECTORY, &wire, offer.name.as_bytes())
            }
            Record::Stream => vec![kind::STREAM],
            Record::Hole { bytes } => assemble(kind::HOLE, &U64::from(*bytes), &[]),
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
            kind::DIRECTORY => decode_directory(body)?,
            kind::STREAM => {
                let () = fixed(body)?;
                Record::Stream
            }
            kind::HOLE => match fixed::<U64>(body)?.get() {
                0 => return Err(BadRecord::Value("size of a hole")),
                bytes => Record::Hole { bytes },
            },
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

    /// The record's name in a message.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Record::Hello(_) => "hello",
            Record::Ready { .. } => "ready",
            Record::File(_) => "file",
            Record::Directory(_) => "directory",
            Record::Stream => "stream",
            Record::Hole { .. } => "hole",
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
        expected: Totals {
            files: wire.expected.files.get(),
            directories: 0,
            bytes: wire.expected.bytes.get(),
        },
    }))
}

fn decode_file(body: &[u8]) -> Result<Record, BadRecord> {
    let (wire, name) = FileWire::read_from_prefix(body).map_err(|_| BadRecord::Length)?;
    // The kernel takes file offsets as i64.
    let size = match wire.size.get() {
        SIZE_UNKNOWN => None,
        size if size > i64::MAX as u64 => return Err(BadRecord::Value("size")),
        size => Some(size),
    };
    let attributes = wire.attributes.checked()?;
    Ok(Record::File(FileOffer { name: RelativeName::new(name)?, size, attributes }))
}

fn decode_directory(body: &[u8]) -> Result<Record, BadRecord> {
    let (wire, name) = AttributesWire::read_from_prefix(body).map_err(|_| BadRecord::Length)?;
    let attributes = wire.checked()?;
    Ok(Record::Directory(DirectoryOffer { name: RelativeName::new(name)?, attributes }))
}

impl AttributesWire {
    fn checked(&self) -> Result<Attributes, BadRecord> {
        let mode = self.mode.get();
        if mode & !0o777 != 0 {
            return Err(BadRecord::Value("mode"));
        }
        let modified = (self.modified_seconds.get(), self.modified_nanoseconds.get());
        if modified.1 >= 1_000_000_000 {
            return Err(BadRecord::Value("time"));
        }
        Ok(Attributes { mode, modified })
    }
}

impl From<Attributes> for AttributesWire {
    fn from(attributes: Attributes) -> AttributesWire {
        AttributesWire {
            mode: attributes.mode.into(),
            modified_seconds: attributes.modified.0.into(),
            modified_nanoseconds: attributes.modified.1.into(),
        }
    }
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
        TotalsWire {
            files: totals.files.into(),
            directories: totals.directories.into(),
            bytes: totals.bytes.into(),
        }
    }
}

impl From<TotalsWire> for Totals {
    fn from(wire: TotalsWire) -> Totals {
        Totals {
            files: wire.files.get(),
            directories: wire.directories.get(),
            bytes: wire.bytes.get(),
        }
    }
}

#[cfg(test)]
mod tests;
