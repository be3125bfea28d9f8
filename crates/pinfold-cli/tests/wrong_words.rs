//! The messages of `pinfold` for impossible requests: each is about that very thing, and gives a
//! remedy in a command's words.

#[path = "transfer/harness.rs"]
#[allow(dead_code)]
mod harness;

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
    thread,
    time::Duration,
};

use harness::{Ended, PROGRAM, Place, is_root, pattern, wait_until};
use pinfold_tests::skip;

/// Words that no command says.
const OF_THE_LIBRARY: [&str; 7] =
    ["Builder", "Endpoint::", "PathSet", "this library", "_max", "_timeout", "errno"];

/// Checks how a command ended, and that it prints `text`, in its own words.
#[track_caller]
fn says(ended: &Ended, code: i32, text: &str) {
    ended.assert_code(code).assert_says(text);
    for name in OF_THE_LIBRARY {
        assert!(!ended.stderr.contains(name), "{name:?} is in {ended:#?}");
    }
}

/// An address that is not in use at the moment.
fn free() -> String {
    let probe = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp:{}", probe.local_addr().unwrap())
}

fn key(place: &Place, name: &str, mode: u32) {
    let path = place.path(name);
    fs::write(&path, [7; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn words_in_another_order_or_missing() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    place.dir("out");
    let send = |words: &[&str]| place.send(words).end();
    let last = "the address comes last: pinfold send file local:box";
    says(&send(&["local:box", "file"]), 2, last);
    says(&send(&["tcp:host:7000", "file"]), 2, "pinfold send file tcp:host:7000");
    says(&send(&["file"]), 2, "nowhere to send to");
    says(&send(&["file"]), 2, "pinfold send file local:NAME, or tcp:HOST:PORT");
    says(&send(&["local:a", "local:b"]), 2, "a transfer has one receiver");
    let recv = |words: &[&str]| place.recv(words).end();
    says(&recv(&["out", "local:box"]), 2, "the address comes first: pinfold recv local:box out");
    says(&recv(&["out"]), 2, "pinfold recv local:NAME out");
}

#[test]
fn addresses_that_are_mistyped() {
    let place = Place::new();
    let long = format!("local:{}", "n".repeat(65));
    for (word, says_that) in [
        ("tcp:host", "the port is missing"),
        ("tcp:host:", "the port is missing"),
        ("tcp:host:70000", "the port is above 65535"),
        ("tcp:host:7x", "the port is not a number"),
        ("tcp::7000", "the host is empty"),
        ("tcp:a b:7000", "the host has characters other than"),
        ("tcp:::1:7000", "an IPv6 address has to be in brackets"),
        ("tcp:10.0.0.256:7000", "is not an IPv4 address"),
        ("tcp://host:7000", "did you mean tcp:host:7000?"),
        ("host:7000", "did you mean tcp:host:7000?"),
        ("Local:box", "did you mean local:box?"),
        ("local:", "the name is empty"),
        ("local:a b", "the name has characters other than"),
        ("local:no-such-user-here/box", "there is no such user"),
        (&long, "the name is longer than 64 characters"),
    ] {
        says(&place.send(&[word]).end(), 2, says_that);
        if !word.contains("no-such-user") {
            says(&place.recv(&[word]).end(), 2, says_that);
        }
    }
    says(&place.send(&["tcp:127.0.0.1:0"]).end(), 2, "port 0 is for listening");
}

#[test]
fn seconds() {
    let place = Place::new();
    says(&place.send(&["--wait", "0.1", "local:box"]).end(), 3, "no endpoint listens at local:box");
    says(
        &place.recv(&["--wait", "0.1", "local:box"]).end(),
        3,
        "no sender came to local:box within 0.1 s",
    );
    says(&place.send(&["--wait", "soon", "local:box"]).end(), 2, "such as 30 or 0.5");
}

#[test]
fn nobody_there_or_somebody_else() {
    let place = Place::new();
    let address = free();
    for wait in ["0", "0.4"] {
        let ended = place.send(&["--wait", wait, &address]).end();
        says(&ended, 3, &format!("no endpoint listens at {address}"));
        says(&ended, 3, "check the host and the port");
    }
    // A host name that is not known, and one that no name server can be asked for.
    let ended = place.send(&["--wait", "0", "tcp:no-such-host.invalid:7"]).end();
    says(&ended, 3, "tcp:no-such-host.invalid:7: ");
    // A port that another program has.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", other.local_addr().unwrap());
    let ended = place.recv(&[&address]).end();
    says(&ended, 3, "is in use by another program, or by another 'pinfold recv'");
    says(&ended, 3, "ss -ltnp");
    // The other program answers, in words of its own.
    let web = thread::spawn(move || {
        let (mut caller, _) = other.accept().unwrap();
        caller.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = caller.read_to_end(&mut Vec::new());
    });
    says(&place.send(&[&address]).end(), 3, "does not greet as a Pinfold endpoint");
    web.join().unwrap();
    // An address of another host.
    let ended = place.recv(&["tcp:192.0.2.1:7000"]).end();
    says(&ended, 3, "with --key FILE");
    key(&place, "key", 0o600);
    let ended = place.recv(&["tcp:192.0.2.1:7000", "--key", "key"]).end();
    says(&ended, 3, "this host has no such address");
}

#[test]
fn both_sides_do_the_same() {
    let place = Place::new();
    let first = place.recv(&["local:box"]);
    wait_until("the receiver listens", || place.path("names/box").exists());
    says(&place.recv(&["local:box"]).end(), 3, "the other side of a transfer is 'pinfold send'");
    drop(first);
    let first = place.send(&["local:both", "--wait", "20"]);
    says(
        &place.send(&["local:both", "--wait", "0.1"]).end(),
        3,
        "the side that listens first ('pinfold recv')",
    );
    drop(first);
}

/// A listener of another version of the protocol between hosts: of later versions that greet alike,
/// and of another greeting.
#[test]
fn another_version() {
    let place = Place::new();
    for (edition, says_that) in
        [(10, "speaks versions 7 to 9"), (8, "runs another version of Pinfold")]
    {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", other.local_addr().unwrap());
        let pretender = thread::spawn(move || {
            let (mut caller, _) = other.accept().unwrap();
            let mut knock = [0; 48];
            caller.read_exact(&mut knock).unwrap();
            assert_eq!(knock[..8], *b"PINFOLD\x0a");
            knock[7] = edition;
            knock[10..14].copy_from_slice(&[7, 0, 9, 0]);
            // The listener accepts, and has drawn another nonce.
            knock[15] = 2;
            knock[16] ^= 1;
            caller.write_all(&knock).unwrap();
            let _ = caller.read_to_end(&mut Vec::new());
        });
        let ended = place.send(&[&address]).end();
        says(&ended, 3, says_that);
        says(&ended, 3, "update the older side");
        pretender.join().unwrap();
    }
    // A listener says the same to a caller: it answers with its own greeting.
    let address = free();
    let recv = place.recv(&[&address, "--wait", "20"]);
    let mut caller = None;
    wait_until("the receiver listens", || {
        caller = std::net::TcpStream::connect(address.strip_prefix("tcp:").unwrap()).ok();
        caller.is_some()
    });
    let mut caller = caller.unwrap();
    caller.write_all(b"PINFOLD\x05, and what came then").unwrap();
    let mut knock = [0; 8];
    caller.read_exact(&mut knock).unwrap();
    assert_eq!(knock, *b"PINFOLD\x0a");
    drop(recv);
}

#[test]
fn keys() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    key(&place, "key", 0o600);
    key(&place, "open", 0o644);
    fs::write(place.path("short"), "x").unwrap();
    let address = free();
    for (file, says_that) in [
        ("missing", "there is no key file"),
        ("open", "all users may read it; run: chmod o-r"),
        ("short", "has 1 bytes, not 32 to 4096"),
        (".", "is not a regular file but a directory"),
    ] {
        fs::set_permissions(place.path("short"), fs::Permissions::from_mode(0o600)).unwrap();
        says(&place.recv(&[&address, "--key", file]).end(), 5, says_that);
        says(&place.send(&["file", &address, "--key", file]).end(), 5, says_that);
    }
    // Only one side has a key.
    let recv = place.recv(&[&address, "--key", "key", "--wait", "5"]);
    let send = place.send(&["file", &address]).end();
    says(&send, 3, "give this side the same key file with --key FILE");
    drop(recv);
    let address = free();
    let recv = place.recv(&[&address, "--wait", "5"]);
    let send = place.send(&["file", &address, "--key", "key"]).end();
    says(&send, 3, "has no key, and this side has");
    drop(recv);
}

/// A secret as it is mounted into containers: root's, for a group, behind links.
#[test]
fn a_mounted_secret_is_a_key() {
    if !is_root() {
        return skip("only root can make files of root's");
    }
    let place = Place::of_nobody();
    let (mount, out) = (place.dir("mount"), place.dir("out"));
    fs::write(place.path("file"), pattern(1000, 1)).unwrap();
    std::os::unix::fs::chown(out, Some(65534), Some(65534)).unwrap();
    fs::create_dir(mount.join("..2024")).unwrap();
    let file = mount.join("..2024/key");
    fs::write(&file, [7; 32]).unwrap();
    std::os::unix::fs::chown(&file, Some(0), Some(65534)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o440)).unwrap();
    symlink("..2024", mount.join("..data")).unwrap();
    symlink("..data/key", mount.join("key")).unwrap();
    let address = free();
    let recv = place.recv(&[&address, "out", "--key", "mount/key"]);
    place.send(&["file", &address, "--key", "mount/key"]).end().assert_code(0);
    recv.end().assert_code(0);
    assert_eq!(fs::read(place.path("out/file")).unwrap(), pattern(1000, 1));
    // A key file open to all is no secret, and this user cannot change that.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let ended = place.recv(&[&free(), "--key", "mount/key"]).end();
    says(&ended, 5, "all users may read it; use a copy of your own");
    assert!(!ended.stderr.contains("chmod"), "{ended:#?}");
}

