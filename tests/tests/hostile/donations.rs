//! Attackers that hand over arenas: of every wrong kind, right ones that they then misuse, and more
//! than a process can map.

use std::{
    fs::File,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{Ordering, fence},
    time::{Duration, Instant},
};

use pinfold::Endpoint;
use pinfold_tests::{
    Args, Baseline, Stage,
    baseline::{Mapped, arenas},
    host::{peek, scribble, send_raw},
    role::{self, hear, say},
    stamp::{self, Random},
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{
    HOSTILE, KIND, RINGS, SEQ, SLOT, SLOTS, is_cut_off, newest, odd_number, sockets, spin,
};

/// Kinds of channel messages.
pub const EXTENT: u64 = 1;
const GONE: u64 = 2;
pub const WRITABLE: u64 = 1 << 32;

/// Kinds of descriptors.
pub const RTS: u64 = 6;
pub const FIN: u64 = 8;
pub const WROTE: u64 = 9;

pub const SMALL: u64 = 2 << 20;
pub const LARGE: u64 = 1 << 30;

/// A file in memory, with `data` at its beginning.
pub fn file(len: u64, seals: SealFlags, huge: bool, data: usize) -> Option<OwnedFd> {
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let flags = if huge { flags | MemfdFlags::HUGETLB } else { flags };
    let file = memfd_create("pinfold-arena", flags).ok()?;
    ftruncate(&file, len).ok()?;
    rustix::io::pwrite(&file, &stamp::bytes(data, 4), 0).ok()?;
    fcntl_add_seals(&file, seals).ok()?;
    Some(file)
}

/// The seals of an honest peer's file.
pub fn right() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE
}

/// A file with all that an arena should have, and no memory but for the first `data` bytes.
pub fn good(len: u64, data: usize) -> OwnedFd {
    file(len, right(), false, data).expect("a file in memory")
}

/// Files to hand over, and their claimed length.
fn donation(random: &mut Random) -> (Vec<OwnedFd>, u64) {
    let fd = match random.below(14) {
        0 => file(SMALL, SealFlags::empty(), false, 9),
        1 => file(SMALL, right() - SealFlags::FUTURE_WRITE, false, 9),
        2 => file(SMALL, right() - SealFlags::SHRINK, false, 9),
        3 => file(SMALL, right() - SealFlags::SEAL, false, 9),
        4 => file(SMALL, right(), true, 0),
        5 => File::open("/dev/null").ok().map(OwnedFd::from),
        6 => rustix::pipe::pipe().ok().map(|(from, _)| from),
        7 => File::open(".").ok().map(OwnedFd::from),
        8 => File::open("/proc/self/exe").ok().map(OwnedFd::from),
        9 => Some(good(LARGE, 0)),
        10 => Some(good(1 << 45, 0)),
        11 => Some(good(4096, 9)),
        _ => Some(good(SMALL, SMALL as usize)),
    };
    let Some(fd) = fd else { return (Vec::new(), SMALL) };
    let len = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_size as u64);
    let len = if random.below(6) == 0 { odd_number(random) } else { len };
    match random.below(30) {
        0 => (Vec::new(), len),
        1 => (vec![fd, good(4096, 0)], len),
        2 => ((0..20).map(|_| good(4096, 0)).collect(), len),
        _ => (vec![fd], len),
    }
}

/// Hands descriptors over on every socket of this process.
pub fn send_on_channel(words: [u64; 3], fds: &[OwnedFd]) -> bool {
    let bytes = words.map(u64::to_ne_bytes).concat();
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let sent = sockets().into_iter().filter(|socket| send_raw(*socket, &bytes, &fds).is_ok());
    sent.count() > 0
}

/// Adds a descriptor behind the last one.
pub fn add(segment: Mapped, kind: u64, aux: u64, body: &[u64]) {
    let ring = segment.at + RINGS[1];
    let (number, slot) = newest(segment);
    let header = peek(ring + slot * SLOT);
    let (wraps, skips) = (header >> 20 & 1 == 1, header >> 21 & 1);
    let slot = if wraps { 0 } else { slot + 1 + skips as usize };
    let (slot, wrap) = (slot % SLOTS, u64::from(slot >= 62));
    let at = ring + slot * SLOT;
    for (word, value) in body.iter().enumerate() {
        scribble(at + 8 + 8 * word, *value);
    }
    // The header is not written before its body.
    fence(Ordering::SeqCst);
    scribble(at, (number + 1) & SEQ | kind << KIND | wrap << 20 | aux << 32);
}

