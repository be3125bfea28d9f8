//! The address of an endpoint: 48 bytes that let a peer connect.
//!
//! It has the name of the endpoint on its host, the host, and where it listens for other hosts, if
//! it does. A peer on the same host calls the name, and another one the port.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    str::FromStr,
    sync::OnceLock,
};

use crate::ffi::flags::FI_PROV_SPECIFIC;

/// The number of the format, which is this provider's own.
pub const FORMAT: u32 = FI_PROV_SPECIFIC | 0x5046;

/// Length of every address, bytes.
pub const BYTES: usize = 48;

const MAGIC: [u8; 4] = *b"PFO1";

/// The address of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address([u8; BYTES]);

/// The kinds of internet addresses.
const NONE: u8 = 0;
const V4: u8 = 4;
const V6: u8 = 6;

impl Address {
    /// The address of the endpoint with this name on this host.
    fn named(name: [u8; 16]) -> Address {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&this_host().to_ne_bytes());
        bytes[16..32].copy_from_slice(&name);
        Address(bytes)
    }

    /// A name that no other endpoint has.
    pub fn fresh() -> Result<Address, getrandom::Error> {
        let mut name = [0; 16];
        getrandom::fill(&mut name)?;
        Ok(Address::named(name))
    }

    /// The address of the endpoint that was made for this service, at the host named `node`, if one
    /// is: at its port, if the service is one. `None`: the host is not known.
    pub fn of_service(node: Option<&str>, service: Option<&str>) -> Option<Address> {
        let service = service.unwrap_or("");
        let mut address = Address::named(hash(service));
        let port = service.parse::<u16>().unwrap_or(0);
        if let Some(node) = node {
            let at = (node, port).to_socket_addrs().ok()?.next()?;
            if !is_here(at.ip()) {
                // Which host that is turns out when it is called.
                address.0[8..16].fill(0);
            }
            address = address.listening(at);
        }
        Some(address)
    }

    /// The same address, of an endpoint that listens there.
    pub fn listening(mut self, at: SocketAddr) -> Address {
        self.0[4..6].copy_from_slice(&at.port().to_ne_bytes());
        match at.ip() {
            IpAddr::V4(ip) => {
                self.0[6] = V4;
                self.0[32..36].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                self.0[6] = V6;
                self.0[32..48].copy_from_slice(&ip.octets());
            }
        }
        self
    }

    /// An address out of a program's bytes.
    pub fn read(bytes: &[u8]) -> Option<Address> {
        let bytes: [u8; BYTES] = bytes.get(..BYTES)?.try_into().ok()?;
        (bytes[..4] == MAGIC && matches!(bytes[6], NONE | V4 | V6)).then_some(Address(bytes))
    }

    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    fn host(&self) -> u64 {
        self.0[8..16].iter().rev().fold(0, |host, &byte| host << 8 | u64::from(byte))
    }

    /// The address on its host, for the library.
    pub fn local(&self) -> String {
        let mut text = "local:pinfold-fi-".to_owned();
        self.0[16..32].iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
        text
    }

    /// The address for other hosts, if it listens for them.
    pub fn socket(&self) -> Option<SocketAddr> {
        let port = u16::from_ne_bytes([self.0[4], self.0[5]]);
        let ip = match self.0[6] {
            V4 => {
                let octets: [u8; 4] = self.0[32..36].try_into().ok()?;
                IpAddr::V4(Ipv4Addr::from(octets))
            }
            V6 => {
                let octets: [u8; 16] = self.0[32..48].try_into().ok()?;
                IpAddr::V6(Ipv6Addr::from(octets))
            }
            _ => return None,
        };
        (port != 0).then(|| SocketAddr::new(ip, port))
    }

    /// The names to call, in this order.
    pub fn ways(&self) -> Vec<String> {
        let here = [0, this_host()].contains(&self.host());
        let local = here.then(|| self.local());
        local.into_iter().chain(self.socket().map(|at| format!("tcp:{at}"))).collect()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fi_pinfold://{}", self.local().trim_start_matches("local:pinfold-fi-"))?;
        match self.socket() {
            Some(at) => write!(f, "@{at}"),
            None => Ok(()),
        }
    }
}

/// A number for this host, and for the namespaces in which names and memory are shared. Never 0.
fn this_host() -> u64 {
    static HOST: OnceLock<u64> = OnceLock::new();
    *HOST.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let space = |name| std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        let text = format!("{boot} {:?} {:?}", space("net"), space("ipc"));
        (u128::from_le_bytes(hash(&text)) as u64).max(1)
    })
}

/// FNV-1a, of 128 bits.
fn hash(text: &str) -> [u8; 16] {
    const BASIS: u128 = 0x6c62272e07bb014262b821756295c58d;
    const PRIME: u128 = 0x0000000001000000000000000000013b;
    let step = |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(PRIME);
    text.bytes().fold(BASIS, step).to_le_bytes()
}

/// True for an address of this host's own.
fn is_here(ip: IpAddr) -> bool {
    // The kernel lets a socket have only such an address.
    ip.is_loopback() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// The address of this host at which others reach it: that of `PINFOLD_HOST`, or that from which
/// a packet to elsewhere would leave.
pub fn own_ip() -> Option<IpAddr> {
    if let Ok(host) = std::env::var("PINFOLD_HOST") {
        return match IpAddr::from_str(&host) {
            Ok(ip) => Some(ip),
            Err(_) => (host.as_str(), 0).to_socket_addrs().ok()?.next().map(|at| at.ip()),
        };
    }
    let outward = |from: &str, to: &str| {
        let socket = std::net::UdpSocket::bind(from).ok()?;
        // Nothing is sent: the kernel looks for the route.
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
    };
    outward("0.0.0.0:0", "198.51.100.1:9")
        .or_else(|| outward("[::]:0", "[2001:db8::1]:9"))
        .or(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_its_bytes() {
        let address = Address::fresh().unwrap();
        assert_eq!(Address::read(address.bytes()), Some(address));
        assert_eq!(address.socket(), None);
        assert_eq!(address.ways(), [address.local()]);
        let at = "192.0.2.7:4711".parse().unwrap();
        let listening = address.listening(at);
        assert_eq!(listening.socket(), Some(at));
        assert_eq!(listening.ways(), [address.local(), "tcp:192.0.2.7:4711".to_owned()]);
        assert_ne!(Address::fresh().unwrap(), address);
    }

    #[test]
    fn other_bytes_are_no_address() {
        let mut bytes = *Address::fresh().unwrap().bytes();
        assert_eq!(Address::read(&bytes[..BYTES - 1]), None);
        bytes[0] ^= 1;
        assert_eq!(Address::read(&bytes), None);
        bytes[0] ^= 1;
        bytes[6] = 5;
        assert_eq!(Address::read(&bytes), None);
    }

    #[test]
    fn a_service_has_one_address() {
        let one = Address::of_service(None, Some("47592")).unwrap();
        assert_eq!(Address::of_service(None, Some("47592")), Some(one));
        assert_ne!(Address::of_service(None, Some("47593")), Some(one));
        let there = Address::of_service(Some("127.0.0.1"), Some("47592")).unwrap();
        assert_eq!(there.local(), one.local());
        assert_eq!(there.socket(), Some("127.0.0.1:47592".parse().unwrap()));
    }

    #[test]
    fn addresses_of_elsewhere_are_called_by_port() {
        let mut address = Address::fresh().unwrap().listening("192.0.2.7:1".parse().unwrap());
        address.0[8] ^= 1;
        assert_eq!(address.ways(), ["tcp:192.0.2.7:1"]);
    }
}
