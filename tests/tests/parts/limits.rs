//! Messages in parts where a resource is used up or a call is forbidden, or where a peer dies.

use std::{cell::RefCell, os::fd::AsRawFd, thread};

use pinfold::{
    Arena, Endpoint, Error, Path, PeerId, Refusal,
    reassembly::fold::{Place, Why},
};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{arenas, status_bytes},
    driven,
    filter::{CMA, deny, kill},
    host::{Ended, fork},
    pair,
    role::{self, PATIENCE, hear, say},
    skip::is_root_or_skip,
    stamp,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    HUGE, MIB, PAGE, builder, check, folded, handed_off, is_given, parts, view, wait_for_empty,
};

const NOBODY: u32 = 65_534;

fn play(role: &str, with: &[(&str, &str)], user: Option<u32>) {
    let stage = Stage::new(120);
    let mut role = stage.role(role).unmeasured();
    for (key, value) in with {
        role = role.with(key, value);
    }
    if let Some(user) = user {
        role = role.user(user);
    }
    role.spawn().end_well();
}

// Where calls are forbidden.

#[test]
fn with_calls_denied() {
    for denied in ["nothing", "userfaultfd", "kill", "cma", "io_uring"] {
        play("filtered", &[("denied", denied)], None);
    }
}

#[test]
fn as_nobody() {
    if is_root_or_skip("to become nobody") {
        for denied in ["nothing", "userfaultfd", "io_uring"] {
            play("filtered", &[("denied", denied)], Some(NOBODY));
        }
    }
}

/// The costs are measured, and the measurement makes no call that is forbidden.
#[test]
fn measuring_asks_for_nothing_that_kills() {
    let stage = Stage::new(120);
    let role = stage.role("filtered").with("denied", "kill").with("measured", "yes");
    role.env("PINFOLD_CALIBRATE", "1").spawn().end_well();
}

const URING: [libc::c_long; 3] =
    [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Mapping makes none of the calls that containers deny.
pub fn filtered(args: &Args) {
    match args.text("denied") {
        "userfaultfd" => deny(&[libc::SYS_userfaultfd], libc::EPERM),
        "kill" => kill(&[libc::SYS_userfaultfd]),
        "cma" => deny(&CMA, libc::EPERM),
        "io_uring" => deny(&URING, libc::EPERM),
        _ => {}
    }
    let before = Baseline::now();
    let (a, to_b, b, from_a) = pair("parts-filtered", builder(), builder());
    let arena = Arena::new().unwrap();
    for seed in 0..3 {
        let donations = parts(&arena, &[HUGE, HUGE, 100_000], HUGE, seed);
        let (receipt, _, ()) = handed_off((&a, to_b), 1, donations, || {
            let view = view(&b, from_a, 1);
            if !args.has("measured") {
                is_given(&view, Place::Window);
            }
            check(&view, seed);
        });
        assert!(args.has("measured") || receipt.path == Path::Handoff, "{receipt}");
        let donations = parts(&arena, &[HUGE, HUGE, 100_000], PAGE, seed);
        let (receipt, _, ()) = handed_off((&a, to_b), 2, donations, || {
            stamp::check(&b.recv(from_a, 2).unwrap(), seed);
        });
        assert_eq!(receipt.path, Path::Mapped, "{receipt}");
    }
    drop((a, b, arena));
    before.returns(PATIENCE);
}

// Resources that are used up.

/// Has the next descriptor be refused. Returns the limit that was in force.
fn no_more_descriptors() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    let next = rustix::io::dup(std::io::stdin()).expect("a descriptor");
    let current = Some(next.as_raw_fd() as u64);
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).expect("a limit");
    limit
}

#[test]
fn without_descriptors_it_is_copied() {
    play("breaks_down", &[("of", "descriptors")], None);
}

#[test]
fn without_address_space_it_is_copied() {
    play("breaks_down", &[("of", "space")], None);
}

