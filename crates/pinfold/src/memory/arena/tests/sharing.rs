//! The parts of an arena that peers get, and how this process finds its own.

use std::{
    os::fd::AsFd,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::{
    fork::ForkMark,
    mem::{
        mapping::{ReadOnlyMapping, SharedMapping},
        memfd,
    },
};

use super::{super::*, MIB, resident, stamp};

#[test]
fn memory_is_found() {
    let arena = Arena::new().unwrap();
    let buf = arena.alloc(1000).unwrap();
    let (extent, offset) = find(buf.as_ptr(), buf.len()).unwrap();
    let (same, at) = buf.locate();
    assert_eq!((extent.id(), offset), (same.id(), at));
    assert_eq!(extent.as_ptr(offset).unwrap().cast_const(), buf.as_ptr());
    assert_eq!(extent.as_ptr(extent.bytes_max()), None);
    assert!(!extent.peers_may_write());
    assert_eq!(find(&buf[999..], 1).unwrap().1, offset + 999);
    // Memory is not found that lies elsewhere, reaches out of the extent, or is gone.
    let outside = [0u8; 10];
    assert!(find(outside.as_ptr(), 10).is_none());
    assert!(find(buf.as_ptr(), extent.bytes_max() as usize + 1).is_none());
    assert!(find(std::ptr::null(), 0).is_none());
    let at = buf.as_ptr();
    let id = extent.id();
    drop((extent, same, buf));
    arena.trim();
    assert!(find(at, 1).is_none_or(|(extent, _)| extent.id() != id));

    fn find(at: impl At, len: usize) -> Option<(ArenaRef, u64)> {
        super::find(at.at(), len)
    }
    trait At {
        fn at(self) -> *const u8;
    }
    impl At for *const u8 {
        fn at(self) -> *const u8 {
            self
        }
    }
    impl At for &[u8] {
        fn at(self) -> *const u8 {
            self.as_ptr()
        }
    }
}

#[test]
fn readers_cannot_become_writers() {
    let arena = Arena::new().unwrap();
    let mut buf = arena.alloc(5 * MIB).unwrap();
    stamp(&mut buf, 1);
    let (extent, offset) = buf.locate();
    let fd = match extent.fd_for_peers() {
        Ok(fd) => fd,
        Err(error) => return println!("this kernel cannot keep writers out: {error}"),
    };
    assert!(extent.is_sealed_for_readers());
    memfd::check_sealed(fd, extent.bytes_max() as usize).unwrap();
    assert!(SharedMapping::map(fd, 4096).is_err());
    assert!(Mapping::map_writable(fd, extent.bytes_max(), &mark()).is_err());
    // Nor by a descriptor of one's own.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let own = std::fs::OpenOptions::new().read(true).write(true).open(path);
    if let Ok(own) = own {
        assert!(SharedMapping::map(own.as_fd(), 4096).is_err());
        assert!(rustix::io::pwrite(&own, b"x", offset).is_err());
        assert!(own.set_len(4096).is_err());
    }
    let reader = Mapping::map_readonly(fd, extent.bytes_max(), &mark()).unwrap();
    assert_eq!(reader.len(), extent.bytes_max());
    assert!(reader.get_mut(0, 1).is_none());
    let mut copy = vec![0; buf.len()];
    copy_out(&reader, offset, &mut copy);
    assert_eq!(copy, *buf);
    // The owner still writes, also memory that is committed only now, and they still see it.
    let mut later = arena.alloc(5 * MIB).unwrap();
    stamp(&mut later, 2);
    let (same, offset) = later.locate();
    assert_eq!(same.id(), extent.id());
    copy_out(&reader, offset, &mut copy);
    assert_eq!(copy, *later);
}

fn mark() -> Arc<ForkMark> {
    Arc::new(ForkMark::new().unwrap())
}

/// Reads a part of a mapping by a system call, as a peer would by a raw copy.
fn copy_out(from: &Mapping, offset: u64, into: &mut [u8]) {
    let at = from.get(offset, into.len() as u64).unwrap();
    let pid = std::process::id();
    let got = pinfold_sys::process::read_remote_into(pid, at.addr() as u64, into);
    assert_eq!(got.unwrap(), into.len());
}

#[test]
fn mappings_are_bounded() {
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(100).unwrap();
    let (extent, offset) = buf.locate();
    assert!(extent.peers_may_write());
    let max = extent.bytes_max();
    let fd = extent.fd_for_peers().unwrap();
    assert!(!extent.is_sealed_for_readers());
    for wrong in [0, 1, max - 4096, max + 4096, u64::MAX] {
        assert!(Mapping::map_readonly(fd, wrong, &mark()).is_err(), "{wrong}");
    }
    let map = Mapping::map_writable(fd, max, &mark()).unwrap();
    assert!(map.get(0, max).is_some() && map.get(max, 0).is_some());
    assert!(map.get_mut(max - 1, 1).is_some());
    for (offset, len) in [(max, 1), (max + 1, 0), (u64::MAX, 2), (1, u64::MAX), (1, max)] {
        assert!(map.get(offset, len).is_none() && map.get_mut(offset, len).is_none());
    }
    buf.write(3, b"seen");
    let mut copy = [0; 4];
    copy_out(&map, offset + 3, &mut copy);
    assert_eq!(&copy, b"seen");
    // A file that others could write is refused for reading only.
    assert!(Mapping::map_readonly(fd, max, &mark()).is_err());
    // A file that could still shrink is refused, whether or not others could write it.
    let open = memfd::create_fixed("pinfold-test", 4096).unwrap();
    assert!(Mapping::map_readonly(open.as_fd(), 4096, &mark()).is_err());
    assert!(Mapping::map_writable(open.as_fd(), 4096, &mark()).is_err());
    assert!(ReadOnlyMapping::map(open.as_fd(), 4096, 1).is_ok());
    if rustix::fs::fcntl_add_seals(&open, rustix::fs::SealFlags::FUTURE_WRITE).is_ok() {
        assert!(Mapping::map_readonly(open.as_fd(), 4096, &mark()).is_err());
    }
}

#[test]
fn shared_buffers_copy_in_and_out() {
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(100).unwrap();
    assert_eq!(buf.to_vec(), vec![0; 100]);
    let mut model = vec![0u8; 100];
    for from in 0..20 {
        for len in [0, 1, 7, 8, 9, 31, 80] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + from) as u8).collect();
            buf.write(from, &bytes);
            model[from..from + len].copy_from_slice(&bytes);
            assert_eq!(buf.to_vec(), model);
            let mut part = vec![0; len];
            buf.read(from, &mut part);
            assert_eq!(part, bytes);
        }
    }
    buf.fill(3);
    assert_eq!(buf.to_vec(), vec![3; 100]);
    let word = buf.word64(8).unwrap();
    word.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(buf.to_vec()[8..16], [0xff; 8]);
    assert!(buf.word32(96).is_some() && buf.word64(96).is_none());
    assert!(buf.word64(4).is_none() && buf.word32(100).is_none());
    assert!(buf.word64(usize::MAX - 7).is_none());
    // Memory goes back by holes although peers may have the descriptor.
    let (extent, _) = buf.locate();
    extent.fd_for_peers().unwrap();
    drop(arena.alloc(6 * MIB).unwrap());
    assert!(arena.trim() >= 4 * MIB as u64);
    assert_eq!(resident(&extent), arena.stats().bytes_committed);
}

