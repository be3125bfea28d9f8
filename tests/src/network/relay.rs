//! A relay that passes TCP connections on: late, not at all, or up to a certain byte.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pinfold_netns::Namespace;
use rustix::net::sockopt::set_socket_linger;

use crate::host;

/// The longest that a call waits before it looks for other work.
const TURN: Duration = Duration::from_millis(10);
/// Bytes that are passed on at once.
const PIECE: usize = 64 << 10;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the connecting side to the listening side.
    There,
    /// From the listening side.
    Back,
}

/// A function that begins a relay: it returns the address where the relay listens, and its thread.
type Start = Box<dyn FnOnce() -> (SocketAddr, JoinHandle<()>) + Send>;

/// A listener in a namespace that passes all bytes on to one address, and back. It ends, with all
/// its connections, on drop.
///
/// Orders hold for every connection that is open and for those that come.
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    to: SocketAddr,
    state: Mutex<State>,
    /// Notified of every change of orders.
    changed: Condvar,
}

/// Orders, and the record of what was done.
#[derive(Default)]
struct State {
    /// Bytes of a connection after which to reset it, by way.
    reset_after: [Option<u64>; 2],
    /// The byte of a connection to change, by way; the first connection that carries so many is
    /// changed.
    alter: [Option<u64>; 2],
    /// The bytes that go by, by way, if they are to be kept.
    record: Option<[Vec<u8>; 2]>,
    delay: Duration,
    /// The lengths of the pieces in which bytes are passed on, in turn; none: as they come.
    pieces: &'static [usize],
    stalled: bool,
    ends: bool,
    passed: [u64; 2],
    connections: usize,
    resets: usize,
}

/// Both halves of a connection that the relay carries.
struct Connection {
    /// The half with the connecting side, then the half with the listening side.
    halves: [TcpStream; 2],
    over: AtomicBool,
}

impl Relay {
    /// Listens at `at` in `namespace`, at a port that is free.
    ///
    /// # Panics
    /// If it cannot.
    pub fn new(namespace: &Namespace, at: IpAddr, to: SocketAddr) -> Relay {
        Relay::begin(at, to, |start| namespace.run(start).expect("to enter a namespace"))
    }

    /// Listens on this host, which takes no rights, at a port that is free.
    ///
    /// # Panics
    /// If it cannot.
    pub fn here(to: SocketAddr) -> Relay {
        Relay::begin(Ipv4Addr::LOCALHOST.into(), to, |start| start())
    }

    /// The same on the way to an endpoint that listens at `tcp:HOST:PORT`.
    ///
    /// # Panics
    /// If it cannot, or the address is of another form.
    pub fn to(address: &str) -> Relay {
        let host = address.strip_prefix("tcp:").and_then(|host| host.parse().ok());
        Relay::here(host.expect("an address of a host"))
    }

