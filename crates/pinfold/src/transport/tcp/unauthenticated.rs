//! Callers that have not shown the key yet, and the choice of one to make room for another. No I/O.
//!
//! No caller needs long to show it, and a silent one may have been sent to take the places of
//! others. So a stranger has its place for a moment in any case; after that it is the first to go,
//! oldest first, of the source that has most of them. No source can so keep more places than any
//! other that wants some.

use std::{collections::HashMap, net::IpAddr};

/// Strangers at a time.
pub(crate) const UNAUTHENTICATED_MAX: usize = 128;
/// The time for which each of them is left in peace, ns: some times a packet's trip around the
/// world.
const PEACE_NS: u64 = 500_000_000;

/// A caller that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub from: IpAddr,
    pub since_ns: u64,
}

impl Caller {
    /// The source that a caller counts for: one host of IPv6 has 2^64 addresses.
    fn source(&self) -> IpAddr {
        match self.from {
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
            ip => ip,
        }
    }
}

/// The answer to one more caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    There,
    /// In place of this one.
    InPlaceOf(usize),
    /// Not before that time.
    Later(u64),
}

/// Checks for room for one more besides these, which have numbers.
pub(crate) fn room(unauthenticated: &[(usize, Caller)], now_ns: u64) -> Room {
    if unauthenticated.len() < UNAUTHENTICATED_MAX {
        return Room::There;
    }
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for (_, caller) in unauthenticated {
        *counts.entry(caller.source()).or_default() += 1;
    }
    let goes_at = |caller: &Caller| caller.since_ns.saturating_add(PEACE_NS);
    let may_go = unauthenticated.iter().filter(|(_, caller)| goes_at(caller) <= now_ns);
    let first = may_go.max_by_key(|(_, caller)| {
        (counts.get(&caller.source()), std::cmp::Reverse(caller.since_ns))
    });
    match first {
        Some((number, _)) => Room::InPlaceOf(*number),
        None => {
            Room::Later(unauthenticated.iter().map(|(_, it)| goes_at(it)).min().unwrap_or(now_ns))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(from: [u8; 4], since_ns: u64) -> Caller {
        Caller { from: from.into(), since_ns }
    }

    fn full(of: impl Fn(usize) -> Caller) -> Vec<(usize, Caller)> {
        (0..UNAUTHENTICATED_MAX).map(|at| (at + 1000, of(at))).collect()
    }

    #[test]
    fn as_long_as_there_is_room_nobody_goes() {
        let mut some = full(|_| caller([10, 0, 0, 1], 0));
        some.pop();
        assert_eq!(room(&some, u64::MAX), Room::There);
        assert_eq!(room(&[], 0), Room::There);
    }

    #[test]
    fn the_oldest_goes_after_a_moment() {
        let mut all = full(|at| caller([10, 0, 0, 1], 900 - at as u64));
        all.swap(3, UNAUTHENTICATED_MAX - 1);
        let oldest = 900 - (UNAUTHENTICATED_MAX as u64 - 1);
        assert_eq!(room(&all, oldest + PEACE_NS - 1), Room::Later(oldest + PEACE_NS));
        let number = UNAUTHENTICATED_MAX - 1 + 1000;
        assert_eq!(room(&all, oldest + PEACE_NS), Room::InPlaceOf(number));
        assert_eq!(room(&all, u64::MAX), Room::InPlaceOf(number));
    }

    #[test]
    fn who_has_most_makes_room() {
        // One of them has called before all others, and is alone.
        let all = full(|at| match at {
            0 => caller([10, 0, 0, 9], 0),
            at if at % 3 == 0 => caller([10, 0, 0, 1], 100 + at as u64),
            at => caller([10, 0, 0, 2], 200 + at as u64),
        });
        assert_eq!(room(&all, u64::MAX), Room::InPlaceOf(1001));
        // But those of a source that are left in peace stay.
        assert_eq!(room(&all, PEACE_NS + 150), Room::InPlaceOf(1003));
        assert_eq!(room(&all, PEACE_NS + 50), Room::InPlaceOf(1000));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let of = |network: u16, host: u16, since_ns| Caller {
            from: std::net::Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into(),
            since_ns,
        };
        let all = full(|at| match at {
            0..60 => caller([10, 0, 0, at as u8], 0),
            at => of(7, at as u16, at as u64),
        });
        assert_eq!(room(&all, u64::MAX), Room::InPlaceOf(1060));
    }
}
