//! Errors of the lab.

use std::{io, path::PathBuf};

/// The reason why the lab could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// No experiment has this name.
    #[error("there is no experiment {0}; pinfold lab list has all of them")]
    Unknown(String),
    /// An experiment could not be run to its end.
    #[error("{id}: {why}")]
    Failed {
        /// The experiment.
        id: &'static str,
        /// The reason, and a remedy if there is one.
        why: String,
    },
    /// A file could not be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// "read", "write" or "make".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file holds no result that this version understands.
    #[error("{} is no result of pinfold lab: {why}; remove it and run again", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// There are no results where some were to be.
    #[error("{0} has no results; make some with pinfold lab run --out {0}", path.display())]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
}