    /// `begin` runs its function in the namespace of the relay.
    fn begin(
        at: IpAddr,
        to: SocketAddr,
        begin: impl FnOnce(Start) -> (SocketAddr, JoinHandle<()>),
    ) -> Relay {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { to, state, changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        // The thread is in its maker's namespace, and so are the threads that it makes.
        let start = move || {
            let listener = TcpListener::bind((at, 0)).expect("to listen");
            listener.set_nonblocking(true).expect("a listener");
            let address = listener.local_addr().expect("an address");
            (address, thread::spawn(move || listen(&listener, &of_thread)))
        };
        let (address, thread) = begin(Box::new(start));
        Relay { address, shared, thread: Some(thread) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address by which an endpoint calls it.
    pub fn called_at(&self) -> String {
        format!("tcp:{}", self.address)
    }

    /// Resets each connection (both its halves) as soon as exactly `bytes` of it have gone that
    /// way, and the kernel there has them. One that has had more is reset at once.
    pub fn reset_after(&self, way: Way, bytes: u64) {
        self.order(|state| state.reset_after[way as usize] = Some(bytes));
    }

    /// Resets none any longer.
    pub fn reset_never(&self) {
        self.order(|state| state.reset_after = [None; 2]);
    }

    /// Changes one bit of the byte with this number (from 0) of a connection that way, once.
    pub fn alter(&self, way: Way, at: u64) {
        self.order(|state| state.alter[way as usize] = Some(at));
    }

    /// Keeps the bytes that go by from here on.
    pub fn record(&self) {
        self.order(|state| state.record = Some(Default::default()));
    }

    /// The bytes that have gone that way since then.
    pub fn recorded(&self, way: Way) -> Vec<u8> {
        let state = self.shared.state();
        state.record.as_ref().map_or_else(Vec::new, |record| record[way as usize].clone())
    }

    /// Returns whether a byte that is to be changed has not come yet.
    pub fn is_to_alter(&self) -> bool {
        self.shared.state().alter.iter().any(Option::is_some)
    }

    /// Passes each piece on only `delay` after it came; zero: at once.
    pub fn delay(&self, delay: Duration) {
        self.order(|state| state.delay = delay);
    }

    /// Passes bytes on in pieces of these lengths in turn, none of which is 0.
    pub fn pieces(&self, lengths: &'static [usize]) {
        self.order(|state| state.pieces = lengths);
    }

    /// Passes nothing on, though it may take bytes in.
    pub fn stall(&self) {
        self.order(|state| state.stalled = true);
    }

    /// Passes on again.
    pub fn resume(&self) {
        self.order(|state| state.stalled = false);
    }

    /// Bytes that have gone that way, of all connections.
    pub fn passed(&self, way: Way) -> u64 {
        self.shared.state().passed[way as usize]
    }

    /// Connections that have come.
    pub fn connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Connections that were reset by order.
    pub fn resets(&self) -> usize {
        self.shared.state().resets
    }

    fn order(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.order(|state| state.ends = true);
        let done = self.thread.take().map(JoinHandle::join);
        if let Some(Err(panic)) = done
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl State {
    /// Keeps and changes a piece that has come that way after `passed` bytes of its connection.
    fn see(&mut self, way: Way, passed: u64, piece: &mut [u8]) {
        let way = way as usize;
        let at = self.alter[way].and_then(|at| usize::try_from(at.checked_sub(passed)?).ok());
        if let Some(byte) = at.and_then(|at| piece.get_mut(at)) {
            *byte ^= 0x10;
            self.alter[way] = None;
        }
        if let Some(record) = &mut self.record {
            record[way].extend_from_slice(piece);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> bool {
        self.state().ends
    }
}

fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut pumps = Vec::new();
    while !shared.ends() {
        match listener.accept() {
            Ok((stream, _)) => {
                shared.state().connections += 1;
                let shared = Arc::clone(shared);
                pumps.push(thread::spawn(move || relay(stream, &shared)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(TURN / 10),
            // The connecting side has gone already.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => panic!("accept: {error}"),
        }
    }
    for pump in pumps {
        pump.join().expect("a connection that ends well");
    }
}

/// Serves one connection to its end.
fn relay(from: TcpStream, shared: &Shared) {
    let Ok(to) = TcpStream::connect_timeout(&shared.to, Duration::from_secs(10)) else {
        // The connecting side is to see that no one listens.
        set_socket_linger(&from, Some(Duration::ZERO)).expect("SO_LINGER");
        return;
    };
    let connection = Connection { halves: [from, to], over: AtomicBool::new(false) };
    for half in &connection.halves {
        half.set_nonblocking(false).expect("a stream");
        half.set_nodelay(true).expect("TCP_NODELAY");
        half.set_read_timeout(Some(TURN)).expect("SO_RCVTIMEO");
        half.set_write_timeout(Some(TURN)).expect("SO_SNDTIMEO");
    }
    thread::scope(|scope| {
        for way in [Way::There, Way::Back] {
            let connection = &connection;
            scope.spawn(move || connection.pump(way, shared));
        }
    });
    // Here both halves are closed.
}

impl Connection {
    fn pump(&self, way: Way, shared: &Shared) {
        let (from, to) = match way {
            Way::There => (&self.halves[0], &self.halves[1]),
            Way::Back => (&self.halves[1], &self.halves[0]),
        };
        let mut piece = vec![0; PIECE];
        let (mut passed, mut turn) = (0, 0);
        loop {
            let limit = shared.state().reset_after[way as usize];
            let room = limit.map_or(u64::MAX, |limit| limit.saturating_sub(passed));
            if room == 0 {
                return self.reset(to, shared);
            }
            let most = PIECE.min(usize::try_from(room).unwrap_or(PIECE));
            if self.is_over(shared) {
                return;
            }
            match (&mut &*from).read(&mut piece[..most]) {
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(len) => {
                    shared.state().see(way, passed, &mut piece[..len]);
                    if !self.wait(shared) || !self.put(to, &piece[..len], &mut turn, shared) {
                        return;
                    }
                    passed += len as u64;
                    shared.state().passed[way as usize] += len as u64;
                }
                Err(error) if is_turn(&error) => {}
                // One half is broken: so is the other.
                Err(_) => {
                    self.end();
                    return;
                }
            }
        }
    }

    /// Keeps the bytes that came, as long as it is ordered to. Returns whether there is still a
    /// side to pass them on to.
    fn wait(&self, shared: &Shared) -> bool {
        let came = Instant::now();
        let mut state = shared.state();
        while !state.ends && !self.over.load(Ordering::Relaxed) {
            let left = state.delay.saturating_sub(came.elapsed());
            if !state.stalled && left.is_zero() {
                return true;
            }
            // The end of a connection does not notify the condition variable.
            let turn = if state.stalled { TURN } else { TURN.min(left) };
            let waited = shared.changed.wait_timeout(state, turn);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Passes bytes on, of which the first piece is number `turn` of this connection that way.
    /// Returns whether they have gone.
    fn put(&self, mut to: &TcpStream, mut bytes: &[u8], turn: &mut usize, shared: &Shared) -> bool {
        let pieces = shared.state().pieces;
        while !bytes.is_empty() {
            if self.is_over(shared) {
                return false;
            }
            let most = if pieces.is_empty() { PIECE } else { pieces[*turn % pieces.len()] };
            match to.write(&bytes[..most.min(bytes.len())]) {
                Ok(len) => {
                    bytes = &bytes[len..];
                    *turn += 1;
                }
                Err(error) if is_turn(&error) => {}
                Err(_) => {
                    self.end();
                    return false;
                }
            }
        }
        true
    }

    /// Breaks both halves, once `to` has the bytes that were passed on to it: a reset overtakes
    /// bytes that have not come.
    fn reset(&self, to: &TcpStream, shared: &Shared) {
        while host::unacknowledged(to) != 0 && !self.is_over(shared) {
            thread::sleep(TURN / 10);
        }
        if self.end() {
            shared.state().resets += 1;
        }
    }

    /// Has both halves reset when they are closed, which they are once both ways have noticed.
    /// Returns whether it was this call that did so.
    fn end(&self) -> bool {
        let first = !self.over.swap(true, Ordering::Relaxed);
        if first {
            for half in &self.halves {
                set_socket_linger(half, Some(Duration::ZERO)).expect("SO_LINGER");
            }
        }
        first
    }

    fn is_over(&self, shared: &Shared) -> bool {
        self.over.load(Ordering::Relaxed) || shared.ends()
    }
}

/// Returns whether a call has just waited for as long as it may.
fn is_turn(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
