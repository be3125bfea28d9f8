//! The options of `pinfold send` and `pinfold recv`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use pinfold::{Path, PathSet};

/// The exit statuses, which `--help` of both commands ends with.
macro_rules! statuses {
    () => {
        "
Exit status:
  0  everything arrived and was verified (both sides say so)
  1  the transfer failed: the other side gave up and said why, or another reason is printed
  2  the command line or the address makes no sense, or DIR and what is sent do not go together
  3  cannot connect or listen: nobody there in time, name in use, access refused
  4  the other side went away in mid-transfer
  5  a file or stream of this side: unreadable, changed while it was read, exists already,
     cannot be written, disk full, output closed; or everything arrived, but not the receipt
     where it was to be printed
  6  the contents did not arrive as they were sent
  128 + N  stopped by signal N; 141 also where the receipt was to be printed into a pipe that
     is closed, about which nothing is said"
    };
}

const SEND_HELP: &str = concat!(
    "\
Examples:
  pinfold send report.pdf photos local:box     files, to 'pinfold recv local:box DIR'
  tar c dir | pinfold send local:box           a stream, to 'pinfold recv local:box | tar x'
  pinfold send photos tcp:host:7000 --key FILE files, to 'pinfold recv tcp:0.0.0.0:7000 DIR --key FILE'
  pinfold send photos tcp:host:7000 --key FILE --tls    the same, encrypted; give the receiver --tls, too
",
    statuses!()
);

const RECV_HELP: &str = concat!(
    "\
Examples:
  pinfold recv local:box inbox                 files, from 'pinfold send FILE... local:box'
  pinfold recv local:box inbox --serve         the same, again and again
  pinfold recv local:box | tar x               a stream, from 'tar c dir | pinfold send local:box'

File names are taken relative to DIR: absolute names, '..' and symbolic links on the way are
refused. Of the modes of files and directories only the permission bits are taken, less the umask:
set-user-ID, set-group-ID and sticky bits are not. The time of last modification of files is kept.
Holes in files stay holes. Modes and times that the file system here does not keep are named.

A directory gets its mode when everything is in it. Before, others and its group may do with it no
more than they may afterwards, and its owner everything; so it stays if the transfer is interrupted.
A directory that exists keeps its mode, and a note says so if more may use it than the one that was
sent; with --force it gets the mode that was sent.

A file gets its name in one step. Where the system has none of the calls for that (O_TMPFILE with
link, rename that does not replace), an empty file with no permissions takes the name first, and is
left if the command is killed at that moment. Files named .pinfold-*.part are what is left of such a
transfer.

A stream is verified too, but only when all of it is out: if the exit
status is not 0, do not use the output.
",
    statuses!()
);

/// Send files, directories or standard input to a waiting `pinfold recv`
///
/// Either side may be started first. The exit status is 0 only after the receiver has said that
/// it has everything and that it is what was read here.
#[derive(Args, Debug)]
#[command(
    allow_missing_positional = true,
    override_usage = "pinfold send [OPTIONS] [FILE]... ADDRESS",
    after_long_help = SEND_HELP,
)]
pub(crate) struct SendArgs {
    /// Files and directories to send; none, or '-', sends standard input as a stream.
    ///
    /// A directory is sent with everything below it, empty directories as well, under its own
    /// name, unless that is '.' or '..'. Symbolic links, pipes, sockets and devices in it are
    /// skipped with a note: where those matter, send a tar stream. A symbolic link given by
    /// name is followed. Files that the kernel makes up as they are read, as below /proc and
    /// /sys, are read to their end.
    #[arg(value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// Where the receiver listens: local:NAME, local:USER/NAME or tcp:HOST:PORT
    #[arg(required = true)]
    pub(super) address: String,

    /// Wait this long for a receiver to listen at ADDRESS
    ///
    /// That is for all that may come in that time: the receiver, its host's name, a route to it. A
    /// part of a second will do as well (0.5).
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_seconds)]
    pub(super) wait: Duration,

    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Receive what one `pinfold send` sends
///
/// Without DIR, a stream goes to standard output. With DIR, files go below it, each under a name
/// only once it is complete and verified. One transfer is taken, then the command ends, unless
/// it is to serve.
#[derive(Args, Debug)]
#[command(after_long_help = RECV_HELP)]
pub(crate) struct RecvArgs {
    /// Where to listen: local:NAME or tcp:HOST:PORT
    pub(super) address: String,

    /// An existing directory for the files
    #[arg(value_name = "DIR")]
    pub(super) directory: Option<PathBuf>,

    /// Replace files that exist, without it the transfer stops at the first that does; and set the
    /// modes of directories that exist
    #[arg(long, requires = "directory")]
    pub(super) force: bool,

    /// Have each file on the disk, not only in the page cache, before it gets its name
    #[arg(long, requires = "directory")]
    pub(super) sync: bool,

