//! Errors of traces.

use std::io;

use pinfold_sys::failed::Failed;

/// The reason why a trace could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file begins otherwise.
    #[error("it is no trace: it does not begin with PINTRACE; make one with pinfold trace record")]
    NotATrace,
    /// The file is of another version.
    #[error(
        "it is a trace of version {0}, and this program reads versions {1} to {2}; record it \
             again, or use the pinfold that made it"
    )]
    Version(u16, u16, u16),
    /// The file ends too early: the recording was cut off.
    #[error("it is cut off in block {block}, at byte {at}: all before that block is good")]
    Truncated {
        /// The block, counted from 0.
        block: u64,
        /// The offset in the file at which bytes are missing.
        at: u64,
    },
    /// A block's bytes are not those that were written.
    #[error("block {block}, which begins at byte {at}, is damaged: {why}; all before it is good")]
    Damaged {
        /// The block, counted from 0.
        block: u64,
        /// The offset in the file at which the block begins.
        at: u64,
        /// The fault.
        why: &'static str,
    },
    /// A line of text makes no sense.
    #[error("line {line}: {why}")]
    Line {
        /// The line, counted from 1.
        line: u64,
        /// The fault.
        why: String,
    },
    /// Bytes could not be read.
    #[error("cannot be read: {0}")]
    Read(#[source] io::Error),
    /// Bytes could not be written.
    #[error("cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The program could not be run.
    #[error("cannot run {program}: {why}; is its name right, and may it be run?")]
    Start {
        /// The program.
        program: String,
        /// The error.
        #[source]
        why: io::Error,
    },
    /// Translations could not be listened to.
    #[error(
        "cannot listen to translations: {0}; a socket is made in the folder that TMPDIR names, or \
             in /tmp"
    )]
    Listen(#[source] io::Error),
    /// The program could not be run, or not be watched.
    #[error("{}", watching(.0))]
    Watch(Failed),
}

/// The failed call, and a remedy.
fn watching(why: &Failed) -> String {
    let remedy = match why.call {
        "execvp" => "is the program's name right, and may it be run?",
        "ptrace(PTRACE_SEIZE)" => {
            "this system lets no ordinary user watch programs: see kernel.yama.ptrace_scope \
             (0 or 1 is needed), and the container's seccomp profile"
        }
        "seccomp" => "the kernel needs CONFIG_SECCOMP_FILTER",
        "ptrace(PTRACE_GET_SYSCALL_INFO)" => "Linux 5.3 or later is needed",
        _ => "the program was ended",
    };
    format!("cannot run and watch the program: {why}; {remedy}")
}
