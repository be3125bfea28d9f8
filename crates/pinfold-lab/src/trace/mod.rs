//! Traces: the buffers of programs' socket and file traffic, call by call, and the translations
//! and transfers of Pinfold's endpoints.
//!
//! A trace is a stream of [`Event`]s, one for each call that moves bytes, in the order in which the
//! calls ended. `docs/trace-format.md` has the file, byte by byte.
//!
//! - [`record`]: any program's calls, by watching it. [`translations`]: what its endpoints' own
//!   translations say.
//! - [`write`], [`read`]: the binary file, in blocks of bounded size; [`varint`]: its numbers.
//! - [`text`]: the same as CSV and as lines of JSON. [`forms`]: any of the three.
//! - [`cut`]: parts of a trace. [`summary`]: its totals.
//! - [`replay`]: page references and areas, for the experiments. [`touched`]: memory and sites.

pub mod cut;
mod error;
pub mod forms;
pub mod read;
pub mod record;
pub mod replay;
pub mod summary;
#[cfg(test)]
mod tests;
pub mod text;
pub mod touched;
pub mod translations;
mod varint;
pub mod write;

use std::{fmt, str::FromStr, sync::Arc};

pub use error::TraceError;

/// The first bytes of a file.
pub const MAGIC: [u8; 8] = *b"PINTRACE";
/// The version that is written.
pub const VERSION: u16 = 2;
/// The oldest version that is read. Version 1 has the calls up to `copy_file_range`, and the kinds
/// up to `other`.
pub const VERSION_MIN: u16 = 1;
/// Bytes of a name at most: the longest path of Linux. Longer ones are cut off.
pub const NAME_MAX: usize = 4096;
/// Segments of a call at most, as the kernel has it (`UIO_MAXIOV`).
pub const SEGMENTS_MAX: usize = 1024;

/// A call that moves bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The moment when the call ended, ns since the recording began.
    pub at_ns: u64,
    /// The thread that made it.
    pub thread: Arc<Thread>,
    /// The call.
    pub call: Call,
    /// The descriptor; of calls with two, the one that bytes go to.
    pub fd: i32,
    /// The thing behind the descriptor.
    pub object: Arc<Object>,
    /// The memory that the call was given; none for calls within the kernel.
    pub segments: Vec<Segment>,
    /// Bytes that were moved, or an errno, negative.
    pub result: i64,
}

/// A piece of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The address of its first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The program's name.
    pub name: String,
}

/// The thing behind a descriptor. Two descriptors with the same `kind`, `device` and `inode` have
/// the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its device, as `stat(2)` has it.
    pub device: u64,
    /// Its inode there.
    pub inode: u64,
    /// The name that `/proc` has for it; empty if names were not wanted.
    pub name: String,
}

impl Event {
    /// Bytes that the call was to move, as far as memory of the process is concerned.
    pub fn asked(&self) -> u64 {
        self.segments.iter().fold(0u64, |sum, it| sum.saturating_add(it.bytes))
    }

    /// Bytes that were moved; none by a call that failed.
    pub fn moved(&self) -> u64 {
        u64::try_from(self.result).unwrap_or(0)
    }

    /// The parts of the segments that bytes were moved to or from, the first ones first.
    pub fn used(&self) -> impl Iterator<Item = Segment> + '_ {
        let mut left = self.moved();
        self.segments.iter().filter_map(move |it| {
            let bytes = it.bytes.min(left);
            left -= bytes;
            (bytes > 0).then_some(Segment { address: it.address, bytes })
        })
    }
}

/// Words of an enumeration, in the order of their numbers in a file.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $item:ident = $word:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $name { $($(#[$doc])* $item,)* }

        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: &[$name] = &[$($name::$item,)*];

            /// Its word.
            pub fn word(self) -> &'static str {
                match self { $($name::$item => $word,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<$name, String> {
                let found = $name::ALL.iter().find(|it| it.word() == word).copied();
                let all = || $name::ALL.iter().map(|it| it.word()).collect::<Vec<_>>().join(", ");
                found.ok_or_else(|| format!("{word} is none of {}", all()))
            }
        }
    };
}

