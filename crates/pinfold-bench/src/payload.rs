//! The memory messages are sent from and received into: memory of this process, made beforehand,
//! page-aligned, written once so that no page is missing.

use pinfold::{Arena, ArenaBuf};

use super::{
    exposed::Exposed,
    fail::{Fail, Result},
    terms::Memory,
    units, verify,
};

/// Alignment of the first message, bytes.
const PAGE: usize = 4096;

/// `count` messages of `size` bytes, used in turn.
pub(crate) struct Messages {
    bytes: Bytes,
    /// The messages of another kind that were used before.
    kept: Option<Bytes>,
    start: usize,
    size: usize,
    stride: usize,
    mask: usize,
}

/// Memory of one kind.
enum Bytes {
    Heap(Vec<u8>),
    Arena(Option<(Arena, ArenaBuf)>),
    Exposed(Exposed),
}

impl Bytes {
    fn none(memory: Memory) -> Bytes {
        match memory {
            Memory::Heap => Bytes::Heap(Vec::new()),
            Memory::Arena => Bytes::Arena(None),
        }
    }

    /// Returns whether it will do where `memory` is asked for.
    fn is(&self, memory: Memory) -> bool {
        match self {
            Bytes::Heap(_) => memory == Memory::Heap,
            Bytes::Arena(_) => memory == Memory::Arena,
            Bytes::Exposed(_) => true,
        }
    }

    #[inline]
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Heap(bytes) => bytes,
            Bytes::Arena(Some((_, bytes))) => bytes,
            Bytes::Arena(None) => &[],
            Bytes::Exposed(bytes) => bytes,
        }
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [u8] {
        match self {
            Bytes::Heap(bytes) => bytes,
            Bytes::Arena(Some((_, bytes))) => bytes,
            Bytes::Arena(None) => &mut [],
            Bytes::Exposed(bytes) => bytes,
        }
    }

    /// Makes it `len` bytes at least. Its contents may be lost.
    fn grow(&mut self, len: usize) -> Result<(), String> {
        match self {
            Bytes::Heap(bytes) => {
                // The old memory is given back first.
                *bytes = Vec::new();
                bytes.try_reserve_exact(len).map_err(|why| why.to_string())?;
                bytes.resize(len, 0xA5);
            }
            Bytes::Arena(bytes) => {
                let arena = bytes.take().map_or_else(Arena::new, |(arena, _)| Ok(arena));
                let make = |arena: Arena| {
                    let mut bytes = arena.alloc_aligned(len, PAGE)?;
                    bytes.fill(0xA5);
                    Ok((arena, bytes))
                };
                let made = arena.and_then(make).map_err(|why: pinfold::Error| {
                    crate::console::words::Words(&why).to_string()
                })?;
                *bytes = Some(made);
            }
            Bytes::Exposed(bytes) => bytes.grow(len).map_err(|why| why.to_string())?,
        }
        Ok(())
    }
}

impl Messages {
    /// No memory yet.
    pub(crate) fn new() -> Messages {
        Messages::of(Bytes::none(Memory::Heap))
    }

    /// Messages in `exposed`; they stay there, also if other memory is asked for.
    pub(crate) fn over(exposed: Exposed) -> Messages {
        Messages::of(Bytes::Exposed(exposed))
    }

    fn of(bytes: Bytes) -> Messages {
        Messages { bytes, kept: None, start: 0, size: 0, stride: 0, mask: 0 }
    }

    /// Makes room for `count` messages (a power of two) of `size` bytes in memory of this kind.
    /// Existing memory is used again.
    ///
    /// # Errors
    /// There is not that much memory.
    pub(crate) fn shape(&mut self, size: usize, count: usize, memory: Memory) -> Result<()> {
        assert!(count.is_power_of_two());
        self.stride = size.next_multiple_of(64);
        self.size = size;
        self.mask = count - 1;
        if !self.bytes.is(memory) {
            let other = self.kept.take().unwrap_or_else(|| Bytes::none(memory));
            self.kept = Some(std::mem::replace(&mut self.bytes, other));
        }
        let needed = self.stride * count + PAGE;
        if self.bytes.all().len() < needed {
            self.bytes.grow(needed).map_err(|why| {
                let size = units::bytes(size);
                Fail::Said(format!(
                    "there is no memory for messages of {size} ({why}); ask for smaller --sizes"
                ))
            })?;
        }
        self.start = self.bytes.all().as_ptr().align_offset(PAGE);
        Ok(())
    }

    /// The number of messages.
    pub(crate) fn count(&self) -> usize {
        self.mask + 1
    }

    /// Bytes in each.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Message `number`, modulo the count.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let at = self.start + (number & self.mask) * self.stride;
        &self.bytes.all()[at..at + self.size]
    }

    /// Message `number`, to be written.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut [u8] {
        let at = self.start + (number & self.mask) * self.stride;
        &mut self.bytes.all_mut()[at..at + self.size]
    }

    /// Every message, to be written at once.
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (size, count) = (self.size, self.mask + 1);
        let used = &mut self.bytes.all_mut()[self.start..self.start + self.stride * count];
        used.chunks_exact_mut(self.stride.max(1)).map(move |message| &mut message[..size])
    }

    /// Writes every message, the first with this seed, the others with the next ones.
    pub(crate) fn fill(&mut self, number: u64) {
        for at in 0..self.count() {
            verify::fill(self.get_mut(at), verify::seed(number + at as u64));
        }
    }

    /// Reads and checks the first `used` messages, as [`Messages::fill`] wrote them.
    pub(crate) fn check(&self, number: u64, used: usize) -> Result<(), verify::Mismatch> {
        (0..used.min(self.count()))
            .try_for_each(|at| verify::check(self.get(at), verify::seed(number + at as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_much_is_an_error() {
        let mut messages = Messages::new();
        for memory in Memory::ALL {
            let why = messages.shape(1 << 62, 1, memory).unwrap_err().to_string();
            assert!(why.contains("no memory"), "{why}");
            // The memory that is asked for next is there all the same.
            messages.shape(64, 4, memory).unwrap();
            assert_eq!(messages.each_mut().count(), 4);
        }
    }

    #[test]
    fn messages_are_apart_and_aligned() {
        let (exposed, _) = Exposed::create("pinfold-test", 4 << 20).unwrap();
        let (mut plain, mut exposed) = (Messages::new(), Messages::over(exposed));
        for memory in [Memory::Heap, Memory::Arena, Memory::Heap] {
            apart_and_aligned(&mut plain, memory);
            apart_and_aligned(&mut exposed, memory);
        }
    }

    fn apart_and_aligned(messages: &mut Messages, memory: Memory) {
        for (size, count) in [(8, 4), (65, 8), (4096, 1), (1 << 16, 2)] {
            messages.shape(size, count, memory).unwrap();
            messages.fill(9);
            assert_eq!(messages.check(9, count), Ok(()));
            assert_eq!(messages.get(0).as_ptr().align_offset(PAGE), 0);
            assert_eq!(messages.get(count).as_ptr(), messages.get(0).as_ptr());
            assert_eq!(messages.each_mut().count(), count);
            assert!(messages.each_mut().all(|message| message.len() == size));
            messages.get_mut(count - 1)[0] ^= 1;
            assert!(messages.check(9, count).is_err());
        }
    }
}
