//! An interface in a namespace.

use std::{
    io,
    net::IpAddr,
    thread,
    time::{Duration, Instant},
};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressHeaderFlags, AddressMessage},
    link::{LinkAttribute, LinkFlags, LinkHeader, LinkMessage, State},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
};

use super::{Counters, Error, Namespace, loss};

/// An Ethernet address.
pub type Hardware = [u8; 6];

/// An Ethernet address that nobody has. Every receiver discards frames sent to it.
pub const NOBODY: Hardware = [0x02, 0, 0, 0, 0, 0xff];

/// An interface. It lives as long as its namespace, unless it is [deleted](Link::delete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    namespace: Namespace,
    index: u32,
    name: String,
}

impl Link {
    pub(super) fn find(namespace: &Namespace, name: &str) -> Result<Link, Error> {
        let mut wanted = LinkMessage::default();
        wanted.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let found = namespace
            .route()
            .get(RouteNetlinkMessage::GetLink(wanted))
            .map_err(|error| Error::io("RTM_GETLINK", name, &error))?;
        match found {
            RouteNetlinkMessage::NewLink(link) => {
                let (namespace, name) = (namespace.clone(), name.to_owned());
                Ok(Link { namespace, index: link.header.index, name })
            }
            _ => Err(Error::new("RTM_GETLINK", name, rustix::io::Errno::NODEV)),
        }
    }

    /// Its namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number, for `if_nametoindex(3)` and scopes of IPv6.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Takes it up.
    ///
    /// # Errors
    /// [`Reason::Gone`](super::Reason::Gone) if it was deleted.
    pub fn up(&self) -> Result<(), Error> {
        self.set_flags(LinkFlags::Up)
    }

    /// Takes it down: nothing passes it from here on, and the far end of a pair has no carrier.
    ///
    /// # Errors
    /// As for [`Link::up`].
    pub fn down(&self) -> Result<(), Error> {
        self.set_flags(LinkFlags::empty())
    }

    /// Waits until frames can pass: it is up, and so is the link that it leads to. Returns whether
    /// it came to that within `timeout`.
    ///
    /// # Errors
    /// As for [`Link::up`].
    pub fn wait_until_running(&self, timeout: Duration) -> Result<bool, Error> {
        let end = Instant::now() + timeout;
        loop {
            let attributes = self.attributes()?;
            if attributes.contains(&LinkAttribute::OperState(State::Up)) {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sets the longest packet, bytes: 68 to 65,535 on Ethernet of this kind. Each end of a pair
    /// has its own.
    ///
    /// # Errors
    /// [`Reason::Malformed`](super::Reason::Malformed) if it is out of range.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), Error> {
        self.set("RTM_SETLINK (mtu)", LinkAttribute::Mtu(mtu))
    }

    /// The longest packet, bytes.
    ///
    /// # Errors
    /// As for [`Link::up`].
    pub fn mtu(&self) -> Result<u32, Error> {
        self.one("mtu", |attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(mtu),
            _ => None,
        })
    }

    /// Its Ethernet address.
    ///
    /// # Errors
    /// As for [`Link::up`].
    pub fn hardware(&self) -> Result<Hardware, Error> {
        self.one("address", |attribute| match attribute {
            LinkAttribute::Address(address) => address.try_into().ok(),
            _ => None,
        })
    }

    /// The link's counters.
    ///
    /// # Errors
    /// As for [`Link::up`].
    pub fn counters(&self) -> Result<Counters, Error> {
        self.one("statistics", |attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(Counters {
                received: stats.rx_packets,
                received_bytes: stats.rx_bytes,
                sent: stats.tx_packets,
                sent_bytes: stats.tx_bytes,
                dropped: stats.rx_dropped + stats.tx_dropped,
            }),
            _ => None,
        })
    }

