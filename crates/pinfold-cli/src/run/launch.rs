//! Starting an MPI's starter, passing signals on, and its end.

use std::{
    io::{self, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus},
    sync::mpsc,
    thread,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::SIGINT;

use crate::signals;

enum Event {
    Asked(i32),
    Ended(io::Result<ExitStatus>),
}

/// Runs a command to its end, and returns the status that a shell would show of it. Requests to end
/// are passed on: the MPI ends its ranks. If this process is killed, the command is, too.
///
/// # Errors
/// A text if it cannot be started or waited for.
pub(super) fn run(command: &mut Command) -> Result<u8, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| format!("cannot run {program}: {error}");
    let mut asked = signals::take().map_err(failed)?;
    pinfold_sys::program::end_with_this_thread(command);
    let mut child = command.spawn().map_err(failed)?;
    let pidfd = pid_of(&child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let (say, said) = mpsc::channel();
    let say_asked = say.clone();
    let forward = move || {
        asked.forever().take_while(|&number| say_asked.send(Event::Asked(number)).is_ok()).count()
    };
    thread::Builder::new().name("signals".into()).spawn(forward).map_err(failed)?;
    let wait = move || say.send(Event::Ended(child.wait()));
    thread::Builder::new().name("wait".into()).spawn(wait).map_err(failed)?;
    loop {
        match said.recv() {
            Ok(Event::Ended(status)) => return status.map(code_of).map_err(failed),
            Ok(Event::Asked(number)) => {
                // A terminal has told the starter already.
                let is_told = number == SIGINT && io::stdin().is_terminal();
                if let (Some(pidfd), Some(signal), false) =
                    (&pidfd, Signal::from_named_raw(number), is_told)
                {
                    let _ = pidfd_send_signal(pidfd, signal);
                }
            }
            Err(_) => return Err(format!("cannot wait for {program}")),
        }
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// The status as a shell shows it.
fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_passed_on() {
        let run = |script: &str| run(Command::new("sh").args(["-c", script]));
        assert_eq!(run("exit 0"), Ok(0));
        assert_eq!(run("exit 77"), Ok(77));
        assert_eq!(run("kill -9 $$"), Ok(137));
        let error = super::run(&mut Command::new("/nowhere/program")).unwrap_err();
        assert!(error.contains("cannot run /nowhere/program"), "{error}");
    }
}