/// Receives messages while mapped space or descriptors are too few for them.
pub fn breaks_down(args: &Args) {
    let few = args.text("of") == "space";
    let ours = if few { builder().mapped_bytes_max(4096) } else { builder() };
    let (b, from_a, a, to_b) = pair("parts-short", ours, builder());
    // Each part has an extent of its own.
    let arenas: Vec<_> = (0..4).map(|_| Arena::new().unwrap()).collect();
    let donations = |seed: u64| {
        let bytes = stamp::bytes(4 * MIB, seed);
        let parts = bytes.chunks(MIB).zip(&arenas).map(|(bytes, arena)| {
            let mut buf = arena.alloc_aligned(MIB, PAGE).unwrap();
            buf.copy_from_slice(bytes);
            buf
        });
        parts.collect::<Vec<_>>()
    };
    // Descriptors of the senders are made first.
    let limit = (!few).then(|| {
        for (at, arena) in arenas.iter().enumerate() {
            a.send(to_b, 9, b"").unwrap();
            b.recv(from_a, 9).unwrap();
            let other = pair(&format!("parts-warm{at}"), builder(), builder());
            let mut buf = arena.alloc(MIB).unwrap();
            stamp::fill(&mut buf, 1);
            other.0.give(other.1, 1, buf).unwrap();
            drop(other.2.recv_view(other.3, 1).unwrap());
            wait_for_empty(&other.0, arena);
        }
        no_more_descriptors()
    });
    for seed in 0..6 {
        let donations = donations(seed).into_iter().map(Into::into).collect();
        let (receipt, back, path) = handed_off((&a, to_b), 1, donations, || {
            let view = view(&b, from_a, 1);
            check(&view, seed);
            view.receipt().path
        });
        assert_eq!(back.len(), 4);
        assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::NotMapped), "{receipt}");
        assert!(receipt.path != Path::Handoff && path == receipt.path, "{receipt}");
    }
    if let Some(limit) = limit {
        setrlimit(Resource::Nofile, limit).expect("the limit that was");
        // The handoff is tried again, ever more rarely.
        let path = (0..200).find(|seed| {
            let donations = donations(*seed).into_iter().map(Into::into).collect();
            let (receipt, ..) = handed_off((&a, to_b), 1, donations, || {
                check(&view(&b, from_a, 1), *seed);
            });
            receipt.path == Path::Handoff
        });
        assert!(path.is_some(), "never given again");
    }
    let left: u64 = arenas.iter().map(|arena| arena.stats().buffers).sum();
    assert_eq!(left, 0);
}

#[test]
fn a_full_window_has_it_copied() {
    play("full", &[], None);
}

/// Little address space is left when the window is made.
pub fn full(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-full", builder(), builder());
    let arena = Arena::new().unwrap();
    // The extent is there before.
    a.give(to_b, 1, arena.alloc_aligned(30 * MIB, PAGE).unwrap()).unwrap();
    drop(b.recv_view(from_a, 1).unwrap());
    let limit = getrlimit(Resource::As);
    let current = Some(status_bytes("VmSize") + (192 << 20));
    setrlimit(Resource::As, Rlimit { current, ..limit }).unwrap();
    // Each half of the window has 64 MiB.
    let mut views = Vec::new();
    let mut copied = 0;
    for seed in 0..6u64 {
        let donations = parts(&arena, &[5 * MIB; 4], PAGE, seed);
        a.give_vectored(to_b, 1, donations).unwrap();
        let view = b.recv_view(from_a, 1).unwrap();
        match folded(&view).place {
            Place::Window => is_given(&view, Place::Window),
            Place::Memory(Why::Full(_)) => {
                let receipt = view.receipt();
                assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::NotMapped), "{receipt}");
                copied += 1;
            }
            other => panic!("{other:?}: {}", folded(&view)),
        }
        views.push((seed, view));
        if copied == 2 {
            break;
        }
    }
    assert!(copied == 2 && views.len() > 2, "{copied} of {}", views.len());
    views.iter().for_each(|(seed, view)| check(view, *seed));
    // There is room again.
    views.clear();
    a.give_vectored(to_b, 1, parts(&arena, &[5 * MIB; 4], PAGE, 9)).unwrap();
    let view = b.recv_view(from_a, 1).unwrap();
    is_given(&view, Place::Window);
    check(&view, 9);
    drop(view);
    wait_for_empty(&a, &arena);
}

#[test]
fn where_mappings_run_out_the_rest_is_copied() {
    play("short_of_maps", &[], None);
}

/// More parts than may be mapped at the same time: a sixteenth of `vm.max_map_count`, two for each.
pub fn short_of_maps(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-maps", builder(), builder());
    let arena = Arena::new().unwrap();
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most: usize = most.trim().parse::<usize>().unwrap() / 16;
    if most > 8000 {
        return role::skip(format_args!("{most} mappings are more than are tried here"));
    }
    const PARTS: usize = 1000;
    let [one] = &parts(&arena, &[MIB / 8], PAGE, 4)[..] else { panic!("one") };
    let before = arenas().len();
    let mut views = Vec::new();
    loop {
        a.give_vectored(to_b, 1, vec![one.clone(); PARTS]).unwrap();
        let view = b.recv_view(from_a, 1).unwrap();
        let folded = *folded(&view);
        views.push(view);
        assert!(views.len() * PARTS * 2 <= most + 2 * PARTS + 100, "{folded}");
        if folded.copied > 0 {
            let Place::Memory(Why::NoMaps { .. } | Why::Cheapest) = folded.place else {
                assert!(folded.mapping.no_maps > 0, "{folded}");
                break;
            };
            assert!(folded.mapping.no_maps > 0, "{folded}");
            break;
        }
    }
    assert!(arenas().len() <= before + most, "{} mappings", arenas().len());
    for view in views.drain(..) {
        let mut bytes = vec![0; MIB / 8];
        for at in [0, PARTS / 2, PARTS - 1] {
            view.read(at * (MIB / 8), &mut bytes).unwrap();
            stamp::check(&bytes, 4);
        }
    }
    assert!(arenas().len() <= before + 1, "{:?}", arenas().len());
    a.give_vectored(to_b, 1, vec![one.clone(); PARTS]).unwrap();
    let view = b.recv_view(from_a, 1).unwrap();
    is_given(&view, Place::Window);
}

