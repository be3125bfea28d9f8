//! `cargo bench --bench copybench`: `pinfold perf copy` with the arguments that come after `--`.

use std::{
    env,
    process::{Command, ExitCode},
};

fn main() -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).collect();
    // Cargo passes `--bench` where it benches; without it, as with `cargo test --all-targets`, it
    // only checks that this starts.
    if !args.iter().any(|arg| arg == "--bench") {
        return ExitCode::SUCCESS;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_pinfold"));
    command.args(["perf", "copy"]).args(args.iter().filter(|arg| *arg != "--bench"));
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)),
        Err(why) => {
            eprintln!("copybench: cannot start {}: {why}", command.get_program().display());
            ExitCode::FAILURE
        }
    }
}
