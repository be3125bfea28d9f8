//! The memory messages are sent from and received into: plain memory of this process, made
//! beforehand, page-aligned, written once so that no page is missing.

use super::{
    fail::{Fail, Result},
    units, verify,
};

/// Alignment of the first message, bytes.
const PAGE: usize = 4096;

/// `count` messages of `size` bytes, used in turn.
pub(crate) struct Messages {
    memory: Vec<u8>,
    start: usize,
    size: usize,
    stride: usize,
    mask: usize,
}

impl Messages {
    /// No memory yet.
    pub(crate) fn new() -> Messages {
        Messages { memory: Vec::new(), start: 0, size: 0, stride: 0, mask: 0 }
    }

    /// Makes room for `count` messages (a power of two) of `size` bytes. Memory that is there
    /// already is used again.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn shape(&mut self, size: usize, count: usize) -> Result<()> {
        assert!(count.is_power_of_two());
        self.stride = size.next_multiple_of(64);
        self.size = size;
        self.mask = count - 1;
        let needed = self.stride * count;
        if self.memory.len() < needed + PAGE {
            // First give back what there was.
            self.memory = Vec::new();
            self.memory.try_reserve_exact(needed + PAGE).map_err(|_| {
                let size = units::bytes(size);
                Fail::Said(format!(
                    "there is no memory for messages of {size}; ask for smaller --sizes"
                ))
            })?;
            self.memory.resize(needed + PAGE, 0xA5);
            self.start = self.memory.as_ptr().align_offset(PAGE);
        }
        Ok(())
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.mask + 1
    }

    /// Bytes in each.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Message `number`, counted round and round.
    #[inline]
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let at = self.start + (number & self.mask) * self.stride;
        &self.memory[at..at + self.size]
    }

    /// Message `number`, to be written.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> &mut [u8] {
        let at = self.start + (number & self.mask) * self.stride;
        &mut self.memory[at..at + self.size]
    }

    /// Every message, to be written at once.
    pub(crate) fn each_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let (size, count) = (self.size, self.mask + 1);
        let used = &mut self.memory[self.start..self.start + self.stride * count];
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
        let why = messages.shape(1 << 62, 1).unwrap_err().to_string();
        assert!(why.contains("no memory"), "{why}");
        // What is asked for next is there all the same.
        messages.shape(64, 4).unwrap();
        assert_eq!(messages.each_mut().count(), 4);
    }

    #[test]
    fn messages_are_apart_and_aligned() {
        let mut messages = Messages::new();
        for (size, count) in [(8, 4), (65, 8), (4096, 1), (1 << 16, 2)] {
            messages.shape(size, count).unwrap();
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