/// The lists of parts of unexpected messages are kept up to a bound; beyond it the messages are
/// copied.
#[test]
fn lists_that_nobody_asks_for_are_bounded() {
    let (a, to_b, b, from_a) = pair("parts-lists", builder(), builder());
    let arena = Arena::new().unwrap();
    const MESSAGES: u64 = 20;
    const PARTS: usize = 1000;
    let [one] = &parts(&arena, &[PAGE], PAGE, 4)[..] else { panic!("one") };
    // Twice: the lists of messages that were received count no more.
    for round in 0..2 {
        let handoffs: Vec<_> = (0..MESSAGES)
            .map(|tag| a.handoff_vectored(to_b, tag, vec![one.clone(); PARTS]))
            .collect();
        // There is not room for all of these lists at once.
        while b.try_probe(from_a, MESSAGES - 1).unwrap().is_none() {
            a.progress().unwrap();
        }
        for tag in 0..MESSAGES {
            let view = driven(&a, || view(&b, from_a, tag));
            let bytes = view.to_vec().unwrap();
            assert_eq!(bytes.len(), PARTS * PAGE);
            bytes.chunks(PAGE).for_each(|page| stamp::check(page, 4));
        }
        let refused = handoffs.into_iter().map(|handoff| {
            let receipt = handoff.wait().0.unwrap();
            receipt.refused(Path::Handoff).unwrap()
        });
        let refused: Vec<_> = refused.collect();
        assert_eq!(refused[..16], [Refusal::Declined; 16], "{round}");
        assert_eq!(refused[16..], [Refusal::NotMapped; 4], "{round}");
        // The receiver tries again, after some messages.
        for _ in 0..40 {
            let donations = vec![one.clone(); 100];
            handed_off((&a, to_b), 99, donations, || drop(view(&b, from_a, 99)));
        }
    }
}

// Peers that die and peers that leave.

#[test]
fn a_giver_that_is_killed_leaves_its_parts() {
    let stage = Stage::new(60);
    let mut keeper = stage.role("keeps").spawn();
    keeper.expect("listens");
    let mut giver = stage.role("dies").spawn();
    keeper.expect("holds");
    giver.kill();
    keeper.say("it is dead");
    keeper.end_well();
}

fn give_and_wait(endpoint: &Endpoint, peer: PeerId) {
    let arena = Arena::new().unwrap();
    for tag in 1..=2 {
        endpoint.give_vectored(peer, tag, parts(&arena, &[HUGE; 4], PAGE, tag)).unwrap();
    }
    loop {
        let _ = endpoint.recv_timeout(peer, 9, PATIENCE);
    }
}

pub fn dies(_: &Args) {
    let (endpoint, peer) = role::connect(builder(), "keeps");
    give_and_wait(&endpoint, peer);
}

pub fn keeps(_: &Args) {
    let before = Baseline::now();
    let endpoint = Endpoint::listen("local:keeps").unwrap();
    say("listens");
    let peer = endpoint.accept_timeout(PATIENCE).unwrap();
    let view = endpoint.recv_view(peer, 1).unwrap();
    endpoint.probe(peer, 2).unwrap();
    say("holds");
    hear();
    assert!(endpoint.recv(peer, 5).unwrap_err().is_peer_gone());
    // A gift that was looked at is still there, and one that was not is to be had.
    check(&view, 1);
    let other = endpoint.recv_view(peer, 2).unwrap();
    check(&other, 2);
    assert!(endpoint.recv_view(peer, 2).unwrap_err().is_peer_gone());
    drop((view, other));
    assert!(arenas().is_empty(), "{:?}", arenas());
    drop(endpoint);
    before.returns(PATIENCE);
}

