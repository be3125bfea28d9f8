//! Memory that nobody can write any more: looked at in place by safe code, and passed on to a third
//! process without a copy.

use std::{fs, time::Duration};

use pinfold::{
    Arena, DonatedBuf, DraftBuf, Endpoint, Error, FrozenBuf, Path, PathSet, PeerId, Receipt,
    SharedArena,
};
use pinfold_tests::{
    Args, Baseline, Pair, Stage, block_on, driven, pair,
    role::{self, PATIENCE, hear, say},
    stage::all_end_well,
    stamp,
};

pinfold_tests::roles!(origin, middle, last, alone);

const MIB: usize = 1 << 20;
const SIZES: [usize; 6] = [0, 1, 4096, 65_537, 3 * MIB + 5, 9 * MIB];

fn frozen(len: usize, seed: u64) -> FrozenBuf {
    let mut draft = DraftBuf::new(len).unwrap();
    assert!(draft.iter().all(|byte| *byte == 0));
    stamp::fill(&mut draft, seed);
    let frozen = draft.freeze().unwrap();
    stamp::check(&frozen, seed);
    frozen
}

fn new_pair(name: &str) -> Pair {
    Pair::new(name, Endpoint::builder)
}

/// Lines of this process's map that are mappings of frozen or other memory of arenas, writable.
fn writable_maps() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("pinfold-arena") && line.contains(" rw")).count()
}

#[test]
fn what_nobody_can_write_is_seen_in_place() {
    let pair = new_pair("frozen-place");
    for (seed, len) in SIZES.into_iter().enumerate() {
        let seed = seed as u64;
        let given = frozen(len, seed);
        pair.one.give(pair.to_two, 1, given.clone()).unwrap();
        let view = pair.two.recv_view(pair.to_one, 1).unwrap();
        assert_eq!(view.receipt().path, Path::Handoff, "{}", view.receipt());
        assert_eq!(view.len(), len);
        assert!(!view.is_writable());
        stamp::check(view.bytes().expect("nobody can write it"), seed);
        assert!(len == 0 || view.bytes().unwrap().as_ptr() != given.as_ptr(), "another mapping");
        // It is no copy of this process's: nothing was copied.
        let receipt = view.receipt();
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}");
        assert!(matches!(view.write(0, b""), Err(Error::ReadOnly)));
        stamp::check(&view.to_vec().unwrap(), seed);
    }
}

/// The owner of all other memory can write it as long as it has it mapped, sealed or not.
#[test]
fn what_its_sender_could_still_write_is_not() {
    let pair = new_pair("frozen-not");
    let arena = Arena::new().unwrap();
    let shared = SharedArena::builder().build_shared().unwrap();
    for len in [1, 4096, 9 * MIB] {
        let mut buf = arena.alloc(len).unwrap();
        stamp::fill(&mut buf, 1);
        let words = shared.alloc(len).unwrap();
        words.write(0, &stamp::bytes(len, 1));
        for donation in [DonatedBuf::from(buf), DonatedBuf::from(words)] {
            pair.one.give(pair.to_two, 1, donation).unwrap();
            let view = pair.two.recv_view(pair.to_one, 1).unwrap();
            assert_eq!(view.receipt().path, Path::Handoff);
            assert_eq!(view.bytes(), None);
            let view = view.into_frozen().expect_err("its sender can write it");
            stamp::check(&view.to_vec().unwrap(), 1);
        }
    }
    // Neither are several parts, of which one could be written.
    let mut part = arena.alloc_aligned(4096, 4096).unwrap();
    part.fill(0);
    let parts = [DonatedBuf::from(part), DonatedBuf::from(frozen(4096, 2))];
    pair.one.give_vectored(pair.to_two, 2, parts).unwrap();
    let view = pair.two.recv_view(pair.to_one, 2).unwrap();
    assert!(view.receipt().path != Path::Handoff || view.bytes().is_none());
    assert_eq!(view.len(), 8192);
}

