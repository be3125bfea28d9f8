//! The known addresses of a peer: pages in memory that is mapped here, by a TLB, and pages that are
//! not. No I/O.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use crate::memory::translate::{
    Rights, SpaceId,
    tlb::{Geometry, GeometryError, Lookup, Tlb},
};

/// Mapped pieces that are known at a time.
const PIECES_MAX: usize = 16;

/// Ranges without anything to map that are known at a time.
const GAPS_MAX: usize = 16;

/// Accesses to memory that could not be mapped, after which it is asked about again.
const PLAIN_USES: u32 = 1 << 14;

/// The one space of the entries.
const SPACE: SpaceId = SpaceId(0);

/// Pages that are not mapped.
const PLAIN: u32 = u32::MAX;

/// Addresses of the peer's that are mapped here.
#[derive(Debug)]
pub(super) struct Piece<M> {
    pub addresses: Range<u64>,
    pub writable: bool,
    pub memory: M,
}

/// The knowledge of some addresses.
pub(super) enum Known<M> {
    /// All of them are mapped.
    Mapped(Arc<Piece<M>>),
    /// Some of them are not mapped, or not for writing.
    Plain,
    /// Nothing. The caller should ask; no question is out.
    Nothing,
}

pub(super) struct Lookaside<M> {
    tlb: Tlb<u32>,
    pieces: Vec<Arc<Piece<M>>>,
    /// The piece that gives way to the next one.
    next_out: usize,
    /// Ranges that the peer said hold no memory that can be mapped, the latest last.
    gaps: VecDeque<Range<u64>>,
    plain_uses: u32,
    /// True if a question is out.
    asked: bool,
}

impl<M> Lookaside<M> {
    /// Nothing is known.
    pub(super) fn new() -> Result<Lookaside<M>, GeometryError> {
        Ok(Lookaside {
            tlb: Tlb::new(Geometry::default())?,
            pieces: Vec::new(),
            next_out: 0,
            gaps: VecDeque::new(),
            plain_uses: 0,
            asked: false,
        })
    }

    /// The knowledge of `len` bytes, at least 1, at an address. After [`Known::Nothing`] the caller
    /// asks.
    pub(super) fn find(&mut self, address: u64, len: u64, writes: bool) -> Known<M> {
        let needed = if writes { Rights::ReadWrite } else { Rights::Read };
        match self.tlb.look_up(SPACE, address, needed) {
            Lookup::Hit(PLAIN) => self.plain(),
            Lookup::Hit(at) => match self.pieces.get(at as usize) {
                Some(piece) if has(piece, address, len) => Known::Mapped(Arc::clone(piece)),
                _ => Known::Plain,
            },
            Lookup::Denied(_) => Known::Plain,
            Lookup::Miss => self.miss(address, len, writes),
        }
    }

    fn miss(&mut self, address: u64, len: u64, writes: bool) -> Known<M> {
        let known = self
            .pieces
            .iter()
            .position(|piece| piece.addresses.contains(&address) && (piece.writable || !writes));
        if let Some(at) = known {
            self.insert(address, at as u32);
            let piece = &self.pieces[at];
            let whole = has(piece, address, len);
            return if whole { Known::Mapped(Arc::clone(piece)) } else { Known::Plain };
        }
        if self.gaps.iter().any(|gap| gap.contains(&address)) {
            self.insert(address, PLAIN);
            return self.plain();
        }
        if self.asked {
            return Known::Plain;
        }
        self.asked = true;
        Known::Nothing
    }

    /// Counts one more access to pages that are not mapped.
    fn plain(&mut self) -> Known<M> {
        self.plain_uses += 1;
        if self.plain_uses > PLAIN_USES {
            // The memory may be mappable by now.
            self.forget();
            self.gaps.clear();
            self.plain_uses = 0;
        }
        Known::Plain
    }

    fn insert(&mut self, address: u64, at: u32) {
        let rights = match self.pieces.get(at as usize) {
            Some(piece) if !piece.writable => Rights::Read,
            _ => Rights::ReadWrite,
        };
        // Nothing is held by an entry that could be left behind.
        let _ = self.tlb.insert(SPACE, address, rights, at);
    }

