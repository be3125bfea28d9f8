//! Messages in memory of another process are seen in a row, cannot be written, and stay.

mod hostile;

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

use pinfold_sys::{
    fork::ForkMark,
    mem::{mapping::SharedMapping, memfd},
};
use rustix::{io::Errno, mm::MprotectFlags};

use super::*;
use crate::memory::arena::Mapping;

/// The owner of a file, with its mapping from before it was sealed.
struct Peer {
    file: OwnedFd,
    own: SharedMapping,
    bytes: Vec<u8>,
}

/// A peer's file by a name of its own, or nothing where files cannot be sealed against writers.
fn peer(name: &str, pages: usize) -> Option<Peer> {
    let len = pages * PAGE;
    let file = memfd::create_fixed(name, len).unwrap();
    let own = SharedMapping::map(file.as_fd(), len).unwrap();
    let bytes = fresh(len);
    // SAFETY: just mapped, and this value's alone.
    unsafe { own.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) };
    memfd::seal(file.as_fd(), true).unwrap();
    if !memfd::refuses_writers(file.as_fd()) {
        eprintln!("SKIPPED: files cannot be sealed against writers here");
        return None;
    }
    Some(Peer { file, own, bytes })
}

impl Peer {
    /// As another process sees it.
    fn memory(&self) -> Arc<PeerMemory> {
        let (file, len) =
            memfd::open_sealed_of(std::process::id(), self.file.as_raw_fd() as u32).unwrap();
        PeerMemory::map(file, len).unwrap()
    }
}

fn range(start: usize, len: usize) -> std::ops::Range<u64> {
    start as u64..(start + len) as u64
}

/// A message of parts (peer, start, length) with its bytes.
fn message(
    peers: &[&Peer],
    memories: &[Arc<PeerMemory>],
    parts: &[(usize, usize, usize)],
) -> (Vec<PeerPart>, Vec<u8>) {
    let part =
        |(of, start, len): &(usize, usize, usize)| memories[*of].part(range(*start, *len)).unwrap();
    let bytes = parts.iter().flat_map(|(of, start, len)| &peers[*of].bytes[*start..*start + *len]);
    (parts.iter().map(part).collect(), bytes.copied().collect())
}

/// The rights to the page at an address.
fn rights(at: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |hex| usize::from_str_radix(hex, 16).unwrap();
    let line = maps.lines().find(|line| {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        (hex(start)..hex(end)).contains(&at)
    });
    line.and_then(|line| line.split(' ').nth(1)).unwrap_or("none").to_owned()
}

/// Mappings of files of that name, and descriptors.
fn in_use(name: &str) -> (usize, usize) {
    let name = format!("/memfd:{name} ");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    // Some of other tests may be gone by now.
    let names = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let is = |link: &std::path::PathBuf| link.to_string_lossy().starts_with(&name);
    (maps.lines().filter(|line| line.contains(&name)).count(), names.filter(is).count())
}

#[test]
fn parts_are_mapped_behind_each_other() {
    let [Some(one), Some(two)] = ["fold-row-1", "fold-row-2"].map(|name| peer(name, 64)) else {
        return;
    };
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let memories = [one.memory(), two.memory()];
    let lens = [(0, 3 * PAGE, 2 * PAGE), (1, 0, PAGE), (0, 0, 3 * PAGE), (1, 5 * PAGE, PAGE + 9)];
    let (parts, bytes) = message(&[&one, &two], &memories, &lens);
    let folded = folder.fold(parts).unwrap();
    let receipt = *folded.receipt();
    assert_eq!((receipt.place, receipt.mapped), (Place::Window, bytes.len() as u64), "{receipt}");
    assert_eq!((receipt.copied, receipt.moved, receipt.mapping.cheapest), (0, 0, 4), "{receipt}");
    assert!(copied_out(&folded) == bytes);
    assert_eq!(folder.count().maps_left, maps - 2 - 2 * 4);
    let at = folded.as_ptr().addr();
    assert!(folder.has(at) && at.is_multiple_of(PAGE));
    for page in (at..at + bytes.len()).step_by(PAGE) {
        assert_eq!(rights(page), "r--s");
        // Nor does the kernel give more.
        let page: *mut u8 = std::ptr::with_exposed_provenance_mut(page);
        let more = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: to be refused; where it is not, no code writes there.
        let done = unsafe { rustix::mm::mprotect(page.cast(), PAGE, more) };
        assert_eq!(done, Err(Errno::ACCESS));
    }
    assert!(gathered(&folded.unfold()) == bytes);
    assert_eq!((reads(at), reads(at + 8 * PAGE)), (None, None));
    nothing_left(&folder, maps);
}