/// A writable mapping that was made before would be enough for the owner to write, so there is
/// none: neither its own, nor the kernel lets it make one.
#[test]
fn the_owner_has_no_writable_mapping() {
    let stage = Stage::new(60);
    // In a process of its own, since other tests map arenas.
    let mut origin = stage.role("origin").with("alone", 1).spawn();
    origin.expect("none");
    all_end_well(&mut [origin]);
}

#[test]
fn it_stays_whoever_goes() {
    for way in 0..5 {
        let (ours, to_them, theirs, to_us) =
            pair("frozen-stays", Endpoint::builder(), Endpoint::builder());
        ours.give(to_them, 1, frozen(MIB + 1, way)).unwrap();
        let view = theirs.recv_view(to_us, 1).unwrap().into_owned();
        let bytes = view.bytes().unwrap();
        match way {
            0 => ours.disconnect(to_them),
            1 => ours.close(),
            2 => theirs.disconnect(to_us),
            3 => theirs.close(),
            _ => drop(ours),
        }
        for _ in 0..100 {
            let _ = theirs.progress();
        }
        stamp::check(bytes, way);
        drop(theirs);
        stamp::check(bytes, way);
        stamp::check(view.bytes().unwrap(), way);
    }
}

#[test]
fn it_goes_by_every_other_way_too() {
    let paths = |path| PathSet::only(&[Path::Inline, Path::Eager, path]);
    for path in [Path::Mapped, Path::Eager] {
        let builder = || Endpoint::builder().paths(paths(path));
        let pair = Pair::new("frozen-ways", builder);
        for len in SIZES {
            let sent = pair.one.send_owned(pair.to_two, 1, frozen(len, 3));
            let came = driven(&pair.one, || pair.two.recv(pair.to_one, 1).unwrap());
            stamp::check(&came, 3);
            let (receipt, buf) = sent.wait();
            stamp::check(&buf, 3);
            assert_eq!(receipt.unwrap().bytes, len as u64);
            let handoff = pair.one.handoff(pair.to_two, 2, buf);
            let view = driven(&pair.one, || pair.two.recv_view(pair.to_one, 2).unwrap());
            handoff.wait().0.unwrap();
            // A copy is this process's own.
            stamp::check(view.bytes().unwrap(), 3);
        }
    }
    let tcp = Pair::tcp();
    let sent = tcp.one.handoff(tcp.to_two, 1, frozen(100_000, 4));
    let view = driven(&tcp.one, || tcp.two.recv_view(tcp.to_one, 1).unwrap());
    stamp::check(view.bytes().unwrap(), 4);
    drop(view);
    sent.wait().0.unwrap();
}

#[test]
fn all_of_it_goes_back() {
    let stage = Stage::new(60);
    all_end_well(&mut [stage.role("alone").spawn()]);
}

/// In a process of its own, whose memory and descriptors no other test changes.
fn alone(_: &Args) {
    let before = Baseline::now();
    {
        let pair = new_pair("frozen-back");
        for round in 0..50 {
            let handoff = pair.one.handoff(pair.to_two, 1, frozen(MIB, round));
            let view = pair.two.recv_view(pair.to_one, 1).unwrap();
            let again = view.into_frozen().unwrap();
            // To its sender it was dropped by that.
            let (receipt, donation) = block_on(handoff);
            assert_eq!(receipt.unwrap().path, Path::Handoff);
            assert!(donation.into_arena_buf().is_none());
            stamp::check(&again, round);
        }
        // Without a message, and a draft that is dropped.
        drop(frozen(MIB, 1));
        drop(DraftBuf::new(MIB).unwrap());
    }
    before.returns(PATIENCE);
}

/// A view is passed on and on, within one process; in the end all see the same pages.
#[test]
fn a_view_is_passed_on() {
    let pairs: Vec<Pair> = (0..4).map(|n| new_pair(&format!("frozen-chain-{n}"))).collect();
    let first = frozen(5 * MIB + 7, 9);
    let mut next = first.clone();
    for pair in &pairs {
        pair.one.give(pair.to_two, 5, next).unwrap();
        let view = pair.two.recv_view(pair.to_one, 5).unwrap();
        let receipt = view.receipt();
        assert_eq!(receipt.path, Path::Handoff, "{receipt}");
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}");
        next = view.into_frozen().unwrap();
        stamp::check(&next, 9);
    }
    drop(first);
    drop(pairs);
    stamp::check(&next, 9);
}

