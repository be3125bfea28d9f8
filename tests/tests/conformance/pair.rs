//! Two ends of a connection over any transport, and what each transport can do.

use std::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use pinfold::{
    Builder, Endpoint, Error, PeerId,
    status::{EndpointStatus, PeerStatus},
};
use pinfold_tests::{
    network::{Relay, Way as Direction},
    pair,
    role::PATIENCE,
    status_of, tcp_pair,
};

/// Lengths of all ways that messages go, and around where these change.
pub const LENGTHS: [usize; 9] = [0, 1, 56, 57, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 5 << 20];

/// The ways by which two endpoints reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Two endpoints on one host, by a local name.
    Shm,
    /// Two endpoints that stay with their connection.
    Tcp,
    /// An endpoint that has called its own name: it has both ends.
    Loopback,
    /// As `Tcp`, over a relay that cuts the bytes up, delays them, and breaks every connection.
    Faulty,
}

impl Transport {
    /// Returns whether the peers can map each other's memory.
    pub fn shares_memory(self) -> bool {
        matches!(self, Transport::Shm | Transport::Loopback)
    }

    /// Returns whether the two ends may be of two endpoints, and so of two processes.
    pub fn has_two_endpoints(self) -> bool {
        self != Transport::Loopback
    }

    /// A relay before an endpoint at that address, where there is one on the way.
    pub fn relay(self, address: &str) -> Option<Relay> {
        (self == Transport::Faulty).then(|| {
            let relay = Relay::to(address);
            relay.pieces(&[1, 7, 31, 57, 1021, 4093, 30_011]);
            relay.delay(Duration::from_micros(50));
            break_after(&relay, 700_001, 900_011);
            relay
        })
    }
}

/// Has each connection break after so many bytes one way or the other.
pub fn break_after(relay: &Relay, there: u64, back: u64) {
    relay.reset_after(Direction::There, there);
    relay.reset_after(Direction::Back, back);
}

/// A direction of messages. Each has tags of its own, since those of both come to one endpoint
/// where it is called by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the end that listens to the end that called.
    Out,
    Back,
}

impl Way {
    pub fn other(self) -> Way {
        match self {
            Way::Out => Way::Back,
            Way::Back => Way::Out,
        }
    }

    /// A tag of messages that go this way.
    pub fn tag(self, number: u64) -> u64 {
        (1 + self as u64) << 60 | number
    }
}

/// One end.
pub struct End {
    pub endpoint: Endpoint,
    /// The other end.
    pub peer: PeerId,
    /// The way of the messages that it sends.
    pub way: Way,
    label: String,
}

impl End {
    pub fn new(endpoint: Endpoint, peer: PeerId, way: Way, label: String) -> End {
        End { endpoint, peer, way, label }
    }

    /// A tag of messages that it sends.
    pub fn out(&self, number: u64) -> u64 {
        self.way.tag(number)
    }

    /// A tag of messages that come to it.
    pub fn into(&self, number: u64) -> u64 {
        self.way.other().tag(number)
    }

    /// The public status of its endpoint, and of its peer there.
    pub fn status(&self) -> (EndpointStatus, PeerStatus) {
        let status = status_of(&self.label);
        // An endpoint that has called itself knows the listening end by the address.
        let called = self.way == Way::Back;
        let only = status.peers.len() == 1;
        let peer = status.peers.iter().find(|peer| only || peer.address.is_some() == called);
        let peer = peer.cloned().unwrap_or_else(|| panic!("it is not there: {:?}", status.peers));
        (status, peer)
    }

    /// Sends a word and waits for that of the other end, which does the same.
    pub fn meet(&self) {
        const MEETING: u64 = 1 << 50;
        self.endpoint.send(self.peer, self.out(MEETING), b"here").unwrap();
        let word = self.endpoint.recv_timeout(self.peer, self.into(MEETING), PATIENCE);
        assert_eq!(&*word.unwrap(), b"here");
    }
}

/// Both ends.
pub struct Pair {
    /// The end that listens.
    pub one: End,
    /// The end that has called.
    pub two: End,
    /// The address that it called.
    pub address: String,
    /// The relay between the two, on a transport with faults. It goes last.
    pub relay: Option<Relay>,
}

impl Pair {
    pub fn new(on: Transport) -> Pair {
        Pair::with(on, |builder| builder)
    }

    /// A pair of endpoints with these settings.
    pub fn with(on: Transport, set: impl Fn(Builder) -> Builder) -> Pair {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let labels = ["one", "two"].map(|end| format!("{on:?} {number} {end}"));
        let builder = |label: &str| set(builder().reconnect_timeout(PATIENCE)).label(label);
        let mut relay = None;
        let (one, to_two, two, to_one) = match on {
            Transport::Loopback => alone(builder(&labels[0])),
            Transport::Shm => pair("conformance", builder(&labels[0]), builder(&labels[1])),
            Transport::Tcp | Transport::Faulty => {
                tcp_pair(builder(&labels[0]), builder(&labels[1]), |address| {
                    relay = on.relay(address);
                    relay.as_ref().map_or_else(|| address.to_owned(), Relay::called_at)
                })
            }
        };
        let address = two.peer(to_one).and_then(|peer| peer.address).expect("it has called");
        let [first, second] = labels;
        let second = if on.has_two_endpoints() { second } else { first.clone() };
        let one = End::new(one, to_two, Way::Out, first);
        let two = End::new(two, to_one, Way::Back, second);
        Pair { one, two, address, relay }
    }

    /// Each way: the end that sends, and the end that receives.
    pub fn ways(&self) -> [(&End, &End); 2] {
        [(&self.one, &self.two), (&self.two, &self.one)]
    }

    /// Runs the same on both ends at once. Either goes on calling until the other is through.
    pub fn both(&self, side: impl Fn(&End) + Sync) {
        let over = AtomicUsize::new(0);
        let side = |end: &End| {
            let through = Through(&over);
            side(end);
            drop(through);
            while over.load(Ordering::Relaxed) < 2 {
                if !end.endpoint.progress().unwrap() {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(|| side(&self.one));
            side(&self.two);
        });
    }

    /// From here on nothing breaks, if something did, and both ends are connected.
    pub fn calm(&self) {
        if let Some(relay) = &self.relay {
            relay.reset_never();
            self.both(End::meet);
        }
    }
}

/// Counts a side as over when it goes, also by a panic.
struct Through<'a>(&'a AtomicUsize);

impl Drop for Through<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The builder of endpoints that reach those that call by host and port as on different hosts.
pub fn builder() -> Builder {
    Endpoint::builder().local_shortcut(false)
}

/// An endpoint that has called itself, twice, each time with its name for the other end.
fn alone(builder: Builder) -> (Endpoint, PeerId, Endpoint, PeerId) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let address = format!("local:conformance-alone-{}-{number}", std::process::id());
    let endpoint = builder.listen(&address).build().unwrap();
    let there = endpoint.connect_wait(&address, PATIENCE).unwrap();
    let here = endpoint.accept_timeout(PATIENCE).unwrap();
    (endpoint.clone(), here, endpoint, there)
}

/// The bytes of an error that says that the peer has gone, and how.
#[track_caller]
pub fn gone(error: Error) -> pinfold::Gone {
    match error {
        Error::PeerGone { how, .. } => how,
        other => panic!("{other}"),
    }
}
