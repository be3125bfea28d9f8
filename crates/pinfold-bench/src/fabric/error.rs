//! Reasons why libfabric cannot be had, and its refusals.

use std::{fmt, io, net::Ipv4Addr};

/// The reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// There is no such library, or not one that can be loaded.
    Missing {
        /// Its name.
        name: String,
        /// The loader's message.
        why: String,
    },
    /// It is older than 1.9.
    Old {
        /// Its major version and its minor.
        version: (u32, u32),
    },
    /// None of its providers sends over TCP from there.
    NoProvider {
        /// The address of this side.
        at: Ipv4Addr,
    },
    /// A call failed.
    Refused {
        /// The call that failed.
        call: &'static str,
        /// The errno, or a number of libfabric's own above 255.
        number: i32,
        /// Libfabric's text for that number.
        why: String,
    },
    /// Messages were shorter than the memory for them.
    Short {
        /// Bytes that came.
        came: u64,
        /// Bytes that there was memory for.
        wanted: u64,
    },
    /// An earlier transfer failed, and nothing can come after it.
    Broken,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing { name, why } => write!(
                f,
                "{name} is not installed, or cannot be loaded (it is in the package libfabric1): {why}"
            ),
            Error::Old { version: (major, minor) } => {
                write!(f, "libfabric {major}.{minor} is too old: 1.9 or newer is needed")
            }
            Error::NoProvider { at } => write!(
                f,
                "libfabric has no provider for tagged messages over TCP at {at}; `fi_info -t FI_EP_RDM` \
                 shows what it has, which FI_PROVIDER may restrict"
            ),
            Error::Refused { call, why, number } => {
                write!(f, "{call}: {why} ({number})")
            }
            Error::Short { came, wanted } => {
                write!(f, "messages of {came} bytes came, not of {wanted}")
            }
            Error::Broken => f.write_str("a transfer failed before: make a new endpoint"),
        }
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::other(error)
    }
}
