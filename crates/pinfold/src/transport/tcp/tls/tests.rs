//! Channels between two sides in memory, and an attacker in between.

use std::{net::TcpStream, os::fd::OwnedFd};

use pinfold_sys::{process::Segment as Part, socket::stream::Received};
use proptest::prelude::*;

mod between;

use super::*;
use crate::{
    transport::tcp::{
        connection::Connection,
        key::{MAC_BYTES, mac},
    },
    wire::tcp::greeting::Role,
};

/// The proofs of both sides for a channel's exported bytes: as a greeting does, with a key of
/// zeros.
fn binding(role: Role, exported: &[u8; EXPORTED_BYTES]) -> Binding {
    let of = |role: Role| mac(&[0; MAC_BYTES], &[&[role as u8; 32], exported]);
    match role {
        Role::Connecting => Binding { ours: of(Role::Connecting), theirs: of(Role::Accepting) },
        Role::Accepting => Binding { ours: of(Role::Accepting), theirs: of(Role::Connecting) },
    }
}

/// One side, and its outcome.
struct Side {
    role: Role,
    securing: Securing,
    end: Option<Result<(), Trouble>>,
}

impl Side {
    fn new(role: Role) -> Side {
        Side { role, securing: *Securing::new(role).unwrap(), end: None }
    }

    fn speak(&mut self) -> Vec<u8> {
        self.step();
        let mut bytes = Vec::new();
        self.securing.session().send(&mut bytes).unwrap();
        bytes
    }

    fn hear(&mut self, mut bytes: &[u8], part: usize) {
        while !bytes.is_empty() {
            let room = self.securing.session().room();
            let len = bytes.len().min(part).min(room.len());
            room[..len].copy_from_slice(&bytes[..len]);
            self.securing.session().came(len);
            bytes = &bytes[len..];
            self.step();
            if matches!(self.end, Some(Err(_))) {
                return;
            }
        }
    }

    fn step(&mut self) {
        let role = self.role;
        if self.end.is_none() {
            match self.securing.step(|exported| binding(role, exported)) {
                Ok(false) => {}
                Ok(true) => self.end = Some(Ok(())),
                Err(trouble) => self.end = Some(Err(trouble)),
            }
        }
    }
}

/// Lets two sides talk; `between` hears the sender of bytes (0: the connecting side), how many went
/// before, and the bytes.
fn talk(
    sides: [&mut Side; 2],
    part: usize,
    mut between: impl FnMut(usize, usize, &mut [u8]),
) -> usize {
    let [c, a] = sides;
    let mut said = [0, 0];
    loop {
        let mut quiet = true;
        for whose in [0, 1] {
            let (from, to) = if whose == 0 { (&mut *c, &mut *a) } else { (&mut *a, &mut *c) };
            let mut bytes = from.speak();
            quiet &= bytes.is_empty();
            between(whose, said[whose], &mut bytes);
            said[whose] += bytes.len();
            to.hear(&bytes, part);
        }
        if quiet {
            return said[0];
        }
    }
}

/// Both ends of a channel.
pub(crate) fn sessions() -> [Session; 2] {
    let (mut c, mut a) = (Side::new(Role::Connecting), Side::new(Role::Accepting));
    talk([&mut c, &mut a], usize::MAX, |_, _, _| ());
    assert!(matches!((&c.end, &a.end), (Some(Ok(())), Some(Ok(())))));
    [c, a].map(|side| side.securing.into_session())
}

/// Both ends of a connection, encrypted.
pub(crate) fn encrypted(streams: [TcpStream; 2]) -> [Connection; 2] {
    let [one, two] = streams;
    let [c, a] = sessions();
    [(one, c), (two, a)].map(|(stream, session)| {
        stream.set_nonblocking(true).unwrap();
        Connection::encrypted(OwnedFd::from(stream), session)
    })
}

#[test]
fn a_channel_comes_about_whatever_the_pieces() {
    for part in [1, 7, 1000, usize::MAX] {
        let (mut c, mut a) = (Side::new(Role::Connecting), Side::new(Role::Accepting));
        talk([&mut c, &mut a], part, |_, _, _| ());
        assert!(matches!((&c.end, &a.end), (Some(Ok(())), Some(Ok(())))), "{part}");
        let suite = c.securing.session().suite().unwrap();
        assert!(suite.starts_with("TLS13_"), "{suite}");
        let exported = c.securing.session().exported();
        assert!(exported.is_some() && exported == a.securing.session().exported());
        // Of another channel of the same process it is another.
        assert_ne!(exported, sessions()[0].exported());
    }
}

