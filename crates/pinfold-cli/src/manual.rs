//! `pinfold completions` and `pinfold man`: the command line as shells and `man` want it.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::{output, progress::say};

/// Print what a shell needs to complete the words of pinfold's command line
///
/// For bash: pinfold completions bash > ~/.local/share/bash-completion/completions/pinfold
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the page of the manual on pinfold, or write those on each subcommand as well
///
/// To look at it: pinfold man > pinfold.1 && man ./pinfold.1
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write pages to this directory, which is made if it is not there: pinfold.1, pinfold-send.1,
    /// and so on
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the completions of `command`, which is all of the command line.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pinfold", &mut text);
    print("the completions", &text)
}

/// Prints the page on `command`, or writes those on it and all its subcommands.
pub(crate) fn man(args: &ManArgs, command: Command) -> ExitCode {
    // Its subcommand for help has a subcommand for each of them, of which the pages say nothing.
    let command = command.disable_help_subcommand(true);
    if let Some(out) = &args.out {
        let made = fs::create_dir_all(out);
        if let Err(error) = made.and_then(|()| clap_mangen::generate_to(command, out)) {
            let out = out.display();
            say(format!("cannot write the manual to {out}: {error}; choose another directory"));
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let mut text = Vec::new();
    match clap_mangen::Man::new(command).render(&mut text) {
        Ok(()) => print("the page", &text),
        Err(error) => {
            say(format!("cannot make the page: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn print(what: &'static str, text: &[u8]) -> ExitCode {
    let printed = output::put(what, &String::from_utf8_lossy(text));
    printed.map_or_else(|lost| lost.end(1), |()| ExitCode::SUCCESS)
}
