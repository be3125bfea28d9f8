//! Two endpoints, and an attacker on the way between them that passes their greeting on and then
//! does what it likes.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::Session;
use crate::{
    Endpoint, Error, Progress,
    wire::tcp::greeting::{CLAIM_BYTES, CONFIRM_BYTES, KNOCK_BYTES, REPLY_BYTES, Role},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of a greeting, from the connecting side and from the accepting one.
const THERE: usize = KNOCK_BYTES + CLAIM_BYTES + CONFIRM_BYTES;
const BACK: usize = KNOCK_BYTES + REPLY_BYTES;

/// The result of a call, and the number of peers of the called endpoint; the bytes that the
/// attacker saw.
struct Outcome<T> {
    called: crate::Result<()>,
    joined: usize,
    seen: T,
}

/// An endpoint calls another; once both have greeted, their connections are `deed`'s.
fn between<T: Send>(
    patience: Duration,
    deed: impl FnOnce(TcpStream, TcpStream) -> T + Send,
) -> Outcome<T> {
    let builder = || {
        let builder = Endpoint::builder().key(&[3; 32]).encrypt(true).local_shortcut(false);
        builder.progress(Progress::Dedicated).connect_timeout(patience)
    };
    let one = builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let two = builder().build().unwrap();
    let to: SocketAddr = one.listens_at().unwrap().strip_prefix("tcp:").unwrap().parse().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let by = format!("tcp:{}", listener.local_addr().unwrap());
    thread::scope(|scope| {
        let deed = scope.spawn(move || {
            let near = listener.accept().unwrap().0;
            let far = TcpStream::connect(to).unwrap();
            for stream in [&near, &far] {
                stream.set_nodelay(true).unwrap();
            }
            thread::scope(|scope| {
                scope.spawn(|| pass(&near, &far, THERE));
                pass(&far, &near, BACK);
            });
            deed(near, far)
        });
        let called = two.connect(&by).map(drop);
        let seen = deed.join().unwrap();
        Outcome { called, joined: one.peers().len(), seen }
    })
}

fn pass(from: &TcpStream, mut to: &TcpStream, bytes: usize) {
    let passed = io::copy(&mut from.take(bytes as u64), &mut to).unwrap();
    assert_eq!(passed, bytes as u64, "a greeting of another length");
}

/// Moves bytes that have come of one channel to the other, and returns them. `None` once one has
/// ended.
fn move_on(
    (from, of): (&mut TcpStream, &mut Session),
    (to, other): (&mut TcpStream, &mut Session),
) -> Option<Vec<u8>> {
    of.send(&mut *from).ok()?;
    match from.read(of.room()) {
        Ok(0) => return None,
        Ok(bytes) => of.came(bytes),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(_) => return None,
    }
    let mut said = Vec::new();
    let taken = of.take(|bytes| {
        said.extend_from_slice(bytes);
        bytes.len()
    });
    taken.ok()?;
    of.send(&mut *from).ok()?;
    assert_eq!(other.put(&said), said.len());
    other.send(to).ok()?;
    Some(said)
}

/// The attacker ends the encryption itself, with keys of its own, and passes on the bytes that it
/// reads.
#[test]
fn who_ends_the_channel_himself_is_found_out() {
    let outcome = between(PATIENCE, |mut near, mut far| {
        let mut to_near = Session::new(Role::Accepting).unwrap();
        let mut to_far = Session::new(Role::Connecting).unwrap();
        for stream in [&near, &far] {
            stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        }
        let mut read = [Vec::new(), Vec::new()];
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let there = move_on((&mut near, &mut to_near), (&mut far, &mut to_far));
            let back = move_on((&mut far, &mut to_far), (&mut near, &mut to_near));
            let (Some(there), Some(back)) = (there, back) else { break };
            read[0].extend(there);
            read[1].extend(back);
        }
        read
    });
    let error = outcome.called.unwrap_err();
    assert!(matches!(&error, Error::Greeting { .. }), "{error}");
    assert!(error.to_string().contains("somebody between it and this endpoint"), "{error}");
    assert_eq!(outcome.joined, 0);
    // The attacker has read no more than the proofs, which it cannot use.
    assert!(outcome.seen.iter().all(|read| read.len() <= 32), "{:?}", outcome.seen);
    assert!(outcome.seen.iter().any(|read| read.len() == 32), "{:?}", outcome.seen);
}

/// Bytes that are no TLS are an error at once, and not many of them are taken.
#[test]
fn garbage_in_place_of_a_handshake() {
    let outcome = between(PATIENCE, |mut near, mut far| {
        let garbage = b"GET / HTTP/1.1\r\n".repeat(1 << 16);
        for stream in [&mut near, &mut far] {
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            // The connection may be closed while it is written to.
            let _ = stream.write_all(&garbage);
            let mut said = Vec::new();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let ended = stream.read_to_end(&mut said);
            let kind = ended.as_ref().err().map(io::Error::kind);
            assert!(kind != Some(io::ErrorKind::WouldBlock), "it is not closed");
            assert!(said.len() < 2000, "{}", said.len());
        }
    });
    let error = outcome.called.unwrap_err();
    assert!(matches!(&error, Error::Greeting { .. }), "{error}");
    assert!(error.to_string().contains("did not come to an encrypted connection"), "{error}");
    assert_eq!(outcome.joined, 0);
}

/// A peer that says nothing after the greeting, or one byte now and then, does not stay.
#[test]
fn slow_handshakes_are_given_up() {
    for trickles in [false, true] {
        let outcome = between(Duration::from_millis(700), |near, mut far| {
            let start = Instant::now();
            near.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            far.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            // The caller's hello, kept back.
            let mut hello = Vec::new();
            let mut bytes = [0; 4096];
            let mut at = 0;
            loop {
                assert!(start.elapsed() < PATIENCE, "it stays");
                if let Ok(len) = (&near).read(&mut bytes) {
                    hello.extend_from_slice(&bytes[..len]);
                }
                if trickles && at < hello.len() {
                    let _ = far.write_all(&hello[at..=at]);
                    at += 1;
                }
                match far.read(&mut bytes) {
                    Ok(0) => break,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                    _ => {}
                }
            }
            let _ = near.shutdown(Shutdown::Both);
        });
        let error = outcome.called.unwrap_err();
        assert!(matches!(&error, Error::NoAnswer { .. }), "{error}");
        assert_eq!(outcome.joined, 0);
    }
}