#[test]
fn what_is_not_whole_pages_is_copied() {
    let Some(one) = peer("fold-uneven", 64) else { return };
    let memories = [one.memory()];
    let lens = [(0, 9 * PAGE, 2 * PAGE), (0, PAGE, 100), (0, 3 * PAGE, 2 * PAGE)];
    let (parts, bytes) = message(&[&one], &memories, &lens);
    let free = folder(FREE);
    let folded = free.fold(parts).unwrap();
    let receipt = *folded.receipt();
    let done = (receipt.place, receipt.mapped, receipt.copied);
    assert_eq!(done, (Place::Window, 2 * PAGE as u64, 2 * PAGE as u64 + 100), "{receipt}");
    assert_eq!((receipt.mapping.cheapest, receipt.mapping.misaligned), (1, 2));
    assert!(copied_out(&folded) == bytes);
    let at = folded.as_ptr().addr();
    assert_eq!([0, 1, 2].map(|page| rights(at + page * PAGE)), ["r--s", "r--s", "rw-p"]);
    drop(folded);
    // A part that begins within a page can be mapped if its place in the message is alike.
    let lens = [(0, 9 * PAGE, 100), (0, 3 * PAGE + 100, 3 * PAGE + 7)];
    let (parts, bytes) = message(&[&one], &memories, &lens);
    let folded = free.fold(parts).unwrap();
    assert!(copied_out(&folded) == bytes);
    assert_eq!(folded.receipt().mapped, 2 * PAGE as u64 + 107, "{}", folded.receipt());
    drop(folded);
    // None can: the first begins within its page.
    let (parts, bytes) = message(&[&one], &memories, &[(0, 100, PAGE + 5), (0, 3 * PAGE, PAGE)]);
    let folded = free.fold(parts).unwrap();
    assert_eq!(folded.receipt().place, Place::Memory(Why::Cheapest));
    assert_eq!(
        (folded.receipt().mapping.misaligned, folded.receipt().copied),
        (2, 2 * PAGE as u64 + 5)
    );
    assert!(copied_out(&folded) == bytes && folded.receipt().to_string().contains("not aligned"));
    // Nothing can be mapped, and no mapping is left.
    let few = Folder::new(Settings { maps_max: Some(3), ..settings(FREE) }).unwrap();
    for (folder, reason) in
        [(folder(Costs::COPY_ONLY), "not measured: 2"), (few, "mappings left: 2")]
    {
        let (parts, bytes) = message(&[&one], &memories, &[(0, PAGE, PAGE), (0, 3 * PAGE, PAGE)]);
        let folded = folder.fold(parts).unwrap();
        assert_eq!((folded.receipt().copied, folded.receipt().mapped), (bytes.len() as u64, 0));
        assert!(folded.receipt().to_string().contains(reason), "{}", folded.receipt());
        assert!(copied_out(&folded) == bytes);
    }
}

#[test]
fn the_same_bytes_may_come_twice() {
    let Some(one) = peer("fold-twice", 64) else { return };
    let lens =
        [(0, 0, 2 * PAGE), (0, 0, 2 * PAGE), (0, PAGE, 2 * PAGE), (0, 0, PAGE), (0, PAGE, 7)];
    for (costs, mapped) in [(FREE, 7 * PAGE + 7), (Costs::COPY_ONLY, 0)] {
        let folder = folder(costs);
        let (parts, bytes) = message(&[&one], &[one.memory()], &lens);
        let folded = folder.fold(parts).unwrap();
        assert!(copied_out(&folded) == bytes);
        assert_eq!(folded.receipt().mapped, mapped as u64, "{}", folded.receipt());
        assert!(gathered(&folded.unfold()) == bytes);
    }
}

#[test]
fn one_part_stays_where_it_is() {
    let Some(one) = peer("fold-place", 64) else { return };
    let folder = folder(FREE);
    let memory = one.memory();
    // Two that are neighbours are one.
    let parts = vec![memory.part(100..9000).unwrap(), memory.part(9000..9005).unwrap()];
    let folded = folder.fold(parts).unwrap();
    assert_eq!((folded.receipt().place, folded.receipt().copied), (Place::InPlace, 0));
    assert!(copied_out(&folded) == one.bytes[100..9005]);
    assert!(!folder.has(folded.as_ptr().addr()));
    assert_eq!((rights(folded.as_ptr().addr()).as_str(), in_use("fold-place").0), ("r--s", 1 + 1));
}

/// The word of the caller on page sizes counts: huge ones are worth a mapping where small ones are
/// not.
#[test]
fn huge_pages_of_peers_are_mapped_at_their_places() {
    let Some(one) = peer("fold-huge", 4 * HUGE_PAGES as usize) else { return };
    let costs = Costs { copy_byte_ns: 0.05, map_page_ns: 500.0, ..Costs::DEFAULT };
    let folder = folder(costs);
    let maps = folder.count().maps_left;
    let memory = one.memory();
    for (huge, mapped) in [(false, 0), (true, 2 * HUGE_BYTES as u64)] {
        let part = |at: usize| memory.part(range(at, HUGE_BYTES)).unwrap().assume_huge(huge);
        let folded = folder.fold(vec![part(2 * HUGE_BYTES), part(0)]).unwrap();
        assert_eq!(folded.receipt().mapped, mapped, "{}", folded.receipt());
        // Where a huge page can be, if it is one.
        assert!(!huge || folded.as_ptr().addr().is_multiple_of(HUGE_BYTES));
        let right = [&one.bytes[2 * HUGE_BYTES..3 * HUGE_BYTES], &one.bytes[..HUGE_BYTES]].concat();
        assert!(copied_out(&folded) == right);
    }
    nothing_left(&folder, maps);
}

