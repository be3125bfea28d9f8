//! Switches: every port of one reaches every other.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage},
};

use super::{Error, Link, Namespace};

/// Makes a bridge; it is down. Given an address, it is also a place on the network that it makes.
///
/// # Errors
/// [`Reason::Taken`](super::Reason::Taken) if there is such a name,
/// [`Reason::Absent`](super::Reason::Absent) in a kernel without `CONFIG_BRIDGE`.
pub fn create(namespace: &Namespace, name: &str) -> Result<Link, Error> {
    let mut bridge = LinkMessage::default();
    bridge.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
    ];
    let message = RouteNetlinkMessage::NewLink(bridge);
    namespace.route().request(message, NLM_F_CREATE | NLM_F_EXCL).map_err(|error| {
        Error::io("RTM_NEWLINK (bridge)", format!("{name} in {namespace:?}"), &error)
    })?;
    namespace.link(name)
}

/// Makes a link a port of a bridge in the same namespace.
///
/// # Errors
/// [`Reason::Absent`](super::Reason::Absent) if `bridge` is none.
///
/// # Panics
/// If they are in two namespaces.
pub fn add_port(bridge: &Link, port: &Link) -> Result<(), Error> {
    assert_eq!(bridge.namespace(), port.namespace(), "a bridge and its ports are in one namespace");
    port.set_master(bridge.index())
}