/// An attacker that has two channels, one with each side, and passes on all that is said in them.
#[test]
fn two_channels_are_not_one() {
    let (mut c, mut a) = (Side::new(Role::Connecting), Side::new(Role::Accepting));
    let [mut to_c, mut to_a] =
        [Role::Accepting, Role::Connecting].map(|role| Session::new(role).unwrap());
    let hear = |session: &mut Session, bytes: &[u8]| {
        let mut said = Vec::new();
        session.room()[..bytes.len()].copy_from_slice(bytes);
        session.came(bytes.len());
        let _ = session.take(|bytes| {
            said.extend_from_slice(bytes);
            bytes.len()
        });
        said
    };
    let say = |session: &mut Session| {
        let mut bytes = Vec::new();
        session.send(&mut bytes).unwrap();
        bytes
    };
    let pass = |side: &mut Side, near: &mut Session, far: &mut Session| {
        let said = hear(near, &side.speak());
        assert_eq!(far.put(&said), said.len());
        side.hear(&say(near), usize::MAX);
    };
    for _ in 0..8 {
        pass(&mut c, &mut to_c, &mut to_a);
        pass(&mut a, &mut to_a, &mut to_c);
    }
    // The attacker came as far as that: both sides have shown it the proofs that it then passed on.
    assert!(to_c.is_open() && to_a.is_open());
    for side in [&c, &a] {
        assert!(matches!(side.end, Some(Err(Trouble::Unbound))), "{:?}", side.end);
    }
}

/// Returns whether the byte at this place of whole records is ever looked at: not in a record that
/// is there for old middleboxes, nor if it is the version in the head of one (RFC 8446, section 5
/// and appendix D.4).
fn means_something(mut records: &[u8], mut at: usize) -> bool {
    loop {
        let len = 5 + usize::from(u16::from_be_bytes([records[3], records[4]]));
        if at < len {
            return records[0] != 20 && !(1..3).contains(&at);
        }
        (records, at) = (&records[len..], at - len);
    }
}

/// Each byte changed in turn: no side that heard it takes the channel for one.
#[test]
fn no_changed_handshake_ends_well() {
    let mut lens = [0, 0];
    let (mut c, mut a) = (Side::new(Role::Connecting), Side::new(Role::Accepting));
    talk([&mut c, &mut a], usize::MAX, |whose, said, bytes| lens[whose] = said + bytes.len());
    for whose in [0, 1] {
        for at in (0..lens[whose]).step_by(3) {
            let (mut c, mut a) = (Side::new(Role::Connecting), Side::new(Role::Accepting));
            let mut counts = false;
            talk([&mut c, &mut a], usize::MAX, |who, said, bytes| {
                let at = at.checked_sub(said).filter(|at| who == whose && *at < bytes.len());
                if let Some(at) = at {
                    counts = means_something(bytes, at);
                    bytes[at] ^= 0x20;
                }
            });
            if !counts {
                continue;
            }
            let heard = if whose == 0 { &a } else { &c };
            assert!(!matches!(heard.end, Some(Ok(()))), "{whose} {at}");
        }
    }
}

