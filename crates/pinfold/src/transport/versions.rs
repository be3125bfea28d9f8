//! The versions of all that two processes have to agree on.

use std::fmt;

use crate::{
    status,
    wire::{hello, tcp::greeting},
};

/// The versions of this library and of all that it shares with other processes. Numbers, which
/// only tell versions from each other: two endpoints meet where theirs are the same.
///
/// ```
/// use pinfold::Versions;
///
/// let here = Versions::of_this_library();
/// assert!(here.tcp.0 <= here.tcp.1);
/// // Logs show this beside the versions of the other side.
/// println!("pinfold {}\n{here}", here.library);
/// assert!(here.to_string().contains(&format!("on one host: version {}", here.local)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Versions {
    /// The library, such as `0.1.0`.
    pub library: &'static str,
    /// The protocol between endpoints on one host.
    pub local: u32,
    /// The edition of the protocol between hosts: the eighth byte of each connection.
    pub tcp_edition: u8,
    /// The oldest and the newest version within that edition.
    pub tcp: (u16, u16),
    /// The layout of the counters that others read.
    pub status: u64,
}

impl Versions {
    /// Those of this library. Costs nothing.
    pub const fn of_this_library() -> Versions {
        Versions {
            library: env!("CARGO_PKG_VERSION"),
            local: hello::VERSION,
            tcp_edition: greeting::EDITION,
            tcp: (greeting::VERSIONS.min, greeting::VERSIONS.max),
            status: status::VERSION,
        }
    }
}

/// A line for each protocol, without a line break at the end.
impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "between endpoints on one host: version {}", self.local)?;
        write!(f, "between hosts: edition {}, version", self.tcp_edition)?;
        match self.tcp {
            (min, max) if min == max => writeln!(f, " {max}")?,
            (min, max) => writeln!(f, "s {min} to {max}")?,
        }
        // Paths are counted in the low byte.
        write!(f, "counters: layout {}, {} paths", self.status >> 8, self.status & 0xff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_named() {
        let all = Versions { tcp: (2, 3), ..Versions::of_this_library() };
        let said = all.to_string();
        assert_eq!(said.lines().count(), 3);
        assert!(said.contains(&format!("on one host: version {}\n", hello::VERSION)), "{said}");
        let tcp = format!("edition {}, versions 2 to 3\n", greeting::EDITION);
        assert!(said.contains(&tcp), "{said}");
        let paths = format!("{} paths", crate::Path::ALL.len());
        assert!(said.ends_with(&paths), "{said}");
    }
}
