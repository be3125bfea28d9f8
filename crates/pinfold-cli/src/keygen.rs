//! `pinfold keygen`: a key for two hosts, in a file that its owner alone can read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;

use crate::progress::say;

/// Bytes of a key: as many as its digest has.
const KEY_BYTES: usize = 32;

const HELP: &str = "\
Both hosts need the same file. Copy it by a way that nobody else can read:

  pinfold keygen pond.key
  scp -p pond.key other:

Exit status: 0, or 1 if there is no key: the file exists already, or cannot be
written. What exists is never replaced.";

/// Make a key for 'send', 'recv' and programs that go to other hosts
///
/// 32 bytes at random, in a new file that only you can read.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct KeygenArgs {
    /// The file to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Makes a key.
pub(crate) fn run(args: &KeygenArgs) -> ExitCode {
    let file = args.file.display();
    match make(&args.file) {
        Ok(()) => {
            say(format_args!("a new key is in {file}"));
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            say(format_args!("{file} exists already, and stays as it is; name another file"));
            ExitCode::FAILURE
        }
        Err(error) => {
            say(format_args!("cannot make a key in {file}: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes a new file; none is left if that fails.
fn make(path: &Path) -> io::Result<()> {
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let written = file.write_all(&key).and_then(|()| file.sync_all());
    key.fill(0);
    written.inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}
