//! Blocks of memory with contents that can be checked.

/// A page of this machine's, bytes.
pub const PAGE_BYTES: usize = 4096;

/// A block that begins with a page, and is in memory.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Block {
    /// A block of so many bytes, each of which depends on its place and on `seed`.
    pub fn new(len: usize, seed: u8) -> Block {
        let mut block = Block { bytes: vec![0; len + PAGE_BYTES], start: 0, len };
        block.start = block.bytes.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        for (at, byte) in block.get_mut().iter_mut().enumerate() {
            *byte = pattern(at, seed);
        }
        block
    }

    /// Its bytes.
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Its bytes.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// Its address.
    pub fn address(&self) -> usize {
        self.get().as_ptr() as usize
    }
}

fn pattern(at: usize, seed: u8) -> u8 {
    (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed
}

/// Checks that `bytes` are those of a block of this seed, from `from` on.
///
/// # Errors
/// The first byte that differs, in words.
pub fn check(bytes: &[u8], from: usize, seed: u8) -> Result<(), String> {
    let is_wrong = |(at, byte): &(usize, &u8)| **byte != pattern(from + at, seed);
    match bytes.iter().enumerate().find(is_wrong) {
        None => Ok(()),
        Some((at, byte)) => {
            let right = pattern(from + at, seed);
            Err(format!("byte {at} of a copy is {byte} where {right} was copied"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_bytes_are_found() {
        let mut block = Block::new(10_000, 7);
        assert_eq!(block.address() % PAGE_BYTES, 0);
        assert_eq!(check(block.get(), 0, 7), Ok(()));
        assert_eq!(check(&block.get()[300..], 300, 7), Ok(()));
        assert!(check(block.get(), 0, 8).is_err());
        block.get_mut()[9_999] ^= 1;
        let error = check(block.get(), 0, 7).unwrap_err();
        assert!(error.starts_with("byte 9999"), "{error}");
    }
}
