//! The unit tests' program, run a second time: as `pinfold_tests::again` does it.

use std::{env, process::Command};

/// A command that runs this program again, by what `PINFOLD_TEST_RUNNER` names: an emulator.
pub fn again() -> Command {
    let program = env::current_exe().expect("a path");
    let Ok(runner) = env::var("PINFOLD_TEST_RUNNER") else { return Command::new(program) };
    let mut words = runner.split_whitespace();
    let mut command = Command::new(words.next().expect("a runner"));
    command.args(words).arg(program);
    command
}
