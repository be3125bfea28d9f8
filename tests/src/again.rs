//! The test program, run a second time.

use std::{env, process::Command};

/// Names what runs the test program where it cannot run by itself, and its arguments: an emulator
/// of another processor.
pub const RUNNER: &str = "PINFOLD_TEST_RUNNER";

/// A command that runs this program again. It is run by the link of `proc(5)`, so that a user that
/// cannot reach the file can still run it; under a [runner](RUNNER) by its name.
pub fn again() -> Command {
    let Ok(runner) = env::var(RUNNER) else { return Command::new("/proc/self/exe") };
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().expect("a runner"));
    command.args(words).arg(env::current_exe().expect("a path"));
    command
}
