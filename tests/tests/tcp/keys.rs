//! Keys: the endpoints that may connect.

use std::{
    fs,
    io::{ErrorKind::WouldBlock, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Builder, Error, Progress, Result};

use super::{builder, pair};

const KEY: [u8; 32] = [7; 32];

fn inline() -> Builder {
    builder(Progress::Inline)
}

/// The outcome of a call, and whether the listener got a peer.
pub fn called(listening: Builder, calling: Builder) -> (Result<()>, bool) {
    let one = listening.listen("tcp:127.0.0.1:0").build().unwrap();
    let two = calling.connect_timeout(Duration::from_secs(20)).build().unwrap();
    let address = one.listens_at().unwrap();
    thread::scope(|scope| {
        let called = scope.spawn(|| two.connect(&address).map(drop));
        while !called.is_finished() {
            let _ = one.accept_timeout(Duration::from_millis(1)).inspect(|peer| {
                assert_eq!(one.peer(*peer).unwrap().uid, u32::MAX);
            });
        }
        (called.join().unwrap(), !one.peers().is_empty())
    })
}

#[test]
fn one_key_opens() {
    let (done, joined) = called(inline().key(&KEY), inline().key(&KEY));
    done.unwrap();
    assert!(joined);
    let ((one, to_two), (two, to_one)) = pair(inline().key(&KEY), inline().key(&KEY));
    one.send(to_two, 1, b"within").unwrap();
    assert_eq!(&*two.recv(to_one, 1).unwrap(), b"within");
}

#[test]
fn other_keys_do_not() {
    let other = [8; 32];
    for (what, listening, calling) in [
        ("another", inline().key(&KEY), inline().key(&other)),
        ("none", inline().key(&KEY), inline()),
        ("one where none is wanted", inline(), inline().key(&KEY)),
    ] {
        let (done, joined) = called(listening, calling);
        let error = done.unwrap_err();
        assert!(matches!(&error, Error::Greeting { .. }), "{what}: {error}");
        assert!(error.to_string().contains("key"), "{what}: {error}");
        assert!(!joined, "{what}");
    }
}

#[test]
fn beyond_this_host_a_key_is_needed() {
    let error = inline().listen("tcp:0.0.0.0:0").build().unwrap_err();
    assert!(matches!(error, Error::KeyNeeded { .. }), "{error}");
    let error = inline().build().unwrap().connect("tcp:192.0.2.1:9").unwrap_err();
    assert!(matches!(error, Error::KeyNeeded { .. }), "{error}");
    let endpoint = inline().key(&KEY).listen("tcp:0.0.0.0:0").build().unwrap();
    assert!(endpoint.listens_at().unwrap().starts_with("tcp:0.0.0.0:"));
}

#[test]
fn a_key_file_is_private() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("key");
    let built = || inline().key_file(&file).build();
    assert!(matches!(built().unwrap_err(), Error::UnusableKey(_)));
    fs::write(&file, KEY).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let error = built().unwrap_err();
    assert!(error.to_string().contains("chmod o-r"), "{error}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    built().unwrap();
    let (done, joined) = called(inline().key_file(&file), inline().key(&KEY));
    done.unwrap();
    assert!(joined);
}

#[test]
fn addresses_that_lead_nowhere() {
    let endpoint = inline().build().unwrap();
    let gone = {
        let listening = inline().listen("tcp:127.0.0.1:0").build().unwrap();
        listening.listens_at().unwrap()
    };
    let error = endpoint.connect(&gone).unwrap_err();
    assert!(matches!(&error, Error::NameGone { name } if *name == gone), "{error}");
    for address in ["tcp:", "tcp:127.0.0.1", "tcp:127.0.0.1:66000", "tcp:[::1:5"] {
        let error = endpoint.connect(address).unwrap_err();
        assert!(matches!(error, Error::BadAddress { .. }), "{address}: {error}");
    }
    let listening = inline().listen("tcp:127.0.0.1:0").build().unwrap();
    let taken = inline().listen(&listening.listens_at().unwrap()).build().unwrap_err();
    assert!(matches!(taken, Error::NameInUse { .. }), "{taken}");
}

/// Bytes of strangers cost little and do not stop other callers.
#[test]
fn strangers_are_shown_out() {
    let one = inline().key(&KEY).listen("tcp:127.0.0.1:0").build().unwrap();
    let address = one.listens_at().unwrap();
    let socket = address.strip_prefix("tcp:").unwrap();
    let mut garbage = TcpStream::connect(socket).unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n").unwrap();
    // A stranger that says nothing at all, and one that says one byte at a time.
    let silent = TcpStream::connect(socket).unwrap();
    let mut slow = TcpStream::connect(socket).unwrap();
    slow.write_all(b"P").unwrap();
    thread::scope(|scope| {
        let friend = scope.spawn(|| {
            let two = inline().key(&KEY).build().unwrap();
            let peer = two.connect(&address).unwrap();
            two.send(peer, 1, b"in spite of them").unwrap();
            // Until the other side has the message.
            let _ = two.recv(peer, 2);
        });
        let peer = one.accept().unwrap();
        assert_eq!(&*one.recv(peer, 1).unwrap(), b"in spite of them");
        one.send(peer, 2, b"").unwrap();
        friend.join().unwrap();
    });
    let mut said = Vec::new();
    garbage.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // An end or a reset, after at most the bytes that every caller is sent.
    let _ = garbage.read_to_end(&mut said);
    assert!(said.len() <= 48, "{}", said.len());
    // The others are given up when their time is over.
    let end = Instant::now() + Duration::from_secs(30);
    for mut stream in [silent, slow] {
        stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        loop {
            assert!(Instant::now() < end, "a stranger stays");
            let _ = one.accept_timeout(Duration::from_millis(1));
            match stream.read(&mut [0; 64]) {
                Ok(0) => break,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                _ => {}
            }
        }
    }
    assert!(one.peers().is_empty());
}

/// As many strangers as there are places and more say nothing: a caller with the key is answered
/// nevertheless, before they are given up.
#[test]
fn strangers_do_not_keep_others_out() {
    const STRANGERS: usize = 300;
    // Strangers do not count as peers either.
    let one = builder(Progress::Dedicated).key(&KEY).peers_max(2).listen("tcp:127.0.0.1:0");
    let one = one.build().unwrap();
    let address = one.listens_at().unwrap();
    let socket = address.strip_prefix("tcp:").unwrap();
    let strangers: Vec<_> = (0..STRANGERS).map(|_| TcpStream::connect(socket).unwrap()).collect();
    let calling = || inline().key(&KEY).connect_timeout(Duration::from_secs(4)).build().unwrap();
    let (two, three, four) = (calling(), calling(), calling());
    let friend = two.connect(&address).unwrap();
    two.send(friend, 1, b"in spite of them").unwrap();
    let peer = one.accept().unwrap();
    assert_eq!(&*one.recv(peer, 1).unwrap(), b"in spite of them");
    // The strangers that were there first had to go.
    let is_there = |mut stranger: &TcpStream| {
        stranger.set_nonblocking(true).unwrap();
        let mut said = Vec::new();
        matches!(stranger.read_to_end(&mut said), Err(error) if error.kind() == WouldBlock)
    };
    let left = strangers.iter().filter(|stranger| is_there(stranger)).count();
    assert!((1..=128).contains(&left), "{left}");
    assert!(!is_there(&strangers[0]) && is_there(&strangers[STRANGERS - 1]));
    // There is a place for one more, and no other.
    three.connect(&address).unwrap();
    let error = four.connect(&address).unwrap_err();
    assert!(error.to_string().contains("peers"), "{error}");
    assert_eq!(one.peers().len(), 2);
}

#[test]
fn nobody_is_called_by_itself() {
    let one = builder(Progress::Dedicated).listen("tcp:127.0.0.1:0");
    let one = one.build().unwrap();
    let error = one.connect(&one.listens_at().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Greeting { .. }), "{error}");
}
