//! A conversation with the kernel about one namespace's network. See `rtnetlink(7)`.
//!
//! A socket belongs to the namespace of the thread that made it, also when another thread uses it
//! afterwards.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink},
};

/// More than any answer of the kernel's: `NLMSG_GOODSIZE` of dumps is at most 32 KiB.
const ANSWER: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Route {
    socket: OwnedFd,
    sequence: u32,
    answer: Vec<u8>,
}

impl Route {
    /// In the namespace of the calling thread.
    pub(super) fn open() -> io::Result<Route> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        // No protocol is `NETLINK_ROUTE`.
        let socket = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Route { socket, sequence: 0, answer: vec![0; ANSWER] })
    }

    /// Has something done. `flags`: the `NLM_F_*` that it takes besides `NLM_F_REQUEST`.
    pub(super) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.converse(message, flags | NLM_F_ACK, |_| ())
    }

    /// Asks for a reply of possibly several messages, each of which `take` is given.
    pub(super) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.converse(message, NLM_F_DUMP, take)
    }

    /// Asks for one message and an acknowledgement.
    pub(super) fn get(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let mut found = None;
        self.converse(message, NLM_F_ACK, |message| found = Some(message))?;
        found.ok_or_else(|| Errno::NODEV.into())
    }

    fn converse(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        net::sendto(&self.socket, &bytes, SendFlags::empty(), &kernel)?;
        loop {
            let (len, whole) = net::recv(&self.socket, &mut self.answer[..], RecvFlags::TRUNC)?;
            if whole > len {
                return Err(Errno::MSGSIZE.into());
            }
            let mut rest = &self.answer[..len];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                let len = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(len..).unwrap_or_default();
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::Error(answer) if answer.raw_code() == 0 => return Ok(()),
                    NetlinkPayload::Error(answer) => return Err(answer.to_io()),
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::InnerMessage(message) => take(message),
                    _ => {}
                }
            }
        }
    }
}
