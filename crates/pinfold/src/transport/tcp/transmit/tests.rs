#![allow(unsafe_code)]
//! The ways that long messages leave, and the times when their memory is back.

use std::{
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use pinfold_sys::{
    io::poll::{Epoll, Event, Events, Interest},
    process::Segment as Part,
};

use super::*;
use crate::{SendDriver, SendMode, TranslationLevel};

const PATIENCE: Duration = Duration::from_secs(20);
const TOKEN: u64 = 77;

struct Stand {
    epoll: Arc<Epoll>,
    driver: Arc<Driver>,
    transmitter: Transmitter,
    near: TcpStream,
    far: TcpStream,
}

/// A connection, and an outlet of this mode. The near side has room for a lot, the far side for
/// little.
fn stand(mode: SendMode, ring: bool) -> Stand {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 32 << 10).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 1 << 20).unwrap();
    near.set_nonblocking(true).unwrap();
    let epoll = Arc::new(Epoll::new().unwrap());
    let settings = Settings { mode: Some(mode), ring: Some(ring) };
    let driver = Arc::new(Driver::new(settings, Arc::clone(&epoll), TOKEN));
    let transmitter = Transmitter::new(Arc::clone(&driver));
    Stand { epoll, driver, transmitter, near, far }
}

impl Stand {
    /// Hands over a message as far as there is room; by a ring, or not at all.
    fn hand(&mut self, name: u64, memory: &[u8]) -> Option<SendMode> {
        let mode = self.transmitter.choose(&[part(memory)]);
        let mut done = 0;
        while done < memory.len() {
            let parts = [part(&memory[done..])];
            // SAFETY: the caller leaves the memory alone.
            match unsafe { self.transmitter.send(self.near.as_fd(), mode, &parts) }? {
                0 => return None,
                sent => done += sent,
            }
        }
        self.transmitter.handed(name, self.near.as_fd());
        Some(mode)
    }

