//! The messages that open memory of a peer's: the question for it and the answer.

use super::{
    descriptor::Body,
    rendezvous::Exported,
    space::{Claim, Exposure},
};

/// Asks the owner of a key for the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub claim: Claim,
    pub by: By,
}

/// The way in which the asking side means to use a region. Memory by address knows no such choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// It wants to be handed the memory.
    Mapping = 0,
    /// It wants to know the address in the owner's process.
    Kernel = 1,
    /// It will ask the owner for each operation, from another host.
    Owner = 2,
}

impl Open {
    pub(crate) const fn body(self) -> [u64; 4] {
        let Claim { id, secret } = self.claim;
        [id, secret[0], secret[1], self.by as u64]
    }

    pub(crate) const fn read(body: &Body) -> Option<Open> {
        let by = match body[3] {
            0 => By::Mapping,
            1 => By::Kernel,
            2 => By::Owner,
            _ => return None,
        };
        Some(Open { claim: Claim { id: body[0], secret: [body[1], body[2]] }, by })
    }
}

/// The answer. Its first word is a kind, by 8 bits, and above them the address of a region's first
/// byte, or a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// Nothing has this key.
    Unknown,
    /// The region cannot be handed over just now.
    Unshared,
    /// The region was handed over before this answer.
    Here(Site),
    /// The region may be read and written where it is.
    There(Spot),
    /// The owner of the region performs the operations.
    Served(Extent),
    /// It may not be used, by the number of a [`Refusal`](crate::Refusal) as its owner sees it.
    Refused(u16),
    /// It is memory by address.
    Exposed(Exposure),
    /// It is memory by address, and its owner's agent performs the operations, for another host.
    Agent(Extent),
}

/// The place of a region in memory that was handed over, and of the word that says whether it
/// stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// The address of the first byte in its owner's process.
    pub start: u64,
    pub memory: Exported,
    pub len: u64,
    pub flag: Exported,
    /// The value of that word as long as the region stands; never 0.
    pub stamp: u64,
    pub writable: bool,
}

/// The same places, by addresses of its owner's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub memory: u64,
    pub len: u64,
    pub flag: u64,
    pub stamp: u64,
    pub writable: bool,
}

/// Memory that its owner uses for its peers: its address there, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u64,
    pub len: u64,
    pub writable: bool,
}

/// Bits of the kind of an answer.
const KIND: u32 = 8;

const fn kind(readable: u64, writable: bool, high: u64) -> u64 {
    (high << KIND) | (readable + writable as u64)
}

impl Opened {
    pub(crate) const fn body(self) -> [u64; 7] {
        match self {
            Opened::Unknown => [1, 0, 0, 0, 0, 0, 0],
            Opened::Unshared => [2, 0, 0, 0, 0, 0, 0],
            Opened::Here(Site { start, memory, len, flag, stamp, writable }) => [
                kind(3, writable, start),
                memory.extent,
                memory.offset,
                len,
                flag.extent,
                flag.offset,
                stamp,
            ],
            Opened::There(Spot { memory, len, flag, stamp, writable }) => {
                [kind(5, writable, 0), memory, len, flag, stamp, 0, 0]
            }
            Opened::Refused(code) => [7, code as u64, 0, 0, 0, 0, 0],
            Opened::Served(Extent { start, len, writable }) => {
                [kind(8, writable, start), len, 0, 0, 0, 0, 0]
            }
            Opened::Exposed(Exposure { start, len, writable, flag, exported, stamp, cma }) => {
                // No extent has the number 0.
                let Exported { extent, offset } = match exported {
                    Some(exported) => exported,
                    None => Exported { extent: 0, offset: 0 },
                };
                [kind(10, writable, cma as u64), start, len, flag, stamp, extent, offset]
            }
            Opened::Agent(Extent { start, len, writable }) => {
                [kind(12, writable, start), len, 0, 0, 0, 0, 0]
            }
        }
    }

    pub(crate) const fn read(body: &Body) -> Option<Opened> {
        let (kind, high) = (body[0] & ((1 << KIND) - 1), body[0] >> KIND);
        let extent = Extent { start: high, len: body[1], writable: kind % 2 == 1 };
        Some(match (kind, high) {
            (1, 0) => Opened::Unknown,
            (2, 0) => Opened::Unshared,
            (3 | 4, start) => Opened::Here(Site {
                start,
                memory: Exported { extent: body[1], offset: body[2] },
                len: body[3],
                flag: Exported { extent: body[4], offset: body[5] },
                stamp: body[6],
                writable: kind == 4,
            }),
            (5 | 6, 0) => Opened::There(Spot {
                memory: body[1],
                len: body[2],
                flag: body[3],
                stamp: body[4],
                writable: kind == 6,
            }),
            (7, 0) if body[1] <= u16::MAX as u64 => Opened::Refused(body[1] as u16),
            (8 | 9, _) => Opened::Served(extent),
            (10 | 11, cma) if cma <= u16::MAX as u64 => Opened::Exposed(Exposure {
                start: body[1],
                len: body[2],
                writable: kind == 11,
                flag: body[3],
                exported: match body[5] {
                    0 => None,
                    extent => Some(Exported { extent, offset: body[6] }),
                },
                stamp: body[4],
                cma: cma as u16,
            }),
            (12 | 13, _) => Opened::Agent(extent),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::padded, *};

    #[test]
    fn codes_of_refusals_have_sixteen_bits() {
        let refused = |code| Opened::read(&[7, code, 0, 0, 0, 0, 0]);
        assert_eq!(refused(0xffff), Some(Opened::Refused(0xffff)));
        assert_eq!((refused(1 << 16), refused(u64::MAX)), (None, None));
        let exposed = |code: u64| Opened::read(&[code << KIND | 10, 0, 0, 0, 0, 0, 0]).is_some();
        assert!(exposed(0xffff) && !exposed(1 << 16));
        // No address where none belongs.
        assert_eq!(Opened::read(&[1 << KIND | 1, 0, 0, 0, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn bodies_survive(a: u64, b: u64, c: u64, d: u32, e: u32, f: u16, h: bool) {
            for by in [By::Mapping, By::Kernel, By::Owner] {
                let open = Open { claim: Claim { id: a, secret: [b, c] }, by };
                prop_assert_eq!(Open::read(&padded(&open.body())), Some(open));
            }
            prop_assert_eq!(Open::read(&[a, b, c, a.max(3), 0, 0, 0]), None);
            let memory = Exported { extent: a, offset: b };
            let flag = Exported { extent: c, offset: u64::from(d) };
            let start = a >> KIND;
            let site = Site { start, memory, len: c, flag, stamp: b, writable: h };
            let spot = Spot { memory: b, len: c, flag: a, stamp: u64::from(e), writable: h };
            for opened in [
                Opened::Unknown,
                Opened::Unshared,
                Opened::Here(site),
                Opened::There(spot),
                Opened::Served(Extent { start, len: a, writable: h }),
                Opened::Agent(Extent { start, len: b, writable: h }),
                Opened::Exposed(Exposure {
                    start: a,
                    len: b,
                    writable: h,
                    flag: c,
                    exported: (d != 0).then_some(Exported { extent: d.into(), offset: a }),
                    stamp: b,
                    cma: f,
                }),
                Opened::Refused(f),
            ] {
                prop_assert_eq!(Opened::read(&opened.body()), Some(opened));
            }
        }

        #[test]
        fn any_words_are_read_without_panic(words: [u64; 7]) {
            let _ = (Open::read(&words), Opened::read(&words));
        }
    }
}
