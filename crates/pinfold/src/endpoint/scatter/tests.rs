#![allow(unsafe_code)]

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::blockmem::Reader;

/// Memory in parts, with a byte between any two that must stay as it is.
struct Memory {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

const BETWEEN: u8 = 0xee;

impl Memory {
    fn new(lens: Vec<usize>) -> Memory {
        let len = lens.iter().map(|len| len + 1).sum();
        Memory { bytes: vec![BETWEEN; len], lens }
    }

    /// Valid until the memory is looked at again.
    fn scatter(&mut self) -> Scatter {
        let base = self.bytes.as_mut_ptr();
        let mut at = 0;
        let parts: Vec<_> = self
            .lens
            .iter()
            .map(|len| {
                let start = at;
                at += len + 1;
                // SAFETY: within the bytes.
                (unsafe { base.add(start) }, *len)
            })
            .collect();
        // SAFETY: the parts lie within `bytes`, which nobody else uses meanwhile.
        unsafe { Scatter::many(parts.into_iter()) }
    }

    /// What the parts hold, one after the other.
    fn joined(&self) -> Vec<u8> {
        let (mut all, mut at) = (Vec::new(), 0);
        for len in &self.lens {
            all.extend_from_slice(&self.bytes[at..at + len]);
            assert_eq!(self.bytes[at + len], BETWEEN, "between the parts");
            at += len + 1;
        }
        all
    }
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0usize..20, 0..9)
}

proptest! {
    #[test]
    fn parts_are_one_memory(
        lens in lens(),
        writes in proptest::collection::vec((0u64..100, proptest::collection::vec(any::<u8>(), 0..60)), 0..6),
    ) {
        let mut memory = Memory::new(lens);
        let scatter = memory.scatter();
        let mut wanted = vec![BETWEEN; scatter.len() as usize];
        let mut copier = Copier::new(Reader::Me, &Arc::default());
        for (at, bytes) in writes {
            let room = wanted.len().saturating_sub(at as usize).min(bytes.len());
            prop_assert_eq!(scatter.write(&mut copier, at, &bytes), room as u64);
            if room > 0 {
                wanted[at as usize..at as usize + room].copy_from_slice(&bytes[..room]);
            }
        }
        let words: [u64; 7] = scatter.read_words();
        let read = words.map(u64::to_ne_bytes).concat();
        let first = wanted.len().min(read.len());
        prop_assert_eq!(&read[..first], &wanted[..first]);
        prop_assert!(read[first..].iter().all(|byte| *byte == 0));
        prop_assert_eq!(memory.joined(), wanted);
    }

    #[test]
    fn a_range_is_its_bytes_in_order(lens in lens(), at in 0u64..120, len in 0u64..120) {
        let mut memory = Memory::new(lens);
        let scatter = memory.scatter();
        let all: Vec<*mut u8> = scatter
            .range(0, scatter.len())
            .iter()
            .flat_map(|part| (0..part.len).map(|i| part.ptr.wrapping_add(i)))
            .collect();
        let some: Vec<*mut u8> = scatter
            .range(at, len)
            .iter()
            .flat_map(|part| (0..part.len).map(|i| part.ptr.wrapping_add(i)))
            .collect();
        let from = (at as usize).min(all.len());
        let to = (at + len).min(all.len() as u64) as usize;
        prop_assert_eq!(&some[..], &all[from..to]);
    }

    #[test]
    fn a_part_goes_through_the_words_of_a_descriptor(
        bytes in proptest::collection::vec(any::<u8>(), 0..=56),
        room in 0usize..70,
    ) {
        let mut from = bytes.clone();
        // SAFETY: a vector of its own, used no other way while the part is.
        let part = unsafe { Part::new(from.as_mut_ptr(), from.len()) };
        let slot: [AtomicU64; 7] = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        part.read_words(&slot);
        let mut into = vec![BETWEEN; room];
        // SAFETY: as above.
        let target = unsafe { Part::new(into.as_mut_ptr(), into.len()) };
        let written = target.write_words(bytes.len(), |i| slot[i].load(Ordering::Relaxed));
        prop_assert_eq!(written as usize, room.min(bytes.len()));
        prop_assert_eq!(&into[..written as usize], &bytes[..written as usize]);
        prop_assert!(into[written as usize..].iter().all(|byte| *byte == BETWEEN));
    }
}