    /// Gives it an address, with a route to all others with the same first `prefix` bits. One of
    /// IPv6 can be used at once: nobody is asked whether they have it.
    ///
    /// # Errors
    /// [`Reason::Taken`](super::Reason::Taken) if it has it,
    /// [`Reason::Denied`](super::Reason::Denied) also for IPv6 where the system has turned that
    /// off.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewAddress(self.address(address, prefix));
        self.ask("RTM_NEWADDR", &address, message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Takes an address away. Connections that use it are not told; they just make no progress.
    /// With its last one of IPv4 a link forgets its neighbours, too, even those it was told.
    ///
    /// # Errors
    /// [`Reason::Gone`](super::Reason::Gone) if it does not have it.
    pub fn remove_address(&self, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelAddress(self.address(address, prefix));
        self.ask("RTM_DELADDR", &address, message, 0)
    }

    /// Says once and for all which Ethernet address belongs to `address`, instead of asking around.
    /// With [`NOBODY`] the far end discards frames sent there.
    ///
    /// # Errors
    /// As for [`Link::up`].
    pub fn set_neighbour(&self, address: IpAddr, hardware: Hardware) -> Result<(), Error> {
        let mut neighbour = self.neighbour(address);
        neighbour.header.state = NeighbourState::Permanent;
        neighbour.attributes.push(NeighbourAttribute::LinkLayerAddress(hardware.to_vec()));
        let message = RouteNetlinkMessage::NewNeighbour(neighbour);
        self.ask("RTM_NEWNEIGH", &address, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Forgets the Ethernet address of `address`, given or found out by asking.
    ///
    /// # Errors
    /// [`Reason::Gone`](super::Reason::Gone) if nothing was.
    pub fn forget_neighbour(&self, address: IpAddr) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelNeighbour(self.neighbour(address));
        self.ask("RTM_DELNEIGH", &address, message, 0)
    }

    /// Has each packet lost with a probability of `percent` in 100, by chance, coming as well as
    /// going. Questions and answers about Ethernet addresses (ARP) are spared, for without them
    /// there would be no packets to lose. Takes the place of an earlier percentage.
    ///
    /// # Errors
    /// [`Reason::Absent`](super::Reason::Absent) in a kernel without `CONFIG_NET_CLS_BPF` and
    /// `CONFIG_NET_SCH_INGRESS`, [`Reason::Malformed`](super::Reason::Malformed) above 100.
    pub fn lose(&self, percent: u32) -> Result<(), Error> {
        loss::set(self, percent)
    }

    /// Deletes it; if it is one end of a pair, the other as well.
    ///
    /// # Errors
    /// [`Reason::Gone`](super::Reason::Gone) if it was deleted before.
    pub fn delete(self) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelLink(self.message());
        self.ask("RTM_DELLINK", &self.name, message, 0)
    }

    /// Puts it under a bridge.
    pub(super) fn set_master(&self, index: u32) -> Result<(), Error> {
        self.set("RTM_SETLINK (master)", LinkAttribute::Controller(index))
    }

    pub(super) fn ask(
        &self,
        call: &'static str,
        on: &dyn std::fmt::Display,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(), Error> {
        self.namespace
            .route()
            .request(message, flags)
            .map_err(|error| self.failed(call, on, &error))
    }

    fn failed(&self, call: &'static str, on: &dyn std::fmt::Display, error: &io::Error) -> Error {
        let Link { namespace, name, .. } = self;
        Error::io(call, format!("{on} at {name} in {namespace:?}"), error)
    }

    fn set_flags(&self, flags: LinkFlags) -> Result<(), Error> {
        let mut message = self.message();
        message.header.flags = flags;
        message.header.change_mask = LinkFlags::Up;
        let what = if flags.is_empty() { "down" } else { "up" };
        self.ask("RTM_SETLINK", &what, RouteNetlinkMessage::SetLink(message), 0)
    }

    fn set(&self, call: &'static str, attribute: LinkAttribute) -> Result<(), Error> {
        let mut message = self.message();
        message.attributes.push(attribute);
        self.ask(call, &self.name, RouteNetlinkMessage::SetLink(message), 0)
    }

    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header = LinkHeader { index: self.index, ..LinkHeader::default() };
        message
    }

    fn attributes(&self) -> Result<Vec<LinkAttribute>, Error> {
        let found = self.namespace.route().get(RouteNetlinkMessage::GetLink(self.message()));
        match found.map_err(|error| self.failed("RTM_GETLINK", &self.name, &error))? {
            RouteNetlinkMessage::NewLink(link) => Ok(link.attributes),
            _ => Ok(Vec::new()),
        }
    }

    fn one<T>(
        &self,
        what: &'static str,
        find: impl FnMut(LinkAttribute) -> Option<T>,
    ) -> Result<T, Error> {
        let found = self.attributes()?.into_iter().find_map(find);
        let absent = || io::Error::from(rustix::io::Errno::NOENT);
        found.ok_or_else(|| self.failed("RTM_GETLINK", &what, &absent()))
    }

    fn address(&self, address: IpAddr, prefix: u8) -> AddressMessage {
        let mut message = AddressMessage::default();
        message.header.index = self.index;
        message.header.prefix_len = prefix;
        message.header.family = family(address);
        if address.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        } else {
            // IPv4 has one for each end of a possible line between two.
            message.attributes.push(AddressAttribute::Local(address));
        }
        message.attributes.push(AddressAttribute::Address(address));
        message
    }

    fn neighbour(&self, address: IpAddr) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes.push(NeighbourAttribute::Destination(destination));
        message
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}
