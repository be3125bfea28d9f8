//! Three-dimensional FFT in the manner of NAS FT (NPB 2.3), in slabs: a rank transforms its planes
//! in two dimensions, all ranks transpose, and each transforms the third.
//!
//! A rank has three arrays as NAS does: forward transforms send from the first, inverse ones from
//! the third, and both receive into the second.

use std::f64::consts::TAU;

use super::{Node, Program};
use crate::random::Random;

/// A complex number.
type Complex = (f64, f64);
/// Bytes of one.
const NUMBER: usize = 16;

/// A rank's part.
#[derive(Clone, Debug)]
pub struct Fourier {
    ranks: usize,
    rank: usize,
    /// Numbers along x, y and z.
    sides: [usize; 3],
    /// Inverse transforms, and forward ones before: one to warm up and one that counts.
    inverses: usize,
    computes: bool,
    /// The numbers: planes of z, in these of y, then x; or, transposed, columns of (x, y), along
    /// z.
    before: Vec<Complex>,
    now: Vec<Complex>,
    /// The transform: own columns.
    spectrum: Vec<Complex>,
    after: Vec<Complex>,
}

/// Forward transforms.
const FORWARD: usize = 2;

impl Fourier {
    /// All ranks' parts. `computes`: the numbers are transformed, and not only moved. The sides
    /// have to be powers of two, and z and x × y multiples of the ranks.
    pub fn all(ranks: usize, sides: [usize; 3], inverses: usize, computes: bool) -> Vec<Fourier> {
        let part = |rank| {
            let mut random = Random::new(23, rank as u64);
            let count = if computes { sides.iter().product::<usize>() / ranks } else { 0 };
            let before: Vec<Complex> = (0..count).map(|_| (random.part(), random.part())).collect();
            let (now, spectrum, after) = Default::default();
            Fourier { ranks, rank, sides, inverses, computes, before, now, spectrum, after }
        };
        (0..ranks).map(part).collect()
    }

    /// Checks that the inverse of the transform is what was transformed.
    ///
    /// # Errors
    /// It is not, or nothing was computed; in words.
    pub fn check(all: &[Fourier]) -> Result<(), String> {
        for part in all {
            if part.after.is_empty() || part.after.len() != part.before.len() {
                return Err(format!("{} numbers, not {}", part.after.len(), part.before.len()));
            }
            let off = part.before.iter().zip(&part.after);
            let off = off.map(|(a, b)| (a.0 - b.0).abs().max((a.1 - b.1).abs()));
            let off = off.fold(0.0, f64::max);
            if off > 1e-9 {
                return Err(format!("numbers of rank {} are off by {off}", part.rank));
            }
        }
        Ok(())
    }

    /// Numbers of a rank.
    fn count(&self) -> usize {
        self.sides.iter().product::<usize>() / self.ranks
    }

    /// Bytes that each rank sends each other.
    fn piece_bytes(&self) -> usize {
        self.count() * NUMBER / self.ranks
    }

    /// The offset of one of the three arrays.
    fn array(&self, at: usize) -> usize {
        at * self.count() * NUMBER
    }

    /// Groups own planes for the ranks: to each its columns, column by column, along own z.
    fn spread(&self) -> Vec<Complex> {
        let [x, y, z] = self.sides;
        let (plane, own_z) = (x * y, z / self.ranks);
        let column = |column: usize| (0..own_z).map(move |z| self.now[z * plane + column]);
        (0..plane).flat_map(column).collect()
    }

    /// The reverse: the pieces of all ranks as own planes.
    fn unspread(&self, pieces: &[Complex]) -> Vec<Complex> {
        let [x, y, z] = self.sides;
        let (plane, own_z) = (x * y, z / self.ranks);
        (0..own_z * plane).map(|at| pieces[at % plane * own_z + at / plane]).collect()
    }

    /// Own columns along all of z, out of the pieces of all ranks, each of which has own columns
    /// along a part of z.
    fn join(&self, pieces: &[Complex]) -> Vec<Complex> {
        let [x, y, z] = self.sides;
        let (columns, part_z) = (x * y / self.ranks, z / self.ranks);
        let number = |at: usize| {
            let (column, z) = (at / self.sides[2], at % self.sides[2]);
            pieces[z / part_z * columns * part_z + column * part_z + z % part_z]
        };
        (0..columns * z).map(number).collect()
    }

    /// The reverse: own columns cut into pieces, one for each rank's part of z.
    fn cut(&self) -> Vec<Complex> {
        let [x, y, z] = self.sides;
        let (columns, part_z) = (x * y / self.ranks, z / self.ranks);
        let number = |at: usize| {
            let (rank, rest) = (at / (columns * part_z), at % (columns * part_z));
            self.now[rest / part_z * z + rank * part_z + rest % part_z]
        };
        (0..columns * z).map(number).collect()
    }

