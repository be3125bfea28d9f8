//! The translations of this process's endpoints, told to a sink as they are made. Without one, a
//! translation costs one load more.

use std::sync::OnceLock;

use super::TranslationLevel;

/// The first bytes of a translation that is sent to another process: a name and a version.
const MAGIC: u64 = u64::from_le_bytes(*b"PINTRAN1");

/// A translation of an endpoint, for a part of a message that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translated {
    /// The process.
    pub pid: u32,
    /// The endpoint: its number among those of the process that keep memory pinned, from 1 on.
    pub endpoint: u64,
    /// The address of the first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// The level that had the memory.
    pub level: TranslationLevel,
}

impl Translated {
    /// Bytes of one that is sent to another process.
    pub const BYTES: usize = 48;

    /// As bytes.
    pub fn to_bytes(self) -> [u8; Translated::BYTES] {
        let Translated { pid, endpoint, address, bytes, level } = self;
        let words = [MAGIC, pid.into(), endpoint, address, bytes, level as u64];
        let mut all = [0; Translated::BYTES];
        for (out, word) in all.chunks_exact_mut(8).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
        all
    }

    /// The translation that these bytes are of; `None` if they are of none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Translated> {
        let bytes: &[u8; Translated::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|b| bytes[8 * at + b]));
        let levels = [TranslationLevel::Tlb, TranslationLevel::PinCache, TranslationLevel::Pinned];
        let level = *levels.get(usize::try_from(word(5)).ok()?)?;
        (word(0) == MAGIC).then_some(())?;
        let pid = u32::try_from(word(1)).ok()?;
        Some(Translated { pid, endpoint: word(2), address: word(3), bytes: word(4), level })
    }
}

type Sink = Box<dyn Fn(&Translated) + Send + Sync>;

static SINK: OnceLock<Sink> = OnceLock::new();

/// Hands every translation of this process's endpoints, from now on, to `sink`, which is called
/// while other sends of the endpoint wait. Returns whether it is the first: another one is dropped.
pub fn hand_translations_to(sink: impl Fn(&Translated) + Send + Sync + 'static) -> bool {
    SINK.set(Box::new(sink)).is_ok()
}

/// Tells the sink of a translation, if there is one.
#[inline]
pub(crate) fn tell(endpoint: u64, address: u64, bytes: u64, level: TranslationLevel) {
    if let Some(sink) = SINK.get() {
        let pid = std::process::id();
        sink(&Translated { pid, endpoint, address, bytes, level });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translations_come_back_and_other_bytes_are_none() {
        for level in [TranslationLevel::Tlb, TranslationLevel::PinCache, TranslationLevel::Pinned] {
            let one = Translated { pid: 7, endpoint: 1, address: u64::MAX, bytes: 4096, level };
            let bytes = one.to_bytes();
            assert_eq!(Translated::from_bytes(&bytes), Some(one));
            assert_eq!(Translated::from_bytes(&bytes[1..]), None);
            for (at, byte) in [(0, b'X'), (7, b'2'), (13, 1), (40, 3)] {
                let mut other = bytes;
                other[at] = byte;
                assert_eq!(Translated::from_bytes(&other), None, "byte {at}");
            }
        }
    }
}
