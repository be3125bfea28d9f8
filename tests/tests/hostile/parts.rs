//! Attackers that give away messages in parts, and lie about them.

use std::{
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Error, Gone, Path, TagMatch, reassembly::fold::Place};
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{Mapped, arenas, segments},
    host::{scribble, send_raw},
    role::{self, hear, say},
    stamp,
};
use rustix::fs::SealFlags;

use super::{
    HOSTILE, PATIENCE, SEQ, consumed,
    donations::{EXTENT, RTS, SMALL, WRITABLE, add, file, good, right, send_on_channel},
    is_cut_off, newest, sockets,
};

/// The bit of an announcement, beside the number of its parts, that says that the memory was given
/// away.
const GIVEN: u64 = 1 << 33;
const LISTED: u64 = 1 << 34;

/// The beginning of the bulk bytes towards the victim, and their number.
const BULK: usize = 512 << 10;
const BULK_BYTES: u64 = 256 << 10;

const PAGE: u64 = 4096;
const HALF: u64 = SMALL / 2;

/// Each part: extent, offset and length. Extent 1 is as it should be, 2 has a hole, 3 can be
/// written by others, 4 is shorter than it is said to be, 5 came without a file, and 6 never came;
/// peers may write 7.
type Parts = Vec<[u64; 3]>;

/// The outcome of an announcement.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The view shows it where it is.
    Given,
    /// The peer is cut off.
    Cut,
    /// It comes in no way.
    Error,
}

/// Lies, and some odd truths: the parts, the message's length, and the outcome.
fn lie(which: &str) -> (Parts, u64, End) {
    let two = |one, two| vec![one, two];
    let page = [1, 0, PAGE];
    match which {
        "true" => (two([1, HALF, HALF], [1, 0, HALF]), SMALL, End::Given),
        "overlapping" => (two([1, 0, HALF], [1, PAGE, HALF]), SMALL, End::Given),
        "twice" => (vec![[1, 0, HALF]; 40], 40 * HALF, End::Given),
        "writable" => (two([7, HALF, HALF], [7, 0, HALF]), SMALL, End::Given),
        "short" => (two(page, page), 3 * PAGE, End::Cut),
        "long" => (two(page, page), PAGE, End::Cut),
        "one" => (vec![page], PAGE, End::Cut),
        "none" => (vec![], 0, End::Cut),
        "many" => (vec![page; 1025], 1025 * PAGE, End::Cut),
        "empty" => (vec![page, [1, 0, 0], page], 2 * PAGE, End::Cut),
        "nowhere" => (two([0, 0, PAGE], page), 2 * PAGE, End::Cut),
        "outside" => (two(page, [1, HALF + PAGE, HALF]), HALF + PAGE, End::Cut),
        "around" => (two(page, [1, u64::MAX - PAGE + 1, PAGE]), 2 * PAGE, End::Cut),
        "huge" => (two([1, 0, 1 << 62], [1, 0, 1 << 62]), 1 << 63, End::Cut),
        // The fault of these is in the announcement.
        "odd" | "beyond" | "kept" | "counted" => (two(page, page), 2 * PAGE, End::Cut),
        "hole" => (two([1, 0, HALF], [2, HALF, HALF]), SMALL, End::Error),
        "unsealed" => (two([1, 0, HALF], [3, 0, HALF]), SMALL, End::Error),
        "truncated" => (two([1, 0, HALF], [4, HALF, HALF]), SMALL, End::Error),
        "without" => (two([1, 0, HALF], [5, 0, HALF]), SMALL, End::Cut),
        "never" => (two([1, 0, HALF], [6, 0, HALF]), SMALL, End::Error),
        other => panic!("no lie is called {other}"),
    }
}

fn play(lies: &[&str]) {
    let stage = Stage::new(120);
    let mut victim = stage.role("picks").unmeasured().with("lies", lies.join(",")).spawn();
    victim.expect("ready");
    for which in lies {
        let mut liar = stage.role("lists").with("lie", which).spawn();
        victim.expect("through");
        liar.say("go");
        liar.end();
    }
    victim.end_well();
}

#[test]
fn lists_that_make_no_sense() {
    play(&["short", "long", "one", "none", "many", "empty", "nowhere", "huge"]);
}

#[test]
fn announcements_that_do_not_fit_their_lists() {
    play(&["odd", "beyond", "kept", "counted"]);
}

#[test]
fn parts_that_do_not_lie_where_they_are_said_to() {
    play(&["outside", "around", "hole", "unsealed", "truncated", "without", "never"]);
}

#[test]
fn parts_that_are_odd_and_true() {
    play(&["true", "overlapping", "twice", "writable"]);
}

