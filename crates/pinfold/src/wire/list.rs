//! The list of the parts of a message that its sender has given away in several: the bulk bytes
//! that an [`Rts`](super::rendezvous::Rts) names as its list.
//!
//! ```text
//! 24 bytes a part, in the order of the message
//! word 0   the number of an extent of the sender's; never 0
//! word 1   the offset in it, bytes
//! word 2   bytes; never 0
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::rendezvous::Exported;

/// The most parts of one message: then the list is as long as the longest piece of a message.
pub(crate) const PARTS_MAX: usize = 1024;

/// Bytes of the list for one part.
pub(crate) const PART_BYTES: usize = 24;

/// One part, as it goes over the lane.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Entry {
    extent: u64,
    offset: u64,
    len: u64,
}

const _: () = assert!(size_of::<Entry>() == PART_BYTES);

/// The place of one part, in an arena of the process that wrote this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub exported: Exported,
    /// Bytes; never 0.
    pub len: u64,
}

/// Adds the entry of a part.
pub(crate) fn add(part: Listed, to: &mut Vec<u8>) {
    let Listed { exported: Exported { extent, offset }, len } = part;
    to.extend_from_slice(Entry { extent, offset, len }.as_bytes());
}

/// The parts of a message of `len` bytes. `None`: there are fewer than two or more than
/// [`PARTS_MAX`], one of them is empty, in no extent or beyond any, or together they are not as
/// long as the message.
pub(crate) fn read(bytes: &[u8], len: u64) -> Option<Box<[Listed]>> {
    let (entries, rest) = bytes.as_chunks::<PART_BYTES>();
    if !rest.is_empty() || !(2..=PARTS_MAX).contains(&entries.len()) {
        return None;
    }
    let mut left = len;
    let parts = entries.iter().map(|bytes| {
        let Entry { extent, offset, len } = Entry::read_from_bytes(bytes).ok()?;
        let end = offset.checked_add(len)?;
        left = left.checked_sub(len)?;
        let makes_sense = extent != 0 && len != 0 && end <= i64::MAX as u64;
        makes_sense.then_some(Listed { exported: Exported { extent, offset }, len })
    });
    let parts: Box<[Listed]> = parts.collect::<Option<_>>()?;
    (left == 0).then_some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(parts: &[Listed]) -> Vec<u8> {
        let mut bytes = Vec::new();
        parts.iter().for_each(|part| add(*part, &mut bytes));
        bytes
    }

    fn listed(extent: u64, offset: u64, len: u64) -> Listed {
        Listed { exported: Exported { extent, offset }, len }
    }

    proptest! {
        #[test]
        fn lists_survive(parts in prop::collection::vec((1u64.., 0..1u64 << 62, 1..1u64 << 40), 2..50)) {
            let parts: Vec<_> = parts.into_iter().map(|(e, o, l)| listed(e, o, l)).collect();
            let len = parts.iter().map(|part| part.len).sum::<u64>();
            let bytes = bytes_of(&parts);
            prop_assert_eq!(read(&bytes, len).map(Vec::from), Some(parts));
            prop_assert_eq!(read(&bytes, len - 1), None);
            prop_assert_eq!(read(&bytes, len + 1), None);
            prop_assert_eq!(read(&bytes[1..], len), None);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, len: u64) {
            if let Some(parts) = read(&bytes, len) {
                prop_assert_eq!(bytes_of(&parts), bytes);
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_list() {
        let good = [listed(1, 4096, 8), listed(1, 0, 16)];
        assert_eq!(read(&bytes_of(&good), 24).as_deref(), Some(&good[..]));
        for (bad, len) in [
            (vec![], 0),
            (vec![listed(1, 0, 24)], 24),
            (vec![listed(0, 0, 8), listed(1, 0, 16)], 24),
            (vec![listed(1, 0, 0), listed(1, 0, 24)], 24),
            (vec![listed(1, u64::MAX, 8), listed(1, 0, 16)], 24),
            (vec![listed(1, i64::MAX as u64, 8), listed(1, 0, 16)], 24),
            (vec![listed(1, 0, u64::MAX), listed(1, 0, 25)], 24),
            (vec![listed(1, 0, 1); PARTS_MAX + 1], PARTS_MAX as u64 + 1),
        ] {
            assert_eq!(read(&bytes_of(&bad), len), None, "{len}: {}", bad.len());
        }
        // Not even where the lengths wrap around to the right sum.
        let round =
            [listed(1, 0, i64::MAX as u64), listed(1, 0, i64::MAX as u64), listed(1, 0, 26)];
        assert_eq!(read(&bytes_of(&round), 24), None);
        for rest in 1..PART_BYTES {
            let longer = [&bytes_of(&good)[..], &vec![0; rest]].concat();
            assert_eq!(read(&longer, 24), None, "{rest}");
        }
        let most = vec![listed(1, 0, 1); PARTS_MAX];
        assert_eq!(read(&bytes_of(&most), PARTS_MAX as u64).as_deref(), Some(&most[..]));
    }
}
