//! Tests that cannot run here say so.

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write},
};

/// Says, past the test runner's capture, which part is not tested here and why, and appends a line
/// to the file that `PINFOLD_SKIP_LOG` names, so that skips can be counted.
pub fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
    if let Some(log) = env::var_os("PINFOLD_SKIP_LOG") {
        let log = OpenOptions::new().create(true).append(true).open(log);
        let line = format!("{test}: {reason}\n");
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log");
    }
}

/// Returns whether this process is root; if not, skips the part that `what` names.
pub fn is_root_or_skip(what: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip(&format!("{what} takes root"));
    }
    root
}

/// Returns whether the suite was asked to take its time: `PINFOLD_LONG=1`.
pub fn is_long() -> bool {
    env::var_os("PINFOLD_LONG").is_some_and(|value| value == "1")
}

/// The number of rounds where `rounds` are the rule: a quarter, if the suite has just run, as
/// another user (`PINFOLD_AGAIN=1`).
pub fn again(rounds: u64) -> u64 {
    let again = env::var_os("PINFOLD_AGAIN").is_some_and(|value| value == "1");
    if again { rounds.div_ceil(4) } else { rounds }
}
