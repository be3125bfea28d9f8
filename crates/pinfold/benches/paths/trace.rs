//! The turns of a scenario, and their summary.

use std::fmt::Write;

use super::{PAIRS, heard::Told};

/// Turns that are written, and the most samples of the learner in each.
const WRITTEN: usize = 120;
const TOLD: usize = 4;

/// The times of one turn of each pair.
pub struct Turn {
    hop_ns: u64,
    /// For each pair: the time of a message, and the learner's samples, ns.
    pairs: Vec<(u64, Vec<Told>)>,
}

impl Turn {
    pub fn new(hop_ns: u64) -> Turn {
        Turn { hop_ns, pairs: Vec::new() }
    }

    pub fn add(&mut self, ns: u64, heard: Vec<Told>) {
        self.pairs.push((ns, heard));
    }
}

/// All turns of a scenario.
#[derive(Default)]
pub struct Trace(Vec<Turn>);

impl Trace {
    pub fn push(&mut self, turn: Turn) {
        self.0.push(turn);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The heading of the columns of [`Trace::summary`].
    pub fn heading() -> String {
        let mut text = String::from("hop ns  turns");
        for (path, _) in PAIRS {
            let _ = write!(text, "  {path:>7} mean  median told mean median");
        }
        text
    }

    /// Means and medians, ns, without the first fifth.
    pub fn summary(&self) -> String {
        let turns = &self.0[self.0.len() / 5..];
        let [_, hop] = middle(turns.iter().map(|turn| turn.hop_ns));
        let mut text = format!("{hop:6} {:6}", self.len());
        for at in 0..PAIRS.len() {
            let [mean, median] = middle(turns.iter().map(|turn| turn.pairs[at].0));
            let told = turns.iter().flat_map(|turn| turn.pairs[at].1.iter().map(|told| told.ns));
            let [told_mean, told_median] = middle(told);
            let _ = write!(text, "  {mean:12} {median:7} {told_mean:9} {told_median:6}");
        }
        let told: Vec<Told> =
            turns.iter().filter_map(|turn| turn.pairs.last()).flat_map(|it| it.1.clone()).collect();
        for (at, (path, _)) in PAIRS.iter().enumerate().take(PAIRS.len() - 1) {
            let by = || told.iter().filter(|told| told.path == at).map(|told| told.ns);
            let share = 100 * by().count() / told.len().max(1);
            let _ = write!(text, "  {share:3} % {path} told {:7}", middle(by())[1]);
        }
        text
    }

    /// A line for each of the first turns: the hop, then for each of the `paths` the time of a
    /// message and the first samples.
    pub fn text(&self, paths: &[&str]) -> String {
        let mut text = String::new();
        for turn in self.0.iter().take(WRITTEN) {
            let _ = write!(text, "{}", turn.hop_ns);
            for ((path, _), (ns, heard)) in PAIRS.iter().zip(&turn.pairs) {
                if !paths.contains(path) {
                    continue;
                }
                let _ = write!(text, " {path} {ns}");
                for told in heard.iter().take(TOLD) {
                    let _ = write!(text, " {}", told.ns);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// The mean, and the median.
fn middle(values: impl Iterator<Item = u64>) -> [u64; 2] {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let mean = values.iter().sum::<u64>() / values.len().max(1) as u64;
    [mean, values.get(values.len() / 2).copied().unwrap_or(0)]
}
