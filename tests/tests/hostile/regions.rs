//! Owners that lie about the places of their regions, and peers that ask for regions in undefined
//! ways.

use std::{
    sync::atomic::{Ordering, fence},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Error, Gone, Path, PathSet, Refusal, RegionKey, Rights};
use pinfold_tests::{
    Args, Stage,
    baseline::{Mapped, segments},
    host::{peek, send_raw},
    role::{self, say},
    stamp,
};

use super::{
    KIND, PATIENCE, RINGS, SEQ, SLOT, SLOTS,
    donations::{EXTENT, SMALL, add, good, send_on_channel},
    is_cut_off, sockets,
};

/// Kinds of descriptors.
const OPEN: u64 = 12;
const OPENED: u64 = 13;
const USE: u64 = 14;
const USED: u64 = 15;

/// Room for the liar's so-called region: words in its memory, of which the last counts as the flag.
const WORDS: usize = 1024;
const STAMP: u64 = 0x1234_5678_9abc_def1;

/// The liar's answer, and its effect.
struct Lie {
    /// True if the asker maps regions, so that it asks for that first.
    maps: bool,
    answer: fn(&[u64; WORDS]) -> [u64; 7],
    then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    CutOff,
    Refused,
    /// It is not mapped, and asked for in the other way, which is refused.
    Unmapped,
    /// It opens. The memory that exists can be read and written, and no more.
    Opens {
        writable: bool,
        len: u64,
    },
}

fn at(words: &[u64; WORDS]) -> u64 {
    words.as_ptr().addr() as u64
}

fn flag(words: &[u64; WORDS]) -> u64 {
    at(words) + 8 * (WORDS as u64 - 1)
}

/// Longer than any memory.
const HUGE: u64 = 1 << 46;

const LIES: [Lie; 25] = [
    // An answer of no known kind.
    lie(true, |_| [0; 7], Then::CutOff),
    lie(false, |_| [10, 0, 0, 0, 0, 0, 0], Then::CutOff),
    lie(false, |_| [u64::MAX; 7], Then::CutOff),
    // The answer to another question.
    lie(true, |words| [6, at(words), 100, flag(words), STAMP, 0, 0], Then::CutOff),
    lie(true, |_| [7, 5, 0, 0, 0, 0, 0], Then::CutOff),
    lie(false, |_| [9, 100, 0, 0, 0, 0, 0], Then::CutOff),
    lie(false, |_| [2, 0, 0, 0, 0, 0, 0], Then::CutOff),
    lie(false, |_| [4, 1, 0, 100, 2, 0, STAMP], Then::CutOff),
    // Refusals, of which one is known.
    lie(false, |_| [7, 999, 0, 0, 0, 0, 0], Then::CutOff),
    lie(false, |_| [7, 1 << 16 | 5, 0, 0, 0, 0, 0], Then::CutOff),
    lie(false, |_| [7, 11, 0, 0, 0, 0, 0], Then::Refused),
    // Memory that no process has.
    lie(false, |words| [6, at(words), u64::MAX, flag(words), STAMP, 0, 0], Then::CutOff),
    lie(false, |words| [6, u64::MAX - 50, 100, flag(words), STAMP, 0, 0], Then::CutOff),
    lie(false, |words| [6, at(words), 100, u64::MAX - 3, STAMP, 0, 0], Then::CutOff),
    lie(false, |words| [6, at(words), 100, flag(words), 0, 0, 0], Then::CutOff),
    // Memory that the owner does not have, and memory that it has.
    lie(false, |words| [6, 8, 100, flag(words), STAMP, 0, 0], OPENS),
    lie(false, |words| [6, at(words), 100, 8, STAMP, 0, 0], OPENS),
    lie(
        false,
        |words| [5, at(words), 100, flag(words), STAMP, 0, 0],
        Then::Opens { writable: false, len: 100 },
    ),
    lie(
        false,
        |words| [6, at(words), HUGE, flag(words), STAMP, 0, 0],
        Then::Opens { writable: true, len: HUGE },
    ),
    // In its arena: memory at no line, a flag at no word; and memory that does not lie in it.
    lie(true, |_| [4, 1, 8, 100, 1, 4096, STAMP], Then::Unmapped),
    lie(true, |_| [4, 1, 0, 100, 1, 4100, STAMP], Then::Unmapped),
    lie(true, |_| [4, 1, SMALL, 100, 1, 4096, STAMP], Then::Unmapped),
    lie(true, |_| [4, 1, 64, SMALL, 1, 4096, STAMP], Then::Unmapped),
    lie(true, |_| [4, 1, 64, u64::MAX, 1, 4096, STAMP], Then::Unmapped),
    lie(true, |_| [4, 1, 0, 100, 1, SMALL, STAMP], Then::Unmapped),
];

