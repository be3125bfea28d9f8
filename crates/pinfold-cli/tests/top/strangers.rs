//! Processes of other users, children, and files that only look like pages.

use std::{
    collections::BTreeMap, fs, os::unix::fs::PermissionsExt, os::unix::process::CommandExt,
    process::Command,
};

use pinfold_tests::{Stage, host::copy_program, skip::is_root_or_skip};
use rustix::process::{Pid, Signal, kill_process};

use super::harness::{Look, PROGRAM, every, look_at, refused, run, said};

const NOBODY: u32 = 65534;

/// The command as `nobody` runs it, at a place where `nobody` can reach it.
fn as_nobody(stage: &Stage) -> Command {
    let copy = stage.path().join("pinfold");
    if !copy.exists() {
        copy_program(PROGRAM, &copy);
        fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(copy);
    command.env_clear().current_dir("/").uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn root_sees_all_and_others_their_own() {
    if !is_root_or_skip("becoming nobody") {
        return;
    }
    let stage = Stage::new(60);
    let mut ours = stage.role("loner").with("alone", 1).spawn();
    ours.expect("made");
    let mut theirs = stage.role("loner").with("alone", 1).user(NOBODY).spawn();
    theirs.expect("made");
    let all = every();
    assert_eq!(all.of_process(ours.pid())[0].own["uid"], 0);
    assert_eq!(all.of_process(theirs.pid())[0].own["uid"], NOBODY);

    let mut command = as_nobody(&stage);
    let all = Look::of(&said(command.args(["top", "--json"])));
    assert_eq!(all.of_process(theirs.pid()).len(), 1);
    assert!(all.endpoints.iter().all(|endpoint| endpoint.own["uid"] == NOBODY), "{all:#?}");
    // Processes of other users are not hidden: they were not asked for. This one was.
    let mut command = as_nobody(&stage);
    let output = command.args(["top", "--pid", &ours.pid().to_string()]).output().unwrap();
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(why.contains("may not be looked into"), "{why}");
}

#[test]
fn those_that_may_not_be_looked_into_are_counted() {
    if !is_root_or_skip("becoming nobody, who may not look into everything,") {
        return;
    }
    let stage = Stage::new(60);
    let look = || {
        let text = said(as_nobody(&stage).args(["top", "--json"]));
        (Look::of(&text).summary["hidden"].as_u64().unwrap(), Look::of(&text))
    };
    // Processes of other tests may be counted for a moment, while they become `nobody`'s.
    let least = || (0..5).map(|_| look().0).min().unwrap();
    let before = least();
    let mut closed = stage.role("loner").with("alone", 1).with("closed", 1).user(NOBODY).spawn();
    closed.expect("made");
    assert_eq!(least(), before + 1);
    let (_, all) = look();
    assert!(all.of_process(closed.pid()).is_empty());
    let text = said(as_nobody(&stage).args(["top", "--once"]));
    assert!(text.lines().next().unwrap().ends_with("may not be looked into"), "{text}");
    // Root may.
    assert_eq!(every().of_process(closed.pid()).len(), 1);
    closed.say("leave");
    closed.end_well();
    assert_eq!(least(), before);
}

#[test]
fn a_child_is_not_its_parent() {
    let stage = Stage::new(60);
    let mut parent = stage.role("forker").spawn();
    let child: u32 = parent.expect("child").parse().unwrap();
    let pid = i32::try_from(child).unwrap();
    let id = look_at(parent.pid()).endpoint().own["id"].clone();
    let shown = || every().endpoints.into_iter().filter(|one| one.own["id"] == id).count();
    // The child has the same page.
    let links = fs::read_dir(format!("/proc/{child}/fd")).unwrap().flatten();
    let mut links = links.filter_map(|entry| fs::read_link(entry.path()).ok());
    assert!(links.any(|link| link.to_string_lossy().contains("pinfold-status")));
    assert_eq!(shown(), 1);
    let of_child = refused(&["top", "--pid", &child.to_string()]);
    assert_eq!(of_child.0, 1, "{}", of_child.1);
    // The page outlives its endpoint in the child; the endpoint does not.
    parent.kill();
    assert!(parent.was_killed());
    assert!(fs::exists(format!("/proc/{child}/fd")).unwrap());
    assert_eq!(shown(), 0);
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn nonsense_is_called_so_and_survived() {
    let stage = Stage::new(60);
    let mut liar = stage.role("liar").spawn();
    liar.expect("lied");
    let all = look_at(liar.pid());
    let mut kinds = BTreeMap::new();
    for trouble in &all.troubles {
        assert_eq!(trouble["pid"], liar.pid());
        assert!(!trouble["text"].as_str().unwrap().is_empty());
        *kinds.entry(trouble["problem"].as_str().unwrap()).or_insert(0) += 1;
    }
    // Junk, nothing, too short, the wrong size, not sealed, too many peers.
    let expected = [("nonsense", 6), ("other_version", 1), ("unsteady", 1)];
    assert_eq!(kinds, BTreeMap::from(expected), "{:#?}", all.troubles);
    let version = all.troubles.iter().find(|one| one["problem"] == "other_version").unwrap();
    assert!(version["text"].as_str().unwrap().contains("layout 7, 7 paths"), "{version}");
    // The one that is true, and the one that may be anything.
    let labels: Vec<&str> =
        all.endpoints.iter().map(|one| one.own["label"].as_str().unwrap()).collect();
    assert_eq!(labels.len(), 2, "{labels:?}");
    assert!(labels.contains(&"honest"));
    // Its table has nothing in it that a terminal would obey.
    let pid = liar.pid().to_string();
    for words in [&["top", "--once"][..], &["top", "--once", "--pid", &pid]] {
        let table = run(words);
        assert!(table.lines().filter(|line| line.starts_with("Note: ")).count() >= 8, "{table}");
        assert!(!table.chars().any(|char| char.is_control() && char != '\n'), "{table:?}");
    }
    liar.say("leave");
    liar.end_well();
}
