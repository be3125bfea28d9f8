#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers or atomics alone
// reach it.
//! Atomic operations on words of a peer's memory.

use std::{
    fmt::Debug,
    ptr,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    thread,
};

use pinfold::{
    AtomicChange, AtomicWord, Completed, CompletionQueue, Endpoint, Error, Path, Progress,
    RemoteSpace, Rights, SharedArena,
};
use pinfold_tests::{Args, Stage, filter, role};

use super::{
    WAYS, go,
    memory::{Area, PAGE, fd, file, map, protect},
    play, space, tell, told,
};

/// The word at an address of the test's own memory.
fn word(address: usize) -> &'static AtomicU64 {
    // SAFETY: a word of memory that stays to the end of the test, reached atomically.
    unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(address)) }
}

#[test]
fn each_change_does_what_it_says() {
    play("keeper", "clerk");
}

pub fn keeper(_: &Args) {
    let (endpoint, peer) =
        role::listen(Endpoint::builder().progress(Progress::Dedicated), "changes");
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(PAGE).unwrap();
    let shared = file(PAGE, 90);
    let fixed = map(None, PAGE, libc::MAP_PRIVATE, None);
    protect(fixed, libc::PROT_READ);
    // A file that is shorter than its mapping.
    let short = map(None, 2 * PAGE, libc::MAP_SHARED, fd(&shared));
    let areas = [
        map(None, PAGE, libc::MAP_PRIVATE, None),
        Area::of(&buf),
        map(None, PAGE, libc::MAP_SHARED, fd(&shared)),
        fixed,
        short,
    ];
    // SAFETY: reached by raw pointers and atomics alone.
    let all = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    let start = areas[0].address();
    // SAFETY: as above.
    let readable = unsafe { endpoint.expose(start..start + 64, Rights::Read) }.unwrap();
    // SAFETY: as above.
    let narrow = unsafe { endpoint.expose(start..start + 60, Rights::ReadWrite) }.unwrap();
    for exposed in [&all, &readable, &narrow] {
        endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    }
    tell(&endpoint, peer, &areas.map(|area| area.address() as u64));
    told(&endpoint, peer);
    // Changed words are this process's: 8 of each kind for each area.
    for area in &areas[..3] {
        assert_eq!(word(area.address() + 128).load(Ordering::SeqCst), 77);
    }
    all.revoke().unwrap();
    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    assert_eq!(word(start + 128).load(Ordering::SeqCst), 77);
}

