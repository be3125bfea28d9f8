#![allow(unsafe_code)]
//! The cost of a call site that learns: copies of one site through the central handler, beside the
//! same copies by the algorithm that the site has come to use: by themselves, through the same
//! handler, and through the same handler as the plan says, which is asked for each.
//!
//! The four take turns in bursts of some 200 µs, in changing order, each through a call. The blocks
//! stay where they are, so they lie in the nearest cache that holds both: there copies take least
//! time, and the extra cost shows most.

use std::time::Instant;

use pinfold::copy::{Algorithm, Choose, Fixed, Handler, Hints, InForce, Site};
use pinfold_sys::{cpu::block, shuffle::Shuffle};

/// Bytes of a block.
const SIZES: [usize; 8] =
    [1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// The approximate time of a burst, ns.
const BURST_NS: f64 = 200_000.0;
/// Bursts of each kind.
const ROUNDS: usize = 1500;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    println!("copies of one call site; of the time that the algorithm takes by itself");
    println!(
        "{:>9} {:>10} {:>9} {:>9} {:>9} {:>9}  algorithm",
        "bytes", "ns a copy", "handler", "plan", "site", "learning"
    );
    let mut turns = Shuffle::of(0x517E5);
    SIZES.iter().for_each(|size| print_one(*size, &mut turns));
}

/// Two blocks of one size.
#[derive(Clone, Copy)]
struct Blocks {
    from: *const u8,
    to: *mut u8,
    size: usize,
}

impl Blocks {
    /// Copies by the algorithm and nothing else.
    #[inline(never)]
    fn alone(self, algorithm: Algorithm) {
        // SAFETY: two blocks of that size, of this thread alone.
        unsafe { block::copy(algorithm, self.from, self.to, self.size) };
    }

    /// Copies by the algorithm that `handler` is told for each copy.
    #[inline(never)]
    fn handled<P: Choose>(self, handler: &mut Handler<P>, nothing: &Site) {
        // SAFETY: as above.
        unsafe {
            handler.copy_untimed(nothing, Hints::default(), self.from, self.to, self.size);
        }
    }

    /// Copies by the algorithm that the site has learnt, which goes on learning.
    #[inline(never)]
    fn learnt(self, handler: &mut Handler<InForce>, site: &mut Site) {
        // SAFETY: as above.
        let done = unsafe { handler.copy(site, Hints::default(), self.from, self.to, self.size) };
        done.learn(site, 0);
    }
}

fn print_one(size: usize, turns: &mut Shuffle) {
    let (from, mut to) = (vec![7u8; size], vec![1u8; size]);
    let blocks = Blocks { from: from.as_ptr(), to: to.as_mut_ptr(), size };
    let mut learns = Handler::new(InForce);
    let mut site = Site::new();
    let since = Instant::now();
    let mut copies = 0.0;
    while since.elapsed().as_millis() < 300 {
        blocks.learnt(&mut learns, &mut site);
        copies += 1.0;
    }
    let burst = (BURST_NS / (since.elapsed().as_nanos() as f64 / copies)).max(1.0) as u32;
    let Some(algorithm) = site.using(size) else { return };
    let (mut knows, mut asks) = (Handler::new(Fixed(algorithm)), Handler::new(InForce));
    let silent = Site::new();
    let mut took: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let first = turns.below(4) as usize;
        for turn in 0..4 {
            let kind = (first + turn) % 4;
            let since = Instant::now();
            for _ in 0..burst {
                match kind {
                    0 => blocks.alone(algorithm),
                    1 => blocks.handled(&mut knows, &silent),
                    2 => blocks.handled(&mut asks, &silent),
                    _ => blocks.learnt(&mut learns, &mut site),
                }
            }
            took[kind].push(since.elapsed().as_nanos() as f64 / f64::from(burst));
        }
    }
    let [alone, handled, planned, learnt] = &took;
    let more = |slow: &[f64], fast: &[f64]| {
        let ratios = slow.iter().zip(fast).map(|(slow, fast)| slow / fast);
        (middle(ratios.collect()) - 1.0) * 100.0
    };
    println!(
        "{size:>9} {:>10.0} {:>8.2}% {:>8.2}% {:>8.2}% {:>8.2}%  {algorithm}",
        middle(alone.clone()),
        more(handled, alone),
        more(planned, alone),
        more(learnt, alone),
        more(learnt, handled),
    );
}

/// The mean of the middle half: tries of other algorithms come in few bursts, and so do
/// interruptions.
fn middle(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let middle = &all[all.len() / 4..all.len() * 3 / 4];
    middle.iter().sum::<f64>() / middle.len() as f64
}
