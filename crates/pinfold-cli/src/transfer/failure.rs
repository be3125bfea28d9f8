//! The reasons why transfers fail, in words for a person and as exit statuses for a script.

use std::{io, process::ExitCode, time::Duration};

use pinfold_sys::{
    failed::Failed,
    trial::{self, Limited},
};
use rustix::io::Errno;

use super::{
    frame::{BadRecord, Cause, Record, VERSION},
    name::printable,
};
use crate::words::Words;

/// The reason why a transfer stopped.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The command was asked for something that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The sender cannot connect.
    #[error("cannot connect: {}", Words(.0))]
    Connect(#[source] pinfold::Error),
    /// The receiver cannot listen.
    #[error("cannot listen: {}", Words(.0))]
    Listen(#[source] pinfold::Error),
    /// No sender came within the time given.
    #[error("no sender came to {address} within {} s; start one, or raise --wait", .patience.as_secs_f64())]
    NobodyCame {
        /// The address at which the receiver listened.
        address: String,
        /// Time that it waited.
        patience: Duration,
    },
    /// The other side went away without saying why.
    #[error("lost {what} in mid-transfer: {}; run both sides again", Words(source))]
    PeerGone {
        /// The side that was lost, "the sender" or "the receiver".
        what: &'static str,
        /// The library's error.
        source: pinfold::Error,
    },
    /// The other side gave up and said why.
    #[error("{who} gave up: {text}")]
    Told {
        /// The side that gave up.
        who: &'static str,
        /// The kind of failure it met.
        cause: Cause,
        /// Its reason, safe to print.
        text: String,
    },
    /// Something of this side could not be read or written.
    #[error("{doing} {what}: {}", explain(source))]
    Local {
        /// The operation that failed: "reading", "writing".
        doing: &'static str,
        /// The file, safe to print.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The key file cannot be used.
    #[error("{0}")]
    Key(String),
    /// A file cannot be sent or written as it is, without the kernel having said so.
    #[error("{what}: {why}")]
    Unsuitable {
        /// The file, safe to print.
        what: String,
        /// The fault, and a remedy.
        why: String,
    },
    /// The reader of standard output closed it.
    #[error("standard output was closed by its reader after {bytes} bytes; nothing more is taken")]
    OutputClosed {
        /// Bytes it took before.
        bytes: u64,
    },
    /// The contents that arrived differ from those that were sent.
    #[error("{what} did not arrive as it was sent ({how}); {}", advice(*kept))]
    Integrity {
        /// The file or stream, safe to print.
        what: String,
        /// The sign of that.
        how: String,
        /// True if the damaged bytes are out already, on standard output.
        kept: bool,
    },
    /// The other side does not keep to the protocol.
    #[error("{who} broke the transfer protocol: {what}; use the same pinfold on both sides")]
    Protocol {
        /// The side that broke it.
        who: &'static str,
        /// The breach, in words.
        what: String,
    },
    /// The sender speaks other versions of the protocol.
    #[error(
        "the sender speaks {} of the transfer protocol, the receiver version {VERSION}; use the \
         same pinfold on both sides",
        versions(*theirs)
    )]
    Version {
        /// The oldest and the newest version of the sender.
        theirs: (u16, u16),
    },
    /// The library reported an error of another kind.
    #[error("{}", Words(.0))]
    Library(#[source] pinfold::Error),
    /// A signal asked this process to stop.
    #[error("interrupted by signal {0}")]
    Interrupted(i32),
    /// The producer or consumer of the contents ended too early; another failure says why.
    #[error("the transfer ended before everything was there")]
    Unfinished,
}

impl Failure {
    /// A failure of this side's own input or output.
    pub(super) fn local(
        doing: &'static str,
        what: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> Failure {
        Failure::Local { doing, what: what.into(), source: source.into() }
    }

    /// A failure of `who` to keep to the protocol.
    pub(super) fn protocol(who: &'static str, what: impl Into<String>) -> Failure {
        Failure::Protocol { who, what: what.into() }
    }

    /// A breach of the protocol by `who`, which sent something that is no record.
    pub(super) fn bad_record(who: &'static str, why: BadRecord) -> Failure {
        Failure::protocol(who, format!("it sent {why}"))
    }

    /// A breach of the protocol by `who`, which sent `record` where it has no place.
    pub(super) fn misplaced(who: &'static str, record: &Record) -> Failure {
        Failure::protocol(who, format!("it sent a record '{}' out of place", record.what()))
    }

    /// The failure that there is no endpoint, made by `otherwise` unless the request itself was at
    /// fault.
    pub(super) fn no_endpoint(
        error: pinfold::Error,
        otherwise: impl FnOnce(pinfold::Error) -> Failure,
    ) -> Failure {
        match error {
            pinfold::Error::UnusableKey(why) => Failure::Key(why),
            limit @ pinfold::Error::LimitReached { .. } => {
                Failure::Usage(Words(&limit).to_string())
            }
            error => otherwise(error),
        }
    }

    /// The failure for an error of the library in mid-transfer with `who`.
    pub(super) fn library(who: &'static str, error: pinfold::Error) -> Failure {
        match error {
            gone if gone.is_peer_gone() => Failure::PeerGone { what: who, source: gone },
            // Its memory went before the news of its end came.
            pinfold::Error::Transfer { ref source, .. }
                if Errno::from_io_error(source) == Some(Errno::SRCH) =>
            {
                Failure::PeerGone { what: who, source: error }
            }
            // Memory that it gave to be looked at went with it.
            pinfold::Error::Withdrawn => Failure::PeerGone { what: who, source: error },
            pinfold::Error::Truncated { len, .. } => {
                Failure::protocol(who, format!("it sent a message of {len} bytes"))
            }
            error => Failure::Library(error),
        }
    }

    /// The failure that `who` reported in its `Abort`.
    pub(super) fn told(who: &'static str, cause: Cause, text: &str) -> Failure {
        Failure::Told { who, cause, text: printable(text.as_bytes()) }
    }

    /// The record that tells the other side.
    pub(super) fn record(&self) -> Record {
        let cause = match self.status() {
            6 => Cause::Integrity,
            _ => Cause::Other,
        };
        Record::Abort { cause, text: self.to_string() }
    }

    /// The exit status, as `--help` documents it.
    pub(super) fn status(&self) -> u8 {
        match self {
            Failure::Usage(_)
            | Failure::Connect(pinfold::Error::BadAddress { .. })
            | Failure::Listen(pinfold::Error::BadAddress { .. }) => 2,
            Failure::Connect(_)
            | Failure::Listen(_)
            | Failure::NobodyCame { .. }
            | Failure::Told { cause: Cause::Refused, .. } => 3,
            Failure::PeerGone { .. } => 4,
            Failure::Local { .. }
            | Failure::Key(_)
            | Failure::Unsuitable { .. }
            | Failure::OutputClosed { .. } => 5,
            Failure::Integrity { .. } | Failure::Told { cause: Cause::Integrity, .. } => 6,
            Failure::Told { cause: Cause::Other, .. }
            | Failure::Protocol { .. }
            | Failure::Version { .. }
            | Failure::Library(_)
            | Failure::Unfinished => 1,
            Failure::Interrupted(signal) => 128u8.saturating_add(*signal as u8),
        }
    }

    /// [`Failure::status`] for `main`.
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.status())
    }
}

