//! Cables between namespaces. See `veth(4)`.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo, LinkMessage},
};

use super::{Error, Link, Namespace};

/// Makes a pair of links, one in each of two namespaces (or both in one), under the names given
/// with them: a frame that goes out at one comes in at the other. Both are down, without addresses,
/// with packets of at most `mtu` bytes: 68 to 65,535. If one is deleted, or its namespace ends, the
/// other goes, too.
///
/// # Errors
/// [`Reason::Taken`](super::Reason::Taken) if there is such a name,
/// [`Reason::Malformed`](super::Reason) if one is empty or longer than 15 bytes, or the MTU out of
/// range, [`Reason::Absent`](super::Reason::Absent) in a kernel without `CONFIG_VETH`.
pub fn pair(
    one: (&Namespace, &str),
    other: (&Namespace, &str),
    mtu: u32,
) -> Result<(Link, Link), Error> {
    let end = |name: &str| {
        let mut end = LinkMessage::default();
        end.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::Mtu(mtu)];
        end
    };
    let mut far = end(other.1);
    far.attributes.push(LinkAttribute::NetNsFd(other.0.as_fd().as_raw_fd()));
    let mut near = end(one.1);
    near.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
    ]));
    let message = RouteNetlinkMessage::NewLink(near);
    one.0.route().request(message, NLM_F_CREATE | NLM_F_EXCL).map_err(|error| {
        let on = format!("{} in {:?} to {} in {:?}", one.1, one.0, other.1, other.0);
        Error::io("RTM_NEWLINK (veth)", on, &error)
    })?;
    Ok((one.0.link(one.1)?, other.0.link(other.1)?))
}