    /// Set the time of last modification of directories, too, when everything is in them
    #[arg(long, short, requires = "directory")]
    pub(super) times: bool,

    /// Take one transfer after another, until a signal ends the command
    ///
    /// Each has a receipt of its own, and one that fails does not end the command. A sender that
    /// comes meanwhile is told to try again.
    #[arg(long, requires = "directory")]
    pub(super) serve: bool,

    /// Give up when no sender has come for this long (default: wait for ever)
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(super) wait: Option<Duration>,

    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Options of both commands.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// Print the receipt, or the failure, as one JSON object
    ///
    /// It goes to standard output, or to standard error for a receiver without DIR, whose
    /// standard output is the stream.
    #[arg(long)]
    pub(super) json: bool,

    /// Print all of the receipt: the paths that were taken, what was copied, what was refused
    #[arg(long, short, conflicts_with_all = ["json", "quiet"])]
    pub(super) verbose: bool,

    /// No progress and no receipt; only errors, and notes on what was skipped or could not be kept
    #[arg(long, short)]
    pub(super) quiet: bool,

    /// Fail where the machine denies the path that would be fastest, rather than take another
    #[arg(long)]
    pub(super) strict: bool,

    /// The file with the key that both sides share, for tcp: beyond this host
    ///
    /// 32 to 4,096 bytes, which all users cannot read: (umask 077; head -c 32 /dev/urandom > FILE)
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,

    /// Encrypt the connection (TLS 1.3), for tcp:; the other side has to want that, too
    #[arg(long)]
    pub(super) tls: bool,

    /// The paths to allow: inline, eager, cma, mapped, handoff
    #[arg(long, value_name = "PATHS", value_delimiter = ',', value_parser = parse_path)]
    pub(super) paths: Vec<Path>,
}

impl CommonArgs {
    /// The paths to allow; all of them unless some are named.
    pub(super) fn path_set(&self) -> PathSet {
        if self.paths.is_empty() { PathSet::all() } else { PathSet::only(&self.paths) }
    }

    /// Returns whether contents should lie in an arena: a path is allowed that needs one.
    pub(super) fn wants_arena(&self) -> bool {
        let paths = self.path_set();
        paths.contains(Path::Mapped) || paths.contains(Path::Handoff)
    }
}

/// A hundred years, which is for ever.
const SECONDS_MAX: f64 = 3e9;

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give a number of seconds, such as 30 or 0.5".into())
}

fn parse_path(name: &str) -> Result<Path, String> {
    Path::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Path::ALL.iter().map(|path| path.name()).collect();
        format!("no such path; the paths are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Send {
        #[command(flatten)]
        args: SendArgs,
    }

    #[derive(Parser)]
    struct Recv {
        #[command(flatten)]
        args: RecvArgs,
    }

    fn send(words: &[&str]) -> Result<SendArgs, clap::Error> {
        Send::try_parse_from([&["send"], words].concat()).map(|parsed| parsed.args)
    }

    fn recv(words: &[&str]) -> Result<RecvArgs, clap::Error> {
        Recv::try_parse_from([&["recv"], words].concat()).map(|parsed| parsed.args)
    }

    #[test]
    fn the_last_word_is_the_address() {
        let args = send(&["local:box"]).unwrap();
        assert_eq!((args.files.len(), args.address.as_str()), (0, "local:box"));
        let args = send(&["a", "b", "local:box", "--wait", "3"]).unwrap();
        assert_eq!(args.files, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!((args.address.as_str(), args.wait), ("local:box", Duration::from_secs(3)));
        assert_eq!(send(&["-", "local:box"]).unwrap().files, [PathBuf::from("-")]);
        assert!(send(&[]).is_err());
    }

    #[test]
    fn seconds_have_parts() {
        let wait = |text| send(&["local:box", "--wait", text]).map(|args| args.wait);
        assert_eq!(wait("0.1").unwrap(), Duration::from_millis(100));
        assert_eq!(wait("0").unwrap(), Duration::ZERO);
        for text in ["-1", "x", "1s", "nan", "inf", "1e99"] {
            let said = wait(text).unwrap_err().to_string();
            let is_option = said.contains("unexpected argument");
            assert!(is_option || said.contains("such as 30 or 0.5"), "{text}: {said}");
        }
    }

    #[test]
    fn paths_are_named() {
        let args = send(&["--paths", "inline,eager", "local:box"]).unwrap();
        assert!(args.common.path_set().contains(Path::Eager));
        assert!(!args.common.path_set().contains(Path::Cma));
        assert!(send(&["--paths", "warp", "local:box"]).is_err());
        assert_eq!(send(&["local:box"]).unwrap().common.path_set(), PathSet::all());
    }

    #[test]
    fn force_needs_a_directory() {
        assert!(recv(&["local:box", "--force"]).is_err());
        assert!(recv(&["local:box", "in", "--force", "--sync"]).is_ok());
    }
}
