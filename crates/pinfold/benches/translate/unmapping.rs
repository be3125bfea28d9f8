//! The time of `munmap`: where nothing watches in this process, of memory that is not watched while
//! other memory is, and of memory that is pinned and watched.
//!
//! The three take turns. Memory is written before it is pinned, and each turn has memory of its
//! own. The median of each is printed, and of the differences within a turn.

use std::time::Instant;

use pinfold::translate::own::OwnMemory;
use pinfold_sys::mem::userfault::Pages;

const TURNS: usize = 41;
/// Times in a turn, of which the median counts.
const TIMES: usize = 50;

pub(super) fn main() {
    let sizes = [4 << 10, 64 << 10, 1 << 20];
    println!("munmap, us; {TURNS} turns of {TIMES}");
    for len in sizes {
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            let nowhere = median((0..TIMES).map(|_| us(memory(len))).collect());
            let Some(own) = super::own(64 << 20) else { return };
            let (mut other, mut watched) = (Vec::new(), Vec::new());
            for _ in 0..TIMES {
                let beside = pinned(&own, len);
                other.push(us(memory(len)));
                watched.push(us(beside));
            }
            let row = (0..TIMES).map(|_| pinned(&own, len)).collect::<Vec<_>>();
            let start = Instant::now();
            drop(row);
            let in_a_row = start.elapsed().as_nanos() as f64 / 1000.0 / TIMES as f64;
            turns.push([nowhere, median(other), median(watched), in_a_row]);
        }
        let of = |value: &dyn Fn(&[f64; 4]) -> f64| median(turns.iter().map(value).collect());
        println!(
            "{:>8} B  no watch {:6.2}  not watched {:6.2} ({:+.2})  watched {:6.2} ({:+.2})  in a row {:6.2} ({:+.2})",
            len,
            of(&|turn| turn[0]),
            of(&|turn| turn[1]),
            of(&|turn| turn[1] - turn[0]),
            of(&|turn| turn[2]),
            of(&|turn| turn[2] - turn[0]),
            of(&|turn| turn[3]),
            of(&|turn| turn[3] - turn[0]),
        );
    }
}

fn memory(len: usize) -> Pages {
    let mut pages = Pages::new(len, false).expect("memory");
    pages.as_mut_slice().fill(1);
    pages
}

/// Memory that is pinned and watched, and used by no transfer any more.
fn pinned(own: &OwnMemory, len: usize) -> Pages {
    let pages = memory(len);
    // An earlier unmapping may still be under way: then this is pinned for a transfer alone.
    for _ in 0..1000 {
        let hold = own.begin(pages.addr() as u64, len as u64).expect("it is within the budget");
        let kept = hold.kept();
        own.end(hold);
        if kept.is_ok() {
            return pages;
        }
    }
    panic!("it is never kept");
}

/// The time to unmap it.
fn us(pages: Pages) -> f64 {
    let start = Instant::now();
    drop(pages);
    start.elapsed().as_nanos() as f64 / 1000.0
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}
