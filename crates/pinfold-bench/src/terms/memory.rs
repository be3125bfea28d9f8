//! The memory of messages.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The kind of memory that messages are sent from and received into.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Memory {
    /// Ordinary memory, which no other process can map
    Heap,
    /// Memory that the other process can map
    Arena,
}

impl Memory {
    /// Both, ordinary memory first.
    pub(crate) const ALL: [Memory; 2] = [Memory::Heap, Memory::Arena];

    /// The name that options, tables and records use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Memory::Heap => "heap",
            Memory::Arena => "arena",
        }
    }
}