pub fn clerk(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "changes");
    let spaces = [(); 3].map(|()| space(&endpoint, peer));
    let [space, readable, narrow] = &spaces;
    let [heap, arena, shared, fixed, short] = told(&endpoint, peer)[..] else { panic!("five") };
    for area in [heap, arena, shared] {
        // Again and again: by the agent first, and mapped once that is known.
        for _ in 0..3 {
            changes::<u32>(space, area + 68, [0xffff_fff0, 0x0f0f, 3, 0x20]);
            changes::<u64>(space, area + 72, [u64::MAX - 15, 0x0f0f, 3, 0x20]);
            changes::<i32>(space, area + 80, [i32::MIN, 0x0f0f, -3, 0x20]);
            changes::<i64>(space, area + 88, [i64::MIN, 0x0f0f, -3, 0x20]);
        }
        space.swap(area + 128, 77u64).unwrap();
    }
    let misaligned = |result| matches!(result, Err(Error::Misaligned { .. }));
    assert!(misaligned(space.swap(heap + 4, 1u64)) && misaligned(space.swap(arena + 9, 1u64)));
    let wrong = space.atomic(heap + 2, AtomicChange::Add(1u32)).wait();
    assert!(matches!(wrong, Err(Error::Misaligned { size: 4, .. })), "{wrong:?}");
    assert!(matches!(readable.swap(heap, 1u64), Err(Error::ReadOnly)));
    narrow.swap(heap + 56, 1u32).unwrap();
    for at in [heap + 56, heap - 8, heap + 64] {
        let outside = narrow.swap(at, 1u64);
        assert!(matches!(outside, Err(Error::OutOfBounds { .. })), "{outside:?}");
    }
    for at in [8, fixed, short + PAGE as u64, (1 << 46) + 8] {
        let missing = space.fetch_add(at, 1u64);
        assert!(matches!(missing, Err(Error::NotMapped { len: 8, .. })), "{at:#x} {missing:?}");
    }
    // Dropped and forgotten: done all the same.
    let before = space.fetch_add(heap + 200, 0u64).unwrap();
    drop(space.atomic(heap + 200, AtomicChange::Add(1u64)));
    std::mem::forget(space.atomic(heap + 200, AtomicChange::Add(1u64)));
    let queue = CompletionQueue::new().unwrap();
    queue.add(1, space.atomic(heap + 200, AtomicChange::Add(1u64)));
    drop(queue);
    while space.fetch_add(heap + 200, 0u64).unwrap() < before + 3 {}

    tell(&endpoint, peer, &[]);
    told(&endpoint, peer);
    for area in [heap, arena, shared] {
        let late = space.swap(area + 128, 1u64);
        assert!(matches!(late, Err(Error::Revoked)), "{late:?}");
        let late = space.atomic(area + 128, AtomicChange::Swap(1u64)).wait();
        assert!(matches!(late, Err(Error::Revoked)), "{late:?}");
    }
    tell(&endpoint, peer, &[]);
    assert!(endpoint.recv(peer, 3).unwrap_err().is_peer_gone());
    assert!(space.swap(heap, 1u64).is_err());
}

/// Every change of a word, and the values before.
fn changes<W>(space: &RemoteSpace, at: u64, [one, bits, small, other]: [W; 4])
where
    W: AtomicWord + PartialEq + Ord + Debug,
    W: std::ops::BitAnd<Output = W> + std::ops::BitOr<Output = W> + std::ops::BitXor<Output = W>,
{
    space.swap(at, one).unwrap();
    assert_eq!(space.fetch_and(at, bits).unwrap(), one);
    assert_eq!(space.fetch_or(at, other).unwrap(), one & bits);
    assert_eq!(space.fetch_xor(at, bits).unwrap(), one & bits | other);
    let now = (one & bits | other) ^ bits;
    assert_eq!(space.fetch_min(at, small).unwrap(), now);
    assert_eq!(space.fetch_max(at, other).unwrap(), now.min(small));
    let now = now.min(small).max(other);
    assert_eq!(space.compare_swap(at, one, bits).unwrap(), now);
    assert_eq!(space.compare_swap(at, now, small).unwrap(), now);
    let queue = CompletionQueue::new().unwrap();
    queue.add(5, space.atomic(at, AtomicChange::Swap(bits)));
    let mut ended = Vec::new();
    queue.wait(&mut ended, 1, None).unwrap();
    let [completion] = &ended[..] else { panic!("{ended:?}") };
    assert!(matches!(completion.result, Ok(Completed::Was(_))), "{completion:?}");
    assert_eq!(space.atomic(at, AtomicChange::Replace(bits, one)).wait().unwrap(), bits);
    assert_eq!(space.atomic(at, AtomicChange::Add(small)).wait().unwrap(), one);
}

/// An owner that may start no process.
#[test]
fn words_that_their_owner_cannot_change_are_refused_by_name() {
    play("unable", "asker");
}

pub fn unable(_: &Args) {
    // For the threads that are started later, too.
    filter::deny(&[libc::SYS_clone], libc::EPERM);
    let (endpoint, peer) =
        role::listen(Endpoint::builder().progress(Progress::Dedicated), "unable");
    let area = map(None, PAGE, libc::MAP_PRIVATE, None);
    area.fill(1);
    let range = area.address()..area.address() + PAGE;
    // SAFETY: reached by raw pointers alone.
    let exposed = unsafe { endpoint.expose(range, Rights::ReadWrite) }.unwrap();
    endpoint.send(peer, 1, &exposed.key().to_bytes()).unwrap();
    told(&endpoint, peer);
    area.check(1);
}

