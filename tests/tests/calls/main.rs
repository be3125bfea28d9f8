//! Every system call that an endpoint makes, denied alone: an endpoint does without a dispensable
//! call, and a denied indispensable call is an error that names it.

mod exercise;
mod sides;
mod table;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use pinfold_tests::{Args, Stage, stage::Player};

use crate::table::{Denial, Need};

pinfold_tests::roles!(side);

fn side(args: &Args) {
    sides::side(args);
}

/// The ways in which two endpoints meet: by a name, over connections, over encrypted ones, and by a
/// connection that tells both that they are on one host.
const GROUNDS: [&str; 4] = ["local", "tcp", "tls", "beside"];

/// Far more time than an exchange takes.
const SECONDS: u64 = 20;

/// Pairs at a time. Some of them wait for calls that go unanswered.
const AT_ONCE: usize = 3;

/// A pair of processes, from one or both of which a call is taken.
#[derive(Clone, Copy)]
struct Case {
    denial: &'static Denial,
    errno: i32,
    /// True if the listener goes without the call; true if the caller does.
    who: [bool; 2],
}

impl Case {
    fn name(&self) -> String {
        let who = match self.who {
            [true, true] => "both",
            [true, false] => "the listener",
            _ => "the caller",
        };
        format!("{} denied to {who} (errno {})", self.denial.name, self.errno)
    }

    /// The words of both sides for each ground that did not work.
    fn play(&self) -> Vec<(&'static str, Vec<String>)> {
        let stage = Stage::new(SECONDS);
        let cast = |goes_without: bool| {
            let role = stage.role("side").unmeasured();
            match goes_without {
                true => role.with("denied", self.denial.name).with("errno", self.errno),
                false => role,
            }
        };
        let mut players = self.who.map(|goes_without| cast(goes_without).spawn());
        players.iter_mut().for_each(|player| drop(player.expect("here")));
        let failures = GROUNDS.map(|ground| (ground, meet(&mut players, ground)));
        players.iter_mut().for_each(Player::end_well);
        failures.into_iter().filter(|(_, said)| !said.is_empty()).collect()
    }
}

/// Has two processes meet on a ground, and returns the faults.
fn meet([listener, caller]: &mut [Player; 2], ground: &'static str) -> Vec<String> {
    let address = if ground == "local" { "local:calls" } else { "tcp:127.0.0.1:0" };
    listener.say(format_args!("listen {ground} {address}"));
    let heard = listener.hear();
    let Some(at) = heard.strip_prefix("at ") else { return vec![heard] };
    caller.say(format_args!("call {ground} {at}"));
    let called = caller.hear();
    if called != "done" {
        listener.say("leave");
    }
    let listened = listener.hear();
    for (player, heard) in [(&mut *listener, &listened), (&mut *caller, &called)] {
        if heard == "done" {
            player.say("leave");
        }
    }
    [listened, called].into_iter().filter(|heard| heard != "done").collect()
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for denial in table::DENIALS.iter() {
        let mut add = |errno, who| cases.push(Case { denial, errno, who });
        add(libc::EPERM, [true, true]);
        add(libc::ENOSYS, [true, true]);
        add(libc::EPERM, [true, false]);
        // Each side hears of the calls that the other lacks.
        if denial.need == Need::Indispensable {
            add(libc::ENOSYS, [false, true]);
        }
    }
    cases
}

/// The faults in the course of a case.
fn judge(case: &Case, failures: &[(&'static str, Vec<String>)]) -> Vec<String> {
    let Denial { name, call, need, .. } = case.denial;
    let mut wrong = Vec::new();
    for (ground, said) in failures {
        match need {
            Need::Optional => wrong.push(format!("{ground}: {said:#?}")),
            Need::Indispensable => {
                let names = |said: &String| said.contains(call) && said.contains("seccomp");
                // The side that has all its calls hears that the other has gone.
                let follows = |said: &String| {
                    ["is gone", "within", "did not answer", "no endpoint listens"]
                        .iter()
                        .any(|word| said.contains(word))
                };
                if !said.iter().any(names) || !said.iter().all(|it| names(it) || follows(it)) {
                    wrong.push(format!("{ground}: does not name {name}: {said:#?}"));
                }
            }
        }
    }
    wrong
}

/// Calls that the table lacks do not go untested.
#[test]
fn every_call_is_in_the_table() {
    let stage = Stage::new(SECONDS);
    let cast = || stage.role("side").unmeasured().with("traps", 1).spawn();
    let mut players = [cast(), cast()];
    players.iter_mut().for_each(|player| drop(player.expect("here")));
    for ground in GROUNDS {
        let wrong = meet(&mut players, ground);
        assert!(wrong.is_empty(), "{ground}: {wrong:#?}");
    }
    players.iter_mut().for_each(Player::end_well);
}

#[test]
fn each_call_denied_alone() {
    let cases = cases();
    let only = std::env::var("PINFOLD_CALLS_ONLY").ok();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    let fatal = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if only.as_ref().is_some_and(|only| !case.denial.name.contains(only)) {
                        continue;
                    }
                    let played = std::panic::catch_unwind(|| case.play());
                    let found = match played {
                        Ok(failures) => {
                            if !failures.is_empty() {
                                fatal.lock().unwrap().push(case.denial.name);
                            }
                            judge(case, &failures)
                        }
                        Err(panic) => {
                            let text = panic.downcast_ref::<String>().cloned();
                            vec![text.unwrap_or_else(|| "a panic".to_owned())]
                        }
                    };
                    if !found.is_empty() {
                        wrong.lock().unwrap().push(format!(
                            "{}: {}",
                            case.name(),
                            found.join("\n")
                        ));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} cases went wrong:\n{}", wrong.len(), wrong.join("\n\n"));
    // The table says no more than is true.
    let fatal = fatal.into_inner().unwrap();
    for denial in table::DENIALS.iter().filter(|denial| denial.need == Need::Indispensable) {
        assert!(
            only.is_some() || fatal.contains(&denial.name),
            "{} is not indispensable",
            denial.name
        );
    }
}
