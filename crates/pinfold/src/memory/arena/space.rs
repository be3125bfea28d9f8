//! The units of an extent that are in use: a two-level segregated fit (Masmano, Ripoll, Crespo,
//! Real, "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004).
//!
//! Plain state, no I/O. None of it lies in the memory it accounts for, since peers may be able to
//! write that. Taking and giving back are a few dozen instructions, at any size.
//!
//! The crate `offset-allocator` is the same algorithm, but knows no alignment, cannot list its
//! free ranges (which trimming needs), allocates all its nodes at once (4 MB for 128 Ki buffers,
//! and never more buffers than that), and does not find a free range that fits exactly unless its
//! length is one of 256.
//!
//! Accounting: the nodes in use and the free nodes, in the order of their offsets, cover all units
//! once; no two free nodes are neighbours; each free node is in the bin of its length, and a bit is
//! set if and only if its bin is not empty.

#[cfg(test)]
mod tests;

/// No node.
const NONE: u32 = u32::MAX;
/// Each power of two is divided into so many bins, as a power of two.
const SPLIT_BITS: u32 = 4;
const SPLIT: u32 = 1 << SPLIT_BITS;
/// Rows of bins: one for lengths below `SPLIT`, one for each power of two from there on.
const ROWS: usize = 33 - SPLIT_BITS as usize;
/// Free ranges that may just be long enough that are looked at before giving up.
const LOOK_MAX: usize = 32;

/// A range in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The node, which [`Space::give`] takes.
    pub node: u32,
    /// Its first unit.
    pub offset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The node stands for no range.
    Spare,
    Free,
    Taken,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    offset: u32,
    len: u32,
    /// Neighbours by offset.
    before: u32,
    behind: u32,
    /// Neighbours in the bin; of spare nodes only the next.
    bin_before: u32,
    bin_behind: u32,
    state: Use,
}

/// The units of one extent, from 0.
#[derive(Debug)]
pub(crate) struct Space {
    #[cfg_attr(not(test), allow(dead_code))]
    units: u32,
    taken: u32,
    nodes: Vec<Node>,
    /// The first spare node.
    spare: u32,
    /// A bit for each row with something in it.
    rows: u32,
    /// For each row, a bit for each bin with something in it.
    columns: [u16; ROWS],
    bins: [u32; ROWS * SPLIT as usize],
}

/// The bin in which a free range of `len` units lies.
fn bin_of(len: u32) -> (usize, u32) {
    if len < SPLIT {
        return (0, len);
    }
    let top = len.ilog2();
    ((top - SPLIT_BITS + 1) as usize, (len >> (top - SPLIT_BITS)) & (SPLIT - 1))
}

/// The first bin of which every range is at least `len` units long, if such lengths exist.
fn bin_above(len: u32) -> Option<(usize, u32)> {
    if len < SPLIT {
        return Some((0, len));
    }
    let slack = (1 << (len.ilog2() - SPLIT_BITS)) - 1;
    len.checked_add(slack).map(bin_of)
}

impl Space {
    /// All of `units` units are free; 1 to `u32::MAX - 1`.
    pub(crate) fn new(units: u32) -> Space {
        debug_assert!(units > 0 && units < u32::MAX);
        let mut space = Space {
            units,
            taken: 0,
            nodes: Vec::new(),
            spare: NONE,
            rows: 0,
            columns: [0; ROWS],
            bins: [NONE; ROWS * SPLIT as usize],
        };
        let whole = space.insert(0, units, NONE, NONE);
        space.put(whole);
        space
    }

    /// Takes `len` units, at least 1, at a multiple of `align` units, a power of two. `None` if no
    /// free range is long enough; now and then also if one is, but only by its alignment, or
    /// among many that are not.
    pub(crate) fn take(&mut self, len: u32, align: u32) -> Option<Grant> {
        debug_assert!(len > 0 && align.is_power_of_two());
        let found = if align == 1 {
            self.find_above(len).or_else(|| self.find_among(len, len, align))
        } else {
            // A range that will do wherever it begins, or, better, one that begins right.
            self.find_among(len, len, align)
                .or_else(|| self.find_above(len.checked_add(align - 1)?))
                .or_else(|| self.find_among(len.checked_add(align - 1)?, len, align))
        }?;
        let offset = self.nodes[found as usize].offset;
        // Within the range, so it cannot overflow.
        Some(self.carve(found, offset.next_multiple_of(align) - offset, len))
    }