/// Takes one message of each liar, by a view and then in other ways.
pub fn picks(args: &Args) {
    let endpoint = Endpoint::listen("local:victim").expect("to listen");
    let before = Baseline::now();
    say("ready");
    let any = TagMatch::masked(HOSTILE, 0xffff);
    for which in args.text("lies").split(',') {
        let (parts, len, end) = lie(which);
        let peer = endpoint.accept_timeout(PATIENCE).expect("a peer");
        let may_read = endpoint.peer(peer).is_some_and(|peer| peer.cma_refused.is_none());
        if end == End::Error && !may_read {
            role::skip(format_args!("{which}, without the cma path"));
            endpoint.disconnect(peer);
            say("through");
            continue;
        }
        // The sender is asked to send a message that the kernel cannot read, and never does.
        let patience = if end == End::Error { Duration::from_millis(300) } else { PATIENCE };
        match (endpoint.recv_view_timeout(peer, any, patience), end) {
            (Ok(view), End::Given) => {
                assert_eq!(view.receipt().path, Path::Handoff, "{which}");
                let folded = *view.folded().expect("it came in parts");
                assert_eq!((view.len() as u64, folded.place), (len, Place::Window), "{which}");
                assert_eq!(view.is_writable(), which == "writable");
                let (bytes, all) =
                    (view.to_vec().expect("its bytes"), stamp::bytes(SMALL as usize, 4));
                let mut at = 0;
                for [_, offset, len] in parts {
                    let (offset, len) = (offset as usize, len as usize);
                    assert!(bytes[at..][..len] == all[offset..][..len], "{which}: at {at}");
                    at += len;
                }
                // Another peer's copy of it is as good.
                drop(view);
            }
            (Err(Error::PeerGone { how: Gone::Misbehaved(_), .. }), End::Cut) => {}
            (Err(Error::Timeout(_)), End::Error) => {}
            (other, _) => panic!("{which}: {other:?}"),
        }
        // Another kind of receive does no better.
        if end == End::Error {
            let error = endpoint.recv_timeout(peer, any, patience).expect_err("it comes in no way");
            assert!(matches!(error, Error::Timeout(_)), "{which}: {error}");
        }
        say("through");
        if end != End::Cut {
            let error = endpoint.recv(peer, any).expect_err("it has no more");
            assert!(error.is_peer_gone(), "{which}: {error}");
        }
        assert!(arenas().is_empty(), "{which}: {:?}", arenas());
        before.returns(PATIENCE);
    }
}

/// Tells one lie.
pub fn lists(args: &Args) {
    let which = args.text("lie");
    let (parts, len, end) = lie(which);
    let before = segments();
    // Never driven again: the answers would be news to it.
    let endpoint = Endpoint::new().expect("an endpoint");
    endpoint.connect_wait("local:victim", PATIENCE).expect("the victim");
    let segment = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = segment.expect("a segment");
    let open = right() - SealFlags::FUTURE_WRITE;
    let whole = |seals| file(SMALL, seals, false, SMALL as usize).expect("a file");
    let files: Vec<(u64, u64, Vec<OwnedFd>)> = vec![
        (EXTENT, 1, vec![whole(right())]),
        (EXTENT, 2, vec![good(SMALL, 9000)]),
        (EXTENT, 3, vec![whole(open)]),
        (EXTENT, 4, vec![good(HALF, HALF as usize)]),
        (EXTENT, 5, vec![]),
        (EXTENT | WRITABLE, 7, vec![whole(open)]),
    ];
    for (kind, extent, file) in files {
        if parts.iter().any(|part| part[0] == extent) {
            send_on_channel([kind, extent, SMALL], &file);
        }
    }
    let turns = if end == End::Error { 2 } else { 1 };
    for turn in 0..turns {
        announce(segment, which, &parts, len, turn);
    }
    hear();
}

fn announce(segment: Mapped, which: &str, parts: &Parts, len: u64, turn: u64) {
    let at = turn as usize * 4096;
    for (word, value) in parts.iter().flatten().enumerate() {
        scribble(segment.at + BULK + at + 8 * word, *value);
    }
    let bytes = match which {
        "odd" => 50,
        _ => 24 * parts.len() as u64,
    };
    let offset = if which == "beyond" { BULK_BYTES - 8 } else { at as u64 };
    let given = if which == "kept" { 0 } else { GIVEN };
    let number = u64::from(which == "counted");
    // Nothing is at address 8: a read of it by the kernel fails.
    let body = [HOSTILE | turn, len, 8, 1 | given | LISTED, offset | bytes << 32, 0, number];
    add(segment, RTS, 1000 + turn, &body);
    let end = Instant::now() + PATIENCE;
    while consumed(segment) & SEQ < newest(segment).0 && !is_cut_off(segment) {
        sockets().into_iter().for_each(|socket| drop(send_raw(socket, &[1], &[])));
        thread::sleep(Duration::from_micros(200));
        assert!(Instant::now() < end, "{which} is not taken");
    }
}
