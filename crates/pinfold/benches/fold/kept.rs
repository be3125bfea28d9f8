//! Messages as endpoints keep them: they come to pages of a pool that has holes, are handed out in
//! a row, read and dropped. As the costs say, copied, and moved at any cost, in turns, in a random
//! order.
//!
//! The output: the median of each, to hand out, read and drop; the median over the turns of the
//! better one of copying and moving beside the choice; and its gain over a copy if the time to
//! write the message before is included, since pages may have to come back, and the caches hold
//! other things.

use std::{hint::black_box, time::Instant};

use pinfold::reassembly::{
    HUGE_PAGES, PAGE_BYTES,
    fold::{Folder, Settings},
    gather::Costs,
    pool::{AnonPages, Filled, Owner, Pool},
};

use super::{median, us};

const TURNS: usize = 61;
const POOL_PAGES: u32 = 16 * HUGE_PAGES;

/// A pool in which the next message of as many pages lies in pieces of these lengths, and the
/// messages held for that.
fn holes(folder: &Folder, pieces: &[u32]) -> (Pool<AnonPages>, Vec<Filled<AnonPages>>) {
    let memory = folder.pages(POOL_PAGES).expect("memory");
    memory.inherit().expect("memory");
    let pool = Pool::new(memory);
    let take = |pages: u32| {
        let filling = pool.take(Owner(0), u64::from(pages) * PAGE_BYTES as u64);
        filling.expect("free pages").finish()
    };
    let (mut holes, mut walls) = (Vec::new(), Vec::new());
    for pages in pieces {
        holes.push(take(*pages));
        walls.push(take(1));
    }
    while pool.count().taken < POOL_PAGES {
        walls.push(take((POOL_PAGES - pool.count().taken).min(HUGE_PAGES)));
    }
    drop(holes);
    (pool, walls)
}

/// The times of one turn: to write the message, and to hand it out, read it and drop it; and the
/// way it went.
fn turn(folder: &Folder, pool: &Pool<AnonPages>, source: &[u8]) -> (f64, f64, String) {
    let start = Instant::now();
    let mut filling = pool.take(Owner(0), source.len() as u64).expect("free pages");
    filling.write(source).expect("as long");
    let message = filling.finish();
    let written = us(start);
    let start = Instant::now();
    let folded = folder.fold(message).expect("to fold");
    let words = folded.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    let sum = black_box(words.fold(0, u64::wrapping_add));
    let said = *folded.receipt();
    drop(folded);
    let took = us(start);
    let words = source.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
    assert_eq!(sum, words.fold(0, u64::wrapping_add), "another message");
    (written, took, said.to_string())
}

/// Compares, in turns: by costs, copying, and moving.
fn compare(folders: &[Folder; 3], pieces: &[u32]) {
    let pages: u32 = pieces.iter().sum();
    let mut source: Vec<u8> = (0..pages as usize * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
    // Each has a pool of its own: pages that were moved are of one folder.
    let pools = folders.each_ref().map(|folder| holes(folder, pieces));
    let mut times = [(); 3].map(|()| Vec::new());
    let [mut best, mut all] = [(); 2].map(|()| Vec::new());
    let (mut said, mut random) = (String::new(), 17u64);
    for at in 0..TURNS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let first = (random >> 33) as usize % 3;
        let second = 1 + (random >> 60) as usize % 2;
        let mut took = [(0.0, 0.0); 3];
        for which in [first, (first + second) % 3, (first + 2 * second) % 3] {
            source[at] ^= 1;
            let (written, handed, how) = turn(&folders[which], &pools[which].0, &source);
            took[which] = (written + handed, handed);
            if which == 0 {
                said = how;
            }
        }
        if at >= 3 {
            times.iter_mut().zip(took).for_each(|(times, (_, handed))| times.push(handed));
            best.push(took[1].1.min(took[2].1) / took[0].1);
            all.push(took[1].0 / took[0].0);
        }
    }
    let [chosen, copied, moved] = times.map(|mut times| median(&mut times));
    println!(
        "{:4} KiB in {:3}: chosen {chosen:7.1} us  copied {copied:7.1}  moved {moved:7.1}  best/chosen {:5.2}  \
         copied/chosen {:5.2}, with writing {:5.2}",
        pages * 4,
        pieces.len(),
        median(&mut best),
        copied / chosen,
        median(&mut all),
    );
    println!("{:17}{said}", "");
}

pub fn main() {
    // As the endpoints have it.
    let settings = Settings { counts_return: true, just_written: true, ..Settings::default() };
    let chosen = Folder::new(settings.clone()).expect("a folder");
    let start = Instant::now();
    let measured = chosen.measured();
    println!("kept: {TURNS} turns; measured in {:.0} us: {measured:?}", us(start));
    if let Some(error) = chosen.why_not_moving() {
        println!("nothing is moved here: {error}");
    }
    let with = |costs| Settings { costs: Some(costs), ..settings.clone() };
    let copied = Folder::new(with(Costs::COPY_ONLY)).expect("a folder");
    let dear = Costs { copy_byte_ns: 100.0, ..measured.costs };
    let moved = Folder::new(with(dear)).expect("a folder");
    let folders = [chosen, copied, moved];
    let even = |pages: u32, pieces: u32| {
        let end = |at: u32| (at + 1) * pages / pieces;
        (0..pieces).map(|at| end(at) - at * pages / pieces).collect::<Vec<_>>()
    };
    for mib in [1, 3, 8] {
        for pieces in [2, 3, 6, 25, 100] {
            compare(&folders, &even(mib * 256, pieces));
        }
    }
    // As they come out of a pool with room for whole huge pages.
    for pieces in [&[512, 256][..], &[512, 512, 256], &[512, 200, 56], &[1024, 900, 100]] {
        compare(&folders, pieces);
    }
}