const OPENS: Then = Then::Opens { writable: true, len: 100 };

const fn lie(maps: bool, answer: fn(&[u64; WORDS]) -> [u64; 7], then: Then) -> Lie {
    Lie { maps, answer, then }
}

#[test]
fn owners_that_lie() {
    let stage = Stage::new(120);
    let mut asker = stage.role("asker").spawn();
    for number in 0..LIES.len() {
        asker.expect("ready");
        let mut liar = stage.role("false_owner").with("lie", number).spawn();
        if asker.hear() == "barred" {
            return;
        }
        liar.end_well();
    }
    asker.end_well();
}

pub fn asker(_: &Args) {
    for (number, lie) in LIES.iter().enumerate() {
        let paths = PathSet::all();
        let paths = if lie.maps { paths } else { paths.without(Path::Mapped) };
        let builder = Endpoint::builder().paths(paths);
        let (endpoint, peer) = role::listen(builder, "victim");
        if let Some(why) = endpoint.peer(peer).and_then(|peer| peer.cma_refused) {
            role::skip(format_args!("regions by the kernel: {why}"));
            return say("barred");
        }
        let key = RegionKey::from_bytes(&[9; 24]).unwrap();
        match (lie.then, endpoint.open_region(peer, &key)) {
            (Then::CutOff, Err(Error::PeerGone { how: Gone::Misbehaved(_), .. })) => {}
            (Then::Refused, Err(Error::OutOfReach { mapped: Refusal::SwitchedOff, cma })) => {
                assert_eq!(cma, Refusal::NotLeft);
            }
            (Then::Unmapped, Err(Error::OutOfReach { mapped: Refusal::NotMapped, .. })) => {}
            (Then::Opens { writable, len }, Ok(region)) => {
                assert_eq!((region.len(), region.path()), (len, Path::Cma), "lie {number}");
                assert_eq!(region.rights() == Rights::ReadWrite, writable, "lie {number}");
                use_it(&region, writable, len == HUGE);
            }
            (then, other) => panic!("lie {number}: {then:?}, {other:?}"),
        }
        endpoint.disconnect(peer);
        say("done");
    }
}

/// Bytes around the destination of a read, which stay as they are.
const MARGIN: usize = 4096;

fn use_it(region: &pinfold::RemoteRegion, writable: bool, is_huge: bool) {
    let mut bytes = stamp::bytes(MARGIN + 64 + MARGIN, 5);
    let around = bytes.clone();
    let read = region.read(0, &mut bytes[MARGIN..MARGIN + 64]);
    assert!(matches!(read, Ok(_) | Err(Error::Revoked | Error::Os { .. })), "{read:?}");
    // The true end of its memory, against any claim about its length.
    let mut long = vec![7u8; 8 << 20];
    let read = region.read(0, &mut long);
    if is_huge {
        assert!(matches!(read, Err(Error::Os { call: "process_vm_readv", .. })), "{read:?}");
        let far = region.read((1 << 46) - 64, &mut bytes[MARGIN..MARGIN + 64]);
        assert!(matches!(far, Err(Error::Os { .. })), "{far:?}");
        let written = region.write(0, &[]);
        assert!(written.is_ok(), "{written:?}");
    } else {
        assert!(matches!(read, Err(Error::OutOfBounds { .. })), "{read:?}");
    }
    assert!(bytes[..MARGIN] == around[..MARGIN], "it read before its memory");
    assert!(bytes[MARGIN + 64..] == around[MARGIN + 64..], "it read beyond its memory");
    if !writable {
        assert!(matches!(region.write(0, b"x"), Err(Error::ReadOnly)));
    }
}

/// The header of the other side's last question.
fn last_question(segment: Mapped) -> Option<u64> {
    let ring = segment.at + RINGS[0];
    let headers = (0..SLOTS).map(|slot| peek(ring + slot * SLOT));
    let asked = headers.filter(|header| header >> KIND & 31 == OPEN);
    asked.max_by_key(|header| header & SEQ)
}