words! {
    /// The kind of a thing behind a descriptor.
    Kind {
        /// A socket.
        Socket = "socket",
        /// A pipe, with or without a name.
        Pipe = "pipe",
        /// A file.
        File = "file",
        /// A device, a terminal among them.
        Device = "device",
        /// Anything else: an eventfd, a timer, a folder; or it could not be known.
        Other = "other",
        /// An endpoint of Pinfold's: the one that translates, or the peer of a transfer.
        Endpoint = "endpoint",
    }
}

words! {
    /// A call of the kernel's that moves bytes.
    Call {
        /// `read(2)`.
        Read = "read",
        /// `write(2)`.
        Write = "write",
        /// `pread64(2)`.
        Pread = "pread64",
        /// `pwrite64(2)`.
        Pwrite = "pwrite64",
        /// `readv(2)`.
        Readv = "readv",
        /// `writev(2)`.
        Writev = "writev",
        /// `preadv(2)`.
        Preadv = "preadv",
        /// `pwritev(2)`.
        Pwritev = "pwritev",
        /// `preadv2(2)`.
        Preadv2 = "preadv2",
        /// `pwritev2(2)`.
        Pwritev2 = "pwritev2",
        /// `recvfrom(2)`, which `recv` is.
        Recvfrom = "recvfrom",
        /// `sendto(2)`, which `send` is.
        Sendto = "sendto",
        /// `recvmsg(2)`.
        Recvmsg = "recvmsg",
        /// `sendmsg(2)`.
        Sendmsg = "sendmsg",
        /// A message of `recvmmsg(2)`.
        Recvmmsg = "recvmmsg",
        /// A message of `sendmmsg(2)`.
        Sendmmsg = "sendmmsg",
        /// `vmsplice(2)`.
        Vmsplice = "vmsplice",
        /// `sendfile(2)`: within the kernel.
        Sendfile = "sendfile",
        /// `splice(2)`: within the kernel.
        Splice = "splice",
        /// `tee(2)`: within the kernel.
        Tee = "tee",
        /// `copy_file_range(2)`: within the kernel.
        CopyFileRange = "copy_file_range",
        /// A translation that an endpoint's TLB had.
        TlbHit = "tlb_hit",
        /// A translation that its pin-down cache had.
        PinHit = "pin_hit",
        /// A translation whose memory was pinned for it.
        PinMiss = "pin_miss",
        /// A one-sided write into a peer's memory.
        Put = "put",
        /// A one-sided read of a peer's memory.
        Get = "get",
        /// A small active message to a peer.
        Message = "message",
    }
}

/// The direction of a call's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Into the process's memory.
    In,
    /// Out of it.
    Out,
    /// From one descriptor to another.
    Within,
}

impl Kind {
    /// Returns whether files of a version have it.
    pub fn is_of(self, version: u16) -> bool {
        version > 1 || self <= Kind::Other
    }
}

impl Call {
    /// Returns whether files of a version have it.
    pub fn is_of(self, version: u16) -> bool {
        version > 1 || self <= Call::CopyFileRange
    }

    /// The direction of its bytes.
    pub fn way(self) -> Way {
        match self {
            Call::Read | Call::Pread | Call::Readv | Call::Preadv | Call::Preadv2 => Way::In,
            Call::Recvfrom | Call::Recvmsg | Call::Recvmmsg => Way::In,
            Call::Write | Call::Pwrite | Call::Writev | Call::Pwritev | Call::Pwritev2 => Way::Out,
            Call::Sendto | Call::Sendmsg | Call::Sendmmsg | Call::Vmsplice => Way::Out,
            Call::TlbHit | Call::PinHit | Call::PinMiss => Way::Out,
            Call::Put | Call::Message => Way::Out,
            Call::Get => Way::In,
            Call::Sendfile | Call::Splice | Call::Tee | Call::CopyFileRange => Way::Within,
        }
    }
}