    /// Takes `len` units at `offset`, which must be free. `None` if some of them are not.
    ///
    /// Looks at all free ranges of at least that length.
    pub(crate) fn take_at(&mut self, offset: u32, len: u32) -> Option<Grant> {
        let mut ranges = self.free_nodes(len);
        let (found, skip) = ranges.find_map(|(at, from, had)| {
            let skip = offset.checked_sub(from)?;
            (skip <= had && len <= had - skip).then_some((at, skip))
        })?;
        drop(ranges);
        Some(self.carve(found, skip, len))
    }

    /// Takes `len` units of a free node, `skip` units behind its beginning.
    #[inline]
    fn carve(&mut self, found: u32, skip: u32, len: u32) -> Grant {
        let Node { offset, len: had, before, .. } = self.nodes[found as usize];
        let node = if had == len {
            self.remove(found);
            found
        } else if skip == 0 {
            // The free node stays a free node, mostly also in the same bin.
            self.resize(found, offset + len, had - len);
            self.insert(offset, len, before, found)
        } else {
            self.resize(found, offset, skip);
            let behind = self.nodes[found as usize].behind;
            let node = self.insert(offset + skip, len, found, behind);
            if had - skip > len {
                let rest = self.insert(offset + skip + len, had - skip - len, node, behind);
                self.put(rest);
            }
            node
        };
        self.nodes[node as usize].state = Use::Taken;
        self.taken += len;
        Grant { node, offset: offset + skip }
    }

    /// Gives back a range that was taken. Returns its offset and length.
    ///
    /// # Panics
    /// If `node` is not in use.
    #[inline]
    pub(crate) fn give(&mut self, node: u32) -> (u32, u32) {
        let Node { offset, len, before, behind, state, .. } = self.nodes[node as usize];
        assert!(state == Use::Taken, "given back twice");
        self.taken -= len;
        let free = |at: u32| {
            let node = self.nodes.get(at as usize)?;
            (node.state == Use::Free).then_some((at, node.offset, node.len))
        };
        match (free(before), free(behind)) {
            (None, None) => self.put(node),
            (Some((at, from, had)), None) => {
                self.unlink(node);
                self.resize(at, from, had + len);
            }
            (None, Some((at, _, had))) => {
                self.unlink(node);
                self.resize(at, offset, len + had);
            }
            (Some((at, from, had)), Some((gone, _, more))) => {
                self.remove(gone);
                self.unlink(gone);
                self.unlink(node);
                self.resize(at, from, had + len + more);
            }
        }
        (offset, len)
    }

    /// The offset and length of a range in use.
    pub(crate) fn range(&self, node: u32) -> (u32, u32) {
        let node = &self.nodes[node as usize];
        debug_assert_eq!(node.state, Use::Taken);
        (node.offset, node.len)
    }

    /// Units in use.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Returns whether nothing is in use.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// The free ranges of at least `len_min` units, by offset and length, in no order. Ranges
    /// that are shorter cost little time.
    pub(crate) fn free_ranges(&self, len_min: u32) -> impl Iterator<Item = (u32, u32)> {
        self.free_nodes(len_min).map(|(_, offset, len)| (offset, len))
    }

    /// The free nodes of at least `len_min` units, with their offsets and lengths.
    fn free_nodes(&self, len_min: u32) -> impl Iterator<Item = (u32, u32, u32)> {
        let (row, column) = bin_of(len_min);
        let first = row * SPLIT as usize + column as usize;
        let some = |at: u32| (at != NONE).then_some(at);
        self.bins[first..].iter().flat_map(move |first| {
            let next = move |at: &u32| some(self.nodes[*at as usize].bin_behind);
            std::iter::successors(some(*first), next)
                .map(|at| (at, self.nodes[at as usize].offset, self.nodes[at as usize].len))
                .filter(move |(_, _, len)| *len >= len_min)
        })
    }

