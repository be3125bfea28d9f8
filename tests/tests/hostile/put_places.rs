//! Attackers that want messages put into their arenas at places that the arenas do not reach, that
//! cannot be written, or that have no memory. Their sender never takes memory for them, and never
//! dies of it.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Path, PathSet, SharedArena};
use pinfold_tests::{
    Args, Stage,
    baseline::{Mapped, segments},
    host::{peek, scribble},
    role,
    stamp::{self, Random},
};
use rustix::{
    fs::{FallocateFlags, SealFlags, fallocate, fstat},
    io::pread,
};

use super::{
    CONTROL, KIND, LINE, PATIENCE, RINGS, SEQ, SLOT, SLOTS,
    donations::{
        EXTENT, FIN, LARGE, RTS, SMALL, WRITABLE, WROTE, add, file, good, right, send_on_channel,
    },
    is_cut_off, newest_in, odd_number, sockets, spin,
};

/// The kind of descriptor that answers an announcement.
const CTS: u64 = 7;
const PUT: u64 = 2;
/// Bytes of a chunk, as an exponent.
const SHIFT: u64 = 16;

/// A file that peers may write, with memory for the first `data` bytes.
fn open(len: u64, data: usize) -> OwnedFd {
    file(len, right() - SealFlags::FUTURE_WRITE, false, data).expect("a file in memory")
}

/// Opens a claim word for transfer `generation`, with nothing claimed.
fn open_claim(segment: Mapped, line: u64, generation: u64) {
    scribble(segment.at + CONTROL[0] + (3 + line as usize) * LINE, generation << 48);
}

/// The body of an answer: `want` bytes to nowhere, or to `offset` of an extent.
fn push(want: u64, line: u64, generation: u64, extent: u64, offset: u64) -> [u64; 7] {
    [PUT, want, 8, 1 | line << 32, generation | SHIFT << 16, extent, offset]
}

/// The messages of one kind that lie in the ring towards this side: the stream of each.
fn heard(segment: Mapped, kind: u64) -> impl Iterator<Item = u64> {
    let ring = segment.at + RINGS[0];
    let headers = (0..SLOTS).map(move |slot| peek(ring + slot * SLOT));
    headers.filter(move |header| header >> KIND & 31 == kind && header & SEQ != 0).map(|h| h >> 32)
}

/// Asks for every announced message, at places of all kinds, until it is cut off or time is up.
pub fn offer(random: &mut Random, segment: Mapped, end: Instant) {
    let full = open(SMALL, SMALL as usize);
    let holes = open(LARGE, 9000);
    let kept = good(SMALL, SMALL as usize);
    send_on_channel([EXTENT | WRITABLE, 1, SMALL], std::slice::from_ref(&full));
    send_on_channel([EXTENT | WRITABLE, 2, LARGE], std::slice::from_ref(&holes));
    send_on_channel([EXTENT, 3, SMALL], std::slice::from_ref(&kept));
    let mut asked = Vec::new();
    while Instant::now() < end && !is_cut_off(segment) {
        let new = heard(segment, RTS).find(|stream| !asked.contains(stream));
        let Some(stream) = new else {
            spin(10_000);
            continue;
        };
        asked.push(stream);
        let (line, generation) = (random.below(8), random.below(1 << 16));
        open_claim(segment, line, generation);
        let want = random.pick(&[150_000, 900_000, 1, 0, 100_000]);
        let (extent, offset) = match random.below(6) {
            0 => (random.pick(&[1, 2, 3, 5, u64::MAX]), odd_number(random)),
            1 => (1, random.pick(&[SMALL, SMALL - 1, SMALL - want])),
            2 => (2, random.pick(&[0, 8999, LARGE / 2])),
            3 => (3, 0),
            _ => (1, random.pick(&[0, 1, 64, 4095])),
        };
        add(segment, CTS, stream, &push(want, line, generation, extent, offset));
        // The arena's memory goes while it is being written.
        for _ in 0..random.below(200) {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&full, mode, 0, SMALL).expect("a hole");
            spin(random.below(2000));
        }
        if random.below(2) == 0 {
            add(segment, FIN, stream, &[random.pick(&[0, 5]), 0]);
        }
    }
}

/// Plays with a sender that can only write to mappings.
fn play(how: &str) {
    let stage = Stage::new(60);
    stage.play(["giver", "taker"].map(|role| stage.role(role).with("how", how)));
}

#[test]
fn rooms_without_memory() {
    play("holes");
}

#[test]
fn rooms_whose_memory_goes() {
    play("punched");
}

#[test]
fn rooms_that_do_not_reach() {
    play("outside");
}

#[test]
fn rooms_that_cannot_be_written() {
    play("sealed");
}

#[test]
fn rooms_that_were_never_shown() {
    play("unknown");
}

const LEN: u64 = 1 << 20;

/// The only paths.
fn builder() -> pinfold::Builder {
    Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager, Path::Mapped]))
}

