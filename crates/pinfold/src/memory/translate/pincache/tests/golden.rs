//! Seeded traces and the counts that budgets yield for them: whole tables, so that any change in
//! the areas kept shows. The traces have the shape of the paper's two programs (section 6.2, table
//! 3).

use pinfold_sys::shuffle::Shuffle;

use super::*;

/// Calls the function it is given with every step of the trace.
type Trace = fn(&mut dyn FnMut(u64, u64));

/// A sort: short messages out of 64 buckets that grow and shrink.
fn sort(send: &mut dyn FnMut(u64, u64)) {
    let mut random = Shuffle::of(0x5EED);
    for _ in 0..20_000 {
        let bucket = random.below(64);
        send(bucket * 40 * PAGE + random.below(9) * 1000, 4000 + random.below(8000));
    }
}

/// A transform: long rows of a matrix, one after the other, many times.
fn transform(send: &mut dyn FnMut(u64, u64)) {
    for turn in 0..20 {
        (0..256).for_each(|row| send(0x10_0000 + row * 40_000, 32_000 + turn % 2 * 8000));
    }
}

/// Hits, misses, merges, absorbed, evictions, and bytes at most.
type Row = (u64, u64, u64, u64, u64, u64);

fn run<E: Evict>(pages: u64, evict: E, trace: Trace) -> Row {
    let budget = Budget { entries_max: 1024, slots_max: 1024, ..budget(pages) };
    let mut cache = PinCache::with_policy(Fake::new(budget), budget, evict).unwrap();
    trace(&mut |start, len| {
        let hold = cache.begin(HERE, start, len).unwrap();
        cache.end(hold);
    });
    let c = cache.counters();
    (c.hits, c.misses, c.merges, c.absorbed, c.evictions, c.most.bytes)
}

#[test]
fn the_table_stands() {
    let mut table = String::new();
    let traces: [(&str, Trace); 2] = [("sort", sort), ("transform", transform)];
    for (name, trace) in traces {
        for pages in [32, 128, 512, 4096] {
            let lru = run(pages, Lru::default(), trace);
            let clock = run(pages, Clock::default(), trace);
            table += &format!("{name} {pages} {lru:?} {clock:?}\n");
        }
    }
    assert_eq!(table, EXPECTED, "\n{table}");
}

const EXPECTED: &str = "\
sort 32 (1422, 18578, 35, 35, 18534, 131072) (1419, 18581, 39, 39, 18533, 131072)
sort 128 (6785, 13215, 237, 237, 12941, 524288) (6739, 13261, 244, 244, 12979, 524288)
sort 512 (19819, 181, 117, 117, 0, 1327104) (19819, 181, 117, 117, 0, 1327104)
sort 4096 (19819, 181, 117, 117, 0, 1327104) (19819, 181, 117, 117, 0, 1327104)
transform 32 (0, 5120, 840, 840, 4279, 131072) (0, 5120, 840, 840, 4279, 131072)
transform 128 (0, 5120, 540, 540, 4578, 524288) (0, 5120, 540, 540, 4578, 524288)
transform 512 (0, 5120, 660, 660, 4450, 2097152) (0, 5120, 657, 657, 4453, 2097152)
transform 4096 (4616, 504, 256, 440, 0, 12660736) (4616, 504, 256, 440, 0, 12660736)
";