/// Parts that were copied can go before the copy does; those that are mapped cannot.
#[test]
fn parts_that_were_copied_are_needed_no_more() {
    let Some(one) = peer("fold-taken", 64) else { return };
    let lens = [(0, 3 * PAGE, PAGE), (0, 0, PAGE)];
    for (costs, count) in [(Costs::COPY_ONLY, 2), (FREE, 0)] {
        let folder = folder(costs);
        let maps = folder.count().maps_left;
        let (parts, bytes) = message(&[&one], &[one.memory()], &lens);
        let mut copy = Vec::new();
        parts.iter().for_each(|part| part.copy_to(&mut copy));
        assert!(copy == bytes);
        let mut folded = folder.fold(parts).unwrap();
        let taken = folded.take_parts();
        assert_eq!(taken.len(), count, "{}", folded.receipt());
        assert!(folded.take_parts().is_empty());
        drop(taken);
        assert!(count == 0 || in_use("fold-taken").0 == 1, "{:?}", in_use("fold-taken"));
        assert!(copied_out(&folded) == bytes);
        assert_eq!(folded.unfold().len(), 2 - count);
        nothing_left(&folder, maps);
    }
}

/// A peer's memory without its file has its parts copied.
#[test]
fn parts_without_a_file_are_copied() {
    let Some(one) = peer("fold-fileless", 64) else { return };
    let mark = Arc::new(ForkMark::new().unwrap());
    let mapping = Mapping::map_readonly(one.file.as_fd(), 64 * PAGE as u64, &mark).unwrap();
    let memory = Arc::new(PeerMemory::of(Arc::new(mapping), None));
    assert!(memory.file().is_none());
    let (parts, bytes) = message(&[&one], &[memory], &[(0, 3 * PAGE, PAGE), (0, 0, PAGE)]);
    assert!(parts.iter().all(|part| part.cells().is_none() && !part.suits_huge()));
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let folded = folder.fold(parts).unwrap();
    let receipt = folded.receipt();
    assert_eq!((receipt.copied, receipt.mapping.backing), (2 * PAGE as u64, 2), "{receipt}");
    assert!(copied_out(&folded) == bytes);
    drop(folded);
    nothing_left(&folder, maps);
}

#[test]
fn files_are_told_alone_and_together() {
    let [Some(one), Some(two)] = ["fold-files-1", "fold-files-2"].map(|name| peer(name, 64)) else {
        return;
    };
    let memories = [one.memory(), two.memory()];
    let lens = [(0, PAGE, PAGE), (1, 0, 0), (1, 0, PAGE), (0, 0, PAGE)];
    let (parts, _) = message(&[&one, &two], &memories, &lens);
    let mut files = Vec::new();
    parts.files(3, &mut files);
    let numbers: Vec<_> = files.iter().map(|file| file.map(|file| file.as_raw_fd())).collect();
    let each = [0, 1, 2].map(|at| parts.file(at).map(|file| file.as_raw_fd()));
    let right = [0, 1, 0].map(|of: usize| memories[of].file().map(|file| file.as_raw_fd()));
    assert!(right[0].is_some() && right[1].is_some());
    assert_eq!((numbers, each), (right.to_vec(), right));
    assert!(parts.file(3).is_none());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 40, ..Default::default() })]

    #[test]
    fn parts_of_peers_are_as_they_came(
        shapes in proptest::collection::vec(
            (0usize..2, 0usize..64, 0usize..5, 1usize..20, 0usize..4, proptest::bool::ANY), 1..9,
        ),
        maps in proptest::option::of(0u32..16),
        cheap in proptest::bool::ANY,
    ) {
        let [Some(one), Some(two)] = ["fold-any-1", "fold-any-2"].map(|name| peer(name, 64)) else {
            return Ok(());
        };
        let costs = if cheap { FREE } else { Costs::DEFAULT };
        let folder = Folder::new(Settings { maps_max: maps, ..settings(costs) }).unwrap();
        let maps = folder.count().maps_left;
        let lens = shapes.iter().map(|(of, page, skip, pages, less, even)| {
            let start = (page * PAGE + if *even { 0 } else { skip * 1000 }).min(63 * PAGE);
            let len = (pages * PAGE - if *even { 0 } else { *less }).min(64 * PAGE - start);
            (*of, start, len)
        });
        let lens: Vec<_> = lens.collect();
        let (parts, bytes) = message(&[&one, &two], &[one.memory(), two.memory()], &lens);
        let folded = folder.fold(parts).unwrap();
        let receipt = *folded.receipt();
        proptest::prop_assert!(copied_out(&folded) == bytes, "{}", receipt);
        let placed = if receipt.place == Place::InPlace { 0 } else { receipt.bytes };
        proptest::prop_assert_eq!((receipt.mapped + receipt.copied, receipt.moved), (placed, 0));
        proptest::prop_assert!(gathered(&folded.unfold()) == bytes);
        nothing_left(&folder, maps);
    }
}
