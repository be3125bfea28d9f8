//! Programs whose system calls are watched: `ptrace(2)`, with a filter of `seccomp(2)` so that no
//! call stops but the wanted ones.
//!
//! An unprivileged user may watch what that user starts. A static program is watched as any other,
//! and so are threads and children: the kernel attaches each as it is made, and gives it the
//! filter. A library that is loaded ahead (`LD_PRELOAD`) would see nothing of static programs, nor
//! of calls that the C library makes to itself.
//!
//! Each watched call stops its thread twice, which costs some ten microseconds: the order of calls
//! is the program's own, their times are not.
#![allow(unsafe_code)]
// Invariant: every call of `ptrace(2)` is made by the thread that forked the program, on a thread
// that it has from `waitpid(2)`, stopped. Structures that the kernel fills are of this frame.

mod filter;
mod start;

use std::{collections::HashMap, ffi::OsString, io, mem::MaybeUninit, ptr};

use rustix::io::Errno;

use crate::failed::Failed;

/// A call of a watched program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process.
    pub pid: u32,
    /// The thread; the first one of a process has the process's number.
    pub tid: u32,
    /// The call's number, a `SYS_*` of `libc`.
    pub number: i64,
    /// Its arguments.
    pub args: [u64; 6],
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this status.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
}

/// An observer of calls. The thread in the call stands still until a method returns.
pub trait Observer: Send {
    /// The program runs, and has this number.
    fn started(&mut self, pid: u32) {
        let _ = pid;
    }

    /// A process runs another program from now on.
    fn executed(&mut self, pid: u32) {
        let _ = pid;
    }

    /// A call begins: the process's memory is as the call finds it.
    fn enters(&mut self, call: &Call);

    /// A call has ended with a result, or with an errno, negative.
    fn leaves(&mut self, call: &Call, result: i64);

    /// A process made a call by numbers that are not this machine's, as 32-bit programs do. The
    /// call goes on, and is not seen.
    fn foreign(&mut self, pid: u32) {
        let _ = pid;
    }

    /// A thread is gone, also out of the middle of a call.
    fn gone(&mut self, tid: u32) {
        let _ = tid;
    }
}

/// Runs a program, with all that it starts, and shows `calls` to the observer. Returns the end of
/// the program itself, once all of its children have ended as well.
///
/// Children of the calling thread are waited for, whoever started them: call it by a thread that
/// has none. The kernel knows a watcher by its thread, and kills the program where that ends first.
///
/// The program has this process's files, folder and environment. If this process is killed, so is
/// the program. Where this user lacks `CAP_SYS_ADMIN`, programs that change the user by themselves
/// (`sudo`) cannot: a filter takes `PR_SET_NO_NEW_PRIVS`.
///
/// # Errors
/// The call that failed: `fork`; `PTRACE_SEIZE` with `EPERM` under `kernel.yama.ptrace_scope` 2 or
/// 3 or a filter; `seccomp`; `execvp` with `ENOENT` if there is no such program;
/// `PTRACE_GET_SYSCALL_INFO` with `EIO` before Linux 5.3; `EINVAL` for no words, or words with a
/// zero byte.
pub fn run(
    words: &[OsString],
    calls: &[i64],
    observer: &mut impl Observer,
) -> Result<Ended, Failed> {
    let child = start::start(&start::words(words)?, calls)?;
    Watch { child, threads: HashMap::new(), is_begun: false, ended: None }.run(observer)
}

/// A thread that is watched.
struct Thread {
    pid: u32,
    /// The call that it is in.
    call: Option<Call>,
}

struct Watch {
    child: start::Child,
    threads: HashMap<u32, Thread>,
    /// The program runs, rather than this one's copy.
    is_begun: bool,
    ended: Option<Ended>,
}

/// A reason for a stop, as `ptrace(2)` has them.
enum Stop {
    Filtered,
    Left,
    Executed,
    /// The whole process was stopped by a signal, and stays so until it is continued.
    Group,
    /// A signal is about to be delivered.
    Signal(i32),
    /// Anything else: a thread was made, or begins.
    Other,
}

