//! Output on standard output, where it takes that and where not, and at a terminal.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::OwnedFd,
    process::Stdio,
};

use rustix::{
    process::Signal,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::{
    BOX,
    harness::{Place, Running, wait_until},
};

const CLOSED: i32 = 128 + 13;

/// Standard outputs that take nothing: a full one, and one without a reader.
fn full() -> Stdio {
    fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

fn closed() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// Sends a file; each side prints its receipt where these say.
fn receipts(place: &Place, send: Stdio, recv: Stdio) -> [crate::harness::Ended; 2] {
    fs::write(place.path("file"), "contents").unwrap();
    place.dir("out");
    let recv = place.start(&["recv", "--json", BOX, "out"], Stdio::null(), recv);
    let send = place.start(&["send", "--json", "file", BOX], Stdio::null(), send);
    let ended = [send.end(), recv.end()];
    assert_eq!(fs::read(place.path("out/file")).unwrap(), b"contents");
    ended
}

#[test]
fn a_receipt_that_is_lost_is_a_failure() {
    let [send, recv] = receipts(&Place::new(), full(), full());
    for ended in [send, recv] {
        ended.assert_code(5).assert_says("cannot write the receipt: No space left on device");
    }
    let [send, recv] = receipts(&Place::new(), closed(), Stdio::piped());
    assert!(!send.assert_code(CLOSED).stderr.contains("cannot write"), "{send:?}");
    recv.assert_code(0);
    let [send, recv] = receipts(&Place::new(), Stdio::piped(), closed());
    assert!(!recv.assert_code(CLOSED).stderr.contains("cannot write"), "{recv:?}");
    send.assert_code(0);
}

#[test]
fn why_a_transfer_failed_is_more_than_that_it_could_not_be_printed() {
    let place = Place::new();
    for out in [full(), closed()] {
        let ended = place.start(&["send", "--json", "-", "x", BOX], Stdio::null(), out).end();
        ended.assert_code(2).assert_says("'-' is standard input");
    }
}

#[test]
fn the_receipt_of_a_stream_goes_elsewhere_and_may_be_lost_there() {
    let place = Place::new();
    let recv = place.start_with_errors(&["recv", "--json", BOX], Stdio::piped(), full());
    place.start(&["send", BOX], Stdio::null(), Stdio::null()).end().assert_code(0);
    assert_eq!(recv.wait_with_output().unwrap().status.code(), Some(5));
}

/// A terminal: its keyboard end, and its program's end.
fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
    let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
    (master, slave)
}

#[test]
fn who_types_is_told_how_to_end() {
    let place = Place::new();
    let (master, slave) = terminal();
    let recv = place.recv(&[BOX]);
    let send = place.start(&["send", BOX], slave.into(), Stdio::null());
    File::from(master.try_clone().unwrap()).write_all(b"typed\n\x04").unwrap();
    send.end().assert_code(0).assert_says("reading from the terminal; end with Ctrl-D");
    let received = recv.end();
    assert_eq!(received.assert_code(0).stdout, "typed\n");
    // A pipe has no keyboard.
    let recv = place.recv(&[BOX]);
    let (send, input) = place.send_stream(&[BOX]);
    drop(input);
    assert!(!send.end().assert_code(0).stderr.contains("terminal"));
    recv.end().assert_code(0);
}

fn is_waiting(running: &Running) -> bool {
    let status = format!("/proc/{}/status", running.child.id());
    let status = fs::read_to_string(status).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & (1 << (Signal::TERM.as_raw() - 1)) != 0
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let place = Place::new();
    let recv = place.start_ignoring("HUP", &["recv", BOX], Stdio::null());
    let (send, mut input) = {
        let mut send = place.start_ignoring("HUP", &["send", BOX], Stdio::piped());
        let input = send.child.stdin.take().unwrap();
        (send, input)
    };
    for side in [&recv, &send] {
        wait_until("signals are taken", || is_waiting(side));
        side.signal(Signal::HUP);
    }
    input.write_all(b"after it").unwrap();
    drop(input);
    send.end().assert_code(0);
    assert_eq!(recv.end().assert_code(0).stdout, "after it");
}