// Three processes.

#[test]
fn a_third_process_gets_it_without_a_copy() {
    let stage = Stage::new(60);
    stage.play([stage.role("last"), stage.role("middle"), stage.role("origin")]);
}

#[test]
fn the_middle_is_killed() {
    let stage = Stage::new(60);
    let mut last = stage.role("last").with("killed", 1).spawn();
    let mut middle = stage.role("middle").with("killed", 1).spawn();
    let mut origin = stage.role("origin").with("killed", 1).spawn();
    last.expect("ready");
    last.expect("has it");
    middle.kill();
    origin.say("killed");
    origin.expect("has it back");
    last.say("killed");
    all_end_well(&mut [last, origin]);
}

const LEN: usize = 6 * MIB + 3;

fn origin(args: &Args) {
    let before = Baseline::now();
    if args.has("alone") {
        let buf = frozen(MIB, 1);
        assert_eq!(writable_maps(), 0);
        stamp::check(&buf, 1);
        say("none");
        return;
    }
    let (endpoint, peer) = role::connect(Endpoint::builder(), "frozen-one");
    let handoff = endpoint.handoff(peer, 1, frozen(LEN, 5));
    if args.has("killed") {
        assert_eq!(hear(), "killed");
    }
    // Back, although the third process looks at it, or will.
    let (receipt, donation) = handoff.wait();
    assert_eq!(receipt.unwrap().path, Path::Handoff);
    drop(donation);
    if args.has("killed") {
        say("has it back");
    } else {
        endpoint.send(peer, 2, b"back").unwrap();
        endpoint.recv(peer, 3).unwrap();
    }
    drop(endpoint);
    before.returns(PATIENCE);
}

fn middle(args: &Args) {
    let before = Baseline::now();
    let (to_last, last) = role::connect(Endpoint::builder(), "frozen-two");
    let (endpoint, peer) = role::listen(Endpoint::builder(), "frozen-one");
    let frozen = endpoint.recv_view(peer, 1).unwrap().into_frozen().expect("it was frozen");
    to_last.give(last, 1, frozen).unwrap();
    if args.has("killed") {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    endpoint.recv(peer, 2).unwrap();
    to_last.send(last, 2, b"back").unwrap();
    to_last.recv(last, 3).unwrap();
    endpoint.send(peer, 3, b"seen").unwrap();
    drop((to_last, endpoint));
    before.returns(PATIENCE);
}

fn last(args: &Args) {
    let before = Baseline::now();
    let (endpoint, peer) = role::listen(Endpoint::builder(), "frozen-two");
    let view = endpoint.recv_view(peer, 1).unwrap().into_owned();
    let receipt: Receipt = view.receipt();
    assert_eq!((receipt.path, receipt.bytes), (Path::Handoff, LEN as u64), "{receipt}");
    assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, 0), "{receipt}");
    let bytes = view.bytes().expect("nobody can write it");
    if args.has("killed") {
        say("has it");
        assert_eq!(hear(), "killed");
        assert!(endpoint.recv(peer, 9).unwrap_err().is_peer_gone());
        stamp::check(bytes, 5);
        drop(view);
    } else {
        // The first process has dropped its own by then.
        endpoint.recv(peer, 2).unwrap();
        stamp::check(bytes, 5);
        drop(view);
        endpoint.send(peer, 3, b"seen").unwrap();
    }
    drop(endpoint);
    before.returns(PATIENCE);
}

/// The name of a peer is not needed here; keeps the types honest.
#[test]
fn buffers_can_go_to_other_threads() {
    fn is_free<T: Send + Sync + 'static>() {}
    is_free::<FrozenBuf>();
    is_free::<DraftBuf>();
    is_free::<PeerId>();
    let buf = frozen(10_000, 3);
    std::thread::spawn(move || stamp::check(&buf, 3)).join().unwrap();
}
