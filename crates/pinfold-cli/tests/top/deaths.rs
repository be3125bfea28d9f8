//! Processes that are killed while they are looked at.

use std::{
    collections::HashSet,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use pinfold_tests::Stage;

use super::harness::{Look, PROGRAM, every};

/// Kills of processes that have an endpoint.
const DEATHS: usize = 12;

#[test]
fn those_that_die_meanwhile_are_no_trouble() {
    let stage = Stage::new(120);
    let (over, mut pids) = (AtomicBool::new(false), HashSet::new());
    let looks: Vec<Look> = thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = Vec::new();
            while !over.load(Ordering::Relaxed) {
                looks.push(every());
            }
            looks
        });
        for _ in 0..DEATHS {
            let mut player = stage.role("loner").with("alone", 1).spawn();
            player.expect("made");
            pids.insert(player.pid());
            // Asked for by its number, the process is there or it is not, and nothing else.
            let one = Command::new(PROGRAM)
                .args(["top", "--json", "--pid", &player.pid().to_string()])
                .stdout(std::process::Stdio::piped())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            player.kill();
            let done = one.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            match done.status.code() {
                Some(0) => {
                    let look = Look::of(&String::from_utf8(done.stdout).unwrap());
                    assert_eq!((look.endpoints.len(), look.troubles.len()), (1, 0), "{look:?}");
                }
                Some(1) => assert!(!said.is_empty() && done.stdout.is_empty(), "{said}"),
                other => panic!("{other:?}: {said}"),
            }
            assert!(player.was_killed());
            assert_eq!(every().of_process(player.pid()).len(), 0);
        }
        over.store(true, Ordering::Relaxed);
        looking.join().unwrap()
    });
    assert!(!looks.is_empty());
    for look in looks {
        let ours = |pid: &serde_json::Value| pids.contains(&(pid.as_u64().unwrap() as u32));
        let troubles: Vec<_> = look.troubles.iter().filter(|one| ours(&one["pid"])).collect();
        assert!(troubles.is_empty(), "{troubles:#?}");
        for endpoint in look.endpoints.iter().filter(|one| ours(&one.own["pid"])) {
            assert_eq!(endpoint.own["label"], "alone", "{endpoint:?}");
        }
    }
}
