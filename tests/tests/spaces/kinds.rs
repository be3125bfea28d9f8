#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers alone reach it.
//! All kinds of memory, read and written in all ways; and memory that may not be.

use std::{
    io::{Read, Write, pipe},
    thread,
};

use pinfold::{Endpoint, Error, Path, RegionKey, Rights, SharedArena};
use pinfold_tests::{
    Args,
    host::{Ended, fork},
    role, stamp,
};

use super::{
    memory::{Area, Cells, PAGE, fd, file, map, protect},
    plain, play, space, tell, told,
};

#[test]
fn any_memory_can_be_read_and_written() {
    play("owner", "user");
}

static GLOBAL: Cells<30_000> = Cells::new();

const WRITTEN: u64 = 1000;

pub fn owner(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "kinds");
    let stack = Cells::<50_000>::new();
    let heap = Box::new(Cells::<300_001>::new());
    let private_file = file(40_000, 90);
    let shared_file = file(40_000, 91);
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(200_000).unwrap();
    let areas = [
        stack.area(),
        heap.area(),
        GLOBAL.area(),
        map(None, 1 << 20, libc::MAP_PRIVATE, None),
        map(None, 40_000, libc::MAP_PRIVATE, fd(&private_file)),
        map(None, 40_000, libc::MAP_SHARED, fd(&shared_file)),
        Area::of(&buf),
    ];
    // SAFETY: there are no references to it; the peer writes nothing but the areas.
    let all = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    let part = areas[1].address() + 100..areas[1].address() + 1100;
    // SAFETY: as above.
    let readable = unsafe { endpoint.expose(part.clone(), Rights::Read) }.unwrap();
    assert_eq!((readable.addresses(), readable.rights()), (part, Rights::Read));
    for key in [all.key(), readable.key()] {
        endpoint.send(peer, 1, &key.to_bytes()).unwrap();
    }
    // The files' own bytes, before their pages are touched.
    for (area, seed) in areas[4..6].iter().zip([90, 91]) {
        tell(&endpoint, peer, &[area.address() as u64, area.len as u64, seed]);
        told(&endpoint, peer);
        area.check(seed + WRITTEN);
    }
    for round in 0..3 {
        for (at, area) in areas.iter().enumerate() {
            let seed = 10 * round + at as u64;
            area.fill(seed);
            let is_arena = u64::from(at == 6);
            tell(&endpoint, peer, &[area.address() as u64, area.len as u64, seed, is_arena]);
            told(&endpoint, peer);
            area.check(seed + WRITTEN);
        }
    }
    tell(&endpoint, peer, &[]);
    // Bytes that are written to a shared mapping are in the file, and bytes to a private one are
    // not.
    let in_file = |file: &std::fs::File| {
        let mut bytes = vec![0; 40_000];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, 0).unwrap();
        bytes
    };
    stamp::check(&in_file(&shared_file), 20 + 5 + WRITTEN);
    stamp::check(&in_file(&private_file), 90);

    // Holes, and memory that must not be written.
    let mut hole = map(None, 3 * PAGE, libc::MAP_PRIVATE, None);
    hole.fill(7);
    // If it were unmapped, another thread of this process might get it.
    protect(Area { at: hole.at.wrapping_add(PAGE), len: PAGE }, libc::PROT_NONE);
    let fixed = map(None, PAGE, libc::MAP_PRIVATE, None);
    fixed.fill(8);
    protect(fixed, libc::PROT_READ);
    tell(&endpoint, peer, &[hole.address() as u64, fixed.address() as u64]);
    told(&endpoint, peer);
    fixed.check(8);
    hole.len = PAGE;
    stamp::check(&hole.to_vec()[..PAGE - 8], 7);

    // Pages that a child shares until they are written.
    let cow = map(None, 16 * PAGE, libc::MAP_PRIVATE, None);
    cow.fill(70);
    let (mut go, goes) = pipe().unwrap();
    let (mut there, is_there) = pipe().unwrap();
    let (goes, is_there) = (&goes, &is_there);
    thread::scope(|scope| {
        let child = scope.spawn(move || {
            fork(|| {
                let mut byte = [0];
                let woken =
                    (&mut &*is_there).write_all(b"x").and_then(|()| go.read_exact(&mut byte));
                i32::from(woken.is_err() || stamp::wrong_at(&cow.to_vec(), 70).is_some())
            })
        });
        there.read_exact(&mut [0]).unwrap();
        tell(&endpoint, peer, &[cow.address() as u64]);
        told(&endpoint, peer);
        cow.check(71);
        (&mut &*goes).write_all(b"x").unwrap();
        // The child saw none of the bytes that were written to its parent.
        assert_eq!(child.join().unwrap(), Ended::Code(0));
    });
}