    fn transmitted(&mut self) -> Option<Transmitted> {
        self.transmitter.land(self.near.as_fd());
        self.transmitter.take_transmitted()
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.far.set_read_timeout(Some(PATIENCE)).unwrap();
        self.far.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn until_transmitted(&mut self) -> Transmitted {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(transmitted) = self.transmitted() {
                return transmitted;
            }
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn part(bytes: &[u8]) -> Part {
    Part { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }
}

fn transmitted(name: u64, mode: SendMode, driver: SendDriver) -> Transmitted {
    Transmitted { name, mode, driver, spared: 0, translated: None }
}

/// Each mode that does not copy, with the driver that can do it.
const WITHOUT_COPIES: [(SendMode, SendDriver); 4] = [
    (SendMode::PerSend, SendDriver::Calls),
    (SendMode::PerSend, SendDriver::Ring),
    (SendMode::Cached, SendDriver::Ring),
    (SendMode::Aligned, SendDriver::Ring),
];

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

const LEN: usize = 300_000;

/// A header in front of a message is copied: it is neither pinned nor counted.
#[test]
fn a_header_is_not_pinned() {
    let mut stand = stand(SendMode::Cached, true);
    let (head, body) = (bytes(8, 1), bytes(20_000, 2));
    let parts = [part(&head), part(&body)];
    if stand.transmitter.choose(&parts) != SendMode::Cached {
        return;
    }
    // SAFETY: both are there until the kernel is done, below.
    let sent = unsafe { stand.transmitter.send(stand.near.as_fd(), SendMode::Cached, &parts) };
    assert_eq!(sent, Some(20_008));
    assert_eq!(stand.driver.translations().by_level.iter().sum::<u64>(), 1);
    stand.transmitter.handed(9, stand.near.as_fd());
    assert!(stand.read(20_008) == [head, body].concat());
    assert_eq!(stand.until_transmitted().translated, Some(TranslationLevel::Pinned));
}

/// A message that is not copied is named when the kernel is done with it, not before; the epoll
/// tells of that.
#[test]
fn memory_is_back_when_the_kernel_says_so() {
    for (mode, driver) in WITHOUT_COPIES {
        let mut stand = stand(mode, driver == SendDriver::Ring);
        // The owner of a connection watches it.
        const CONNECTION: u64 = 78;
        stand.epoll.add(&stand.near, CONNECTION, Interest::Changes).unwrap();
        let memory = bytes(LEN, 1);
        let Some(sent) = stand.hand(9, &memory) else {
            eprintln!("SKIPPED: {mode:?} by {driver:?}: nothing is sent this way here");
            continue;
        };
        // The far end does not read, so most of it is here still.
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(stand.transmitted(), None, "{mode:?}");
        assert!(stand.transmitter.has_in_flight());
        assert_eq!(stand.driver.has_in_flight(), driver == SendDriver::Ring);
        let mut events = Events::with_capacity(4);
        let _ = stand.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(stand.read(LEN) == memory);
        let end = Instant::now() + PATIENCE;
        let news = |event: Event| match driver {
            SendDriver::Ring => event.token == TOKEN,
            SendDriver::Calls => event.token == CONNECTION && event.hung_up,
        };
        while !events.iter().any(news) {
            assert!(Instant::now() < end);
            let _ = stand.epoll.wait(&mut events, Some(PATIENCE)).unwrap();
        }
        // The kernel copied after all: the route leads to this host.
        let found = stand.until_transmitted();
        let level = found.translated;
        assert_eq!(level.is_some(), sent == SendMode::Cached);
        // Memory that another test's thread may be discarding is pinned for this send alone.
        let unkept = level == Some(TranslationLevel::Pinned) && found.mode == SendMode::PerSend;
        let sent = if unkept { SendMode::PerSend } else { sent };
        assert_eq!(Transmitted { translated: None, ..found }, transmitted(9, sent, driver));
        assert!(!stand.transmitter.has_in_flight() && !stand.driver.has_in_flight());
        assert!(!stand.driver.has_news());
        let _ = stand.epoll.wait(&mut events, Some(Duration::from_millis(1))).unwrap();
        assert_eq!(stand.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    }
}

/// A message that the kernel copies in the call is named at once.
#[test]
fn copies_are_back_at_once() {
    let mut stand = stand(SendMode::TwoCopy, true);
    let memory = bytes(LEN, 1);
    if stand.hand(5, &memory).is_none() {
        return eprintln!("SKIPPED: no ring");
    }
    let transmitted = transmitted(5, SendMode::TwoCopy, SendDriver::Ring);
    assert_eq!(
        (stand.transmitted(), stand.transmitter.has_in_flight()),
        (Some(transmitted), false)
    );
    assert!(stand.read(LEN) == memory);
}

#[test]
fn without_rings_nothing_is_sent_by_them() {
    for mode in [SendMode::Plain, SendMode::TwoCopy] {
        let mut stand = stand(mode, false);
        let memory = bytes(LEN, 1);
        assert_eq!(stand.hand(1, &memory), None, "{mode:?}");
        stand.transmitter.handed(1, stand.near.as_fd());
        assert_eq!(stand.transmitted(), Some(Transmitted::copied(1)));
        let mut plain = Transmitter::plain();
        plain.handed(4, stand.near.as_fd());
        assert_eq!(plain.take_transmitted().map(|it| it.name), Some(4));
    }
    // A message that would be sent out of a cache holds its pages for one send.
    for mode in [SendMode::PerSend, SendMode::Cached, SendMode::Aligned] {
        let mut stand = stand(mode, false);
        let memory = bytes(LEN, 1);
        if stand.hand(1, &memory).is_none() {
            eprintln!("SKIPPED: no MSG_ZEROCOPY here");
            continue;
        }
        assert!(stand.read(LEN) == memory);
        let expected = transmitted(1, SendMode::PerSend, SendDriver::Calls);
        assert_eq!(stand.until_transmitted(), expected);
    }
}

/// As many bytes as may be out are not copied, and the rest is; and if none may be, all are, and
/// that counts against the route.
#[test]
fn calls_without_room_copy() {
    let mut stand = stand(SendMode::PerSend, false);
    let memory = bytes(LEN, 1);
    if stand.hand(1, &memory).is_none() {
        return eprintln!("SKIPPED: no MSG_ZEROCOPY here");
    }
    // A descriptor that is no connection.
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut other = Transmitter::new(Arc::clone(&stand.driver));
    // SAFETY: nothing is sent.
    let sent = unsafe { other.send(near.as_fd(), SendMode::PerSend, &[part(&memory)]) };
    assert_eq!(sent, None);
    assert!(!other.has_in_flight());
    other.handed(3, near.as_fd());
    assert_eq!(other.take_transmitted(), Some(Transmitted::copied(3)));
    assert!(stand.read(LEN) == memory);
    assert_eq!(stand.until_transmitted().name, 1);
}

/// Another connection begins anew, also with its own count of calls.
#[test]
fn each_connection_counts_its_own_calls() {
    let mut first = stand(SendMode::PerSend, false);
    let memory = bytes(LEN, 1);
    if first.hand(1, &memory).is_none() {
        return eprintln!("SKIPPED: no MSG_ZEROCOPY here");
    }
    let near = first.near.try_clone().unwrap();
    first.transmitter.break_off(near.as_fd());
    let second = stand(SendMode::PerSend, false);
    let mut again = Stand { transmitter: first.transmitter, ..second };
    assert_eq!(again.transmitter.take_transmitted().map(|it| it.name), Some(1));
    assert_eq!(again.hand(2, &memory), Some(SendMode::PerSend));
    assert!(again.read(LEN) == memory);
    let expected = transmitted(2, SendMode::PerSend, SendDriver::Calls);
    assert_eq!(again.until_transmitted(), expected);
}

/// Memory that is given back in flight breaks the connection, and nothing is read there after that:
/// bytes that are written to it later are not sent.
#[test]
fn to_settle_is_to_have_nothing_read() {
    for (mode, driver) in WITHOUT_COPIES {
        let mut stand = stand(mode, driver == SendDriver::Ring);
        let mut memory = bytes(LEN, 1);
        if stand.hand(1, &memory).is_none() {
            eprintln!("SKIPPED: {mode:?}: nothing is sent this way here");
            continue;
        }
        let started = Instant::now();
        stand.transmitter.settle(stand.near.as_fd());
        assert!(started.elapsed() < PATIENCE);
        assert!(!stand.transmitter.has_in_flight() && !stand.driver.has_in_flight());
        let sent = memory.clone();
        memory.fill(0xee);
        stand.far.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        // The bytes that were there already, and then that there is no connection.
        let _ = stand.far.read_to_end(&mut got);
        assert!(got.len() < LEN && sent.starts_with(&got), "{mode:?}: {}", got.len());
        drop(memory);
    }
    // If nothing is in flight the connection stays.
    let mut stand = stand(SendMode::Plain, true);
    stand.transmitter.settle(stand.near.as_fd());
    std::io::Write::write_all(&mut stand.near, b"still there").unwrap();
    assert_eq!(stand.read(11), b"still there");
}

/// Several connections by one ring: each learns of its own, whichever of them asked the ring.
#[test]
fn what_is_said_of_one_is_not_lost_for_another() {
    let mut one = stand(SendMode::PerSend, true);
    let other = stand(SendMode::PerSend, true);
    let mut two = Stand { transmitter: Transmitter::new(Arc::clone(&one.driver)), ..other };
    let memory = bytes(LEN, 1);
    if one.hand(1, &memory).is_none() || two.hand(2, &memory).is_none() {
        return eprintln!("SKIPPED: nothing is sent this way here");
    }
    assert!(two.read(LEN) == memory);
    let end = Instant::now() + PATIENCE;
    while !one.driver.has_news() {
        assert!(Instant::now() < end);
        assert_eq!(one.transmitted(), None);
        std::thread::yield_now();
    }
    assert_eq!(two.until_transmitted().name, 2);
    assert!(one.read(LEN) == memory);
    assert_eq!(one.until_transmitted().name, 1);
}