pub fn asker(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "unable");
    let space = space(&endpoint, peer);
    let start = space.addresses().start;
    for _ in 0..3 {
        let refused = space.fetch_add(start, 1u64);
        let is_it = |why: &Error| matches!(why, Error::PathRefused { path: Path::Mapped, .. });
        assert!(refused.as_ref().is_err_and(is_it), "{refused:?}");
    }
    space.read(start, &mut [0; 8]).unwrap();
    tell(&endpoint, peer, &[]);
}

const ADDS: u64 = 300;

/// Three processes, each in its way, and two threads of the owner's.
#[test]
fn sums_of_all_ways_add_up() {
    let stage = Stage::new(120);
    let adders = WAYS.map(|way| go(stage.role("adder"), way));
    stage.play([stage.role("summer")].into_iter().chain(adders));
}

pub fn summer(_: &Args) {
    let (endpoint, first) = role::listen(Endpoint::builder().progress(Progress::Dedicated), "sums");
    let mut peers = vec![first];
    while peers.len() < WAYS.len() {
        peers.push(endpoint.accept_timeout(role::PATIENCE).unwrap());
    }
    let arena = SharedArena::builder().build_shared().unwrap();
    let buf = arena.alloc(PAGE).unwrap();
    let areas = [map(None, PAGE, libc::MAP_PRIVATE, None), Area::of(&buf)];
    let words = areas.map(|area| word(area.address()));
    // SAFETY: reached atomically alone.
    let exposed = unsafe { endpoint.expose(0..1 << 47, Rights::ReadWrite) }.unwrap();
    for peer in &peers {
        endpoint.send(*peer, 1, &exposed.key().to_bytes()).unwrap();
        tell(&endpoint, *peer, &areas.map(|area| area.address() as u64));
    }
    let (over, own) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                words.iter().for_each(|word| _ = word.fetch_add(1 << 40, Ordering::SeqCst));
                own.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
            }
        });
        peers.iter().for_each(|peer| _ = told(&endpoint, *peer));
        over.store(true, Ordering::Release);
    });
    // Each peer added 1 by calls and as many by requests; 32-bit words beside count the same.
    let count = WAYS.len() as u64 * 2 * ADDS;
    for (area, sum) in areas.iter().zip(words) {
        let own = u64::from(own.load(Ordering::Relaxed)) & 0xff_ffff;
        assert_eq!(sum.load(Ordering::SeqCst), (own << 40) | count);
        let beside = word(area.address() + 64).load(Ordering::SeqCst);
        assert_eq!((beside & 0xffff_ffff, beside >> 32), (count / 2, 0));
    }
    exposed.revoke().unwrap();
    for peer in peers {
        endpoint.send(peer, 4, b"over").unwrap();
    }
}

pub fn adder(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "sums");
    let space = space(&endpoint, peer);
    let areas = told(&endpoint, peer);
    let queue = CompletionQueue::new().unwrap();
    for _ in 0..ADDS {
        for area in &areas {
            space.fetch_add(*area, 1u64).unwrap();
            space.fetch_add(area + 64, 1u32).unwrap();
            queue.add(*area, space.atomic(*area, AtomicChange::Add(1u64)));
        }
    }
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        queue.wait(&mut ended, 100, None).unwrap();
    }
    assert_eq!(ended.len() as u64, ADDS * areas.len() as u64);
    // No two adds saw the same word, and each was done once.
    for area in areas {
        let mut old: Vec<u64> = ended
            .iter()
            .filter(|it| it.context == area)
            .map(|it| match it.result {
                Ok(Completed::Was(old)) => old,
                ref other => panic!("{other:?}"),
            })
            .collect();
        old.sort_unstable();
        old.dedup();
        assert_eq!(old.len() as u64, ADDS);
    }
    tell(&endpoint, peer, &[]);
    endpoint.recv(peer, 4).unwrap();
}