pub fn user(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "kinds");
    let plain = plain(&endpoint, peer);
    let (all, readable) = (space(&endpoint, peer), space(&endpoint, peer));
    assert_eq!((all.path(), all.rights(), all.addresses()), (plain, Rights::ReadWrite, 0..1 << 47));
    assert_eq!((readable.path(), readable.rights(), readable.peer()), (plain, Rights::Read, peer));
    let mut mapped = 0;
    loop {
        let words = told(&endpoint, peer);
        let [address, len, seed, ref more @ ..] = words[..] else { break };
        let mut bytes = vec![0; len as usize];
        // A part of the memory first, and nothing.
        all.read(address + 13, &mut bytes[13..100]).unwrap();
        assert_eq!(bytes[13..100], stamp::bytes(100, seed)[13..]);
        assert_eq!(all.read(address, &mut []).unwrap().bytes, 0);
        let receipt = all.read(address, &mut bytes).unwrap();
        stamp::check(&bytes, seed);
        let is_mapped = receipt.path == Path::Mapped;
        assert!(is_mapped || receipt.path == plain, "{receipt}");
        assert!(!is_mapped || *more == [1], "mapped, though not of an arena: {receipt}");
        assert_eq!(receipt.bytes, len);
        mapped += u32::from(is_mapped);
        stamp::fill(&mut bytes, seed + WRITTEN);
        let receipt = all.write(address, &bytes).unwrap();
        assert_eq!(receipt.bytes, len);
        assert_eq!(receipt.refused(Path::Cma).is_some(), receipt.path == Path::Eager, "{receipt}");
        tell(&endpoint, peer, &[]);
    }
    assert_eq!(mapped > 0, args.text("way") == "all", "{mapped} reads were mapped");

    // The part that may only be read, and the memory beyond.
    let Some(start) = Some(readable.addresses().start) else { return };
    let mut bytes = [0; 1000];
    readable.read(start, &mut bytes).unwrap();
    assert!(matches!(readable.write(start, b"x"), Err(Error::ReadOnly)));
    for (at, len) in [(start - 1, 2), (start + 999, 2), (u64::MAX, 1), (0, 1), (start, 1001)] {
        let read = readable.read(at, &mut vec![0; len]);
        assert!(matches!(read, Err(Error::OutOfBounds { .. })), "{at:#x} {len} {read:?}");
    }
    for (at, len) in [((1 << 47) - 1, 2), (1 << 47, 1), (u64::MAX, 1)] {
        assert!(matches!(all.write(at, &vec![0; len]), Err(Error::OutOfBounds { .. })), "{at:#x}");
    }
    for guess in [[0; 24], [0xff; 24]] {
        let guess = RegionKey::from_bytes(&guess).unwrap();
        assert!(matches!(endpoint.open_space(peer, &guess), Err(Error::BadKey)));
    }

    let words = told(&endpoint, peer);
    let [hole, fixed] = words[..] else { panic!("{words:?}") };
    let page = PAGE as u64;
    for at in [8, hole + page, hole + page - 8, (1 << 47) - 8] {
        let mut bytes = [0; 16];
        let read = all.read(at.min((1 << 47) - 16), &mut bytes);
        assert!(matches!(read, Err(Error::NotMapped { .. })), "{at:#x} {read:?}");
    }
    for at in [8, hole + page, hole + page - 8, fixed] {
        let wrote = all.write(at, &[1; 16]);
        assert!(matches!(wrote, Err(Error::NotMapped { .. })), "{at:#x} {wrote:?}");
    }
    all.read(hole + 2 * page, &mut [0; 16]).unwrap();
    all.read(fixed, &mut [0; 16]).unwrap();
    tell(&endpoint, peer, &[]);

    let cow = told(&endpoint, peer)[0];
    all.write(cow, &stamp::bytes(16 * PAGE, 71)).unwrap();
    tell(&endpoint, peer, &[]);
    // Until the owner has looked.
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
}
