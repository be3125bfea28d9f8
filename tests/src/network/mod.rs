//! Networks within this machine, that can be cut, divided, made to lose packets and renumbered.
//!
//! A [`Network`] is a bridge in a namespace of its own, and 2 to 4 more of them, its *places*, each
//! on a cable to that bridge. Place `i`, counted from 0, has the address `10.77.0.(i + 1)`. A
//! [`Relay`] on the bridge passes TCP connections on and breaks them at any chosen byte.
//!
//! All namespaces and links end with the [`Network`], however the test ends: none has a name
//! outside, and the kernel removes them when no process holds them any longer. That takes the
//! kernel a moment.

mod inside;
mod relay;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use pinfold_netns::{Link, NOBODY, Namespace, Reason, bridge, veth};

pub use self::{
    inside::where_allowed,
    relay::{Relay, Way},
};
use crate::skip;

/// How long a link may take to come up.
const PATIENCE: Duration = Duration::from_secs(30);

const PREFIX: u8 = 24;
/// The largest packet, bytes.
const MTU: u32 = 1500;

/// Where relays listen: the bridge's own address.
pub const MIDDLE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

/// A bridge and its places.
pub struct Network {
    bridge: Link,
    places: Vec<Place>,
    /// Pairs of places that do not hear each other.
    partitions: Vec<(usize, usize)>,
}

struct Place {
    /// Its end of the cable.
    link: Link,
    /// The other end, at the bridge.
    port: Link,
    address: Ipv4Addr,
}

impl Network {
    /// A network of 2 to 4 places, all of which reach one another.
    ///
    /// # Panics
    /// If it cannot be made, with the kernel's error. Tests call [`where_allowed`] first.
    pub fn new(places: usize) -> Network {
        assert!((2..=4).contains(&places), "a network of {places}");
        let switch = Namespace::new().expect("a namespace");
        let bridge = bridge::create(&switch, "br0").expect("a bridge");
        bridge.add_address(MIDDLE.into(), PREFIX).expect("an address");
        bridge.up().expect("a bridge that is up");
        let place = |at: usize| {
            let namespace = Namespace::new().expect("a namespace");
            let (link, port) =
                veth::pair((&namespace, "eth0"), (&switch, &format!("port{at}")), MTU)
                    .expect("a pair of links");
            bridge::add_port(&bridge, &port).expect("a port of the bridge");
            let address = Ipv4Addr::new(10, 77, 0, at as u8 + 1);
            link.add_address(address.into(), PREFIX).expect("an address");
            link.up().expect("a link that is up");
            Place { link, port, address }
        };
        let places = (0..places).map(place).collect();
        let network = Network { bridge, places, partitions: Vec::new() };
        (0..network.places.len()).for_each(|at| network.mend(at));
        network
    }

    /// The number of places.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// A place, to start processes in.
    pub fn namespace(&self, place: usize) -> &Namespace {
        self.places[place].link.namespace()
    }

    /// The bridge, which is in a namespace of its own.
    pub fn bridge(&self) -> &Link {
        &self.bridge
    }

    /// Runs `work` in a place: sockets that it makes belong there.
    ///
    /// # Panics
    /// If the work does.
    pub fn run<T: Send>(&self, place: usize, work: impl FnOnce() -> T + Send) -> T {
        self.namespace(place).run(work).expect("to enter a namespace")
    }

    /// The address of a place.
    pub fn address(&self, place: usize) -> IpAddr {
        self.places[place].address.into()
    }

    /// Pulls the cable of a place: packets to it and from it are lost from here on, and neither
    /// side is told.
    pub fn cut(&self, place: usize) {
        self.places[place].port.down().expect("a link that goes down");
    }

    /// Puts the cable back in, and waits until it works.
    pub fn mend(&self, place: usize) {
        let Place { link, port, .. } = &self.places[place];
        port.up().expect("a link that goes up");
        for end in [link, port] {
            assert!(end.wait_until_running(PATIENCE).expect("a link"), "{} is down", end.name());
        }
    }

    /// Keeps two places from reaching each other; either reaches all others. They are not told.
    pub fn partition(&mut self, one: usize, other: usize) {
        assert_ne!(one, other, "a place has no partition within");
        self.partitions.push((one, other));
        self.part(one, other);
    }

    /// Lets two places reach each other again.
    ///
    /// # Panics
    /// If there is no partition between them.
    pub fn join(&mut self, one: usize, other: usize) {
        let is_it = |&pair: &(usize, usize)| pair == (one, other) || pair == (other, one);
        let before = self.partitions.len();
        self.partitions.retain(|pair| !is_it(pair));
        assert!(self.partitions.len() < before, "nothing between {one} and {other}");
        for (from, to) in [(one, other), (other, one)] {
            self.places[from].link.forget_neighbour(self.address(to)).expect("a neighbour");
        }
    }

    /// Has a place lose each packet that comes or goes with a probability of `percent` in 100; with
    /// 0 none any longer. Returns `false` where the kernel cannot do it, and says so as a skipped
    /// test.
    ///
    /// A TCP connection whose last step of three is lost exists for the connecting side alone, at
    /// times for more than 45 s (1 of 100 at 10 %), unless that side sends something. From 10 % on
    /// TCP may take minutes.
    #[must_use]
    pub fn lose(&self, place: usize, percent: u32) -> bool {
        match self.places[place].link.lose(percent) {
            Err(error) if error.reason() == Reason::Absent => {
                skip(&format!("no losses here: {error}"));
                false
            }
            done => {
                done.expect("a filter");
                true
            }
        }
    }

    /// Gives a place another address in place of its present one. Users of the old address are not
    /// told.
    ///
    /// # Panics
    /// If another place has it.
    pub fn change_address(&mut self, place: usize, address: Ipv4Addr) {
        let taken = self.places.iter().any(|place| place.address == address) || address == MIDDLE;
        assert!(!taken, "somebody has {address}");
        let place_of = &mut self.places[place];
        let had = std::mem::replace(&mut place_of.address, address);
        place_of.link.remove_address(had.into(), PREFIX).expect("an address to take");
        // A link forgets its neighbours with its last address. Before it has the new one, nothing
        // gets through that must not.
        for &(one, other) in
            self.partitions.iter().filter(|pair| pair.0 == place || pair.1 == place)
        {
            self.part(one, other);
        }
        let link = &self.places[place].link;
        link.add_address(address.into(), PREFIX).expect("an address to give");
    }

    fn part(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let link = &self.places[from].link;
            link.set_neighbour(self.address(to), NOBODY).expect("a neighbour");
        }
    }

    /// A relay on the way to `to`: connections to it lead there.
    pub fn relay(&self, to: SocketAddr) -> Relay {
        Relay::new(self.bridge.namespace(), MIDDLE.into(), to)
    }
}
