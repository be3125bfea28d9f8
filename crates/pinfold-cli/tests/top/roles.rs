//! The roles of the processes that are looked at.

use std::{
    fs,
    io::Write,
    os::fd::{AsFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Arena, Endpoint, Error, PathSet, RegionKey, Rights, Source, TagMatch, status};
use pinfold_tests::{
    Args,
    host::fork,
    role::{self, PATIENCE, hear, say},
};

/// Receives the messages of [`frog`], and answers.
pub fn pond(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder().label("pond"), "pond");
    let mut bytes = [0; 2000];
    for _ in 0..1000 {
        assert_eq!(endpoint.recv_into(peer, 1, &mut bytes).unwrap().len, 8);
    }
    for _ in 0..10 {
        assert_eq!(endpoint.recv_into(peer, 2, &mut bytes).unwrap().len, 2000);
    }
    for _ in 0..501 {
        endpoint.send(peer, 3, b"!").unwrap();
    }
    say("talked");
    loop {
        match hear().as_str() {
            "leave" => return,
            "see it go" => {
                assert!(endpoint.recv(peer, 4).unwrap_err().is_peer_gone());
                say("gone");
            }
            "close" => {
                endpoint.close();
                say("closed");
                thread::sleep(Duration::from_millis(300));
                return;
            }
            other => panic!("{other}?"),
        }
    }
}

pub fn frog(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder().label("frog"), "pond");
    for _ in 0..1000 {
        endpoint.send(peer, 1, b"tadpoles").unwrap();
    }
    for _ in 0..10 {
        endpoint.send(peer, 2, &[7; 2000]).unwrap();
    }
    // All but the last by one call, the last by another.
    for _ in 0..500 {
        endpoint.recv_into(peer, 3, &mut [0]).unwrap();
    }
    assert_eq!(endpoint.recv(peer, 3).unwrap().len(), 1);
    say("talked");
    assert_eq!(hear(), "leave");
}

/// Lends a region, and has handlers.
pub fn lender(_: &Args) {
    let builder = Endpoint::builder().label("lender");
    let builder = builder.handle(1, |active| drop(active.reply(b"yes")));
    let builder = builder.handle(2, |_| panic!("a handler that panics"));
    let (endpoint, peer) = role::listen(builder, "lender");
    let key = endpoint.region(4096, Rights::ReadWrite).map(|region| (region.key(), region));
    let Ok((Some(key), _region)) = key else {
        endpoint.send(peer, 1, b"").unwrap();
        return;
    };
    endpoint.send(peer, 1, &key.to_bytes()).unwrap();
    let _ = endpoint.recv(peer, 2);
}

/// Uses the region of [`lender`], and calls its handlers.
pub fn worker(_: &Args) {
    let (endpoint, peer) = role::connect(Endpoint::builder().label("worker"), "lender");
    let key = RegionKey::from_bytes(&endpoint.recv(peer, 1).unwrap());
    let Ok(Ok(region)) = key.map(|key| endpoint.open_region(peer, &key)) else {
        return say("worked not");
    };
    for _ in 0..10 {
        region.write(0, &[1; 100]).unwrap();
    }
    region.write_vectored(&[(0, b"two"), (8, b"parts")]).unwrap();
    let mut bytes = [0; 64];
    for _ in 0..7 {
        region.read(8, &mut bytes).unwrap();
    }
    let (one, other) = bytes.split_at_mut(4);
    region.read_vectored(&mut [(0, one), (8, &mut other[..6])]).unwrap();
    for _ in 0..5 {
        region.fetch_add(2048, 1u64).unwrap();
    }
    // The messages come from a thread that did not make the endpoint.
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                region.write(16, b"anything").unwrap();
            }
            for _ in 0..2 {
                region.swap(2052, 1u32).unwrap();
            }
        });
    });
    // Operations that fail are not counted.
    assert!(region.write(4090, b"too long").is_err());
    assert!(region.fetch_add(1, 1u64).is_err());
    for _ in 0..3 {
        endpoint.call(peer, 1, b"!").unwrap();
    }
    endpoint.call(peer, 3, b"to nobody").unwrap_or_else(|error| panic!("{error}"));
    assert!(endpoint.request(peer, 2, b"?").wait().is_err());
    for len in [1, 1, 1, 3000, 200_000] {
        assert_eq!(*endpoint.request(peer, 1, &vec![1; len]).wait().unwrap(), *b"yes");
    }
    say("worked");
    assert_eq!(hear(), "see it go");
    assert!(endpoint.recv(peer, 4).unwrap_err().is_peer_gone());
    say("gone");
    assert_eq!(hear(), "keep");
    say("keep");
    drop(region);
    assert_eq!(hear(), "let go");
    say("let go");
}

