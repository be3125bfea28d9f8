//! Figures that tests find on their way, for `scripts/promises.sh`, which adds up the figures of
//! many runs.

use std::{env, fmt::Display, fs::OpenOptions, io::Write};

use crate::stamp::mix;

/// Names the file that figures are added to.
const FILE: &str = "PINFOLD_FIGURES";
/// The variable with the number of this run among many.
const RUN: &str = "PINFOLD_RUN";

/// Returns whether figures are gathered: tests may then take longer to find them.
pub fn are_gathered() -> bool {
    env::var_os(FILE).is_some()
}

/// Adds a line `kind key=value key=value` to the file of figures, if there is one. A blank in a
/// value becomes `_`.
///
/// # Panics
/// If the file cannot be written.
pub fn add(kind: &str, values: &[(&str, &dyn Display)]) {
    let Some(file) = env::var_os(FILE) else { return };
    let mut line = kind.to_owned();
    for (key, value) in values {
        line += &format!(" {key}={}", value.to_string().replace(char::is_whitespace, "_"));
    }
    line.push('\n');
    let file = OpenOptions::new().create(true).append(true).open(file);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the figures");
}

/// The seed to take instead of `seed`: the same in the normal run, and another in each of many
/// runs.
pub fn seed(seed: u64) -> u64 {
    match env::var(RUN).ok().and_then(|run| run.parse::<u64>().ok()) {
        None | Some(0) => seed,
        Some(run) => mix(seed ^ mix(run)),
    }
}
