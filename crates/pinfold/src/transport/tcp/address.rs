//! The address of an endpoint on another host: `tcp:HOST:PORT`.
//!
//! It is kept apart from [`local::Address`](crate::transport::local::Address): that one leads to a
//! directory and its owner, this one to a name service. They share nothing but the colon.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The longest host name, bytes (RFC 1035, section 2.3.4).
const NAME_MAX: usize = 253;

/// The longest part of a host name between two dots, bytes.
const PART_MAX: usize = 63;

/// The address of an endpoint that is reached by TCP.
///
/// `tcp:HOST:PORT`, where the host is an IPv4 address, an IPv6 address in brackets, or a name out
/// of `A-Z a-z 0-9 . _ -`. Names are kept in lower case. The port is a decimal number from 0 to
/// 65535; 0 is for listening and means one that is free.
///
/// # Errors
/// Parsing fails with [`BadAddress`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    host: Host,
    port: u16,
}

/// The host of the other side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// As it was given.
    Ip(IpAddr),
    /// To be looked up.
    Name(String),
}

/// The error for a string that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address:?} is not an address: {why}; write tcp:HOST:PORT, tcp:1.2.3.4:PORT or tcp:[IPV6]:PORT"
)]
pub(crate) struct BadAddress {
    /// The given string.
    pub address: String,
    /// The reason why it is no address.
    pub why: &'static str,
}

impl Address {
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        read(text).map_err(|why| BadAddress { address: text.to_owned(), why })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => write!(f, "tcp:{ip}:{}", self.port),
            Host::Ip(IpAddr::V6(ip)) => write!(f, "tcp:[{ip}]:{}", self.port),
            Host::Name(name) => write!(f, "tcp:{name}:{}", self.port),
        }
    }
}

/// The address that a text is.
///
/// # Errors
/// [`Error::BadAddress`](crate::Error::BadAddress).
pub(crate) fn parse(text: &str) -> crate::Result<Address> {
    text.parse::<Address>()
        .map_err(|BadAddress { address, why }| crate::Error::BadAddress { address, why })
}

fn read(text: &str) -> Result<Address, &'static str> {
    let rest = text.strip_prefix("tcp:").ok_or("it does not begin with \"tcp:\"")?;
    if rest.starts_with("//") {
        return Err("there are no slashes before the host");
    }
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (ip, rest) = rest.split_once(']').ok_or("the bracket is not closed")?;
            let port = match rest.strip_prefix(':') {
                Some(port) => port,
                None if rest.is_empty() => return Err("the port is missing"),
                None => return Err("a colon and the port have to follow the bracket"),
            };
            (Host::Ip(IpAddr::V6(ipv6(ip)?)), port)
        }
        None => {
            let (host, port) = rest.rsplit_once(':').ok_or("the port is missing")?;
            if host.contains(':') {
                return Err("an IPv6 address has to be in brackets");
            }
            (host_of(host)?, port)
        }
    };
    Ok(Address { host, port: port_of(port)? })
}

fn ipv6(text: &str) -> Result<Ipv6Addr, &'static str> {
    if text.contains('%') {
        return Err("an address with a zone (%) cannot be used; take one that holds everywhere");
    }
    text.parse().map_err(|_| "what is in brackets is not an IPv6 address")
}

fn host_of(text: &str) -> Result<Host, &'static str> {
    if text.is_empty() {
        return Err("the host is empty");
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into()));
    }
    if text.len() > NAME_MAX {
        return Err("the host is longer than 253 characters");
    }
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !text.bytes().all(fits) {
        return Err("the host has characters other than A-Z a-z 0-9 . _ -");
    }
    let mut last = "";
    // A dot at the end says that the name is complete.
    for part in text.strip_suffix('.').unwrap_or(text).split('.') {
        if part.is_empty() {
            return Err("the host has an empty part");
        }
        if part.len() > PART_MAX {
            return Err("a part of the host is longer than 63 characters");
        }
        if part.starts_with('-') || part.ends_with('-') {
            return Err("a part of the host begins or ends with a hyphen");
        }
        last = part;
    }
    // No top-level domain is a number (RFC 3696, section 2); some resolvers read `1.2.3` as
    // `1.2.0.3`.
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the host ends in a number, but is not an IPv4 address");
    }
    Ok(Host::Name(text.to_ascii_lowercase()))
}