#[test]
#[should_panic(expected = "2 bytes at 99 of a buffer of 100")]
fn shared_buffers_are_bounded() {
    let arena = SharedArena::builder().build_shared().unwrap();
    arena.alloc(100).unwrap().write(99, b"xx");
}

#[test]
fn finding_while_arenas_come_and_go() {
    let keep = Arena::new().unwrap();
    let kept = keep.alloc(64).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..100_000 {
                    assert!(find(kept.as_ptr(), 64).is_some());
                    // May be there or not; must not be anything else.
                    if let Some((extent, _)) = find(kept.as_ptr().wrapping_add(128 * MIB), 1) {
                        assert!(extent.bytes_max() > 0);
                    }
                }
            });
        }
        for _ in 0..300 {
            let arena = Arena::new().unwrap();
            let buf = arena.alloc(64).unwrap();
            assert!(find(buf.as_ptr(), 64).is_some());
            let id = buf.locate().0.id();
            let at = buf.as_ptr();
            drop((buf, arena));
            // Another mapping may lie there by now: other tests run beside this one. And a thread
            // that has just found the extent, as other tests may have, has it a moment longer.
            let end = Instant::now() + Duration::from_secs(20);
            while find(at, 64).is_some_and(|(extent, _)| extent.id() == id) {
                assert!(Instant::now() < end, "extent {id} stays");
                thread::yield_now();
            }
        }
    });
}

/// A peer's word on its file does not count: the kernel is asked.
#[test]
fn a_file_that_can_be_written_is_not_passed_on() {
    let file = memfd::create_fixed("pinfold-test", 8192).unwrap();
    let writer = SharedMapping::map(file.as_fd(), 8192).unwrap();
    memfd::seal(file.as_fd(), true).unwrap();
    let refused = FrozenBuf::of_peer(Arc::new(file), 8192, 0, 8192);
    assert!(matches!(refused, Err(crate::Error::Os { .. })), "{refused:?}");
    drop(writer);
    let buf = FrozenBuf::copy_of(&[7; 8192]).unwrap();
    let (extent, offset) = buf.locate();
    assert!(offset == 0 && extent.is_sealed_for_readers());
    let file = Arc::new(extent.fd_for_peers().unwrap().try_clone_to_owned().unwrap());
    let again = FrozenBuf::of_peer(Arc::clone(&file) as _, 8192, 4096, 4096).unwrap();
    assert_eq!(again[..], [7; 4096]);
    for (offset, len) in [(4096, 4097), (8193, 0), (usize::MAX, 2)] {
        assert!(FrozenBuf::of_peer(Arc::clone(&file) as _, 8192, offset, len).is_err());
    }
}