/// For [`Result::map_err`]: adds the name of the failed call to an error of this side, if a filter
/// may have denied the call, or a limit on threads.
pub(super) fn by<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error + Copy {
    move |error| {
        let error = error.into();
        match Errno::from_io_error(&error) {
            Some(errno @ (Errno::PERM | Errno::NOSYS)) if !trial::is_unfiltered() => {
                io::Error::new(error.kind(), Failed { call, errno })
            }
            // No thread or process is to be had.
            Some(errno @ Errno::AGAIN) if call == THREAD => {
                io::Error::new(error.kind(), Failed { call, errno })
            }
            _ => error,
        }
    }
}

/// The call that starts a thread.
pub(super) const THREAD: &str = "clone3";

/// The kernel's error, with a remedy where that is clear.
fn explain(error: &io::Error) -> String {
    if let Some(failed) = error.get_ref().and_then(|inner| inner.downcast_ref::<Failed>()) {
        let call = failed.call;
        if failed.errno == Errno::AGAIN {
            return format!(
                "{failed}; raise the limit on processes and threads (ulimit -u, pids.max)"
            );
        }
        return format!("{failed}; if system calls are filtered (seccomp), have that allow {call}");
    }
    let remedy = match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "free some space and run both sides again",
        Some(Errno::ACCESS | Errno::PERM) => "check its owner and permissions",
        Some(Errno::NOENT) => "check the name",
        Some(Errno::EXIST) => "remove it, or give --force to replace it",
        Some(Errno::LOOP | Errno::NOTDIR) => {
            "a directory is needed there, and symbolic links are not followed"
        }
        Some(Errno::MFILE | Errno::NFILE) => "raise the limit on open files, ulimit -n",
        Some(Errno::FBIG) => return format!("{error}; {}", too_large()),
        _ => return error.to_string(),
    };
    format!("{error}; {remedy}")
}