fn port_of(text: &str) -> Result<u16, &'static str> {
    if text.is_empty() {
        return Err("the port is missing");
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("the port is not a number");
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err("the port begins with a zero");
    }
    text.parse().map_err(|_| "the port is above 65535")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn good_addresses() {
        for (text, host, port) in [
            ("tcp:10.0.0.7:4711", Host::Ip([10, 0, 0, 7].into()), 4711),
            ("tcp:[::1]:1", Host::Ip(Ipv6Addr::LOCALHOST.into()), 1),
            ("tcp:[fd00::a:b]:65535", Host::Ip("fd00::a:b".parse().unwrap()), 65535),
            ("tcp:node-7.cluster:0", Host::Name("node-7.cluster".into()), 0),
            ("tcp:my_box.:80", Host::Name("my_box.".into()), 80),
            ("tcp:7eleven:80", Host::Name("7eleven".into()), 80),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host(), address.port()), (&host, port), "{text}");
            assert_eq!(address.to_string(), text);
        }
        let address: Address = "tcp:[FD00:0:0::1]:9".parse().unwrap();
        assert_eq!(address.to_string(), "tcp:[fd00::1]:9");
        let address: Address = "tcp:NoDe:9".parse().unwrap();
        assert_eq!(address.to_string(), "tcp:node:9");
        let part = "n".repeat(63);
        format!("tcp:{part}.{part}.{part}.{}:9", &part[..61]).parse::<Address>().unwrap();
    }

    #[test]
    fn bad_addresses_say_why() {
        let long = format!("tcp:{}:9", "n.".repeat(127));
        let part = format!("tcp:{}:9", "n".repeat(64));
        for (text, why) in [
            ("", "it does not begin"),
            ("local:box", "it does not begin"),
            ("TCP:box:9", "it does not begin"),
            ("tcp:", "the port is missing"),
            ("tcp:box", "the port is missing"),
            ("tcp:box:", "the port is missing"),
            ("tcp:[::1]", "the port is missing"),
            ("tcp:[::1]:", "the port is missing"),
            ("tcp:[::1]9", "a colon and the port"),
            ("tcp:[::1:9", "the bracket is not closed"),
            ("tcp:[box]:9", "what is in brackets"),
            ("tcp:[10.0.0.7]:9", "what is in brackets"),
            ("tcp:[fe80::1%eth0]:9", "an address with a zone"),
            ("tcp://box:9", "there are no slashes"),
            ("tcp:::1:9", "an IPv6 address has to be"),
            ("tcp:fd00::1:9", "an IPv6 address has to be"),
            ("tcp::9", "the host is empty"),
            ("tcp:10.0.0.256:9", "the host ends in a number"),
            ("tcp:10.0.7:9", "the host ends in a number"),
            ("tcp:010.0.0.7:9", "the host ends in a number"),
            ("tcp:17:9", "the host ends in a number"),
            ("tcp:a..b:9", "the host has an empty part"),
            ("tcp:.:9", "the host has an empty part"),
            ("tcp:.b:9", "the host has an empty part"),
            ("tcp:-a:9", "a part of the host begins"),
            ("tcp:a-.b:9", "a part of the host begins"),
            ("tcp:a b:9", "the host has characters"),
            ("tcp:b\u{f6}x:9", "the host has characters"),
            ("tcp:b\0x:9", "the host has characters"),
            ("tcp:u@h:9", "the host has characters"),
            ("tcp:box:9x", "the port is not a number"),
            ("tcp:box:+9", "the port is not a number"),
            ("tcp:box:-9", "the port is not a number"),
            ("tcp:box: 9", "the port is not a number"),
            ("tcp:box:09", "the port begins with a zero"),
            ("tcp:box:65536", "the port is above"),
            ("tcp:box:99999999999999999999", "the port is above"),
            (&long, "the host is longer"),
            (&part, "a part of the host is longer"),
        ] {
            match text.parse::<Address>() {
                Err(BadAddress { address, why: said }) => {
                    assert_eq!(address, text);
                    assert!(said.starts_with(why), "{text:?}: {said}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
        let said = "tcp:x".parse::<Address>().unwrap_err().to_string();
        assert!(said.starts_with("\"tcp:x\" is not an address: the port is missing; "), "{said}");
    }

    proptest! {
        #[test]
        fn what_parses_comes_back(
            text in r"tcp:(\[[0-9a-f:.%]{0,12}\]|[a-z0-9._-]{0,20}|[0-9.]{1,9}):?[0-9]{0,6}"
        ) {
            if let Ok(address) = text.parse::<Address>() {
                let shown = address.to_string();
                prop_assert_eq!(shown.parse::<Address>().unwrap(), address.clone());
                if matches!(address.host(), Host::Name(_) | Host::Ip(IpAddr::V4(_))) {
                    prop_assert_eq!(shown, text);
                }
            }
        }

        #[test]
        fn ips_survive(v4: [u8; 4], v6: [u8; 16], port: u16) {
            for host in [Host::Ip(v4.into()), Host::Ip(v6.into())] {
                let address = Address { host, port };
                prop_assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
            }
        }

        #[test]
        fn any_text_is_parsed_without_panic(text in any::<String>()) {
            let _ = text.parse::<Address>();
            let _ = format!("tcp:{text}").parse::<Address>();
        }
    }
}
