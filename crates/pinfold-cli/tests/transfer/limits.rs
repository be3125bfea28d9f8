//! Limits on the size of files, `ulimit -f`, and on the number of threads, `ulimit -u`.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use pinfold_tests::skip::is_root_or_skip;

use crate::{
    BOX,
    harness::{PROGRAM, Place, Running, pattern},
    messages,
};

#[test]
fn a_sender_that_can_have_no_arena_sends_all_the_same() {
    let place = Place::new();
    let contents = pattern(3 << 20, 8);
    fs::write(place.path("file"), &contents).unwrap();
    place.dir("out");
    let recv = place.recv(&["--json", BOX, "out"]);
    // Files in memory count, and an arena is at least 2 MiB of one.
    let script = format!("ulimit -f 1024; exec {PROGRAM} send --json file {BOX}");
    let sent = place.run_in(Command::new("sh").args(["-c", &script])).end();
    let received = recv.end();
    sent.assert_code(0);
    received.assert_code(0);
    assert!(fs::read(place.path("out/file")).unwrap() == contents);
    for receipt in [sent.json(), received.json()] {
        assert_eq!(messages(&receipt, "handoff") + messages(&receipt, "mapped"), 0, "{receipt}");
    }
}

#[test]
fn a_file_beyond_the_limit_is_told_to_both() {
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), pattern(40 << 20, 1)).unwrap();
    // In blocks of 512 or 1024 bytes, by shell. The memory that the two share counts, too.
    let script = format!("ulimit -f 16000; exec {PROGRAM} recv {BOX} out");
    let recv = place.run_in(Command::new("sh").args(["-c", &script]));
    let sent = place.send(&["file", BOX]).end();
    let text = "writing file: File too large";
    recv.end().assert_code(5).assert_says(text).assert_says("(ulimit -f)");
    sent.assert_code(1).assert_says("the receiver gave up").assert_says(text);
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 0, "something is left behind");
}

/// The receiver's memory for its sender is a file that is too large: no sender could send.
#[test]
fn a_receiver_that_may_have_no_files_says_so_at_once() {
    let place = Place::new();
    place.dir("out");
    for blocks in [0, 8] {
        let script = format!("ulimit -f {blocks}; exec {PROGRAM} recv {BOX} out");
        let recv = place.run_in(Command::new("sh").args(["-c", &script])).end();
        recv.assert_code(3).assert_says("ftruncate").assert_says("(ulimit -f)");
    }
}

/// The sender takes the memory that the receiver has made.
#[test]
fn a_sender_that_may_have_no_files_sends_all_the_same() {
    let place = Place::new();
    place.dir("out");
    let contents = pattern(3 << 20, 9);
    fs::write(place.path("file"), &contents).unwrap();
    let recv = place.recv(&[BOX, "out"]);
    let script = format!("ulimit -f 0; exec {PROGRAM} send file {BOX}");
    place.run_in(Command::new("sh").args(["-c", &script])).end().assert_code(0);
    recv.end().assert_code(0);
    assert!(fs::read(place.path("out/file")).unwrap() == contents);
}

/// A place of a user other than root, which no limit on threads binds, with a file of 3 MiB.
fn place_of_the_bound() -> Option<Place> {
    if !is_root_or_skip("becoming a user that a limit on threads binds") {
        return None;
    }
    let place = Place::of_nobody();
    fs::set_permissions(place.dir("out"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(place.path("file"), pattern(3 << 20, 10)).unwrap();
    fs::set_permissions(place.path("file"), fs::Permissions::from_mode(0o644)).unwrap();
    Some(place)
}

/// Starts `pinfold` as a user that has more threads than the limit already: this one.
fn without_threads(place: &Place, words: &[&str]) -> Running {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    place.run_in(command.args(["prlimit", "--nproc=1", "./pinfold"]).args(words))
}

/// The file goes through, as it does on any day.
fn goes_through(place: &Place, recv: Running) {
    place.send(&["file", BOX]).end().assert_code(0);
    recv.end().assert_code(0);
    assert!(fs::read(place.path("out/file")).unwrap() == pattern(3 << 20, 10));
}

#[test]
fn a_receiver_that_can_have_no_thread_ends_by_itself() {
    let Some(place) = place_of_the_bound() else { return };
    let recv = without_threads(&place, &["recv", BOX, "out"]).end();
    recv.assert_code(5).assert_says("clone3").assert_says("ulimit -u");
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 0, "something is left behind");
    // The name is free, and later all is well.
    let recv = place.recv(&[BOX, "out"]);
    goes_through(&place, recv);
}

#[test]
fn a_sender_that_can_have_no_thread_ends_and_leaves_the_receiver_to_the_next() {
    let Some(place) = place_of_the_bound() else { return };
    let recv = place.recv(&[BOX, "out"]);
    let sent = without_threads(&place, &["send", "file", BOX]).end();
    sent.assert_code(5).assert_says("clone3").assert_says("ulimit -u");
    goes_through(&place, recv);
}
