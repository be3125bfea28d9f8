//! The level of the translation stack that answered.

use std::fmt;

/// The level of the translation stack that answered a transfer: the first that knew its memory.
/// Later ones cost more: some ns, tens of ns, and microseconds to pin; a look whether the memory is
/// still the same comes on top.
///
/// ```
/// use pinfold::TranslationLevel;
///
/// assert!(TranslationLevel::Tlb < TranslationLevel::Pinned);
/// assert_eq!(TranslationLevel::PinCache.to_string(), "pin-cache");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TranslationLevel {
    /// The TLB: the page was asked for a moment ago (Welsh, Basu, von Eicken, *Incorporating Memory
    /// Management into User-Level Network Interfaces*).
    Tlb,
    /// The pin-down cache: an area that is still pinned has all of the memory (Tezuka, O'Carroll,
    /// Hori, Ishikawa, *Pin-down Cache*).
    PinCache,
    /// Neither: the memory was pinned for this transfer.
    Pinned,
}

impl TranslationLevel {
    /// The name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            TranslationLevel::Tlb => "tlb",
            TranslationLevel::PinCache => "pin-cache",
            TranslationLevel::Pinned => "pinned",
        }
    }
}

impl fmt::Display for TranslationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
