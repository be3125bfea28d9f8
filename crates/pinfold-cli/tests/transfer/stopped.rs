//! Transfers that are killed or interrupted: the other side says so, and nothing looks complete.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{ffi::OsStrExt, process::ExitStatusExt},
    thread,
    time::Duration,
};

use rustix::process::Signal;

use crate::{
    BOX,
    harness::{Place, pattern, wait_until},
};

/// Forty files of 2 MiB each, with contents of their own.
fn plant_many(place: &Place) {
    let root = place.dir("many");
    for number in 0..40 {
        fs::write(root.join(format!("{number:02}")), pattern(2 << 20, number)).unwrap();
    }
}

/// Every file that has its name in `out` is complete.
fn assert_nothing_half_done(place: &Place) -> usize {
    let arrived = place.files("out");
    for (name, contents) in &arrived {
        let file = name.file_name().unwrap().to_str().unwrap();
        assert!(!file.starts_with(".pinfold-"), "{name:?} is left behind");
        let number = file.parse().unwrap();
        assert!(*contents == pattern(2 << 20, number), "{name:?} looks complete and is not");
    }
    arrived.len()
}

/// Stops a transfer of many files when `after` of them have arrived.
fn interrupted(after: usize, signal: Signal, at_sender: bool) {
    let place = Place::new();
    plant_many(&place);
    let out = place.dir("out");
    let recv = place.recv(&[BOX, "out"]);
    let send = place.send(&["many", BOX]);
    let last = out.join(format!("many/{:02}", after.saturating_sub(1)));
    wait_until("files arrive", || after == 0 || last.exists());
    let (victim, other) = if at_sender { (send, recv) } else { (recv, send) };
    victim.signal(signal);
    let (killed, other) = (victim.end(), other.end());
    assert_nothing_half_done(&place);
    if other.status.success() {
        // The last file was in place before the signal came.
        assert_eq!(place.files("out").len(), 40);
        return;
    }
    if signal == Signal::KILL {
        assert_eq!(killed.status.code(), None);
        let lost = if at_sender { "lost the sender" } else { "lost the receiver" };
        other.assert_code(4).assert_says(lost);
    } else {
        killed.assert_code(128 + signal.as_raw());
        other.assert_code(1).assert_says("gave up: interrupted by signal");
    }
}

#[test]
fn a_killed_sender_is_missed() {
    for after in [1, 2, 5, 11] {
        interrupted(after, Signal::KILL, true);
    }
}

#[test]
fn a_killed_receiver_is_missed() {
    for after in [1, 2, 5, 11] {
        interrupted(after, Signal::KILL, false);
    }
}

#[test]
fn an_interrupted_sender_says_so() {
    interrupted(1, Signal::INT, true);
    interrupted(3, Signal::TERM, true);
    interrupted(2, Signal::HUP, true);
}

#[test]
fn an_interrupted_receiver_says_so() {
    interrupted(1, Signal::INT, false);
    interrupted(3, Signal::TERM, false);
    interrupted(2, Signal::HUP, false);
}

#[test]
fn a_killed_sender_of_a_stream_is_missed_although_nobody_reads() {
    let place = Place::new();
    let (recv, mut out) = place.recv_stream(&[BOX]);
    let (send, mut input) = place.send_stream(&[BOX]);
    input.write_all(b"abc").unwrap();
    out.read_exact(&mut [0; 3]).unwrap();
    // Fills the buffers there are, since the other end is not read.
    let filling = thread::spawn(move || {
        let _ = input.write_all(&vec![0; 64 << 20]);
    });
    thread::sleep(Duration::from_millis(300));
    send.signal(Signal::KILL);
    recv.end().assert_code(4).assert_says("lost the sender");
    filling.join().unwrap();
    drop(out);
}

#[test]
fn a_receiver_that_waits_can_be_interrupted() {
    let place = Place::new();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let recv = place.recv(&[BOX]);
        wait_until("the receiver listens", || place.path("names/box").exists());
        recv.signal(signal);
        recv.end().assert_code(128 + signal.as_raw());
        assert!(!place.path("names/box").exists(), "the name is left behind");
    }
}

#[test]
fn a_sender_that_waits_can_be_interrupted() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut send = place.send(&["file", BOX]);
        thread::sleep(Duration::from_millis(200));
        assert_eq!(send.child.try_wait().unwrap(), None);
        send.signal(signal);
        assert_eq!(send.end().status.signal(), Some(signal.as_raw()));
    }
    assert_eq!(fs::read_dir(place.path("names")).unwrap().count(), 0);
}

/// Kills one side in the middle of one long file.
fn killed_in_a_long_file(at_sender: bool) {
    let place = Place::new();
    let out = place.dir("out");
    // The transfer takes longer than the kill.
    let mut long = fs::File::create(place.path("long")).unwrap();
    for part in 0..512 {
        long.write_all(&vec![part as u8 | 1; 1 << 20]).unwrap();
    }
    let recv = place.recv(&[BOX, "out"]);
    let send = place.send(&["long", BOX]);
    // The file has no name yet: it shows among the receiver's open files.
    let open = format!("/proc/{}/fd", recv.child.id());
    let written = || {
        let files = fs::read_dir(&open).into_iter().flatten().flatten();
        let below =
            files.filter(|file| fs::read_link(file.path()).is_ok_and(|at| at.starts_with(&out)));
        below
            .filter_map(|file| file.path().metadata().ok())
            .any(|file| file.is_file() && file.len() > 0)
    };
    wait_until("some of it is written", written);
    let (victim, other) = if at_sender { (send, recv) } else { (recv, send) };
    victim.signal(Signal::KILL);
    victim.end();
    let lost = if at_sender { "lost the sender" } else { "lost the receiver" };
    other.end().assert_code(4).assert_says(lost);
    let left: Vec<_> =
        fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.as_bytes().starts_with(b".pinfold-")), "{left:?}");
    assert!(!at_sender || left.is_empty(), "a receiver that lives cleans up: {left:?}");
}

#[test]
fn a_long_file_of_a_killed_sender_is_not_kept() {
    killed_in_a_long_file(true);
}

#[test]
fn a_long_file_of_a_killed_receiver_is_not_kept() {
    killed_in_a_long_file(false);
}
