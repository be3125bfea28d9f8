//! Seeded traces and the counts that each shape of TLB yields for them, as in the paper's figure 3:
//! whole tables, so that any change in the entries kept shows.

use pinfold_sys::shuffle::Shuffle;

use super::*;

/// Calls the function it is given with every step of the trace.
type Trace = fn(&mut dyn FnMut(u64, u64));

/// A matrix multiplied by blocks: 82 pages, over and over, as many as the paper counts for its own.
fn blocks(touch: &mut dyn FnMut(u64, u64)) {
    for _ in 0..300 {
        (0..82).for_each(|page| touch(0, 0x1000 + page));
    }
}

/// A radix sort: writes scattered over 700 pages, reads in a row of 64.
fn scatter(touch: &mut dyn FnMut(u64, u64)) {
    let mut random = Shuffle::of(0x5EED);
    for step in 0..30_000 {
        touch(0, 0x2000 + random.below(700));
        touch(0, 0x9000 + step / 100 % 64);
    }
}

/// Sockets of 32 processes: each has 64 receive buffers at the same addresses, and is busy for a
/// while.
fn sockets(touch: &mut dyn FnMut(u64, u64)) {
    let mut random = Shuffle::of(0xBEEF);
    for _ in 0..400 {
        let process = random.below(32);
        let (first, many) = (random.below(64), 20 + random.below(80));
        (first..first + many).for_each(|buffer| touch(process, 0x4000 + buffer % 64));
    }
}

/// Hits in the first level, in the victim list, compulsory misses, others, evictions.
type Row = (u64, u64, u64, u64, u64);

fn run(sets: usize, ways: usize, victims: usize, trace: Trace) -> Row {
    let mut tlb = tlb(sets, ways, victims);
    trace(&mut |space, page| {
        if tlb.look_up(SpaceId(space), page * PAGE, Rights::Read) == Lookup::Miss {
            let _ = tlb.insert(SpaceId(space), page * PAGE, Rights::Read, 0);
        }
    });
    let c = tlb.counters();
    (c.hits_first, c.hits_victim, c.misses_compulsory, c.misses_other, c.evictions)
}

#[test]
fn the_table_stands() {
    let shapes = [(1024, 1, 16), (256, 1, 16), (256, 1, 0), (64, 4, 16), (64, 1, 16)];
    let traces: [(&str, Trace); 3] =
        [("blocks", blocks), ("scatter", scatter), ("sockets", sockets)];
    let mut table = String::new();
    for (name, trace) in traces {
        for (sets, ways, victims) in shapes {
            let row = run(sets, ways, victims, trace);
            table += &format!("{name} {sets}x{ways}+{victims} {row:?}\n");
        }
    }
    assert_eq!(table, EXPECTED, "\n{table}");
}

const EXPECTED: &str = "\
blocks 1024x1+16 (24518, 0, 82, 0, 0)
blocks 256x1+16 (24518, 0, 82, 0, 0)
blocks 256x1+0 (24518, 0, 82, 0, 0)
blocks 64x4+16 (24518, 0, 82, 0, 0)
blocks 64x1+16 (13754, 5382, 82, 5382, 5384)
scatter 1024x1+16 (58614, 321, 764, 301, 349)
scatter 256x1+16 (40214, 819, 764, 18203, 18695)
scatter 256x1+0 (40214, 0, 764, 19022, 19530)
scatter 64x4+16 (40471, 637, 764, 18128, 18620)
scatter 64x1+16 (31912, 1147, 764, 26177, 26861)
sockets 1024x1+16 (12420, 45, 2048, 8218, 9226)
sockets 256x1+16 (5087, 31, 2048, 15565, 17341)
sockets 256x1+0 (5087, 0, 2048, 15596, 17388)
sockets 64x4+16 (5257, 50, 2048, 15376, 17152)
sockets 64x1+16 (3068, 46, 2048, 17569, 19537)
";
