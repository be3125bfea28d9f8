//! Programs whose calls are known, one by one.

use std::{collections::BTreeSet, ffi::OsString};

use super::*;

/// Keeps all that it is shown.
#[derive(Default)]
struct Log {
    entered: Vec<Call>,
    left: Vec<(Call, i64)>,
    executed: u32,
}

impl Observer for Log {
    fn executed(&mut self, _: u32) {
        self.executed += 1;
    }

    fn enters(&mut self, call: &Call) {
        self.entered.push(*call);
    }

    fn leaves(&mut self, call: &Call, result: i64) {
        self.left.push((*call, result));
    }
}

/// `None` where the kernel lets nobody watch.
fn watch(words: &[&str], calls: &[i64]) -> Option<(Ended, Log)> {
    let mut log = Log::default();
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    match run(&words, calls, &mut log) {
        Ok(ended) => Some((ended, log)),
        Err(why) if why.call != "execvp" => {
            crate::skip::skip(&format!("watching programs: {why}"));
            None
        }
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn wanted_calls_of_children_are_seen_and_no_others() {
    let script = "echo abc; (echo de); /bin/echo f; exit 7";
    let Some((ended, log)) = watch(&["sh", "-c", script], &[libc::SYS_write]) else { return };
    assert_eq!(ended, Ended::Exited(7));
    let lengths: Vec<(u64, i64)> =
        log.left.iter().map(|(call, got)| (call.args[2], *got)).collect();
    assert_eq!(lengths, [(4, 4), (3, 3), (2, 2)]);
    assert!(log.left.iter().all(|(call, _)| call.number == libc::SYS_write && call.args[0] == 1));
    assert_eq!(log.executed, 2);
    let pids: BTreeSet<u32> = log.left.iter().map(|(call, _)| call.pid).collect();
    assert_eq!(pids.len(), 3);
}

#[test]
fn a_program_that_a_signal_ends() {
    let Some((ended, log)) = watch(&["sh", "-c", "kill -TERM $$"], &[libc::SYS_write]) else {
        return;
    };
    assert_eq!((ended, log.left.len()), (Ended::Signalled(libc::SIGTERM), 0));
}

#[test]
fn a_stopped_program_goes_on_when_it_is_continued() {
    let script = "(sleep 0.2; kill -CONT $$) & kill -STOP $$; echo on";
    let Some((ended, log)) = watch(&["sh", "-c", script], &[libc::SYS_write]) else { return };
    assert_eq!(ended, Ended::Exited(0));
    assert_eq!(log.left.len(), 1);
}

#[test]
fn programs_that_are_not_there() {
    let mut log = Log::default();
    let missing = run(&["/nowhere/program".into()], &[libc::SYS_write], &mut log).unwrap_err();
    if missing.call == "execvp" {
        assert_eq!(missing, Failed { call: "execvp", errno: Errno::NOENT });
    }
    for words in [vec![], vec!["a\0b".into()]] {
        assert_eq!(run(&words, &[], &mut log).unwrap_err().errno, Errno::INVAL);
    }
    assert!(log.entered.is_empty() && log.executed == 0);
}
