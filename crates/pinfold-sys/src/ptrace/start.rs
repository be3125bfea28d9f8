//! Starting a program that is watched from its first step.
// Invariant: between `fork` and `execvp` the child makes system calls alone, on memory that was
// made before; it ends by `_exit`.

use std::{
    ffi::{CString, OsString},
    io::{self, Read},
    os::{
        fd::{AsRawFd, RawFd},
        unix::ffi::OsStrExt,
    },
    ptr,
};

use rustix::io::Errno;

use super::{filter, request};
use crate::failed::Failed;

/// The steps of a child that may fail, by the numbers that it reports.
const STEPS: [&str; 2] = ["seccomp", "execvp"];
/// Events that the kernel is to tell of.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESECCOMP
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_EXITKILL;

/// A child that is watched, and about to run its program.
pub(super) struct Child {
    pub(super) pid: u32,
    report: io::PipeReader,
}

impl Child {
    /// The step that failed, if the program never ran. Waits until that is known.
    pub(super) fn failed(&mut self) -> Option<Failed> {
        let mut told = [0; 8];
        self.report.read_exact(&mut told).ok()?;
        let word =
            |at: usize| i32::from_ne_bytes([told[at], told[at + 1], told[at + 2], told[at + 3]]);
        let call = STEPS.get(usize::try_from(word(0)).ok()?)?;
        Some(Failed { call, errno: Errno::from_raw_os_error(word(4)) })
    }
}

/// Words as the kernel takes them.
pub(super) fn words(words: &[OsString]) -> Result<Vec<CString>, Failed> {
    let wrong = Failed { call: "execvp", errno: Errno::INVAL };
    let all: Result<Vec<CString>, _> =
        words.iter().map(|word| CString::new(word.as_bytes())).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(wrong)
}

/// Starts a program, stopped before its first step.
pub(super) fn start(words: &[CString], calls: &[i64]) -> Result<Child, Failed> {
    let steps = filter::program(calls);
    let mut argv: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    argv.push(ptr::null());
    let (go, begin) = io::pipe().map_err(Failed::of("pipe"))?;
    let (report, fail) = io::pipe().map_err(Failed::of("pipe"))?;
    let ends = [go.as_raw_fd(), begin.as_raw_fd(), fail.as_raw_fd()];
    // SAFETY: the child makes system calls alone, on memory that is there, and leaves by `_exit`.
    let pid = match unsafe { libc::fork() } {
        0 => child(ends, &steps, &argv),
        pid => u32::try_from(pid).map_err(|_| Failed::of("fork")(io::Error::last_os_error()))?,
    };
    drop((go, fail));
    let child = Child { pid, report };
    if let Err(why) = request_seize(pid) {
        // The child finds nobody at the other end, and leaves.
        drop(begin);
        let mut status = 0;
        // SAFETY: the kernel writes one integer of this frame.
        unsafe { libc::waitpid(pid.cast_signed(), &raw mut status, 0) };
        return Err(Failed::of("ptrace(PTRACE_SEIZE)")(why));
    }
    let told = io::Write::write_all(&mut &begin, &[1]);
    told.map_err(Failed::of("write"))?;
    Ok(child)
}

fn request_seize(pid: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, pid, OPTIONS as usize)
}

/// The child's part: waits to be watched, puts up the filter, becomes the program.
fn child(
    [go, begin, fail]: [RawFd; 3],
    steps: &[libc::sock_filter],
    argv: &[*const libc::c_char],
) -> ! {
    let mut byte = 0u8;
    // SAFETY: system calls alone, and `execvp`, which allocates nothing; each is given memory of
    // this frame or of before the fork, or numbers. The descriptors are this process's copies.
    unsafe {
        libc::close(begin);
        if libc::read(go, (&raw mut byte).cast(), 1) == 1 {
            // The runtime ignores it; programs expect it to end them.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let (step, errno) = match filter::install(steps) {
                Err(errno) => (0, errno),
                Ok(()) => {
                    libc::execvp(argv[0], argv.as_ptr());
                    (1, *libc::__errno_location())
                }
            };
            let told = [step, errno];
            libc::write(fail, told.as_ptr().cast(), size_of_val(&told));
        }
        libc::_exit(127)
    }
}
