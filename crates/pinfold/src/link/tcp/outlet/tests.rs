#![allow(unsafe_code)]
use std::{
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use pinfold_sys::{
    poll::{Epoll, Events},
    process::Segment as Part,
};

use super::*;
use crate::SendMode;

const PATIENCE: Duration = Duration::from_secs(20);
const TOKEN: u64 = 77;

struct Stand {
    epoll: Arc<Epoll>,
    driver: Arc<Driver>,
    outlet: Outlet,
    near: TcpStream,
    far: TcpStream,
}

/// A connection, and an outlet of this mode. The near side has room for a lot, the far side for little.
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
    let outlet = Outlet::new(Arc::clone(&driver));
    Stand { epoll, driver, outlet, near, far }
}

impl Stand {
    /// Hands over a message as far as there is room; by a ring, or not at all.
    fn hand(&mut self, name: u64, memory: &[u8]) -> Option<SendMode> {
        let mode = self.outlet.choose(&[part(memory)]);
        let mut done = 0;
        while done < memory.len() {
            let parts = [part(&memory[done..])];
            // SAFETY: whoever calls leaves the memory alone.
            match unsafe { self.outlet.send(self.near.as_fd(), mode, &parts) }? {
                0 => return None,
                sent => done += sent,
            }
        }
        self.outlet.handed(name);
        Some(mode)
    }

    fn departed(&mut self) -> Option<Departed> {
        self.outlet.land();
        self.outlet.take_departed()
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.far.set_read_timeout(Some(PATIENCE)).unwrap();
        self.far.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn until_departed(&mut self) -> Departed {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(departed) = self.departed() {
                return departed;
            }
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn part(bytes: &[u8]) -> Part {
    Part { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

const LEN: usize = 300_000;

/// What is not copied is named when the kernel is done with it, not before; the epoll tells of that.
#[test]
fn memory_is_back_when_the_kernel_says_so() {
    for mode in [SendMode::PerSend, SendMode::Cached, SendMode::Aligned] {
        let mut stand = stand(mode, true);
        let memory = bytes(LEN, 1);
        let Some(sent) = stand.hand(9, &memory) else {
            eprintln!("SKIPPED: {mode:?}: nothing is sent this way here");
            continue;
        };
        // Nobody reads, so most of it is here still.
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(stand.departed(), None, "{mode:?}");
        assert!(stand.outlet.is_airborne() && stand.driver.is_airborne());
        assert!(stand.read(LEN) == memory);
        let mut events = Events::with_capacity(4);
        assert_eq!(stand.epoll.wait(&mut events, Some(PATIENCE)).unwrap(), 1);
        assert!(events.iter().all(|event| event.token == TOKEN));
        // The kernel copied after all: the route leads to this host.
        let departed = stand.until_departed();
        assert_eq!(departed, Departed { name: 9, mode: sent, spared: 0 });
        assert!(!stand.outlet.is_airborne() && !stand.driver.is_airborne());
        assert!(!stand.driver.has_news());
        assert_eq!(stand.epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    }
}

/// What the kernel copies in the call is named at once.
#[test]
fn copies_are_back_at_once() {
    let mut stand = stand(SendMode::TwoCopy, true);
    let memory = bytes(LEN, 1);
    if stand.hand(5, &memory).is_none() {
        return eprintln!("SKIPPED: no ring");
    }
    let departed = Departed { name: 5, mode: SendMode::TwoCopy, spared: 0 };
    assert_eq!((stand.departed(), stand.outlet.is_airborne()), (Some(departed), false));
    assert!(stand.read(LEN) == memory);
}

#[test]
fn without_rings_nothing_is_sent_by_them() {
    for mode in SendMode::ALL {
        let mut stand = stand(mode, false);
        let memory = bytes(LEN, 1);
        assert_eq!(stand.hand(1, &memory), None, "{mode:?}");
        stand.outlet.handed(1);
        let departed = Departed { name: 1, mode: SendMode::Plain, spared: 0 };
        assert_eq!(stand.departed(), Some(departed));
        let mut plain = Outlet::plain();
        plain.handed(4);
        assert_eq!(plain.take_departed().map(|it| it.name), Some(4));
    }
}

/// Who gives memory back that is in flight breaks the connection, and nothing is read there after that: what is
/// written to it later is not sent.
#[test]
fn to_settle_is_to_have_nothing_read() {
    for mode in [SendMode::PerSend, SendMode::Cached] {
        let mut stand = stand(mode, true);
        let mut memory = bytes(LEN, 1);
        if stand.hand(1, &memory).is_none() {
            eprintln!("SKIPPED: {mode:?}: nothing is sent this way here");
            continue;
        }
        let started = Instant::now();
        stand.outlet.settle(stand.near.as_fd());
        assert!(started.elapsed() < PATIENCE);
        assert!(!stand.outlet.is_airborne() && !stand.driver.is_airborne());
        let sent = memory.clone();
        memory.fill(0xee);
        stand.far.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut got = Vec::new();
        // What was there already, and then that there is no connection.
        let _ = stand.far.read_to_end(&mut got);
        assert!(got.len() < LEN && sent.starts_with(&got), "{mode:?}: {}", got.len());
        drop(memory);
    }
    // Where nothing is in flight the connection stays.
    let mut stand = stand(SendMode::Plain, true);
    stand.outlet.settle(stand.near.as_fd());
    std::io::Write::write_all(&mut stand.near, b"still there").unwrap();
    assert_eq!(stand.read(11), b"still there");
}

/// Several connections by one ring: each learns of its own, whoever asked the ring.
#[test]
fn what_is_said_of_one_is_not_lost_for_another() {
    let mut one = stand(SendMode::PerSend, true);
    let other = stand(SendMode::PerSend, true);
    let mut two = Stand { outlet: Outlet::new(Arc::clone(&one.driver)), ..other };
    let memory = bytes(LEN, 1);
    if one.hand(1, &memory).is_none() || two.hand(2, &memory).is_none() {
        return eprintln!("SKIPPED: nothing is sent this way here");
    }
    assert!(two.read(LEN) == memory);
    let end = Instant::now() + PATIENCE;
    while !one.driver.has_news() {
        assert!(Instant::now() < end);
        assert_eq!(one.departed(), None);
        std::thread::yield_now();
    }
    assert_eq!(two.until_departed().name, 2);
    assert!(one.read(LEN) == memory);
    assert_eq!(one.until_departed().name, 1);
}