impl Stop {
    fn of(status: i32) -> Stop {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match (event, signal) {
            (libc::PTRACE_EVENT_SECCOMP, _) => Stop::Filtered,
            (libc::PTRACE_EVENT_EXEC, _) => Stop::Executed,
            (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Stop::Other,
            (libc::PTRACE_EVENT_STOP, _) => Stop::Group,
            (0, signal) if signal == libc::SIGTRAP | 0x80 => Stop::Left,
            (0, signal) => Stop::Signal(signal),
            _ => Stop::Other,
        }
    }
}

impl Watch {
    fn run(mut self, observer: &mut impl Observer) -> Result<Ended, Failed> {
        loop {
            let mut status = 0;
            // Children of other threads are none of ours.
            let flags = libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: the kernel writes one integer of this frame.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, flags) };
            let Ok(tid) = u32::try_from(tid) else {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => break,
                }
            };
            if !libc::WIFSTOPPED(status) {
                self.gone(tid, status, observer);
            } else {
                self.stopped(tid, Stop::of(status), observer)?;
            }
        }
        if let Some(why) = self.child.failed() {
            return Err(why);
        }
        self.ended.ok_or(Failed { call: "waitpid", errno: Errno::CHILD })
    }

    fn gone(&mut self, tid: u32, status: i32, observer: &mut impl Observer) {
        if self.threads.remove(&tid).is_some() {
            observer.gone(tid);
        }
        if tid == self.child.pid {
            self.ended = Some(match libc::WIFEXITED(status) {
                true => Ended::Exited(libc::WEXITSTATUS(status)),
                false => Ended::Signalled(libc::WTERMSIG(status)),
            });
        }
    }

    fn stopped(
        &mut self,
        tid: u32,
        stop: Stop,
        observer: &mut impl Observer,
    ) -> Result<(), Failed> {
        if matches!(stop, Stop::Executed) {
            // All threads but this one are gone, and it has the process's number from now on.
            self.threads.retain(|one, thread| thread.pid != tid && *one != tid);
        }
        let new = || Thread { pid: process_of(tid), call: None };
        let thread = self.threads.entry(tid).or_insert_with(new);
        let mut how = libc::PTRACE_CONT;
        let mut signal = 0;
        match stop {
            Stop::Filtered => {
                if let Some(info) = info(tid)? {
                    how = enter(thread, tid, &info, self.is_begun, observer);
                }
            }
            Stop::Left => {
                let left = info(tid)?.filter(|it| it.op == libc::PTRACE_SYSCALL_INFO_EXIT);
                if let (Some(info), Some(call)) = (left, thread.call.take()) {
                    // SAFETY: the kernel said that this is the end of a call.
                    observer.leaves(&call, unsafe { info.u.exit.sval });
                }
            }
            Stop::Executed => {
                observer.gone(tid);
                if !self.is_begun {
                    self.is_begun = true;
                    observer.started(tid);
                }
                observer.executed(tid);
            }
            Stop::Group => how = libc::PTRACE_LISTEN,
            Stop::Signal(number) => signal = number,
            Stop::Other => {}
        }
        // One that was killed meanwhile cannot go on, and does not have to.
        let _ = request(how, tid, signal as usize);
        Ok(())
    }
}

/// Takes a call that begins. Returns the way to go on.
fn enter(
    thread: &mut Thread,
    tid: u32,
    info: &libc::ptrace_syscall_info,
    is_begun: bool,
    observer: &mut impl Observer,
) -> libc::c_uint {
    if info.op != libc::PTRACE_SYSCALL_INFO_SECCOMP || !is_begun {
        return libc::PTRACE_CONT;
    }
    // SAFETY: the kernel said that this is a stop by a filter.
    let seen = unsafe { info.u.seccomp };
    if seen.ret_data == filter::FOREIGN {
        observer.foreign(thread.pid);
        return libc::PTRACE_CONT;
    }
    let call = Call { pid: thread.pid, tid, number: seen.nr.cast_signed(), args: seen.args };
    observer.enters(&call);
    thread.call = Some(call);
    libc::PTRACE_SYSCALL
}

/// The process of a thread; the thread's own number if that cannot be known any more.
fn process_of(tid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|text| text.trim().parse().ok()).unwrap_or(tid)
}

/// The call that a stopped thread is in; `None` if the thread was killed.
fn info(tid: u32) -> Result<Option<libc::ptrace_syscall_info>, Failed> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let bytes = size_of::<libc::ptrace_syscall_info>();
    let call = libc::PTRACE_GET_SYSCALL_INFO;
    // SAFETY: the kernel writes at most `bytes` into a structure of this frame, which is so long.
    let got = unsafe { libc::ptrace(call, tid, bytes, info.as_mut_ptr()) };
    if got >= 0 {
        // SAFETY: all zero is a value of this structure, and so is whatever the kernel wrote.
        return Ok(Some(unsafe { info.assume_init() }));
    }
    match io::Error::last_os_error() {
        why if why.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        why => Err(Failed::of("ptrace(PTRACE_GET_SYSCALL_INFO)")(why)),
    }
}

/// A request that takes a number alone.
fn request(what: libc::c_uint, tid: u32, data: usize) -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: these requests take a number in place of the last pointer, and touch no memory.
    let done = unsafe { libc::ptrace(what, tid, none, data) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
