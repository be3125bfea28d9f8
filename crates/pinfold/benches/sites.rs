#![allow(unsafe_code)]
//! What it costs that a call site learns: copies of one site through the central handler, beside the same copies by
//! the algorithm that the site has come to use, through the same handler and by themselves.
//!
//! The three take turns in bursts of some 200 µs, in changing order. The blocks stay where they are, so they lie in the
//! nearest cache that holds both: there copies take least, and what comes on top shows most.

use std::time::Instant;

use pinfold::blockmem::{Fixed, Handler, Hints, InForce, Site};
use pinfold_sys::{block, lots::Lots};

/// Bytes of a block.
const SIZES: [usize; 8] =
    [1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// What a burst takes about, ns.
const BURST_NS: f64 = 200_000.0;
/// Bursts of each kind.
const ROUNDS: usize = 1500;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("copies of one call site; of the time that the algorithm takes by itself");
    println!(
        "{:>9} {:>10} {:>9} {:>9} {:>9}  algorithm",
        "bytes", "ns a copy", "handler", "learning", "of both"
    );
    let mut turns = Lots::of(0x517E5);
    SIZES.iter().for_each(|size| print_one(*size, &mut turns));
}

fn print_one(size: usize, turns: &mut Lots) {
    let (from, mut to) = (vec![7u8; size], vec![1u8; size]);
    let (from, to) = (from.as_ptr(), to.as_mut_ptr());
    let mut learns = Handler::new(InForce);
    let (mut site, hints) = (Site::new(), Hints::default());
    let mut by_site = || {
        // SAFETY: two blocks of that size, of this thread alone.
        let done = unsafe { learns.copy(&mut site, hints, from, to, size) };
        done.learn(&mut site, 0);
    };
    let since = Instant::now();
    let mut copies = 0.0;
    while since.elapsed().as_millis() < 300 {
        by_site();
        copies += 1.0;
    }
    let burst = (BURST_NS / (since.elapsed().as_nanos() as f64 / copies)).max(1.0) as u32;
    let Some(algorithm) = site.using(size) else { return };
    let mut knows = Handler::new(Fixed(algorithm));
    let silent = Site::new();
    let mut took: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        let first = turns.below(3) as usize;
        for turn in 0..3 {
            let kind = (first + turn) % 3;
            let since = Instant::now();
            for _ in 0..burst {
                match kind {
                    // SAFETY: as above.
                    0 => unsafe { block::copy(algorithm, from, to, size) },
                    // SAFETY: as above.
                    1 => unsafe { knows.copy_untimed(&silent, hints, from, to, size) },
                    _ => {
                        // SAFETY: as above.
                        let done = unsafe { learns.copy(&mut site, hints, from, to, size) };
                        done.learn(&mut site, 0);
                    }
                }
            }
            took[kind].push(since.elapsed().as_nanos() as f64 / f64::from(burst));
        }
    }
    let [alone, handled, learnt] = &took;
    let more = |slow: &[f64], fast: &[f64]| {
        let ratios = slow.iter().zip(fast).map(|(slow, fast)| slow / fast);
        (middle(ratios.collect()) - 1.0) * 100.0
    };
    println!(
        "{size:>9} {:>10.0} {:>8.2}% {:>8.2}% {:>8.2}%  {algorithm}",
        middle(alone.clone()),
        more(handled, alone),
        more(learnt, handled),
        more(learnt, alone),
    );
}

/// The mean of the middle half: tries of other algorithms come in few bursts, and so do interruptions.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let middle = &all[all.len() / 4..all.len() * 3 / 4];
    middle.iter().sum::<f64>() / middle.len() as f64
}
