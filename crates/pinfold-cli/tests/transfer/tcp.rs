//! Transfers between hosts, over loopback.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt};

use crate::harness::{Place, pattern};

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