    /// The first free range in a bin of which each is at least `len` long.
    #[inline]
    fn find_above(&self, len: u32) -> Option<u32> {
        let (row, column) = bin_above(len)?;
        let columns = self.columns[row] & (!0u16).wrapping_shl(column);
        if columns != 0 {
            return Some(self.bins[row * SPLIT as usize + columns.trailing_zeros() as usize]);
        }
        let rows = self.rows & (!1u32).checked_shl(row as u32)?;
        if rows == 0 {
            return None;
        }
        let row = rows.trailing_zeros() as usize;
        Some(self.bins[row * SPLIT as usize + self.columns[row].trailing_zeros() as usize])
    }

    /// The first of some free ranges in the bin of `bin_len` that has room for `len` at `align`.
    fn find_among(&self, bin_len: u32, len: u32, align: u32) -> Option<u32> {
        let (row, column) = bin_of(bin_len);
        let mut at = self.bins[row * SPLIT as usize + column as usize];
        for _ in 0..LOOK_MAX {
            if at == NONE {
                break;
            }
            let node = &self.nodes[at as usize];
            let skip = node.offset.wrapping_neg() & (align - 1);
            if node.len >= len && node.len - len >= skip {
                return Some(at);
            }
            at = node.bin_behind;
        }
        None
    }

    /// A node for a range between two neighbours. In no bin yet.
    fn insert(&mut self, offset: u32, len: u32, before: u32, behind: u32) -> u32 {
        let (bin_before, bin_behind) = (NONE, NONE);
        let node = Node { offset, len, before, behind, bin_before, bin_behind, state: Use::Free };
        let at = self.spare;
        let at = if let Some(spare) = self.nodes.get_mut(at as usize) {
            self.spare = spare.bin_behind;
            *spare = node;
            at
        } else {
            self.nodes.push(node);
            // Every node stands for at least one unit, so there are fewer than `NONE`.
            (self.nodes.len() - 1) as u32
        };
        if before != NONE {
            self.nodes[before as usize].behind = at;
        }
        if behind != NONE {
            self.nodes[behind as usize].before = at;
        }
        at
    }

    /// Makes a node spare that is in no bin. Its range is to go to a neighbour.
    fn unlink(&mut self, at: u32) {
        let spare = self.spare;
        let node = &mut self.nodes[at as usize];
        let (before, behind) = (node.before, node.behind);
        node.state = Use::Spare;
        node.bin_behind = spare;
        self.spare = at;
        if before != NONE {
            self.nodes[before as usize].behind = behind;
        }
        if behind != NONE {
            self.nodes[behind as usize].before = before;
        }
    }

    /// Changes the range of a free node, which moves to another bin if it must.
    #[inline]
    fn resize(&mut self, at: u32, offset: u32, len: u32) {
        let node = &mut self.nodes[at as usize];
        if bin_of(node.len) == bin_of(len) {
            (node.offset, node.len) = (offset, len);
            return;
        }
        self.remove(at);
        let node = &mut self.nodes[at as usize];
        (node.offset, node.len) = (offset, len);
        self.put(at);
    }

    /// Puts a node into its bin, in front: the range that was used last is used next.
    fn put(&mut self, at: u32) {
        let (row, column) = bin_of(self.nodes[at as usize].len);
        let bin = row * SPLIT as usize + column as usize;
        let first = self.bins[bin];
        let node = &mut self.nodes[at as usize];
        node.state = Use::Free;
        node.bin_before = NONE;
        node.bin_behind = first;
        if first != NONE {
            self.nodes[first as usize].bin_before = at;
        }
        self.bins[bin] = at;
        self.columns[row] |= 1 << column;
        self.rows |= 1 << row;
    }

    /// Takes a free node out of its bin.
    fn remove(&mut self, at: u32) {
        let Node { len, bin_before, bin_behind, .. } = self.nodes[at as usize];
        if bin_behind != NONE {
            self.nodes[bin_behind as usize].bin_before = bin_before;
        }
        if bin_before != NONE {
            self.nodes[bin_before as usize].bin_behind = bin_behind;
            return;
        }
        let (row, column) = bin_of(len);
        self.bins[row * SPLIT as usize + column as usize] = bin_behind;
        if bin_behind == NONE {
            self.columns[row] &= !(1 << column);
            if self.columns[row] == 0 {
                self.rows &= !(1 << row);
            }
        }
    }
}
