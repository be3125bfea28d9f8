#![allow(unsafe_code)]
//! The caller's memory in parts: segments, ranges, copies.

use std::sync::Arc;

use proptest::prelude::*;

use pinfold_sys::process::RemoteSegment;

use super::*;
use crate::{
    copy::Reader,
    sync::{AtomicU64, Ordering},
};

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
        // SAFETY: the parts lie within `bytes`, which no other code uses meanwhile.
        unsafe { Scatter::many(parts.into_iter()) }
    }

    /// The bytes of the parts, one after the other.
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
    fn a_slice_is_the_part_that_was_asked_for(lens in lens(), at in 0u64..90, len in 0u64..90) {
        let mut memory = Memory::new(lens);
        let bytes: Vec<u8> = (0..100).collect();
        let all = memory.scatter();
        let slice = all.slice(at, len);
        let fits = all.len().saturating_sub(at).min(len);
        assert_eq!(slice.len(), fits);
        let mut copier = Copier::new(Reader::Me, &Arc::default());
        all.write(&mut copier, 0, &[0; 200]);
        assert_eq!(slice.write(&mut copier, 0, &bytes), fits);
        let mut wanted = vec![0; all.len() as usize];
        let (at, fits) = (at as usize, fits as usize);
        if fits > 0 {
            wanted[at..at + fits].copy_from_slice(&bytes[..fits]);
        }
        assert_eq!(memory.joined(), wanted);
    }
}

#[test]
fn parts_next_to_each_other_are_one_segment_for_the_kernel() {
    let mut bytes = vec![0; 10_000 * 8];
    let base = bytes.as_mut_ptr();
    let every = |step: usize| {
        let parts = (0..10_000 / step).map(move |at| (base.wrapping_add(at * step * 8), 8));
        // SAFETY: the parts lie within `bytes`, which no other code uses meanwhile.
        unsafe { Scatter::many(parts) }
    };
    let segment = |at: usize, len| Segment { ptr: base.wrapping_add(at), len };
    let all = every(1);
    assert_eq!(all.range(0, all.len())[..], [segment(0, 80_000)]);
    assert_eq!(all.range(11, 70_000)[..], [segment(11, 70_000)]);
    // A peer that reads the list of them sees each.
    assert_eq!(all.place().parts, 10_000);
    let some = every(2);
    let list: Vec<Segment> = (0..64).map(|at| segment(at * 16, 8)).collect();
    assert_eq!(some.range(0, some.len())[..], list);
}

#[test]
#[cfg_attr(miri, ignore = "calls process_vm_readv")]
fn a_peers_parts_are_joined_when_they_are_fetched() {
    let pid = std::process::id();
    let word = |part: (u64, u64)| RemoteSegment { addr: part.0, len: part.1 };
    let fetch = |parts: &[RemoteSegment], len| {
        let place = Place { at: parts.as_ptr().addr() as u64, parts: parts.len() as u32 };
        Remote::fetch(pid, place, len)
    };
    let all: Vec<RemoteSegment> = (0..10_000).map(|at| word((4096 + at * 8, 8))).collect();
    let remote = match fetch(&all, 80_000) {
        Err(why) if why.kind() != io::ErrorKind::InvalidInput => {
            return eprintln!("SKIPPED: this process may not read its own memory: {why}");
        }
        fetched => fetched.unwrap(),
    };
    assert_eq!(remote.range(0, 80_000)[..], [word((4096, 80_000))]);
    assert_eq!(remote.range(9, 70_000)[..], [word((4105, 70_000))]);
    // A gap, parts without bytes, and a part that comes twice.
    let some = [(10, 5), (99, 0), (15, 5), (21, 4), (21, 4), (25, 1)].map(word);
    let remote = fetch(&some, 19).unwrap();
    assert_eq!(remote.range(0, 19)[..], [(10, 10), (21, 4), (21, 5)].map(word));
    assert_eq!(remote.range(4, 7)[..], [(14, 6), (21, 1)].map(word));
    // Together the parts must have as many bytes as the message.
    assert!(fetch(&some, 20).is_err());
    assert!(fetch(&[(0, u64::MAX), (u64::MAX, 1)].map(word), 1).is_err());
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
    fn user_level_copies_keep_the_parts_apart(
        lens in proptest::collection::vec(0usize..20, 2..9),
        at in 0u64..100,
        len in 0u64..100,
    ) {
        let mut bytes = vec![0; lens.iter().sum()];
        let (mut rest, mut parts) = (&mut bytes[..], Vec::new());
        for len in lens {
            let (part, more) = rest.split_at_mut(len);
            parts.push((part.as_mut_ptr(), len));
            rest = more;
        }
        // SAFETY: the parts are parts of `bytes`, which no other code uses meanwhile.
        let scatter = unsafe { Scatter::many(parts.iter().copied()) };
        let inside = |part: &Segment| {
            let end = part.ptr.addr() + part.len;
            parts.iter().any(|(ptr, len)| part.ptr >= *ptr && end <= ptr.addr() + len)
        };
        let (mut seen, end) = (0, (at + len).min(scatter.len()));
        let done = scatter.each(at, len, |part, done| {
            assert!(inside(&part) && part.len > 0 && done == seen);
            seen += part.len as u64;
            Ok::<(), Infallible>(())
        });
        prop_assert_eq!(done, Ok(end.saturating_sub(at)));
        prop_assert_eq!(seen, end.saturating_sub(at));
    }

    #[test]
    fn a_part_goes_through_the_words_of_descriptors(
        bytes in proptest::collection::vec(any::<u8>(), 0..=112),
        room in 0usize..130,
    ) {
        let mut from = bytes.clone();
        // SAFETY: a vector of its own, used no other way while the part is.
        let part = unsafe { Part::new(from.as_mut_ptr(), from.len()) };
        let slot: [AtomicU64; 14] = std::array::from_fn(|_| AtomicU64::new(u64::MAX));
        let (first, second) = slot.split_at(7);
        match bytes.len() {
            ..=56 => part.read_words(first),
            _ => part.read_two([first, second]),
        }
        let mut into = vec![BETWEEN; room];
        // SAFETY: as above.
        let target = unsafe { Part::new(into.as_mut_ptr(), into.len()) };
        let written = target.write_words(bytes.len(), |i| slot[i].load(Ordering::Relaxed));
        prop_assert_eq!(written as usize, room.min(bytes.len()));
        prop_assert_eq!(&into[..written as usize], &bytes[..written as usize]);
        prop_assert!(into[written as usize..].iter().all(|byte| *byte == BETWEEN));
    }
}