/// Little is kept of any bytes of a stranger.
#[test]
fn strangers_get_nowhere() {
    // A record of a handshake that announces as long a message as there can be, and goes on and on.
    let mut endless = Vec::new();
    for at in 0..40 {
        let mut record = vec![22, 3, 3, 0x40, 0];
        record.resize(5 + 0x4000, at);
        if at == 0 {
            record[5..9].copy_from_slice(&[1, 0, 0xff, 0xff]);
        }
        endless.extend(record);
    }
    let garbage: Vec<u8> =
        (0..100_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let plain = [23, 3, 3, 0, 5, 1, 2, 3, 4, 5].repeat(10_000);
    for bytes in [endless, garbage, plain, vec![0; 100_000], b"GET / HTTP/1.1\r\n".repeat(5000)] {
        for role in [Role::Connecting, Role::Accepting] {
            let mut side = Side::new(role);
            side.speak();
            side.hear(&bytes, 4096);
            assert!(matches!(side.end, Some(Err(Trouble::Tls(_)))), "{role:?}: {:?}", side.end);
            // The answer to it is short.
            assert!(side.speak().len() < 1000);
        }
    }
}

fn streams() -> [TcpStream; 2] {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [one, listener.accept().unwrap().0]
}

fn part(bytes: &mut [u8]) -> Part {
    Part { ptr: bytes.as_mut_ptr(), len: bytes.len() }
}

#[allow(unsafe_code)]
fn send(connection: &mut Connection, parts: &[Part]) -> std::io::Result<usize> {
    // SAFETY: they are slices of the test's.
    unsafe { connection.send(parts, false) }
}

#[allow(unsafe_code)]
fn recv(connection: &mut Connection, parts: &[Part]) -> std::io::Result<Received> {
    // SAFETY: as above.
    unsafe { connection.recv(parts) }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// All bytes come, in order and once, for any parts that they are sent and taken in; and a call
    /// that takes less than there was room for has taken all.
    #[test]
    fn bytes_come_as_they_were_sent(
        out in prop::collection::vec(0..70_000usize, 1..12),
        into in prop::collection::vec(0..40_000usize, 1..8),
        small: bool,
    ) {
        let streams = streams();
        if small {
            rustix::net::sockopt::set_socket_send_buffer_size(&streams[0], 4096).unwrap();
        }
        let [mut one, mut two] = encrypted(streams);
        let total: usize = out.iter().sum();
        let mut sent: Vec<u8> = (0..total).map(|at| (at + at / 251) as u8).collect();
        let original = sent.clone();
        let mut came = Vec::new();
        let (mut done, mut turns) = (0, 0);
        while came.len() < total {
            turns += 1;
            prop_assert!(turns < 100_000, "stuck at {done} and {}", came.len());
            // The parts from where it has got to.
            let mut parts = Vec::new();
            let (mut skip, mut at) = (done, 0);
            for &len in &out {
                let less = skip.min(len);
                skip -= less;
                parts.push(part(&mut sent[at + less..at + len]));
                at += len;
            }
            if done < total {
                done += send(&mut one, &parts).unwrap();
            }
            one.flush().unwrap();
            let mut room: Vec<Vec<u8>> = into.iter().map(|&len| vec![0; len + 1]).collect();
            let parts: Vec<Part> = room.iter_mut().map(|room| part(room)).collect();
            if let Received::Bytes(mut len) = recv(&mut two, &parts).unwrap() {
                prop_assert!(len > 0);
                for room in room {
                    let there = len.min(room.len());
                    came.extend_from_slice(&room[..there]);
                    len -= there;
                }
            }
        }
        prop_assert!(one.is_flushed());
        prop_assert_eq!(came, original);
    }
}

/// A record that was altered, or left out, or came twice: the bytes before it are there, and
/// nothing of it or after it.
#[test]
fn nothing_altered_is_delivered() {
    #[derive(Clone, Copy, Debug)]
    enum Deed {
        Alter(usize),
        LeaveOut,
        Twice,
    }
    const LEN: usize = 1000;
    for deed in [Deed::Alter(3), Deed::Alter(5), Deed::Alter(LEN), Deed::LeaveOut, Deed::Twice] {
        let [mut near, mut far] = sessions();
        let mut record = |byte: u8| {
            let mut bytes = Vec::new();
            assert_eq!(near.put(&[byte; LEN]), LEN);
            near.send(&mut bytes).unwrap();
            bytes
        };
        let (first, mut second, third) = (record(1), record(2), record(3));
        match deed {
            Deed::Alter(at) => second[at] ^= 1,
            Deed::LeaveOut => second.clear(),
            Deed::Twice => second = first.clone(),
        }
        let all = [first, second, third].concat();
        far.room()[..all.len()].copy_from_slice(&all);
        far.came(all.len());
        let mut came = Vec::new();
        let mut each = |bytes: &[u8]| {
            came.extend_from_slice(bytes);
            bytes.len()
        };
        let taken = [far.take(&mut each), far.take(&mut each)];
        assert!(taken.iter().any(Result::is_err), "{deed:?}");
        assert_eq!(came, [1; LEN], "{deed:?}");
    }
}

/// The same over a socket: an error, once the good bytes are taken, and again at each later call.
#[test]
fn what_was_altered_is_an_error() {
    let [mut stranger, two] = streams();
    let [mut near, far] = sessions();
    two.set_nonblocking(true).unwrap();
    let mut connection = Connection::encrypted(OwnedFd::from(two), far);
    let mut bytes = Vec::new();
    near.put(b"good");
    near.send(&mut bytes).unwrap();
    let good = bytes.len();
    near.put(b"evil");
    near.send(&mut bytes).unwrap();
    bytes[good + 7] ^= 1;
    std::io::Write::write_all(&mut stranger, &bytes).unwrap();
    let mut into = [0; 64];
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut came = Vec::new();
    let error = loop {
        assert!(std::time::Instant::now() < end);
        match recv(&mut connection, &[part(&mut into)]) {
            Ok(Received::Bytes(len)) => came.extend_from_slice(&into[..len]),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!((&came[..], error.raw_os_error()), (&b"good"[..], Some(74)));
    let again = recv(&mut connection, &[part(&mut into)]).unwrap_err();
    assert_eq!(again.raw_os_error(), error.raw_os_error());
    // Nothing is sent any more either, and no sender waits for that.
    let sent = send(&mut connection, &[part(&mut into)]).unwrap_err();
    assert_eq!(sent.raw_os_error(), error.raw_os_error());
}

/// If the peer takes nothing, few bytes wait for it, and they are not taken for sent.
#[test]
fn what_waits_is_bounded() {
    let [one, two] = streams();
    let [mut near, _] = encrypted([one, two.try_clone().unwrap()]);
    let mut block = vec![7; 8 << 20];
    let mut sent = 0;
    loop {
        match send(&mut near, &[part(&mut block)]).unwrap() {
            0 => break,
            some => sent += some,
        }
    }
    assert!(!near.is_flushed());
    // The kernel's queues, and less than 128 KiB.
    let mut held = 0;
    let mut bytes = vec![0; 1 << 20];
    two.set_nonblocking(true).unwrap();
    while let Ok(some) = std::io::Read::read(&mut &two, &mut bytes) {
        held += some;
    }
    assert!(sent < held + (128 << 10), "{sent} {held}");
}