/// The reason why a file cannot become as large as it has to be.
fn too_large() -> String {
    match trial::soft_limit(Limited::FileBytes) {
        Some(bytes) => format!(
            "a file of this process may have {bytes} bytes: raise the limit (ulimit -f), and run both \
             sides again"
        ),
        None => "the file system does not allow files of this size".to_owned(),
    }
}

/// Versions in words.
fn versions((oldest, newest): (u16, u16)) -> String {
    match oldest == newest {
        true => format!("version {oldest}"),
        false => format!("versions {oldest} to {newest}"),
    }
}

/// The fate of contents that failed the check.
fn advice(kept: bool) -> &'static str {
    if kept {
        "do not use what was written to standard output, run both sides again"
    } else {
        "the file was not kept, run both sides again"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> pinfold::Error {
        pinfold::Error::PeerGone { peer: "x (pid 1)".into(), how: pinfold::Gone::Died }
    }

    fn closed() -> pinfold::Error {
        pinfold::Error::Closed
    }

    #[test]
    fn statuses_are_as_documented() {
        let bad = || pinfold::Error::BadAddress { address: "x".into(), why: "no colon" };
        let absent = pinfold::Error::NameGone { name: "local:x".into() };
        let enospc = io::Error::from_raw_os_error(28);
        for (failure, status) in [
            (Failure::Usage("x".into()), 2),
            (Failure::Connect(bad()), 2),
            (Failure::Listen(bad()), 2),
            (Failure::Connect(absent), 3),
            (
                Failure::NobodyCame { address: "local:x".into(), patience: Duration::from_secs(1) },
                3,
            ),
            (Failure::library("the sender", gone()), 4),
            (Failure::library("the sender", closed()), 1),
            (Failure::local("writing", "x", enospc), 5),
            (Failure::OutputClosed { bytes: 1 }, 5),
            (Failure::Key("x".into()), 5),
            (Failure::told("the sender", Cause::Other, "x"), 1),
            (Failure::told("the receiver", Cause::Integrity, "x"), 6),
            (Failure::told("the receiver", Cause::Refused, "x"), 3),
            (Failure::Integrity { what: "x".into(), how: "y".into(), kept: false }, 6),
            (Failure::Interrupted(2), 130),
            (Failure::Interrupted(15), 143),
        ] {
            assert_eq!(failure.status(), status, "{failure}");
        }
    }

    #[test]
    fn the_kernels_words_come_with_what_to_do() {
        let text = Failure::local("writing", "a", io::Error::from_raw_os_error(28)).to_string();
        assert!(text.starts_with("writing a: No space left on device"), "{text}");
        assert!(text.ends_with("free some space and run both sides again"), "{text}");
    }

    #[test]
    fn integrity_is_told_as_such() {
        let failure = Failure::Integrity { what: "x".into(), how: "y".into(), kept: false };
        assert!(matches!(failure.record(), Record::Abort { cause: Cause::Integrity, .. }));
        let other = Failure::Usage("x".into());
        assert!(matches!(other.record(), Record::Abort { cause: Cause::Other, .. }));
    }

    #[test]
    fn a_reason_from_the_other_side_cannot_drive_the_terminal() {
        let failure = Failure::told("the sender", Cause::Other, "\x1b[2J");
        assert_eq!(failure.to_string(), "the sender gave up: \\u{1b}[2J");
    }
}
