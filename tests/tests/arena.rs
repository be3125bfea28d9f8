//! Arenas where memory, address space and files are limited, and in forked children.

use pinfold::{Arena, ArenaBuf, Error};
use pinfold_tests::{
    Args, Stage,
    baseline::{Baseline, status_bytes},
    group::Group,
    host::{Ended, fork},
    role::{self, hear, say},
    skip, stamp,
};
use rustix::process::{Resource, Rlimit, setrlimit};

pinfold_tests::roles!(glutton, cramped, small_files, parent, poor);

const MIB: usize = 1 << 20;

/// Takes buffers of `len` bytes until there are no more, and writes all of them.
fn fill(arena: &Arena, len: usize) -> (Vec<ArenaBuf>, Error) {
    let mut bufs = Vec::new();
    loop {
        match arena.alloc(len) {
            Ok(mut buf) => {
                buf.fill(bufs.len() as u8);
                bufs.push(buf);
            }
            Err(error) => return (bufs, error),
        }
    }
}

#[test]
fn a_group_at_its_limit_is_an_error() {
    const LIMIT: u64 = 96 << 20;
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return skip(&format!("making a memory control group: {error}")),
    };
    let stage = Stage::new(120);
    for (len, huge) in [(100_000, 1), (100_000, 0), (3 * MIB, 1), (20 * MIB, 1), (20 * MIB, 0)] {
        let mut glutton = stage.role("glutton").with("len", len).with("huge", huge).spawn();
        glutton.expect("ready");
        if let Err(error) = group.add(glutton.pid()) {
            return skip(&format!("entering a memory control group: {error}"));
        }
        glutton.say(group.path().display());
        let took: u64 = glutton.hear().parse().unwrap();
        println!("buffers of {len} bytes: {} MiB of {}", took >> 20, LIMIT >> 20);
        // Neither nothing nor all: the process itself takes some, and a margin is left.
        assert!(took > LIMIT / 2 && took < LIMIT, "{took}");
        glutton.end_well();
        assert_eq!(group.kills(), 0);
    }
}

fn glutton(args: &Args) {
    say("ready");
    let group = hear();
    let len = args.number("len");
    let arena = Arena::builder().huge_pages(args.text("huge") == "1").build().unwrap();
    let (mut bufs, error) = fill(&arena, len);
    let text = error.to_string();
    assert!(matches!(error, Error::NoMemory { .. }), "{text}");
    assert!(text.contains(&group), "{text}");
    assert!(text.contains("raise its limit"), "{text}");
    for (at, buf) in bufs.iter().enumerate() {
        assert!(buf.iter().all(|byte| *byte == at as u8));
    }
    let took: usize = bufs.iter().map(|buf| buf.len()).sum();
    // Dropped memory can be had again, and as another size, too.
    let half = bufs.len() / 2;
    bufs.truncate(half);
    bufs.extend((half..2 * half).map(|_| arena.alloc(len).unwrap()));
    bufs.clear();
    let mut large = arena.alloc(48 * MIB).unwrap();
    large.fill(1);
    drop(large);
    arena.trim();
    assert_eq!(arena.stats().bytes_committed, 0);
    say(took);
}

#[test]
fn little_address_space_is_enough_or_an_error() {
    Stage::new(60).role("cramped").spawn().end_well();
}

fn cramped(_: &Args) {
    let current = Some(status_bytes("VmSize") + (24 << 20));
    setrlimit(Resource::As, Rlimit { current, maximum: current }).expect("setrlimit");
    let before = Baseline::now();
    let arena = Arena::new().unwrap();
    let (bufs, error) = fill(&arena, 300_000);
    assert!(bufs.len() > 10, "{} buffers: {error}", bufs.len());
    let text = error.to_string();
    assert!(text.contains("mmap on") && text.contains("Cannot allocate memory"), "{text}");
    assert!(arena.alloc(100 * MIB).is_err());
    drop((bufs, arena));
    before.returns(role::PATIENCE);
}

#[test]
fn a_limit_on_files_is_an_error() {
    Stage::new(60).role("small_files").spawn().end_well();
}

fn small_files(_: &Args) {
    // Files in memory are files: the kernel would kill a process that makes a larger one.
    let limit = |bytes: u64| {
        let maximum = rustix::process::getrlimit(Resource::Fsize).maximum;
        setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum }).expect("setrlimit");
    };
    limit(1 << 20);
    let error = Arena::new().unwrap_err().to_string();
    assert!(error.contains("ftruncate on") && error.contains("File too large"), "{error}");
    limit(5 << 20);
    let arena = Arena::new().unwrap();
    let bufs: Vec<ArenaBuf> = (0..20).map(|_| arena.alloc(MIB).unwrap()).collect();
    assert!(arena.alloc(9 * MIB).is_err());
    assert_eq!(arena.stats().buffers, 20);
    drop(bufs);
}

#[test]
fn a_forked_child_leaves_everything_alone() {
    Stage::new(60).role("parent").spawn().end_well();
}

fn parent(_: &Args) {
    let arena = Arena::new().unwrap();
    let mut bufs: Vec<ArenaBuf> = (0..10).map(|_| arena.alloc(100_000).unwrap()).collect();
    bufs.push(arena.alloc(20 * MIB).unwrap());
    for (number, buf) in bufs.iter_mut().enumerate() {
        let len = buf.len();
        buf.copy_from_slice(&stamp::bytes(len, number as u64));
    }
    let before = (arena.stats(), Baseline::now());
    let mut kept = Some((arena.clone(), std::mem::take(&mut bufs)));
    // The child has copies of all handles and drops them.
    let ended = fork(|| {
        let Some((arena, bufs)) = kept.take() else { return 1 };
        if !matches!(arena.alloc(10), Err(Error::Forked)) || arena.trim() != 0 {
            return 2;
        }
        if arena.stats() != pinfold::ArenaStats::default() {
            return 3;
        }
        drop((arena, bufs));
        // Its own arenas are none of its parent's, no matter where they are mapped.
        let own = Arena::new().expect("an arena");
        let bufs: Vec<_> = (0..50).map(|_| own.alloc_zeroed(100_000).expect("a buffer")).collect();
        drop(bufs);
        own.trim();
        if own.stats().bytes_committed == 0 { 0 } else { 4 }
    });
    assert_eq!(ended, Ended::Code(0));
    let (_, bufs) = kept.as_ref().expect("the parent's");
    for (number, buf) in bufs.iter().enumerate() {
        stamp::check(buf, number as u64);
    }
    assert_eq!((arena.stats(), Baseline::now()), before);
    drop(kept);
    assert_eq!(arena.stats().buffers, 0);
    drop(arena.alloc(10).unwrap());
}

#[test]
fn without_descriptors_there_is_an_error() {
    Stage::new(60).role("poor").spawn().end_well();
}

fn poor(_: &Args) {
    let before = Baseline::now();
    let arena = Arena::new().unwrap();
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum }).expect("setrlimit");
    let mut others = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        others.push(file);
    }
    let error = Arena::new().unwrap_err().to_string();
    assert!(error.contains("Too many open files"), "{error}");
    // A large buffer then lies where small ones do.
    let small = arena.alloc(20).unwrap();
    let large = arena.alloc(20 * MIB).unwrap();
    assert_eq!(arena.stats().extents, 1);
    drop((large, small, arena, others));
    before.returns(role::PATIENCE);
}
