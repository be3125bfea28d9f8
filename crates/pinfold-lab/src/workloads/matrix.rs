//! Blocked matrix multiply: a rank gets the blocks that it needs, and keeps its product's.

use super::{Node, Program};
use crate::random::Random;

/// Bytes of a number.
const NUMBER: usize = 8;

/// A rank's part of a product of two square matrices.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Blocks along a side.
    pub blocks: usize,
    /// Numbers along a block's side.
    pub side: usize,
    rank: usize,
    ranks: usize,
    multiplies: bool,
    product: Vec<Vec<f64>>,
}

impl Matrix {
    /// All ranks' parts. `multiplies`: the blocks are multiplied, and not only moved. The number of
    /// blocks has to be a multiple of the ranks'.
    pub fn all(ranks: usize, blocks: usize, side: usize, multiplies: bool) -> Vec<Matrix> {
        let own = if multiplies { blocks * blocks / ranks } else { 0 };
        let product = vec![vec![0.0; side * side]; own];
        let part =
            |rank| Matrix { blocks, side, rank, ranks, multiplies, product: product.clone() };
        (0..ranks).map(part).collect()
    }

    fn own(&self) -> usize {
        self.blocks * self.blocks / self.ranks
    }

    fn block_bytes(&self) -> usize {
        self.side * self.side * NUMBER
    }

    /// The rank that has a block, and its offset there; `second`: of the second matrix.
    fn place(&self, second: bool, row: usize, column: usize) -> (usize, usize) {
        let block = row * self.blocks + column;
        let slot = block / self.ranks + if second { self.own() } else { 0 };
        (block % self.ranks, slot * self.block_bytes())
    }

    /// The offset of one of the four buffers behind the blocks.
    fn buffer(&self, at: usize) -> usize {
        (2 * self.own() + at) * self.block_bytes()
    }

    /// Row and column of an own block.
    fn block(&self, slot: usize) -> (usize, usize) {
        let block = slot * self.ranks + self.rank;
        (block / self.blocks, block % self.blocks)
    }

    /// The numbers of a block: small and whole, so that every sum is exact.
    fn numbers(&self, second: bool, row: usize, column: usize) -> Vec<f64> {
        let stream = (row * self.blocks + column) as u64 * 2 + u64::from(second);
        let mut random = Random::new(11, stream);
        (0..self.side * self.side).map(|_| random.below(17) as f64 - 8.0).collect()
    }

    /// The two blocks of a step: where they are.
    fn needs(&self, step: usize) -> [(usize, usize); 2] {
        let ((row, column), inner) = (self.block(step / self.blocks), step % self.blocks);
        [self.place(false, row, inner), self.place(true, inner, column)]
    }

    /// Multiplies the blocks of a step.
    fn multiply(&mut self, step: usize, node: &Node<'_>) -> Result<(), String> {
        let mut factors = Vec::new();
        for (at, (owner, offset)) in self.needs(step).into_iter().enumerate() {
            let offset = if owner == self.rank { offset } else { self.buffer(step % 2 * 2 + at) };
            let bytes = node.read(offset, self.block_bytes())?;
            let number = |eight: &[u8]| f64::from_le_bytes(eight.try_into().unwrap_or_default());
            factors.push(bytes.chunks_exact(NUMBER).map(number).collect::<Vec<f64>>());
        }
        let (side, product) = (self.side, &mut self.product[step / self.blocks]);
        for row in 0..side {
            for inner in 0..side {
                let factor = factors[0][row * side + inner];
                for column in 0..side {
                    product[row * side + column] += factor * factors[1][inner * side + column];
                }
            }
        }
        Ok(())
    }

    /// Checks this rank's blocks against a product that is made without the others.
    ///
    /// # Errors
    /// A number differs, or nothing was multiplied; in words.
    pub fn check(&self) -> Result<(), String> {
        if !self.multiplies {
            return Err("nothing was multiplied".into());
        }
        for (slot, found) in self.product.iter().enumerate() {
            let (row, column) = self.block(slot);
            let mut expected = vec![0.0; self.side * self.side];
            for inner in 0..self.blocks {
                let (a, b) = (self.numbers(false, row, inner), self.numbers(true, inner, column));
                for (at, sum) in expected.iter_mut().enumerate() {
                    let (y, x) = (at / self.side, at % self.side);
                    let terms = (0..self.side).map(|k| a[y * self.side + k] * b[k * self.side + x]);
                    *sum += terms.sum::<f64>();
                }
            }
            if *found != expected {
                return Err(format!("block {row}, {column} is wrong"));
            }
        }
        Ok(())
    }
}

impl Program for Matrix {
    fn memory_bytes(&self) -> usize {
        self.buffer(4)
    }

    fn phase(&mut self, phase: usize, node: &mut Node<'_>) -> Result<bool, String> {
        let steps = self.own() * self.blocks;
        if phase == 0 {
            for slot in 0..if self.multiplies { self.own() } else { 0 } {
                let (row, column) = self.block(slot);
                for second in [false, true] {
                    let numbers = self.numbers(second, row, column);
                    let bytes: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
                    node.write(self.place(second, row, column).1, &bytes)?;
                }
            }
            return Ok(true);
        }
        let step = phase - 1;
        if step < steps {
            for (at, (owner, offset)) in self.needs(step).into_iter().enumerate() {
                if owner != self.rank {
                    let own = self.buffer(step % 2 * 2 + at);
                    node.get(owner, offset, own, self.block_bytes())?;
                }
            }
        }
        if step > 0 && self.multiplies {
            self.multiply(step - 1, node)?;
        }
        Ok(step < steps)
    }

    fn deliver(&mut self, _from: usize, _word: u64) {}

    fn result(&self) -> Vec<u8> {
        self.product.iter().flatten().flat_map(|it| it.to_le_bytes()).collect()
    }
}
