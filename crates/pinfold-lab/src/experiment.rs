//! An experiment: its name, its paper, its claim, and the function that runs it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{LabError, outcome::Outcome, random::Random};

/// One experiment of a paper.
#[derive(Debug)]
pub struct Experiment {
    /// The name that `pinfold lab run` takes: the paper's word, a dash, the experiment's.
    pub id: &'static str,
    /// The paper.
    pub paper: Paper,
    /// A heading.
    pub title: &'static str,
    /// Table, figure or section, and the measurement in a sentence.
    pub what: &'static str,
    /// The shape of the results that the paper claims, in a sentence.
    pub claim: &'static str,
    /// Runs it. The model's part depends on depth and seed alone.
    pub run: fn(&mut Run<'_>) -> Result<Outcome, LabError>,
}

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// Virtual Memory MTU Reassembly.
    Vmmr,
    /// U-Net/MM.
    Unet,
    /// The single-copy driver for the APE25.
    Ape,
    /// Block memory operations.
    Bmo,
    /// The pin-down cache of PM.
    Pm,
}

impl Paper {
    /// All papers.
    pub const ALL: [Paper; 5] = [Paper::Vmmr, Paper::Unet, Paper::Ape, Paper::Bmo, Paper::Pm];

    /// The word before the dash of its experiments' names.
    pub fn word(self) -> &'static str {
        match self {
            Paper::Vmmr => "vmmr",
            Paper::Unet => "unet",
            Paper::Ape => "ape",
            Paper::Bmo => "bmo",
            Paper::Pm => "pm",
        }
    }

    /// Title, authors, year.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Vmmr => "Virtual Memory MTU Reassembly",
            Paper::Unet => {
                "Welsh, Basu, von Eicken: Incorporating Memory Management into User-Level Network \
                 Interfaces"
            }
            Paper::Ape => {
                "Bhikshesvaran: Implementation and Performance Testing of a Single Copy Device \
                 Driver for the IBM APE25, 1998"
            }
            Paper::Bmo => "Calhoun: Characterization of Block Memory Operations",
            Paper::Pm => {
                "Tezuka, O'Carroll, Hori, Ishikawa: Pin-down Cache: A Virtual Memory Management \
                 Technique for Zero-copy Communication"
            }
        }
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Enough to judge every claim: seconds.
    #[default]
    Quick,
    /// All points of the paper's axes, and longer measurements: minutes.
    Full,
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Depth::Quick => "quick",
            Depth::Full => "full",
        })
    }
}

/// The seed of all runs, unless another is given.
pub const SEED: u64 = 1998;

/// One run of an experiment.
pub struct Run<'a> {
    depth: Depth,
    seed: u64,
    here: bool,
    progress: &'a mut dyn FnMut(f64, &str),
}

impl<'a> Run<'a> {
    /// A run. `progress` is told which part of the experiment is done, 0 to 1, and what is next.
    pub fn new(
        depth: Depth,
        seed: u64,
        here: bool,
        progress: &'a mut dyn FnMut(f64, &str),
    ) -> Self {
        Run { depth, seed, here, progress }
    }

    /// How much to run.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// `quick` or `full`, whichever is asked for.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        match self.depth {
            Depth::Quick => quick,
            Depth::Full => full,
        }
    }

    /// Returns whether this machine is to be measured. The model's values are the same if not.
    pub fn here(&self) -> bool {
        self.here
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Random numbers of the model; each `stream` has others.
    pub fn random(&self, stream: u64) -> Random {
        Random::new(self.seed, stream)
    }

    /// Says that `part` of the experiment is done, 0 to 1, and that `next` follows.
    pub fn progress(&mut self, part: f64, next: &str) {
        (self.progress)(part.clamp(0.0, 1.0), next);
    }
}