/// The body of an announcement of `len` bytes in an arena.
pub fn announcement(tag: u64, len: u64, extent: u64, offset: u64) -> [u64; 6] {
    [tag, len, 0, 1, extent, offset]
}

/// Gives arenas until it is cut off or time is up; with `exported_parts`, gives right ones, and
/// announces messages in them that lie elsewhere.
pub fn give(how: &str, random: &mut Random, segment: Mapped, end: Instant) {
    let ids = [0, 1, 1, 2, 3, 5, u64::MAX];
    let full = good(SMALL, SMALL as usize);
    let holes = good(LARGE, 9000);
    if how == "exported extents" {
        send_on_channel([EXTENT, 1, SMALL], std::slice::from_ref(&full));
        send_on_channel([EXTENT, 2, LARGE], std::slice::from_ref(&holes));
    }
    let mut stream = 1000;
    while Instant::now() < end && !is_cut_off(segment) {
        let id = random.pick(&ids);
        stream += 1;
        match random.below(8) {
            0..4 if how == "arenas" => {
                let (fds, len) = donation(random);
                let kind = if random.below(5) == 0 { EXTENT | WRITABLE } else { EXTENT };
                send_on_channel([kind, id, len], &fds);
            }
            4 => drop(send_on_channel([GONE, id, 0], &[])),
            5 => {
                let by = random.below(6) << 40;
                let body = [odd_number(random) & 0xffff_ffff | by, odd_number(random)];
                let kind = random.pick(&[FIN, FIN, WROTE]);
                // Announcements that mean no open message end it all, so they are rare.
                if random.below(10) == 0 {
                    add(segment, kind, random.below(4), &body);
                }
            }
            _ => {
                let near = random.pick(&[0, 1, 4095, 8999, SMALL - 1, SMALL, LARGE - 1, LARGE]);
                let lens = [0, 1, 57, 8999, 9001, SMALL - 1, SMALL, SMALL + 1, LARGE];
                let (mut len, mut offset) = (random.pick(&lens), near);
                if random.below(20) == 0 {
                    (len, offset) = (odd_number(random), odd_number(random));
                } else if id <= 2 && random.below(10) > 0 {
                    // Mostly inside, or the victim would cut off every connection after one.
                    let size = if id == 1 { SMALL } else { LARGE };
                    offset = offset.min(size);
                    len = len.min(size - offset);
                }
                add(segment, RTS, stream, &announcement(HOSTILE, len, id, offset));
            }
        }
        spin(random.below(3000));
    }
    // However little time there was, this is found out.
    match how {
        "arenas" => drop(send_on_channel([EXTENT, 1, SMALL], &[])),
        _ => add(segment, FIN, 0xffff, &[0, 0]),
    }
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end && !is_cut_off(segment) {
        spin(10_000);
    }
}

// More arenas than can be mapped.

const FLOOD: u64 = 100_000;

#[test]
fn a_hundred_thousand_arenas() {
    let stage = Stage::new(120);
    let mut flooded = stage.role("flooded").spawn();
    flooded.expect("ready");
    let mut flooder = stage.role("flooder").spawn();
    flooder.expect("flooded");
    flooded.say("enough");
    let most: usize = flooded.expect("most").parse().expect("a number");
    println!("{most} mappings at most");
    assert!((1..=1024).contains(&most), "{most} mappings");
    flooder.kill();
    flooder.end();
    flooded.end_well();
}

/// Counts the most arenas that are mapped at once, which is no more than there may be.
pub fn flooded(_: &Args) {
    let (endpoint, peer) = role::listen(Endpoint::builder(), "victim");
    let before = Baseline::now();
    // Where the kernel reaches it, one descriptor serves to ask whether memory of it is there.
    let by_kernel = endpoint.peer(peer).is_some_and(|peer| peer.cma_refused.is_none());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(hear()));
    let mut most = 0;
    while told.try_recv().is_err() {
        let _ = endpoint.recv_timeout(peer, 1, Duration::from_millis(20));
        most = most.max(arenas().len());
    }
    say(format_args!("most {most}"));
    assert!(endpoint.recv(peer, 2).unwrap_err().is_peer_gone());
    assert!(arenas().is_empty());
    let its = 2 + usize::from(by_kernel);
    assert_eq!(before.descriptors() - its, Baseline::now().descriptors());
}

pub fn flooder(_: &Args) {
    let (_endpoint, _) = role::connect(Endpoint::builder(), "victim");
    let file = [good(SMALL, 10)];
    for id in 1..=FLOOD {
        while !send_on_channel([EXTENT, id, SMALL], &file) {
            std::thread::yield_now();
        }
    }
    say("flooded");
    hear();
}
