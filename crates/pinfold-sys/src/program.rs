//! Programs that this one starts: where they run, and how long.
#![allow(unsafe_code)]
// Invariant: code between `fork` and `exec` makes system calls only; it allocates nothing.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::{
    io::Errno,
    process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal},
};

use crate::cpu::affinity;

/// Has `command` run on one processor, if it may; if not, on those of the thread that starts it.
/// See `sched_setaffinity(2)`.
pub fn pin(command: &mut Command, cpu: usize) {
    let pin = move || {
        let _ = affinity::pin_to(cpu);
        Ok(())
    };
    // SAFETY: makes one system call, and allocates nothing.
    unsafe { command.pre_exec(pin) };
}

/// Has `command` be killed as soon as the thread that starts it ends, however that ends. Programs
/// that it starts itself are not killed. See `PR_SET_PDEATHSIG` of `prctl(2)`.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = getpid();
    // SAFETY: makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(move || end_with(parent)) };
}

/// Has this process be killed as soon as the thread of its parent that started it ends. Makes two
/// system calls. See `PR_SET_PDEATHSIG` of `prctl(2)`.
///
/// # Errors
/// `ESRCH` if `parent` has ended before that, or the error of a filter.
pub fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        os::unix::process::ExitStatusExt,
        process::{Child, Stdio},
        thread,
    };

    use super::*;

    fn run(command: &mut Command) -> Child {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_program_runs_where_it_is_told() {
        let last = *affinity::current_cpus().last().unwrap();
        for (cpu, pinned) in [(last, true), (usize::MAX, false)] {
            let mut command = Command::new("cat");
            pin(command.arg("/proc/self/status"), cpu);
            let done = command.output().unwrap();
            let text = String::from_utf8(done.stdout).unwrap();
            let listed = text.lines().find_map(|it| it.strip_prefix("Cpus_allowed_list:")).unwrap();
            assert_eq!(listed.trim() == last.to_string(), pinned || last == 0, "{listed}");
        }
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("cat");
            end_with_this_thread(&mut command);
            run(&mut command)
        };
        let mut child = thread::spawn(start).join().unwrap();
        // Otherwise `wait` would end it by the end of its input.
        let input = child.stdin.take();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        drop(input);
        // The program lives while the thread does.
        let mut child = start();
        drop(child.stdin.take());
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(child.wait().unwrap().success());
    }
}
