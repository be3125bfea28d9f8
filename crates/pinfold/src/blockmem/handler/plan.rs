//! What the handler asks where a site knows nothing.

use super::{Algorithm, CacheState, Hints, Reader};

/// Everything a choice may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bytes.
    pub len: usize,
    /// Address of the source; of a block to be zeroed, its own.
    pub from: usize,
    /// Address of the destination.
    pub to: usize,
    /// Where the source is.
    pub source: CacheState,
    /// Where the destination is.
    pub destination: CacheState,
    /// Who reads the destination next.
    pub reader: Reader,
}

impl Block {
    #[inline]
    pub(super) fn of(hints: Hints, from: usize, to: usize, len: usize) -> Block {
        let Hints { reader, source, destination } = hints;
        Block { len, from, to, source, destination, reader }
    }
}

/// Chooses algorithms by what is known of a block.
pub trait Choose {
    /// The algorithm for a block that nothing else is known of.
    fn pick(&self, block: &Block) -> Algorithm;

    /// The algorithms that may be best for such blocks, the likeliest first.
    fn candidates(&self, block: &Block) -> impl Iterator<Item = Algorithm>;
}

/// The same algorithm for everything.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub Algorithm);

impl Choose for Fixed {
    fn pick(&self, _: &Block) -> Algorithm {
        self.0
    }

    fn candidates(&self, _: &Block) -> impl Iterator<Item = Algorithm> {
        std::iter::once(self.0)
    }
}