/// Memory is back, both if its receiver held it and if it had not taken it yet.
#[test]
fn receivers_that_go_give_all_back() {
    for how in ["killed", "closes", "ends"] {
        let stage = Stage::new(60);
        let role = |role| stage.role(role).with("how", how).unmeasured().spawn();
        let mut giver = role("goes");
        giver.expect("listens");
        let mut holder = role("holds");
        holder.expect("holds");
        match how {
            "killed" => holder.kill(),
            _ => holder.say("go"),
        }
        giver.end_well();
    }
}

pub fn goes(args: &Args) {
    let before = Baseline::now();
    let endpoint = Endpoint::listen("local:goes").unwrap();
    say("listens");
    let peer = endpoint.accept_timeout(PATIENCE).unwrap();
    let arena = Arena::new().unwrap();
    let mut handoffs: Vec<_> = (0..3)
        .map(|tag| endpoint.handoff_vectored(peer, tag, parts(&arena, &[MIB; 3], PAGE, tag)))
        .collect();
    endpoint.give_vectored(peer, 7, parts(&arena, &[MIB; 3], PAGE, 7)).unwrap();
    for handoff in handoffs.drain(..) {
        let (receipt, donations) = handoff.wait();
        assert_eq!(donations.len(), 3);
        match receipt {
            // Looked at, and given back by a receiver that ended in good order.
            Ok(receipt) => assert_eq!((receipt.path, args.text("how")), (Path::Handoff, "ends")),
            Err(error) => assert!(error.is_peer_gone(), "{error}"),
        }
    }
    wait_for_empty(&endpoint, &arena);
    drop((endpoint, arena));
    before.returns(PATIENCE);
}

pub fn holds(args: &Args) {
    let endpoint = Endpoint::new().unwrap();
    let peer = endpoint.connect_wait("local:goes", PATIENCE).unwrap();
    let view = endpoint.recv_view(peer, 0).unwrap();
    endpoint.probe(peer, 2).unwrap();
    check(&view, 0);
    say("holds");
    hear();
    if args.text("how") == "closes" {
        endpoint.close();
        assert!(matches!(view.read(0, &mut [0]), Err(Error::Withdrawn)));
    }
}

#[test]
fn a_view_is_void_once_its_own_side_has_closed() {
    for theirs in [true, false] {
        let (a, to_b, b, from_a) = pair("parts-void", builder(), builder());
        let arena = Arena::new().unwrap();
        a.give_vectored(to_b, 1, parts(&arena, &[HUGE; 2], HUGE, 1)).unwrap();
        let view = view(&b, from_a, 1);
        check(&view, 1);
        if theirs {
            a.close();
            assert!(b.recv(from_a, 1).unwrap_err().is_peer_gone());
            check(&view, 1);
            drop(view);
            assert_eq!(arena.stats().buffers, 0, "it is its owner's again");
            continue;
        }
        b.disconnect(from_a);
        assert!(a.recv(to_b, 1).unwrap_err().is_peer_gone());
        assert_eq!(arena.stats().buffers, 0, "it is its owner's again");
        if view.bytes().is_none() {
            assert!(matches!(view.read(0, &mut [0]), Err(Error::Withdrawn)));
            assert!(matches!(view.to_vec(), Err(Error::Withdrawn)));
        }
    }
}

#[test]
fn a_forked_child_has_no_part_in_it() {
    play("forks", &[], None);
}

pub fn forks(_: &Args) {
    let (a, to_b, b, from_a) = pair("parts-fork", builder(), builder());
    let arena = Arena::new().unwrap();
    let give = |seed| {
        a.give_vectored(to_b, seed, parts(&arena, &[HUGE; 3], HUGE, seed)).unwrap();
        view(&b, from_a, seed)
    };
    let held = RefCell::new(Some(give(1)));
    let ended = fork(|| {
        let read = held.borrow().as_ref().unwrap().read(0, &mut [0]);
        assert!(matches!(read, Err(Error::Forked)));
        drop(held.take());
        // An endpoint of its own has messages in parts, too; the window is its parent's.
        let (a, to_b, b, from_a) = pair("parts-child", builder(), builder());
        let arena = Arena::new().unwrap();
        a.give_vectored(to_b, 1, parts(&arena, &[HUGE; 3], HUGE, 5)).unwrap();
        let copy = b.recv_view(from_a, 1).unwrap();
        let right = stamp::wrong_at(copy.bytes().expect("a copy"), 5).is_none();
        i32::from(!right)
    });
    assert_eq!(ended, Ended::Code(0));
    check(held.borrow().as_ref().unwrap(), 1);
    drop(held.take());
    wait_for_empty(&a, &arena);
    let view = give(2);
    is_given(&view, Place::Window);
    check(&view, 2);
    thread::spawn(move || drop(view)).join().unwrap();
    wait_for_empty(&a, &arena);
}