    fn forget(&mut self) {
        self.tlb.close(SPACE, |_| {});
    }

    /// The answer: this piece is mapped. Returns the piece that gave way to it.
    #[must_use = "its drop enters the endpoint"]
    pub(super) fn learn(&mut self, piece: Piece<M>) -> Option<Arc<Piece<M>>> {
        self.asked = false;
        let piece = Arc::new(piece);
        // The old entry of the same pages may have covered less.
        self.forget();
        if self.pieces.len() < PIECES_MAX {
            self.pieces.push(piece);
            return None;
        }
        let at = self.next_out;
        self.next_out = (at + 1) % PIECES_MAX;
        Some(std::mem::replace(&mut self.pieces[at], piece))
    }

    /// The answer: nothing can be mapped in this range.
    pub(super) fn learn_plain(&mut self, range: Range<u64>) {
        self.asked = false;
        if self.gaps.len() == GAPS_MAX {
            self.gaps.pop_front();
        }
        self.gaps.push_back(range);
    }

    /// The question got no answer.
    pub(super) fn learn_nothing(&mut self, address: u64) {
        self.learn_plain(address..address + 1);
    }
}

fn has<M>(piece: &Piece<M>, address: u64, len: u64) -> bool {
    let Range { start, end } = piece.addresses;
    (start..end).contains(&address) && len <= end - address
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(addresses: Range<u64>, writable: bool) -> Piece<u64> {
        let memory = addresses.start;
        Piece { addresses, writable, memory }
    }

    fn mapped(known: Known<u64>) -> Option<u64> {
        match known {
            Known::Mapped(piece) => Some(piece.memory),
            _ => None,
        }
    }

    #[test]
    fn one_asks_and_others_go_another_way() {
        let mut known = Lookaside::new().unwrap();
        assert!(matches!(known.find(5000, 8, false), Known::Nothing));
        assert!(matches!(known.find(5000, 8, false), Known::Plain));
        assert!(known.learn(piece(4096..9000, false)).is_none());
        assert_eq!(mapped(known.find(5000, 8, false)), Some(4096));
        assert_eq!(mapped(known.find(8999, 1, false)), Some(4096));
        // Beyond its end, and to be written.
        assert!(matches!(known.find(8999, 2, false), Known::Plain));
        assert!(matches!(known.find(5000, 8, true), Known::Plain));
        assert!(matches!(known.find(9000, 1, false), Known::Plain));
    }

    #[test]
    fn what_could_not_be_mapped_is_asked_about_again_some_time() {
        let mut known = Lookaside::<u64>::new().unwrap();
        let mut asked = 0;
        for at in 0..5 * u64::from(PLAIN_USES) {
            if let Known::Nothing = known.find(4096 * (at % 3000), 1, true) {
                asked += 1;
                known.learn_plain(0..1 << 40);
            }
        }
        assert_eq!(asked, 5);
    }

    proptest! {
        /// No memory is taken for mapped that was not said to be, whatever else is said.
        #[test]
        fn mapped_is_what_was_said_to_be(
            says in prop::collection::vec((0u64..64, 1u64..40, any::<bool>()), 1..60),
            looks in prop::collection::vec((0u64..4096 * 64, 1u64..20_000, any::<bool>()), 1..200),
        ) {
            let mut known = Lookaside::new().unwrap();
            let mut there: Vec<(Range<u64>, bool)> = Vec::new();
            let mut says = says.into_iter();
            for (at, len, writes) in looks {
                match known.find(at, len, writes) {
                    Known::Mapped(piece) => {
                        let all = piece.addresses.clone();
                        prop_assert!(all.start <= at && at + len <= all.end);
                        prop_assert!(piece.writable || !writes);
                        prop_assert!(there.contains(&(all, piece.writable)));
                    }
                    Known::Plain => {}
                    Known::Nothing => match says.next() {
                        Some((start, pages, writable)) => {
                            let range = 4096 * start + 64..4096 * (start + pages);
                            there.push((range.clone(), writable));
                            let _ = known.learn(piece(range, writable));
                        }
                        None => known.learn_nothing(at),
                    },
                }
            }
        }
    }
}
