//! Transfers between hosts, over loopback.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    process::Command,
    thread,
    time::Duration,
};

use pinfold_tests::skip::{is_root_or_skip, skip};

use crate::harness::{PROGRAM, Place, pattern, wait_until};

/// Longer than a sender used to wait, whatever it was told.
const LONG: Duration = Duration::from_secs(4);
/// The time that senders are told to wait, far longer than they have to.
const WAIT: &str = "50";

/// An address that is not in use at the moment.
fn address() -> String {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp:{}", probe.local_addr().unwrap())
}

fn key(place: &Place, name: &str, byte: u8) {
    let path = place.path(name);
    fs::write(&path, [byte; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Sends a file to a receiver that is called by host and port: returns the receiver's last words.
fn received(from_elsewhere: bool, tls: bool) -> String {
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), pattern(5 << 20, 1)).unwrap();
    key(&place, "key", 1);
    let address = address();
    let words = |words: &[&str]| {
        let tls = if tls { &["--tls"][..] } else { &[] };
        [words, tls].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let recv = words(&[&address, "out", "--key", "key", "--json"]);
    let recv = place.recv(&recv.iter().map(String::as_str).collect::<Vec<_>>());
    let words = words(&["file", &address, "--key", "key"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let send = if from_elsewhere { place.send_from_elsewhere(&words) } else { place.send(&words) };
    send.end().assert_code(0);
    let ended = recv.end();
    ended.assert_code(0);
    assert_eq!(fs::read(place.path("out/file")).unwrap(), pattern(5 << 20, 1));
    ended.json().to_string()
}

#[test]
fn files_go_over_a_connection() {
    // The sender does not find the receiver's local name.
    for tls in [false, true] {
        let said = received(true, tls);
        assert!(said.contains("the peer is on this host, but did not come by"), "{said}");
    }
}

#[test]
fn on_one_host_they_do_not() {
    let said = received(false, true);
    assert!(!said.contains("the peer is on"), "{said}");
}

#[test]
fn both_sides_encrypt_or_neither() {
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), pattern(100, 1)).unwrap();
    key(&place, "key", 1);
    let address = address();
    let recv = place.recv(&[&address, "out", "--key", "key", "--tls", "--wait", "5"]);
    let send = place.send(&["file", &address, "--key", "key"]);
    send.end().assert_code(3).assert_says("give the command --tls");
    recv.end().assert_code(3);
    assert!(!place.path("out/file").exists());
}

#[test]
fn another_key_is_no_key() {
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), pattern(100, 1)).unwrap();
    key(&place, "key", 1);
    key(&place, "other", 2);
    let address = address();
    let recv = place.recv(&[&address, "out", "--key", "key", "--wait", "5"]);
    let send = place.send(&["file", &address, "--key", "other"]);
    send.end().assert_code(3).assert_says("another");
    recv.end().assert_code(3);
    assert!(!place.path("out/file").exists());
}

/// A receiver that comes later, at a name with all its addresses; the sender calls one of them.
#[test]
fn a_sender_waits_for_a_receiver_on_another_host() {
    let place = Place::new();
    fs::write(place.path("file"), pattern(5 << 20, 1)).unwrap();
    key(&place, "key", 1);
    let addresses = [address(), address()];
    let senders = [true, false].into_iter().zip(&addresses).map(|(from_elsewhere, address)| {
        let words = ["file", address.as_str(), "--key", "key", "--wait", WAIT];
        match from_elsewhere {
            true => place.send_from_elsewhere(&words),
            false => place.send(&words),
        }
    });
    let mut senders: Vec<_> = senders.collect();
    for (send, address) in senders.iter().zip(&addresses) {
        send.wait_for(&format!("waiting for a receiver at {address}, up to {WAIT} s: "));
        send.wait_for("no endpoint listens at ");
    }
    thread::sleep(LONG);
    for send in &mut senders {
        assert_eq!(send.child.try_wait().unwrap(), None, "it waits no longer");
    }
    for (at, (send, address)) in senders.into_iter().zip(&addresses).enumerate() {
        let out = format!("out {at}");
        place.dir(&out);
        let name = address.replace("127.0.0.1", "localhost");
        let recv = place.recv(&[&name, &out, "--key", "key"]);
        send.end().assert_code(0);
        recv.end().assert_code(0);
        assert!(fs::read(place.path(&out).join("file")).unwrap() == pattern(5 << 20, 1), "{name}");
    }
}

#[test]
fn a_sender_waits_for_a_name() {
    if !is_root_or_skip("having a table of hosts of its own") {
        return;
    }
    let place = Place::new();
    place.dir("out");
    fs::write(place.path("file"), pattern(100, 1)).unwrap();
    fs::write(place.path("hosts"), "127.0.0.1 localhost\n").unwrap();
    // No servers of names are asked.
    fs::write(place.path("services"), "hosts: files\n").unwrap();
    let address = address();
    let late = address.replace("127.0.0.1", "late.pinfold.test");
    let script = format!(
        "mount --bind hosts /etc/hosts && mount --bind services /etc/nsswitch.conf || exit 99
         exec {PROGRAM} send file {late} --wait {WAIT}"
    );
    let recv = place.recv(&[&address, "out"]);
    let mut send = place.run_in(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    wait_until("the sender waits", || {
        send.has_said("there is no host of that name") || send.child.try_wait().unwrap().is_some()
    });
    if send.child.try_wait().unwrap().is_some() {
        let ended = send.end();
        let is_of_mounts =
            ["unshare", "mount"].iter().any(|program| ended.stderr.contains(program));
        assert!(is_of_mounts, "{ended:#?}");
        return skip("no table of hosts can be mounted here");
    }
    send.wait_for(&format!("waiting for a receiver at {late}, up to {WAIT} s: "));
    thread::sleep(LONG);
    let mut hosts = OpenOptions::new().append(true).open(place.path("hosts")).unwrap();
    hosts.write_all(b"127.0.0.1 late.pinfold.test\n").unwrap();
    send.end().assert_code(0);
    recv.end().assert_code(0);
    assert_eq!(fs::read(place.path("out/file")).unwrap(), pattern(100, 1));
}
