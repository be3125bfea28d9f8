//! A folded message stays readable, and goes in time, no matter what its peer does.

use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use pinfold_sys::child;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags},
    mm::Advice,
    process::{WaitOptions, waitpid},
};

use super::*;
use crate::Error;

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
            // The kernel writes, and says that it was a fault.
            let (read, write) = rustix::pipe::pipe().unwrap();
            rustix::io::write(&write, &[!bytes[offset]]).unwrap();
            // SAFETY: the kernel checks the address itself, and no other code uses the slice.
            let byte = unsafe { std::slice::from_raw_parts_mut(at.add(offset), 1) };
            assert_eq!(rustix::io::read(&read, byte), Err(Errno::FAULT), "{lens:?}");
        }
        assert!(copied_out(&folded) == bytes);
    }
}

/// Records, when dropped, the byte that can be read at an address.
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
    // The peer's writes are seen, for it is its memory still.
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
    // SAFETY: the child calls nothing but the tested code, and makes no threads.
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
