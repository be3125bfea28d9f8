//! The plan that the handler asks if a site knows nothing.

use super::{
    super::in_force::{pick, pick_zero, plan},
    Algorithm, Block,
};

/// Chooses algorithms by the facts known of a block.
pub trait Choose {
    /// The algorithm to copy a block that nothing else is known of.
    fn pick(&self, block: &Block) -> Algorithm;

    /// The algorithms that may be best to copy such blocks, the likeliest first.
    fn candidates(&self, block: &Block) -> impl Iterator<Item = Algorithm>;

    /// As [`Choose::pick`], to zero it.
    fn pick_zero(&self, block: &Block) -> Algorithm {
        self.pick(block)
    }

    /// As [`Choose::candidates`], to zero them.
    fn candidates_zero(&self, block: &Block) -> impl Iterator<Item = Algorithm> {
        self.candidates(block)
    }
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

/// The plan of this process ([`plan()`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct InForce;

impl Choose for InForce {
    #[inline]
    fn pick(&self, block: &Block) -> Algorithm {
        pick(block)
    }

    fn candidates(&self, block: &Block) -> impl Iterator<Item = Algorithm> {
        plan().candidates(block)
    }

    #[inline]
    fn pick_zero(&self, block: &Block) -> Algorithm {
        pick_zero(block)
    }

    fn candidates_zero(&self, block: &Block) -> impl Iterator<Item = Algorithm> {
        plan().candidates_zero(block)
    }
}
