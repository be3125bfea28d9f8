//! SIGINT, SIGTERM and SIGHUP end every command in the same way, and nothing is left. Transfers are
//! in `transfer/stopped.rs`.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pinfold");
const SIGNALS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Commands that measure in one process.
const ALONE: [&[&str]; 3] = [&["tune"], &["perf", "copy"], &["perf", "send-modes"]];
/// A time far beyond any that a test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a command with no signal ignored but the given one, if any.
fn start(words: &[&str], ignored: Option<&str>) -> Child {
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP,INT,TERM");
    command.args(ignored.map(|signal| format!("--ignore-signal={signal}")));
    command.arg(PROGRAM).args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null()).spawn().unwrap()
}

fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let started = Instant::now();
    while !ready() {
        assert!(started.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn end(child: &mut Child) -> ExitStatus {
    wait_until("it ends", || child.try_wait().unwrap().is_some());
    child.wait().unwrap()
}

/// The processes that this one has started, and that it has not waited for.
fn children(child: &Child) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}

#[test]
fn top_ends_well() {
    for signal in SIGNALS {
        let mut top = start(&["top", "--json", "--interval", "0.1"], None);
        let mut out = BufReader::new(top.stdout.take().unwrap());
        out.read_line(&mut String::new()).unwrap();
        kill_process(Pid::from_child(&top), signal).unwrap();
        assert_eq!(end(&mut top).code(), Some(0), "{signal:?}");
    }
}

#[test]
fn top_leaves_signals_ignored() {
    for (name, signal) in [("HUP", Signal::HUP), ("INT", Signal::INT)] {
        let mut top = start(&["top", "--json", "--interval", "0.1"], Some(name));
        let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        kill_process(Pid::from_child(&top), signal).unwrap();
        // The run goes on for longer than it takes to hear of the signal.
        for _ in 0..20 {
            lines.next().expect("it goes on").unwrap();
        }
        kill_process(Pid::from_child(&top), Signal::TERM).unwrap();
        assert_eq!(end(&mut top).code(), Some(0), "{name}");
    }
}

/// A command that measures is ended by the signal itself, with all that it has started.
#[test]
fn measuring_ends_with_all_that_takes_part() {
    for words in [
        &["perf", "--seconds", "50", "--what", "latency"][..],
        &["doctor"],
        &["tune", "--seconds", "50"],
        &["tune", "--seconds", "50", "--dry-run"],
        &["perf", "copy", "--seconds", "50"],
        &["perf", "tcp", "--seconds", "50"],
        &["perf", "send-modes", "--seconds", "50"],
    ] {
        for signal in SIGNALS {
            let home = tempfile::tempdir().unwrap();
            let mut command = Command::new("env");
            command.args(["--default-signal=HUP,INT,TERM", PROGRAM]).args(words);
            command.env("XDG_CONFIG_HOME", home.path()).env_remove("HOME");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            let mut started = Vec::new();
            if ALONE.iter().any(|alone| words.starts_with(alone)) {
                thread::sleep(Duration::from_millis(300));
            } else {
                wait_until("it has started another", || {
                    started.extend(children(&child));
                    !started.is_empty() || child.try_wait().unwrap().is_some()
                });
            }
            if child.try_wait().unwrap().is_some() {
                pinfold_tests::skip(&format!("{words:?} ended before it could be stopped"));
                continue;
            }
            kill_process(Pid::from_child(&child), signal).unwrap();
            assert_eq!(end(&mut child).signal(), Some(signal.as_raw()), "{words:?}");
            for other in started {
                wait_until("what it started ends", || is_gone(other));
            }
            let left = fs::read_dir(home.path().join("pinfold")).into_iter().flatten().count();
            assert_eq!(left, 0, "{words:?} {signal:?}");
        }
    }
}

/// Returns whether a process is gone, or waits only for its adoptive parent to notice.
fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let state =
        stat.ok().and_then(|stat| stat.rsplit(") ").next().map(|rest| rest.starts_with('Z')));
    test_kill_process(pid).is_err() || state.unwrap_or(true)
}