/// The number of that question.
fn question(segment: Mapped) -> Option<u64> {
    last_question(segment).map(|header| header >> 32)
}

pub fn false_owner(args: &Args) {
    let lie: usize = args.number("lie");
    let mut words = Box::new([0; WORDS]);
    words[WORDS - 1] = STAMP;
    // Never driven again.
    let _connected = role::connect(Endpoint::builder(), "victim");
    let segment = segments()[0];
    await_for(segment, || question(segment).is_some());
    fence(Ordering::SeqCst);
    let answer = (LIES[lie].answer)(std::hint::black_box(&words));
    if LIES[lie].then == Then::Unmapped {
        assert!(send_on_channel([EXTENT, 1, SMALL], &[good(SMALL, SMALL as usize)]));
    }
    let first = last_question(segment);
    add(segment, OPENED, question(segment).unwrap(), &answer);
    if LIES[lie].then == Then::Unmapped {
        await_for(segment, || last_question(segment) != first);
        fence(Ordering::SeqCst);
        add(segment, OPENED, question(segment).unwrap(), &[7, 11]);
    }
    await_for(segment, || false);
    std::hint::black_box(&words);
}

/// Waits, and rings meanwhile, until `done` or the other side lets go of the connection.
fn await_for(segment: Mapped, done: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() && !is_cut_off(segment) {
        sockets().into_iter().for_each(|socket| drop(send_raw(socket, &[1], &[])));
        thread::sleep(Duration::from_millis(1));
        assert!(Instant::now() < end, "nobody asks");
    }
}

/// A question of no known kind, one with a wrong secret, and unsolicited answers.
#[test]
fn askers_that_guess() {
    let stage = Stage::new(60);
    let mut asked = stage.role("asked").spawn();
    for number in 0..GUESSES.len() {
        asked.expect("ready");
        let mut guesser = stage.role("guesser").with("guess", number).spawn();
        asked.expect("done");
        guesser.end_well();
    }
    asked.end_well();
}

/// A kind, a body, and whether it is a reason to cut the peer off.
const GUESSES: [(u64, [u64; 7], bool); 9] = [
    (OPEN, [1, 0, 0, 2, 0, 0, 0], true),
    (OPEN, [1, 0, 0, u64::MAX, 0, 0, 0], true),
    (OPEN, [1, 0, 0, 1, 0, 0, 0], false),
    (OPEN, [1, 0, 0, 0, 0, 0, 0], false),
    (OPENED, [5, 4096, 8, 4096, 1, 0, 0], true),
    (OPENED, [1, 0, 0, 0, 0, 0, 0], true),
    // Messages that go between hosts only.
    (OPEN, [1, 0, 0, 3, 0, 0, 0], true),
    (USE, [1, 0, 0, 0, 8, 0, 0], true),
    (USED, [0; 7], true),
];

pub fn asked(_: &Args) {
    for (_, _, is_bad) in GUESSES {
        let (endpoint, peer) = role::listen(Endpoint::builder(), "victim");
        let region = endpoint.region(100, Rights::ReadWrite).unwrap();
        let end = endpoint.recv_timeout(peer, 1, Duration::from_millis(500)).unwrap_err();
        match end {
            Error::PeerGone { how: Gone::Misbehaved(_), .. } => assert!(is_bad),
            Error::Timeout(_) => assert!(!is_bad),
            other => panic!("{other}"),
        }
        assert_eq!(region.to_vec().unwrap(), [0; 100]);
        endpoint.disconnect(peer);
        say("done");
    }
}

pub fn guesser(args: &Args) {
    let (kind, body, is_bad) = GUESSES[args.number::<usize>("guess")];
    let _connected = role::connect(Endpoint::builder(), "victim");
    let segment = segments()[0];
    add(segment, kind, 3, &body);
    if !is_bad {
        // The answer is that there is no such region, and no more.
        let answered = || peek(segment.at + RINGS[0]) >> KIND & 31 == OPENED;
        await_for(segment, answered);
        assert!(answered());
        assert_eq!(peek(segment.at + RINGS[0] + 8), 1);
    }
    await_for(segment, || false);
}
