//! The messages about a region: the question for it and the answer.

use super::{descriptor::Body, rendezvous::Exported};

/// Asks the owner of a region for its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub id: u64,
    pub secret: [u64; 2],
    pub by: By,
}

/// The way in which the asking side means to use a region.
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
        [self.id, self.secret[0], self.secret[1], self.by as u64]
    }

    pub(crate) const fn read(body: &Body) -> Option<Open> {
        let by = match body[3] {
            0 => By::Mapping,
            1 => By::Kernel,
            2 => By::Owner,
            _ => return None,
        };
        Some(Open { id: body[0], secret: [body[1], body[2]], by })
    }
}

/// The answer to a question for a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// No region has this key.
    Unknown,
    /// The region cannot be handed over just now.
    Unshared,
    /// The region was handed over before this answer.
    Here(Site),
    /// The region may be read and written where it is.
    There(Spot),
    /// Its owner performs the operations.
    Served { len: u64, writable: bool },
    /// It may not be used, by the number of a [`Refusal`](crate::Refusal) as its owner sees it.
    Refused(u16),
}

/// The place of a region in memory that was handed over, and of the word that says whether it
/// stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
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

impl Opened {
    pub(crate) const fn body(self) -> [u64; 7] {
        match self {
            Opened::Unknown => [1, 0, 0, 0, 0, 0, 0],
            Opened::Unshared => [2, 0, 0, 0, 0, 0, 0],
            Opened::Here(Site { memory, len, flag, stamp, writable }) => [
                if writable { 4 } else { 3 },
                memory.extent,
                memory.offset,
                len,
                flag.extent,
                flag.offset,
                stamp,
            ],
            Opened::There(Spot { memory, len, flag, stamp, writable }) => {
                [if writable { 6 } else { 5 }, memory, len, flag, stamp, 0, 0]
            }
            Opened::Served { len, writable } => [if writable { 9 } else { 8 }, len, 0, 0, 0, 0, 0],
            Opened::Refused(code) => [7, code as u64, 0, 0, 0, 0, 0],
        }
    }

    pub(crate) const fn read(body: &Body) -> Option<Opened> {
        Some(match body[0] {
            1 => Opened::Unknown,
            2 => Opened::Unshared,
            kind @ (3 | 4) => Opened::Here(Site {
                memory: Exported { extent: body[1], offset: body[2] },
                len: body[3],
                flag: Exported { extent: body[4], offset: body[5] },
                stamp: body[6],
                writable: kind == 4,
            }),
            kind @ (5 | 6) => Opened::There(Spot {
                memory: body[1],
                len: body[2],
                flag: body[3],
                stamp: body[4],
                writable: kind == 6,
            }),
            kind @ (8 | 9) => Opened::Served { len: body[1], writable: kind == 9 },
            7 if body[1] <= u16::MAX as u64 => Opened::Refused(body[1] as u16),
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
    }

    proptest! {
        #[test]
        fn bodies_survive(a: u64, b: u64, c: u64, d: u32, e: u32, f: u16, h: bool) {
            for by in [By::Mapping, By::Kernel, By::Owner] {
                let open = Open { id: a, secret: [b, c], by };
                prop_assert_eq!(Open::read(&padded(&open.body())), Some(open));
            }
            prop_assert_eq!(Open::read(&[a, b, c, a.max(3), 0, 0, 0]), None);
            let memory = Exported { extent: a, offset: b };
            let flag = Exported { extent: c, offset: u64::from(d) };
            let site = Site { memory, len: c, flag, stamp: b, writable: h };
            let spot = Spot { memory: b, len: c, flag: a, stamp: u64::from(e), writable: h };
            for opened in [
                Opened::Unknown,
                Opened::Unshared,
                Opened::Here(site),
                Opened::There(spot),
                Opened::Served { len: a, writable: h },
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
