//! Connections: partial reads, full queues, breaks.

use std::net::Ipv4Addr;

use super::*;
use crate::io::poll::{Epoll, Events, Interest};

fn part(bytes: &mut [u8]) -> Segment {
    Segment { ptr: bytes.as_mut_ptr(), len: bytes.len() }
}

fn send_all(socket: &OwnedFd, bytes: &mut [u8]) -> usize {
    // SAFETY: it is this slice.
    unsafe { send(socket, &[part(bytes)], false) }.unwrap()
}

fn recv_some(socket: &OwnedFd, bytes: &mut [u8]) -> io::Result<Received> {
    // SAFETY: it is this slice.
    unsafe { recv(socket, &[part(bytes)]) }
}

pub(crate) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

/// A part to be sent.
pub(crate) fn part_of(bytes: &[u8]) -> Segment {
    Segment { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }
}

/// Takes the bytes that are there.
pub(crate) fn take(socket: &OwnedFd, into: &mut Vec<u8>) {
    let mut room = [0; 1 << 16];
    // SAFETY: it is this array.
    while let Received::Bytes(got) = unsafe { recv(socket, &[part(&mut room)]) }.unwrap() {
        into.extend_from_slice(&room[..got]);
    }
}

pub(crate) fn wait(socket: &OwnedFd, interest: Interest) {
    let epoll = Epoll::new().unwrap();
    epoll.add(socket, 0, interest).unwrap();
    let mut events = Events::with_capacity(1);
    assert_eq!(epoll.wait(&mut events, Some(Duration::from_secs(20))).unwrap(), 1);
}

pub(crate) fn pair() -> (OwnedFd, OwnedFd) {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), 4).unwrap();
    assert!(accept(&listener).unwrap().is_none());
    let one = connect(local_address(&listener).unwrap()).unwrap();
    wait(&listener, Interest::Read);
    let (two, from) = accept(&listener).unwrap().unwrap();
    wait(&one, Interest::Write);
    assert!(is_connected(&one).unwrap());
    assert_eq!(from, local_address(&one).unwrap());
    assert_eq!(peer_address(&one).unwrap(), local_address(&two).unwrap());
    for socket in [&one, &two] {
        tune(socket, Duration::from_secs(1)).unwrap();
    }
    (one, two)
}

#[test]
fn bytes_come_in_parts_and_the_end_after_them() {
    let (one, two) = pair();
    let (mut first, mut second) = (*b"pin", *b"fold");
    // SAFETY: they are these arrays.
    let sent = unsafe { send(&one, &[part(&mut first), part(&mut second)], false) }.unwrap();
    assert_eq!(sent, 7);
    end(&one).unwrap();
    let (mut left, mut right) = ([0; 5], [0; 9]);
    let mut got = 0;
    wait(&two, Interest::Read);
    // Both parts may have been one segment, but nothing promises that.
    while got < 7 {
        let parts = [part(&mut left[got.min(5)..]), part(&mut right[got.saturating_sub(5)..])];
        let parts = if got < 5 { &parts[..] } else { &parts[1..] };
        // SAFETY: they are these arrays.
        match unsafe { recv(&two, parts) }.unwrap() {
            Received::Bytes(bytes) => got += bytes,
            Received::Nothing => wait(&two, Interest::Read),
            Received::End => panic!("{got} bytes"),
        }
    }
    assert_eq!((&left, &right[..2]), (b"pinfo", &b"ld"[..]));
    wait(&two, Interest::Read);
    assert_eq!(recv_some(&two, &mut right).unwrap(), Received::End);
}

#[test]
fn a_full_queue_takes_nothing() {
    let (one, two) = pair();
    let mut block = vec![7; 1 << 20];
    let mut sent = 0;
    loop {
        match send_all(&one, &mut block) {
            0 => break,
            bytes => sent += bytes,
        }
        assert!(sent < 1 << 30);
    }
    let mut got = 0;
    while got < sent {
        match recv_some(&two, &mut block).unwrap() {
            Received::Bytes(bytes) => got += bytes,
            Received::Nothing => wait(&two, Interest::Read),
            Received::End => panic!("{got} of {sent} bytes"),
        }
    }
    assert_eq!(got, sent);
    assert_eq!(recv_some(&two, &mut block).unwrap(), Received::Nothing);
}

#[test]
fn nobody_listens() {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), 4).unwrap();
    let address = local_address(&listener).unwrap();
    let in_use = listen(address, 4).unwrap_err();
    assert_eq!(in_use.errno, Errno::ADDRINUSE);
    drop(listener);
    let refused = connect(address).and_then(|socket| {
        wait(&socket, Interest::Write);
        is_connected(&socket)
    });
    assert_eq!(refused.unwrap_err().errno, Errno::CONNREFUSED);
}

#[test]
fn a_connection_breaks() {
    let (one, two) = pair();
    let mut byte = [1];
    send_all(&one, &mut byte);
    wait(&two, Interest::Read);
    // The end closes with something unread.
    drop(two);
    wait(&one, Interest::Read);
    let reset = Errno::from_io_error(&recv_some(&one, &mut byte).unwrap_err());
    assert_eq!(reset, Some(Errno::CONNRESET));
    // SAFETY: it is this array.
    let broken = unsafe { send(&one, &[part(&mut byte)], false) }.unwrap_err();
    assert_eq!(Errno::from_io_error(&broken), Some(Errno::PIPE));
}

#[test]
fn what_is_discarded_breaks_nothing() {
    let (one, two) = pair();
    let mut bytes = [7; 5000];
    send_all(&one, &mut bytes);
    send_all(&two, &mut bytes);
    wait(&two, Interest::Read);
    discard(&two);
    discard(&two);
    drop(two);
    let mut got = 0;
    let mut room = [0; 5000];
    // The end receives all that it had sent, and its end.
    loop {
        wait(&one, Interest::Read);
        match recv_some(&one, &mut room).unwrap() {
            Received::Bytes(len) => got += len,
            Received::Nothing => {}
            Received::End => break,
        }
    }
    assert_eq!(got, bytes.len());
}

#[test]
fn only_a_listening_tcp_socket_is_adopted() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    adopt(&listener).unwrap();
    // It does not wait from now on.
    assert!(accept(&listener).unwrap().is_none());
    let caller = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    wait(&listener.try_clone().unwrap().into(), Interest::Read);
    let (_, from) = accept(&listener).unwrap().unwrap();
    assert_eq!(from, caller.local_addr().unwrap());
    let place = tempfile_name();
    let local = std::os::unix::net::UnixListener::bind(&place).unwrap();
    std::fs::remove_file(place).unwrap();
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for failed in [adopt(&caller), adopt(&local), adopt(&datagrams)] {
        assert_eq!(failed.unwrap_err().errno, Errno::INVAL);
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    assert_eq!(adopt(&file).unwrap_err().errno, Errno::NOTSOCK);
}

/// A path that no file has.
fn tempfile_name() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("pinfold-adopt-{}", std::process::id()))
}