pub fn giver(args: &Args) {
    let (endpoint, peer) = role::listen(builder(), "giver");
    let cut_off = matches!(args.text("how"), "outside" | "sealed");
    for seed in 0..2 {
        let mut request = endpoint.send_owned(peer, seed, stamp::bytes(LEN as usize, seed));
        let ended = request.wait_timeout(PATIENCE).expect("it ends").0;
        match (args.text("how"), seed) {
            ("punched", 0) => {
                let receipt = ended.unwrap();
                assert_eq!((receipt.path, receipt.copied_user), (Path::Mapped, LEN), "{receipt}");
            }
            _ if cut_off => {
                let error = ended.unwrap_err();
                assert!(error.to_string().contains("broke the protocol"), "{error}");
                return;
            }
            // By its own word the sender does not have it.
            _ => drop(ended.unwrap_err()),
        }
    }
}

pub fn taker(args: &Args) {
    let how = args.text("how");
    let before = segments();
    // Never driven again: the announcements would be news to it.
    let _connected = role::connect(builder(), "giver");
    let segment = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = segment.expect("a segment");
    let (kind, room) = match how {
        "holes" | "unknown" => (EXTENT | WRITABLE, open(SMALL, 9000)),
        "sealed" => (EXTENT, good(SMALL, SMALL as usize)),
        _ => (EXTENT | WRITABLE, open(SMALL, SMALL as usize)),
    };
    if how != "unknown" {
        send_on_channel([kind, 1, SMALL], std::slice::from_ref(&room));
    }
    let memory = |room: &OwnedFd| fstat(room).expect("fstat").st_blocks as u64 * 512;
    for number in 0..2u64 {
        let end = Instant::now() + PATIENCE;
        let stream = await_newest(segment, RTS, end);
        if how == "punched" && number == 1 {
            let mut bytes = vec![0; LEN as usize];
            pread(&room, &mut bytes, 4096).expect("what was written");
            stamp::check(&bytes, 0);
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(room.as_fd(), mode, 0, SMALL).expect("a hole");
        }
        let had = memory(&room);
        open_claim(segment, 0, number + 1);
        let offset = if how == "outside" { SMALL - LEN + 1 } else { 4096 };
        add(segment, CTS, stream, &push(LEN, 0, number + 1, 1, offset));
        if matches!(how, "outside" | "sealed") {
            while !is_cut_off(segment) {
                ring();
                assert!(Instant::now() < end, "nobody minds");
            }
            return;
        }
        assert_eq!(await_newest(segment, WROTE, end), stream);
        assert_eq!(memory(&room), had, "the sender took memory for a hole");
        let errno = if how == "punched" && number == 0 { 0 } else { 5 };
        add(segment, FIN, stream, &[errno, 0]);
        ring();
    }
    std::thread::sleep(Duration::from_millis(100));
}

#[test]
fn reports_that_do_not_add_up() {
    let stage = Stage::new(60);
    stage.play(["judge", "liar"].map(|role| stage.role(role)));
}

/// Leaves the writing to a sender, which says that it has written.
pub fn judge(_: &Args) {
    let (endpoint, peer) = role::listen(builder(), "giver");
    let arena = SharedArena::builder().build_shared().unwrap();
    let mut request = endpoint.recv_owned(peer, 0, arena.alloc(LEN as usize).unwrap());
    let (ended, _) = request.wait_timeout(PATIENCE).expect("it ends");
    let error = ended.unwrap_err();
    assert!(error.to_string().contains("broke the protocol"), "{error}");
}

pub fn liar(_: &Args) {
    let before = segments();
    let (endpoint, peer) = role::connect(builder(), "giver");
    // A first descriptor, so that there is one to add to.
    endpoint.send(peer, 1, b"").unwrap();
    let segment = segments().into_iter().find(|segment| !before.contains(segment));
    let segment = segment.expect("a segment");
    let stream = 77;
    add(segment, RTS, stream, &[0, LEN, 8, 1, 0, 0, 0]);
    let end = Instant::now() + PATIENCE;
    assert_eq!(await_newest(segment, CTS, end), stream);
    add(segment, WROTE, stream, &[5 << 32]);
    while !is_cut_off(segment) {
        ring();
        assert!(Instant::now() < end, "nobody minds");
    }
}

/// Wakes the other side.
fn ring() {
    sockets().into_iter().for_each(|s| drop(pinfold_tests::host::send_raw(s, &[1], &[])));
    std::thread::sleep(Duration::from_micros(100));
}

/// Waits until the last descriptor towards this side is of `kind`. Returns its stream.
fn await_newest(segment: Mapped, kind: u64, end: Instant) -> u64 {
    loop {
        let at = segment.at + RINGS[0];
        let (number, slot) = newest_in(at);
        let header = peek(at + slot * SLOT);
        if number > 0 && header >> KIND & 31 == kind {
            return header >> 32;
        }
        ring();
        assert!(Instant::now() < end, "no descriptor of kind {kind}, but {header:x}");
    }
}
