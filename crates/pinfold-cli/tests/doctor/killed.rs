//! A doctor that is killed: its trials end with it.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};

use super::harness::{PROGRAM, is_open};

/// The time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The processes that `parent` has started, oldest first.
fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let number: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // The name may have blanks in it, and ends with a bracket.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
        (fields.next()? == parent).then_some(number)
    });
    let mut found: Vec<i32> = processes.collect();
    found.sort_unstable();
    found.into_iter().filter_map(Pid::from_raw).collect()
}

/// A doctor that stands still while its first trial listens at a name, and that trial.
fn stopped_in_a_trial() -> (Child, Pid) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["doctor", "--no-measure"]).env("PINFOLD_DIR", place.path());
        let mut doctor = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_child(&doctor);
        let name = place.path().join(format!("doctor-{}", doctor.id()));
        while !name.exists() && doctor.try_wait().unwrap().is_none() {
            assert!(Instant::now() < end, "no trial listens");
            thread::yield_now();
        }
        let _ = kill_process(pid, Signal::STOP);
        let trials = children(pid);
        for trial in &trials {
            let _ = kill_process(*trial, Signal::STOP);
        }
        if name.exists()
            && let Some(first) = trials.first()
        {
            return (doctor, *first);
        }
        // The trial was over too soon.
        let _ = doctor.kill();
        doctor.wait().unwrap();
    }
    panic!("no doctor was stopped in its first trial");
}

#[test]
fn trials_end_with_the_doctor() {
    if !is_open() {
        return;
    }
    let (mut doctor, trial) = stopped_in_a_trial();
    let ended = pidfd_open(trial, PidfdFlags::empty()).unwrap();
    doctor.kill().unwrap();
    doctor.wait().unwrap();
    // It stands still and does nothing itself: only the kernel can end it.
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let found = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience)).unwrap();
    let _ = pidfd_send_signal(&ended, Signal::KILL);
    assert_eq!(found, 1, "the trial lives on");
}
