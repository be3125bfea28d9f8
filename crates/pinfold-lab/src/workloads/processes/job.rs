//! Jobs: programs by name, with their sizes.

use serde::{Deserialize, Serialize};

use super::super::{
    Log, Program, fourier::Fourier, integer_sort::IntegerSort, lockstep, matrix::Matrix,
    radix::Radix, sample::Sample,
};

/// Ranks at most.
pub const RANKS_MAX: usize = 64;
/// Keys of a rank at most, and numbers along a side.
const SIZE_MAX: usize = 1 << 20;
/// Keys that a rank of integer sort has at least, for each rank: fewer fill no bucket.
const LIMIT: u32 = 1 << 19;

/// A program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Blocked matrix multiply, by gets.
    Matrix,
    /// Radix sort, a small message for each key.
    RadixSmall,
    /// Radix sort, by puts of groups of keys.
    RadixBulk,
    /// Sample sort, a small message for each key.
    SampleSmall,
    /// Sample sort, by puts of groups of keys.
    SampleBulk,
    /// Integer sort in the manner of NAS IS.
    IntegerSort,
    /// Three-dimensional FFT in the manner of NAS FT.
    Fourier,
}

impl Workload {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Workload); 7] = [
        ("matrix", Workload::Matrix),
        ("radix-small", Workload::RadixSmall),
        ("radix-bulk", Workload::RadixBulk),
        ("sample-small", Workload::SampleSmall),
        ("sample-bulk", Workload::SampleBulk),
        ("integer-sort", Workload::IntegerSort),
        ("fourier", Workload::Fourier),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Workload::ALL.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }
}

impl std::str::FromStr for Workload {
    type Err = String;

    fn from_str(word: &str) -> Result<Workload, String> {
        let found = Workload::ALL.iter().find(|it| it.0 == word).map(|it| it.1);
        let all = || Workload::ALL.map(|it| it.0).join(", ");
        found.ok_or_else(|| format!("{word} is none of {}", all()))
    }
}

/// A program, its size, and the ranks that run it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The program.
    pub workload: Workload,
    /// Ranks.
    pub ranks: usize,
    /// Keys of each rank; of matrix multiply, numbers along a block's side; of the FFT, along x
    /// and y. `None`: as many as a second or so is enough for.
    pub size: Option<usize>,
    /// Times that integer sort sorts, and inverse transforms of the FFT.
    pub turns: usize,
    /// The seed of keys.
    pub seed: u64,
}

/// The parts of all ranks.
enum Parts {
    Matrix(Vec<Matrix>),
    Radix(Vec<Radix>),
    Sample(Vec<Sample>),
    IntegerSort(Vec<IntegerSort>),
    Fourier(Vec<Fourier>),
}

/// The transfers and the checked results of a job, of all ranks.
pub(super) struct Expected {
    pub(super) logs: Vec<Log>,
    pub(super) results: Vec<Vec<u8>>,
}

fn run<P: Program>(
    mut parts: Vec<P>,
    check: impl Fn(&[P]) -> Result<(), String>,
) -> Result<Expected, String> {
    let logs = lockstep::run(&mut parts)?;
    check(&parts)?;
    Ok(Expected { logs, results: parts.iter().map(Program::result).collect() })
}

impl Job {
    /// Checks the numbers.
    ///
    /// # Errors
    /// One is out of range, in words.
    pub fn check(&self) -> Result<(), String> {
        let Job { workload, ranks, turns, .. } = *self;
        if !(2..=RANKS_MAX).contains(&ranks) {
            return Err(format!("{ranks} processes: take 2 to {RANKS_MAX}"));
        }
        let size = self.size();
        let (least, most) = match workload {
            Workload::Matrix => (1, 256),
            Workload::Fourier => (8, 256),
            // A sample has 64 keys, and a bucket of integer sort some of each rank.
            _ => (1024, SIZE_MAX),
        };
        if !(least..=most).contains(&size) {
            return Err(format!("size {size} of {}: take {least} to {most}", workload.name()));
        }
        if turns == 0 {
            return Err("0 turns: take 1 or more".into());
        }
        if workload == Workload::Fourier && !(ranks.is_power_of_two() && size.is_power_of_two()) {
            return Err(format!("fourier takes powers of two: {ranks} processes, size {size}"));
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.size.unwrap_or(match self.workload {
            Workload::Matrix | Workload::Fourier => 16,
            Workload::RadixSmall | Workload::SampleSmall => 1024,
            _ => 4096,
        })
    }

    fn parts(&self) -> Parts {
        let (ranks, size, seed, turns) = (self.ranks, self.size(), self.seed, self.turns);
        match self.workload {
            Workload::Matrix => {
                // The number of all blocks is a multiple of the ranks'.
                let blocks = if 64 % ranks == 0 { 8 } else { ranks };
                Parts::Matrix(Matrix::all(ranks, blocks, size, true))
            }
            Workload::RadixSmall => Parts::Radix(Radix::small(ranks, size, seed)),
            Workload::RadixBulk => Parts::Radix(Radix::all(ranks, size, seed)),
            Workload::SampleSmall => Parts::Sample(Sample::all(ranks, size, false, true, seed)),
            Workload::SampleBulk => Parts::Sample(Sample::all(ranks, size, true, true, seed)),
            Workload::IntegerSort => {
                Parts::IntegerSort(IntegerSort::all(ranks, ranks * size, LIMIT, turns, seed))
            }
            Workload::Fourier => {
                Parts::Fourier(Fourier::all(ranks, [size, size, ranks.max(16)], turns, true))
            }
        }
    }

    /// The part of a rank. Makes those of all for a moment.
    ///
    /// # Errors
    /// There is no such rank.
    pub(super) fn part(&self, rank: usize) -> Result<Box<dyn Program>, String> {
        fn nth<P: Program + 'static>(parts: Vec<P>, rank: usize) -> Option<Box<dyn Program>> {
            parts.into_iter().nth(rank).map(|it| Box::new(it) as Box<dyn Program>)
        }
        let part = match self.parts() {
            Parts::Matrix(parts) => nth(parts, rank),
            Parts::Radix(parts) => nth(parts, rank),
            Parts::Sample(parts) => nth(parts, rank),
            Parts::IntegerSort(parts) => nth(parts, rank),
            Parts::Fourier(parts) => nth(parts, rank),
        };
        part.ok_or_else(|| format!("there is no rank {rank} of {}", self.ranks))
    }

    /// Runs the job in this process, a rank after the other, and checks its result.
    ///
    /// # Errors
    /// The program failed, or its result is wrong; in words.
    pub(super) fn expected(&self) -> Result<Expected, String> {
        match self.parts() {
            Parts::Matrix(parts) => run(parts, |all| all.iter().try_for_each(Matrix::check)),
            Parts::Radix(parts) => run(parts, Radix::check),
            Parts::Sample(parts) => run(parts, Sample::check),
            Parts::IntegerSort(parts) => run(parts, IntegerSort::check),
            Parts::Fourier(parts) => run(parts, Fourier::check),
        }
    }
}