#[test]
fn ports_of_roots() {
    let first: u16 = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1024);
    if first <= 7 {
        return skip("every user may listen at every port here");
    }
    let place = if is_root() { Place::of_nobody() } else { Place::new() };
    let ended = place.recv(&["tcp:127.0.0.1:7"]).end();
    says(&ended, 3, "ports below 1024 are for root; choose a higher one");
}

#[test]
fn no_descriptors_left() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    let mut told = 0;
    for limit in 4..24 {
        for words in ["send file local:box --wait 0", "recv local:box --wait 0"] {
            let mut command = Command::new("sh");
            command.arg("-c").arg(format!("ulimit -n {limit} && exec {PROGRAM} {words}"));
            let ended = place.run_in(&mut command).end();
            // With few, the program does not even begin.
            if ended.status.code() == Some(127) || !ended.stderr.starts_with("pinfold: ") {
                continue;
            }
            if ended.stderr.contains("Too many open files") {
                says(&ended, ended.status.code().unwrap(), "ulimit -n");
                told += 1;
            }
        }
    }
    assert!(told > 3, "{told}");
}

#[test]
fn directories_that_do_not_let_in() {
    let place = if is_root() { Place::of_nobody() } else { Place::new() };
    fs::write(place.path("file"), "x").unwrap();
    let closed = place.dir("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    says(&place.recv(&["local:box", "closed"]).end(), 5, "closed");
    fs::set_permissions(place.path("names"), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = place.recv(&["local:box"]).end();
    says(&ended, 3, "lets other users in where they should not be; set PINFOLD_DIR");
    // The sender waits for that to be mended.
    let send = place.send(&["file", "local:box"]);
    thread::sleep(Duration::from_millis(600));
    fs::set_permissions(place.path("names"), fs::Permissions::from_mode(0o700)).unwrap();
    let (recv, mut stream) = place.recv_stream(&["local:box"]);
    drop(stream.read_to_end(&mut Vec::new()));
    // A file, and no directory for it: both say so.
    says(&recv.end(), 2, "run it again as 'pinfold recv ADDRESS DIR'");
    let ended = send.end();
    says(&ended, 1, "run it again as 'pinfold recv ADDRESS DIR'");
    ended.assert_says("waiting for a receiver at local:box, up to 30 s");
}
