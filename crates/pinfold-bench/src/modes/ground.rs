//! The network for the messages: two namespaces and a cable. The near end knows two neighbours: one
//! at an Ethernet address that does not exist, so that the far end discards messages to it, and the
//! far end itself.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    time::Duration,
};

use crate::datagram;
use pinfold_netns::{Link, NOBODY, Namespace, user, veth};

use crate::fail::{Fail, Result};

/// The longest packet.
const MTU: u16 = 9000;
/// The longest payload of a datagram: a packet less the headers of IP and UDP.
const SEGMENT_BYTES: u16 = MTU - 28;

/// Addresses of RFC 5737's examples, which no other host has.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const NOWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);
/// The port for messages to be discarded (RFC 863).
const DISCARD: u16 = 9;

/// Time that a message may take to arrive.
const SOON: Duration = Duration::from_secs(2);

pub(super) struct Ground {
    near: Namespace,
    far: Namespace,
    near_end: Link,
    _far_end: Link,
}

impl Ground {
    /// Makes the network; it is gone when this is dropped, or with the process.
    ///
    /// # Errors
    /// The missing facility, and a remedy.
    pub(super) fn new() -> Result<Ground> {
        if !user::is_root_inside() {
            user::become_root_inside().map_err(denied)?;
        }
        Ground::make().map_err(denied)
    }

    fn make() -> Result<Ground, pinfold_netns::Error> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
        let (near_end, far_end) = veth::pair((&near, "near"), (&far, "far"), u32::from(MTU))?;
        near_end.add_address(IpAddr::V4(HERE), 24)?;
        far_end.add_address(IpAddr::V4(THERE), 24)?;
        far_end.up()?;
        near_end.up()?;
        near_end.set_neighbour(IpAddr::V4(NOWHERE), NOBODY)?;
        near_end.set_neighbour(IpAddr::V4(THERE), far_end.hardware()?)?;
        // If the link does not come up, sends fail and say so.
        near_end.wait_until_running(SOON)?;
        Ok(Ground { near, far, near_end, _far_end: far_end })
    }

    /// A socket whose datagrams are discarded.
    pub(super) fn to_nobody(&self) -> Result<UdpSocket> {
        self.connected((NOWHERE, DISCARD).into())
    }

    /// A socket, and one at the far end that receives its datagrams, and waits for each two
    /// seconds.
    pub(super) fn to_somebody(&self) -> Result<(UdpSocket, UdpSocket)> {
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((THERE, 0))?;
            socket.set_read_timeout(Some(SOON))?;
            Ok(socket)
        };
        let there = self.far.run(bind).map_err(denied)?.map_err(Fail::os("bind"))?;
        let at = there.local_addr().map_err(Fail::os("getsockname"))?;
        Ok((self.connected(at)?, there))
    }

    fn connected(&self, to: SocketAddr) -> Result<UdpSocket> {
        let connect = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((HERE, 0))?;
            socket.connect(to)?;
            datagram::set_segment_bytes(&socket, SEGMENT_BYTES)?;
            Ok(socket)
        };
        self.near.run(connect).map_err(denied)?.map_err(|source| Fail::Os {
            call: "a UDP socket with UDP_SEGMENT (Linux 4.18)",
            source,
        })
    }

    /// Packets that went out so far. Segments that were not cut count as one.
    pub(super) fn packets(&self) -> Result<u64> {
        Ok(self.near_end.counters().map_err(denied)?.sent)
    }
}

fn denied(why: pinfold_netns::Error) -> Fail {
    Fail::Said(format!("nothing can be measured without a network namespace to send into: {why}"))
}