/// Two endpoints in one process; one of them gets more than it asked for.
pub fn arranger(_: &Args) {
    let paths =
        || Endpoint::builder().paths(PathSet::only(&[pinfold::Path::Inline, pinfold::Path::Eager]));
    // Room for five messages of 1,000 bytes, and as much again for announcements.
    let full = paths().label("full").unexpected_bytes_max(8 * 2 * 5 * 1128);
    let full = full.listen("local:full").build().unwrap();
    let eager = paths().label("eager").build().unwrap();
    let (to, from) = thread::scope(|scope| {
        let from = scope.spawn(|| full.accept_timeout(PATIENCE).unwrap());
        (eager.connect("local:full").unwrap(), from.join().unwrap())
    });
    let posted = [full.recv_request(from, 100), full.recv_request(Source::Any, 101)];
    let sends: Vec<_> = (0..100).map(|tag| eager.send_owned(to, tag, vec![1u8; 1000])).collect();
    while full.progress().unwrap() | eager.progress().unwrap() {}
    // Since when sends wait is noted at some of the looks that an endpoint takes.
    let end = Instant::now() + PATIENCE;
    while !sends_wait("eager") {
        assert!(Instant::now() < end, "nothing is noted of the sends that wait");
        eager.progress().unwrap();
    }
    let arena = Arena::new().unwrap();
    let buf = arena.alloc_zeroed(3 << 20).unwrap();
    say("arranged");
    assert_eq!(hear(), "settle");
    drop((buf, arena, posted));
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..100 {
                assert_eq!(full.recv(from, tag).unwrap().len(), 1000);
            }
        });
        for send in sends {
            send.wait().0.unwrap();
        }
    });
    while full.progress().unwrap() | eager.progress().unwrap() {}
    for endpoint in [&full, &eager] {
        while !endpoint.arm().unwrap() {
            endpoint.progress().unwrap();
        }
    }
    say("settled");
    assert_eq!(hear(), "leave");
}

/// Returns whether others can see that sends wait at an endpoint of this process.
fn sends_wait(label: &str) -> bool {
    let endpoints = status::endpoints_of(std::process::id()).unwrap().endpoints;
    let endpoint = endpoints.iter().find(|endpoint| endpoint.label == label).unwrap();
    endpoint.peers.iter().any(|peer| peer.waits.is_some())
}

/// Has a peer, and waits for a message in vain.
pub fn sleeper(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "sleeper");
    assert!(endpoint.recv(peer, TagMatch::any()).unwrap_err().is_peer_gone());
}

/// Has an endpoint: alone if asked for, else connected to a sleeper.
pub fn loner(args: &Args) {
    if args.has("alone") {
        let label = if args.has("label") { args.text("label") } else { "alone" };
        let _endpoint = Endpoint::builder().label(label).build().unwrap();
        if args.has("closed") {
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
                .unwrap();
        }
        say("made");
        assert_eq!(hear(), "leave");
        return;
    }
    let _connected = role::connect(Endpoint::builder(), "sleeper");
    say("connected");
    assert_eq!(hear(), "leave");
}

/// Is forked, so that the child has all its descriptors.
pub fn forker(_: &Args) {
    let endpoint = Endpoint::builder().label("parent").build().unwrap();
    let theirs = endpoint.clone();
    let child = thread::spawn(move || {
        fork(move || {
            assert!(matches!(theirs.progress(), Err(Error::Forked)));
            assert_eq!(theirs.counters(), Default::default());
            say(format_args!("child {}", std::process::id()));
            thread::sleep(PATIENCE);
            0
        })
    });
    hear();
    drop((endpoint, child));
}

/// Has files that call themselves status pages, and one that is a status page.
pub fn liar(_: &Args) {
    let endpoint = Endpoint::builder().label("honest").build().unwrap();
    let page = page_of_this_process();
    let mut files: Vec<OwnedFd> = Vec::new();
    let mut make = |bytes: &[u8], sealed: bool| {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("pinfold-status", flags).unwrap();
        let mut file = fs::File::from(file);
        file.write_all(bytes).unwrap();
        if sealed {
            use rustix::fs::SealFlags;
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            rustix::fs::fcntl_add_seals(file.as_fd(), seals).unwrap();
        }
        files.push(file.into());
    };
    let changed = |at: usize, word: u64| {
        let mut page = page.clone();
        page[8 * at..][..8].copy_from_slice(&word.to_ne_bytes());
        page
    };
    let junk: Vec<u8> =
        (0..page.len() as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    make(&junk, true);
    make(&[], true);
    make(&page[..4095], true);
    make(&page[..4096], true);
    make(&page, false);
    // Another version; in the middle of a change for ever; more peers than there is room for.
    make(&changed(1, 0x0707), true);
    make(&changed(2, 1), true);
    make(&changed(RECORDS_WORD, u64::MAX), true);
    // A page of another process, and so ignored.
    make(&changed(3, 1), true);
    // A page of this process, and nonsense from there on: peers with the longest of texts,
    // impossible numbers.
    let mut wild = page.clone();
    wild[8 * 9..4096].copy_from_slice(&junk[8 * 9..4096]);
    wild[8 * 9..][..8].copy_from_slice(&u64::MAX.to_ne_bytes());
    wild[8 * RECORDS_WORD..][..8].copy_from_slice(&1600u64.to_ne_bytes());
    wild[4096..].copy_from_slice(&junk[4096..]);
    make(&wild, true);
    say("lied");
    assert_eq!(hear(), "leave");
    drop((files, endpoint));
}

/// The word of a page with the number of its records.
const RECORDS_WORD: usize = 32;

fn page_of_this_process() -> Vec<u8> {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let mut pages = links.filter(|entry| {
        let link = fs::read_link(entry.path()).unwrap_or_default();
        link.to_str() == Some("/memfd:pinfold-status (deleted)")
    });
    let page = fs::read(pages.next().expect("a page").path()).unwrap();
    assert!(pages.next().is_none());
    assert_eq!(page[8 * RECORDS_WORD..][..8], 2u64.to_ne_bytes(), "the layout has changed");
    page
}
