#![allow(unsafe_code)]
// The tests read the bytes at addresses as the kernel shows them, past every reference.
//! Folding: contents, limits, leaks, refusals, peers' files.

mod contents;
mod crowds;
mod handles;
mod leaks;
mod limits;
mod peers;
mod refusals;

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    super::{
        HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
        gather::Costs,
        pool::{
            AnonPages, Filled, HeapPages, MemfdPages, Owner, Pages, Pool, PoolCount, SealedPages,
        },
    },
    *,
};

const PAGE: usize = PAGE_BYTES;

/// Moving and mapping cost next to nothing, so all that can be moved and mapped is.
const FREE: Costs = Costs {
    move_call_ns: 1.0,
    move_page_ns: 0.1,
    move_few_page_ns: 0.1,
    move_huge_ns: 0.1,
    map_call_ns: 1.0,
    map_page_ns: 0.1,
    fault_ns: 1000.0,
    copy_byte_ns: 100.0,
};

fn settings(costs: Costs) -> Settings {
    Settings { window_bytes: 64 << 20, costs: Some(costs), ..Settings::default() }
}

fn folder(costs: Costs) -> Folder {
    Folder::new(settings(costs)).unwrap()
}

/// Returns whether pages can be moved here; says so if not.
fn moves(folder: &Folder) -> bool {
    if let Some(error) = folder.why_not_moving() {
        eprintln!("SKIPPED: {error}");
    }
    folder.why_not_moving().is_none()
}

fn anonymous(folder: &Folder, pages: u32) -> Pool<AnonPages> {
    Pool::new(folder.pages(pages).unwrap())
}

/// Bytes that differ from those of another seed.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut step = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    };
    let mut all: Vec<u8> = (0..len.div_ceil(4)).flat_map(|_| step().to_le_bytes()).collect();
    all.truncate(len);
    all
}

/// Bytes that no other message has.
fn fresh(len: usize) -> Vec<u8> {
    static SEED: AtomicU64 = AtomicU64::new(1000);
    bytes(len, SEED.fetch_add(1, Ordering::Relaxed))
}

fn filled<P: Pages>(pool: &Pool<P>, bytes: &[u8]) -> Filled<P> {
    let mut filling = pool.take(Owner(1), bytes.len() as u64).unwrap();
    filling.write(bytes).unwrap();
    filling.finish()
}

/// A message of parts of those lengths, which do not lie in order; and its bytes.
fn parts<P: Pages>(pool: &Pool<P>, lens: &[usize]) -> (Vec<Filled<P>>, Vec<u8>) {
    let mut parts: Vec<_> = lens
        .iter()
        .rev()
        .map(|len| {
            let bytes = fresh(*len);
            (filled(pool, &bytes), bytes)
        })
        .collect();
    parts.reverse();
    let (parts, bytes): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    (parts, bytes.concat())
}

/// The bytes of a message in pieces.
fn gathered(message: &impl Scattered) -> Vec<u8> {
    let mut pieces = Vec::new();
    message.gather(&mut pieces);
    let mut bytes = Vec::new();
    for piece in pieces {
        let at = std::ptr::with_exposed_provenance(piece.at as usize);
        // SAFETY: `Scattered` says that it can be read.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(at, piece.len as usize) });
    }
    bytes
}

/// The bytes of a message that is not known to be quiet.
fn copied_out<M: Scattered>(folded: &Folded<M>) -> Vec<u8> {
    let mut bytes = vec![0; folded.len()];
    assert_eq!(folded.read(0, &mut bytes), bytes.len());
    bytes
}

/// A byte of memory, if it can be read.
fn reads(at: usize) -> Option<u8> {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let at: *const u8 = std::ptr::with_exposed_provenance(at);
    // SAFETY: the kernel checks the address itself.
    let byte = unsafe { std::slice::from_raw_parts(at, 1) };
    let mut got = [0];
    rustix::io::write(&write, byte).ok().map(|_| {
        rustix::io::read(&read, &mut got).unwrap();
        got[0]
    })
}

/// Bytes of huge pages in a range.
fn huge_bytes(start: usize, len: usize) -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut found, mut inside) = (0, false);
    for line in smaps.lines() {
        if let Some((from, to)) = line.split(' ').next().and_then(|at| at.split_once('-')) {
            let at = |hex| usize::from_str_radix(hex, 16).unwrap_or(0);
            inside = at(from) < start + len && start < at(to);
        } else if inside && line.starts_with("AnonHugePages") {
            found += line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10;
        }
    }
    found
}

/// Nothing is in use any more.
fn nothing_left(folder: &Folder, maps: u32) {
    let count = folder.count();
    assert_eq!((count.messages, count.pages, count.lost_pages), (0, 0, 0));
    assert_eq!(count.maps_left, maps);
}
