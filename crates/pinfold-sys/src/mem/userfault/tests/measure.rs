//! Measurements of costs: `cargo test --release -p pinfold-sys --lib measure -- --ignored
//! --nocapture --test-threads=1`.
use std::{hint::black_box, time::Instant};

use super::*;

/// The median of rounds, in nanoseconds per call.
fn ns(rounds: usize, calls: usize, mut work: impl FnMut()) -> f64 {
    let mut found: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / calls as f64
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found[rounds / 2]
}

#[test]
#[ignore = "measures"]
fn validating_and_registering() {
    println!();
    let Some(watch) = watch() else { return };
    let pages = std::mem::ManuallyDrop::new(Pages::new(2 * Pages::HUGE, true).unwrap());
    let huge = pages.addr()..pages.addr() + pages.len();
    fill(huge.clone(), 1);
    let small = mapped(1024);
    watch.watch(small.clone()).unwrap();
    watch.watch(huge.clone()).unwrap();
    for (name, range, count) in
        [("small", &small, 1), ("small", &small, 16), ("small", &small, 512), ("huge", &huge, 512)]
    {
        let range = range.start..range.start + count * PAGE;
        let cost = ns(31, 2000, || {
            black_box(watch.validate(range.clone()).unwrap());
        });
        println!("validate {count} {name} pages: {cost:.0} ns");
    }
    println!(
        "is_quiet: {:.0} ns",
        ns(31, 5000, || {
            black_box(watch.is_quiet().unwrap());
        })
    );
    for count in [1, 16, 1024] {
        let range = small.start..small.start + count * PAGE;
        watch.unwatch(small.clone()).unwrap();
        let (mut on, mut off) = (Vec::new(), Vec::new());
        for _ in 0..2000 {
            let start = Instant::now();
            watch.watch(range.clone()).unwrap();
            let half = Instant::now();
            watch.unwatch(range.clone()).unwrap();
            on.push((half - start).as_nanos());
            off.push(half.elapsed().as_nanos());
        }
        on.sort();
        off.sort();
        println!("watch {count} pages: {} ns, unwatch {} ns", on[1000], off[1000]);
    }
    let reader = Reader::new(watch).unwrap();
    let stamp = reader.take(|_| {});
    println!(
        "is_unchanged: {:.1} ns",
        ns(31, 100_000, || {
            black_box(reader.is_unchanged(stamp));
        })
    );
    println!("holds: {:.0} ns", ns(31, 5000, || assert!(reader.holds(stamp).unwrap())));
    drop(reader);
    println!("Watch::new and drop: {:.0} ns", ns(11, 20, || drop(Watch::new())));
}

#[test]
#[ignore = "measures"]
fn unmapping() {
    println!();
    let Some(watch) = watch() else { return };
    let one = |watched: Option<&Watch>, discard: bool| {
        let range = mapped(1);
        if let Some(watch) = watched {
            watch.watch(range.clone()).unwrap();
        }
        let start = Instant::now();
        if discard {
            advise(range.clone(), Advice::LinuxDontNeed);
            let took = start.elapsed().as_nanos() as f64;
            unmap(range);
            return took;
        }
        unmap(range);
        start.elapsed().as_nanos() as f64
    };
    let reader = Reader::new(watch).unwrap();
    for discard in [false, true] {
        let (mut plain, mut watched) = (Vec::new(), Vec::new());
        for _ in 0..5000 {
            plain.push(one(None, discard));
            watched.push(one(Some(reader.watch()), discard));
            reader.take(|_| {});
        }
        for all in [&mut plain, &mut watched] {
            all.sort_by(f64::total_cmp);
        }
        let name = if discard { "MADV_DONTNEED" } else { "munmap" };
        let at = |part: usize| [plain[5000 * part / 100], watched[5000 * part / 100]];
        println!("{name} plain/watched: median {:?} p90 {:?} ns", at(50), at(90));
    }
    // One after the other, without a pause for the reader to fall asleep in.
    for watched in [false, true, false, true] {
        let range = mapped(4000);
        if watched {
            reader.watch().watch(range.clone()).unwrap();
        }
        let start = Instant::now();
        for page in range.step_by(PAGE) {
            unmap(page..page + PAGE);
        }
        let each = start.elapsed().as_nanos() / 4000;
        println!("munmaps in a row, watched {watched}: {each} ns each");
    }
}

#[test]
#[ignore = "measures"]
fn moving_against_copying() {
    println!();
    let Some(mover) = Mover::new().ok() else { return };
    const LEN: usize = 24 << 20;
    for piece in [PAGE, 64 << 10, 2 << 20] {
        let huge = piece == 2 << 20;
        let order: Vec<usize> = shuffled(LEN / piece);
        let (mut moves, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..15 {
            let mut source = Pages::new(LEN, huge).unwrap();
            source.as_mut_slice().fill(1);
            let mut to = Pages::new(LEN, huge).unwrap();
            to.as_mut_slice().fill(2);
            let start = Instant::now();
            for (n, &from) in order.iter().enumerate() {
                let piece_of = &source.as_slice()[from * piece..(from + 1) * piece];
                to.as_mut_slice()[n * piece..(n + 1) * piece].copy_from_slice(piece_of);
            }
            copies.push(start.elapsed().as_nanos() / order.len() as u128);
            let mut window = mover.window(LEN, huge).unwrap();
            // Its page tables are there, as those of memory in use are.
            window.as_mut_slice().fill(3);
            window.discard(0..LEN).unwrap();
            let start = Instant::now();
            for (n, &from) in order.iter().enumerate() {
                let from = from * piece..(from + 1) * piece;
                let moved = mover.fold(&mut window, n * piece, &mut source, from).unwrap();
                assert_eq!(moved, Moved { bytes: piece, stop: None });
            }
            moves.push(start.elapsed().as_nanos() / order.len() as u128);
            assert!(window.as_slice().iter().step_by(PAGE).all(|&byte| byte == 1));
        }
        moves.sort();
        copies.sort();
        let ratio = copies[7] as f64 / moves[7] as f64;
        println!("{piece} B: move {} ns, memcpy {} ns: {ratio:.2}x", moves[7], copies[7]);
    }
}

fn shuffled(len: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..len).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(at, (seed >> 33) as usize % (at + 1));
    }
    order
}
