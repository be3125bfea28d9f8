//! What lies in memory of another process is seen in a row, cannot be written, and stays.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Arc, atomic::AtomicUsize},
};

use parking_lot::Mutex;
use pinfold_sys::{child, mapping::SharedMapping, memfd};
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    io::Errno,
    mm::{Advice, MprotectFlags},
    process::{Signal, WaitOptions, waitpid},
};

use super::*;
use crate::Error;

/// What the owner of a file has: a mapping from before it was sealed.
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
    // SAFETY: just mapped, and nobody else's.
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
        // SAFETY: to be refused; where it is not, nobody writes there.
        let done = unsafe { rustix::mm::mprotect(page.cast(), PAGE, more) };
        assert_eq!(done, Err(Errno::ACCESS));
    }
    assert!(gathered(&folded.unfold()) == bytes);
    assert_eq!((reads(at), reads(at + 8 * PAGE)), (None, None));
    nothing_left(&folder, maps);
}

#[test]
fn to_write_to_them_is_a_fault() {
    let Some(one) = peer("fold-write", 64) else { return };
    let folder = folder(FREE);
    let memories = [one.memory()];
    // In the window, and in place.
    for lens in [&[(0, PAGE, PAGE), (0, 0, PAGE)][..], &[(0, 0, PAGE)]] {
        let (parts, bytes) = message(&[&one], &memories, lens);
        let folded = folder.fold(parts).unwrap();
        let at = folded.as_ptr().cast_mut();
        for offset in [0, bytes.len() - 1] {
            // A process with threads: the child touches one byte.
            // SAFETY: it calls nothing, takes no lock, and ends.
            let pid = unsafe {
                child::spawn(|| {
                    at.add(offset).write_volatile(1);
                    0
                })
            };
            let (_, ended) = waitpid(Some(pid.unwrap()), WaitOptions::empty()).unwrap().unwrap();
            assert_eq!(ended.terminating_signal(), Some(Signal::SEGV.as_raw()), "{lens:?}");
        }
        assert!(copied_out(&folded) == bytes);
    }
}

/// Says what can be read at an address when it goes.
struct Watching {
    at: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Option<u8>>>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.seen.lock().push(reads(self.at.load(Ordering::Relaxed)));
    }
}

#[test]
fn what_is_kept_goes_when_nobody_looks_any_more() {
    let Some(one) = peer("fold-keep", 64) else { return };
    let memory = one.memory();
    for (costs, keep) in [(FREE, false), (FREE, true), (Costs::COPY_ONLY, false)] {
        let folder = folder(costs);
        let (at, seen) = (Arc::default(), Arc::default());
        let part = |start: usize| {
            let kept = Watching { at: Arc::clone(&at), seen: Arc::clone(&seen) };
            memory.part(range(start * PAGE, 2 * PAGE)).unwrap().with(kept)
        };
        let folded = folder.fold(vec![part(5), part(1)]).unwrap();
        let window = folder.has(folded.as_ptr().addr());
        assert_eq!(window, costs == FREE);
        at.store(folded.as_ptr().addr(), Ordering::Relaxed);
        assert_eq!(reads(folded.as_ptr().addr()), Some(one.bytes[5 * PAGE]));
        assert!(seen.lock().is_empty());
        if keep {
            let parts = folded.unfold();
            assert!(seen.lock().is_empty());
            assert_eq!((parts.len(), parts[0].len(), parts[0].is_empty()), (2, 8192, false));
            let kept = parts.into_iter().map(PeerPart::into_keep).collect::<Vec<_>>();
            assert!(seen.lock().is_empty());
            drop(kept);
        } else {
            drop(folded);
        }
        assert_eq!(seen.lock().len(), 2);
        assert!(!window || *seen.lock() == [None, None]);
    }
}

