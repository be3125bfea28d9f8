//! Messages of 24 MB in pieces that do not lie in order, folded and copied in turns.
//!
//! `memcpy` goes to memory that is there already, a call for each piece; to learn where the pieces
//! lie is part of both. Each message is checked where it arrived, by both, outside of the times.
//! The output is the median of each, and of the ratio of each pair. Right after `memcpy` the caches
//! hold the message and nothing of the kernel's; *in a row* means after another fold.

mod given;
mod kept;

use std::{hint::black_box, time::Instant};

use pinfold::reassembly::{
    HUGE_BYTES, HUGE_PAGES, PAGE_BYTES,
    fold::{Folder, Quiet, Scattered, Settings},
    pool::{Filled, Owner, Pages, Pool, SealedPages},
};

const BYTES: usize = 24 << 20;
const TURNS: usize = 41;

/// A message in pieces of `len` bytes, and the pieces' numbers: each is filled with its number.
fn message<P: Pages>(pool: &Pool<P>, len: usize) -> (Vec<Filled<P>>, Vec<u64>) {
    let count = BYTES / len;
    let mut parts: Vec<_> = (0..count as u64)
        .map(|number| {
            let mut filling = pool.take(Owner(1), len as u64).expect("free pages");
            filling.write(&bytes(number, len)).expect("as long");
            (filling.finish(), number)
        })
        .collect();
    let mut state = 17u64;
    for at in (1..parts.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        parts.swap(at, (state >> 33) as usize % (at + 1));
    }
    parts.into_iter().unzip()
}

fn bytes(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64 / 8).flat_map(|at| (at ^ number << 32).to_ne_bytes()).collect()
}

fn check(bytes: &[u8], numbers: &[u64], len: usize) {
    for (bytes, number) in bytes.chunks(len).zip(numbers) {
        let words = bytes.chunks_exact(8).enumerate();
        let wrong = words.filter(|(at, word)| **word != (*at as u64 ^ number << 32).to_ne_bytes());
        assert_eq!(wrong.count(), 0, "piece {number}");
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn us(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / 1000.0
}

/// Folds and copies in turns.
fn compare<P: Pages>(name: &str, folder: &Folder, pool: &Pool<P>, len: usize)
where
    Filled<P>: Quiet,
{
    let (message, numbers) = message(pool, len);
    let mut message = Some(message);
    let mut to = vec![0u8; BYTES];
    let [mut copies, mut folds, mut rows, mut unfolds, mut ratios, mut both] =
        [(); 6].map(|()| Vec::new());
    let (mut said, mut told) = (String::new(), Vec::new());
    for turn in 0..TURNS {
        let pieces = message.take().expect("came back");
        let start = Instant::now();
        told.clear();
        pieces.gather(&mut told);
        let mut at = 0;
        for piece in &told {
            let from: *const u8 = std::ptr::with_exposed_provenance(piece.at as usize);
            // SAFETY: the piece is the message's, which is not used meanwhile, and there is room
            // for it.
            #[allow(unsafe_code)]
            unsafe {
                from.copy_to_nonoverlapping(to.as_mut_ptr().add(at), piece.len as usize);
            }
            at += piece.len as usize;
        }
        black_box(&mut to);
        let copy = us(start);
        let start = Instant::now();
        let folded = black_box(folder.fold(pieces).expect("to fold"));
        let fold = us(start);
        if turn % 10 == 0 {
            check(&to, &numbers, len);
            check(&folded, &numbers, len);
            to.fill(0);
            said = folded.receipt().to_string();
        }
        let start = Instant::now();
        let pieces = folded.unfold();
        let unfold = us(start);
        // Once more, where nothing has used the caches meanwhile.
        let start = Instant::now();
        let again = folder.fold(pieces).expect("to fold");
        let row = us(start);
        message = Some(again.unfold());
        if turn > 1 {
            rows.push(row);
            copies.push(copy);
            folds.push(fold);
            unfolds.push(unfold);
            ratios.push(copy / fold);
            both.push(copy / (fold + unfold));
        }
    }
    let [copy, fold, row, unfold] =
        [&mut copies, &mut folds, &mut rows, &mut unfolds].map(|times| median(times));
    println!(
        "{name:16} memcpy {copy:7.1} us  fold {fold:7.1}, in a row {row:7.1}  unfold {unfold:7.1}  \
         memcpy/fold {:6.2}, in a row {:6.2}, with unfold {:5.2}",
        median(&mut ratios),
        copy / row,
        median(&mut both),
    );
    println!("{:16} {said}", "");
}

pub fn main() {
    let asked = |what: &str| std::env::args().any(|arg| arg == what);
    if !asked("kept") {
        given::main();
    }
    if asked("given") {
        return;
    }
    kept::main();
    if asked("kept") {
        return;
    }
    let folder = Folder::new(Settings::default()).expect("a folder");
    println!("fold: 24 MB; {TURNS} turns; {:?}", folder.measured());
    if let Some(error) = folder.why_not_moving() {
        println!("nothing is moved here: {error}");
    }
    let pages = 16 * HUGE_PAGES;
    for (name, len) in [("2 MB", HUGE_BYTES), ("64 KB", 1 << 16), ("4 KB", PAGE_BYTES)] {
        let pool = Pool::new(folder.pages(pages).expect("memory"));
        compare(&format!("anonymous, {name}"), &folder, &pool, len);
        println!("{:16} {:?}", "", pool.count());
    }
    for (name, len) in [("2 MB", HUGE_BYTES), ("64 KB", 1 << 16), ("4 KB", PAGE_BYTES)] {
        let pool = Pool::new(SealedPages::new(pages).expect("memory"));
        compare(&format!("memfd, {name}"), &folder, &pool, len);
    }
}