    /// Transforms own planes along x and y.
    fn planes(&mut self, sign: f64) {
        let [x, y, _] = self.sides;
        for plane in self.now.chunks_exact_mut(x * y) {
            plane.chunks_exact_mut(x).for_each(|row| fft(row, sign));
            for at in 0..x {
                let mut column: Vec<Complex> = (0..y).map(|row| plane[row * x + at]).collect();
                fft(&mut column, sign);
                column.into_iter().enumerate().for_each(|(row, it)| plane[row * x + at] = it);
            }
        }
    }

    /// Puts an array's pieces into every rank's `to`.
    fn transpose(&self, node: &mut Node<'_>, from: usize, to: usize) -> Result<(), String> {
        let bytes = self.piece_bytes();
        let theirs = self.array(to) + self.rank * bytes;
        for step in 0..self.ranks {
            let other = (self.rank + step) % self.ranks;
            let own = self.array(from) + other * bytes;
            if other != self.rank {
                node.put(other, own, theirs, bytes)?;
            } else if self.computes {
                let piece = node.read(own, bytes)?;
                node.write(theirs, &piece)?;
            }
        }
        Ok(())
    }

    /// Finishes a transform, whose pieces have come into the second array.
    fn finish(&mut self, node: &Node<'_>, is_forward: bool) -> Result<(), String> {
        let (pieces, z) = (self.load(node, 1)?, self.sides[2]);
        if is_forward {
            self.now = self.join(&pieces);
            self.now.chunks_exact_mut(z).for_each(|column| fft(column, -1.0));
            self.spectrum.clone_from(&self.now);
        } else {
            self.now = self.unspread(&pieces);
            self.planes(1.0);
            let scale = 1.0 / self.sides.iter().product::<usize>() as f64;
            self.after = self.now.iter().map(|it| (it.0 * scale, it.1 * scale)).collect();
        }
        Ok(())
    }

    fn keep(&self, node: &mut Node<'_>, array: usize, numbers: &[Complex]) -> Result<(), String> {
        let bytes: Vec<u8> = numbers
            .iter()
            .flat_map(|it| it.0.to_le_bytes().into_iter().chain(it.1.to_le_bytes()))
            .collect();
        node.write(self.array(array), &bytes)
    }

    fn load(&self, node: &Node<'_>, array: usize) -> Result<Vec<Complex>, String> {
        let bytes = node.read(self.array(array), self.count() * NUMBER)?;
        let number = |eight: &[u8]| f64::from_le_bytes(eight.try_into().unwrap_or_default());
        let pair = |both: &[u8]| (number(&both[..8]), number(&both[8..]));
        Ok(bytes.chunks_exact(NUMBER).map(pair).collect())
    }
}

/// Transforms a row in place: Cooley and Tukey's, radix 2. `sign` is -1 forward, 1 back.
fn fft(row: &mut [Complex], sign: f64) {
    let len = row.len();
    let bits = len.trailing_zeros();
    for at in 0..len {
        let other = if bits == 0 { 0 } else { at.reverse_bits() >> (usize::BITS - bits) };
        if at < other {
            row.swap(at, other);
        }
    }
    let mut half = 1;
    while half < len {
        for start in (0..len).step_by(2 * half) {
            for at in 0..half {
                let (sin, cos) = (sign * TAU * at as f64 / (2 * half) as f64).sin_cos();
                let (a, b) = (row[start + at], row[start + at + half]);
                let b = (b.0 * cos - b.1 * sin, b.0 * sin + b.1 * cos);
                row[start + at] = (a.0 + b.0, a.1 + b.1);
                row[start + at + half] = (a.0 - b.0, a.1 - b.1);
            }
        }
        half *= 2;
    }
}

impl Program for Fourier {
    fn memory_bytes(&self) -> usize {
        self.array(3)
    }

    /// Two phases a transform: up to its transposition, and what follows.
    fn phase(&mut self, phase: usize, node: &mut Node<'_>) -> Result<bool, String> {
        let (transform, z) = (phase / 2, self.sides[2]);
        if !phase.is_multiple_of(2) {
            if self.computes {
                self.finish(node, transform < FORWARD)?;
            }
            return Ok(true);
        }
        if transform == FORWARD + self.inverses {
            return Ok(false);
        }
        let array = if transform < FORWARD { 0 } else { 2 };
        if self.computes {
            let pieces = if transform < FORWARD {
                self.now.clone_from(&self.before);
                self.planes(-1.0);
                self.spread()
            } else {
                self.now.clone_from(&self.spectrum);
                self.now.chunks_exact_mut(z).for_each(|column| fft(column, 1.0));
                self.cut()
            };
            self.keep(node, array, &pieces)?;
        }
        self.transpose(node, array, 1)?;
        Ok(true)
    }

    fn deliver(&mut self, _from: usize, _word: u64) {}

    fn result(&self) -> Vec<u8> {
        let number = |it: &Complex| [it.0.to_le_bytes(), it.1.to_le_bytes()].concat();
        self.after.iter().flat_map(number).collect()
    }
}