#[test]
fn peers_cannot_take_pages_away() {
    let Some(one) = peer("fold-away", 64) else { return };
    let folder = folder(FREE);
    let (parts, bytes) =
        message(&[&one], &[one.memory()], &[(0, 7 * PAGE, PAGE), (0, 0, 3 * PAGE)]);
    let folded = folder.fold(parts).unwrap();
    assert_eq!(folded.receipt().mapped, bytes.len() as u64);
    assert_eq!(rustix::fs::ftruncate(&one.file, PAGE as u64), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punched = rustix::fs::fallocate(&one.file, hole, 0, 8 * PAGE as u64);
    assert_eq!(punched, Err(Errno::PERM));
    let own = one.own.as_ptr().cast();
    // SAFETY: the peer's own mapping, to which there are no references.
    let removed = unsafe { rustix::mm::madvise(own, 8 * PAGE, Advice::LinuxRemove) };
    assert_eq!(removed, Err(Errno::PERM));
    // SAFETY: as above.
    unsafe { rustix::mm::madvise(own, 8 * PAGE, Advice::LinuxDontNeed) }.unwrap();
    assert!(copied_out(&folded) == bytes);
    // What it writes is seen, for it is its memory still.
    // SAFETY: as above.
    unsafe { one.own.as_ptr().add(7 * PAGE).write_volatile(!bytes[0]) };
    assert_eq!(copied_out(&folded)[0], !bytes[0]);
    // And when it is gone altogether.
    drop(one);
    assert_eq!(in_use("fold-away"), (1 + 2, 1));
    assert!(copied_out(&folded)[1..] == bytes[1..]);
    drop(folded);
    assert_eq!(in_use("fold-away"), (0, 0));
}

#[test]
fn files_that_can_change_are_refused() {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let sealed = |seals: SealFlags| {
        let file = rustix::fs::memfd_create("fold-refused", flags).unwrap();
        rustix::fs::ftruncate(&file, 8 * PAGE as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE;
    let len = 8 * PAGE as u64;
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        let error = PeerMemory::map(sealed(all - missing), len).unwrap_err();
        assert!(error.to_string().contains("arena of a peer"), "{error}");
        assert!(format!("{error:?}").contains("Unsealed"), "{error:?}");
    }
    let writers = PeerMemory::map(sealed(all - SealFlags::FUTURE_WRITE), len).unwrap_err();
    assert!(
        matches!(&writers, Error::Os { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
    );
    for lie in [0, len - 1, len + PAGE as u64, u64::MAX] {
        assert!(PeerMemory::map(sealed(all), lie).is_err(), "{lie}");
    }
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let plain: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    for file in [null, plain] {
        let error = PeerMemory::map(file, len).unwrap_err();
        assert!(format!("{error:?}").contains("NotMemfd"), "{error:?}");
    }
    assert_eq!(in_use("fold-refused"), (0, 0));
    PeerMemory::map(sealed(all), len).unwrap();
}

#[test]
fn parts_that_are_not_there_are_refused() {
    let Some(one) = peer("fold-outside", 64) else { return };
    let memory = one.memory();
    let len = memory.len();
    for bad in [0..len + 1, len..len + 1, len + 1..len + 1, u64::MAX - 1..u64::MAX] {
        let error = memory.part(bad.clone()).unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { size, .. } if size == len), "{bad:?} {error}");
    }
    let empty = [memory.part(len..len).unwrap(), memory.part(7..7).unwrap()];
    let folded = folder(FREE).fold(Vec::from(empty)).unwrap();
    assert!(folded.is_empty() && folded.read(0, &mut [0]) == 0);
    // 256 KiB of memory, and none behind.
    let file = memfd::create_fixed("fold-hole", 128 * PAGE).unwrap();
    rustix::io::pwrite(&file, &[1; 64 * PAGE], 0).unwrap();
    memfd::seal(file.as_fd(), true).unwrap();
    let file_again = file.try_clone().unwrap();
    let memory = PeerMemory::map(file, 128 * PAGE as u64).unwrap();
    assert!(memory.part(range(0, 64 * PAGE)).is_ok());
    for hole in [range(64 * PAGE, 1), range(127 * PAGE, PAGE), range(63 * PAGE, 2 * PAGE)] {
        let error = memory.part(hole).unwrap_err();
        let none = Some(Errno::NODATA.raw_os_error());
        assert!(
            matches!(&error, Error::Os { source, .. } if source.raw_os_error() == none),
            "{error}"
        );
    }
    // Nor did asking take any memory.
    assert_eq!(rustix::fs::fstat(&file_again).unwrap().st_blocks, 64 * PAGE as i64 / 512);
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
    // What begins within a page can be mapped if it comes to lie so.
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

#[test]
fn parts_leave_nothing_behind() {
    let Some(one) = peer("fold-leak", 64) else { return };
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    // The owner's own.
    assert_eq!(in_use("fold-leak"), (1, 1));
    for round in 0..20 {
        let memories = [one.memory()];
        assert_eq!(in_use("fold-leak"), (2, 2));
        let lens = [(0, 9 * PAGE, 2 * PAGE), (0, 3 * PAGE, PAGE), (0, 0, 5)];
        let (parts, bytes) = message(&[&one], &memories, &lens);
        drop(memories);
        let folded = folder.fold(parts).unwrap();
        assert!(copied_out(&folded) == bytes);
        assert_eq!(in_use("fold-leak"), (2 + 3, 2));
        match round % 2 {
            0 => drop(folded),
            _ => drop(folded.unfold()),
        }
        assert_eq!(in_use("fold-leak"), (1, 1));
    }
    nothing_left(&folder, maps);
}

#[test]
fn huge_pages_of_peers_are_mapped_at_their_places() {
    let Some(one) = peer("fold-huge", 4 * HUGE_PAGES as usize) else { return };
    let folder = folder(FREE);
    let maps = folder.count().maps_left;
    let memory = one.memory();
    for huge in [false, true] {
        let part = |at: usize| memory.part(range(at, HUGE_BYTES)).unwrap().assume_huge(huge);
        let folded = folder.fold(vec![part(2 * HUGE_BYTES), part(0)]).unwrap();
        assert_eq!(folded.receipt().mapped, 2 * HUGE_BYTES as u64);
        // Where a huge page can be, if it is one.
        assert!(!huge || folded.as_ptr().addr().is_multiple_of(HUGE_BYTES));
        let right = [&one.bytes[2 * HUGE_BYTES..3 * HUGE_BYTES], &one.bytes[..HUGE_BYTES]].concat();
        assert!(copied_out(&folded) == right);
    }
    nothing_left(&folder, maps);
}

#[test]
fn a_child_has_no_bytes_of_peers() {
    let Some(one) = peer("fold-child", 64) else { return };
    let folder = folder(FREE);
    let memories = [one.memory()];
    let (alone, bytes) = message(&[&one], &memories, &[(0, PAGE, 100)]);
    let alone = folder.fold(alone).unwrap();
    let (more, all) = message(&[&one], &memories, &[(0, PAGE, PAGE), (0, 0, PAGE)]);
    let more = folder.fold(more).unwrap();
    let (parts, _) = message(&[&one], &memories, &[(0, PAGE, PAGE)]);
    let mut to = vec![0; 3 * PAGE];
    let mut pieces = Vec::with_capacity(8);
    // SAFETY: the child calls nothing but what is tested, and makes no threads.
    let pid = unsafe {
        child::spawn(|| {
            parts.gather(&mut pieces);
            let none = pieces.is_empty() && alone.read(0, &mut to) == 0;
            let window = more.read(0, &mut to) == all.len() && to[..all.len()] == all;
            i32::from(!(none && window))
        })
    };
    let (_, ended) = waitpid(Some(pid.unwrap()), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(ended.exit_status(), Some(0));
    assert!(copied_out(&alone) == bytes);
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
