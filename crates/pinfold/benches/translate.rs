//! The cost of hits: in the TLB, in the pin-down cache with 1, 100 and 10,000 areas, and of this
//! process's own memory, which is watched; the cost of its misses beside a pin alone; the cost to
//! unmap it (`-- unmapping` for that alone).
//!
//! Every measurement answers many look-ups, whose number is the count of items: read the time an
//! item. The order of the addresses is a fixed random one.

use divan::{Bencher, counter::ItemsCount};
use parking_lot::Mutex;
use pinfold::translate::{
    Rights, SpaceId,
    own::OwnMemory,
    pincache::{Area, Budget, Handle, PinCache, Pinner, Refused, SharedPinCache},
    tlb::{Geometry, Lookup, Tlb},
};
use pinfold_sys::{
    mem::{
        pin::{Pin, Registered},
        userfault::Pages,
    },
    shuffle::Shuffle,
};

const LOOK_UPS: usize = 10_000;
const PAGE: u64 = 4096;
const HERE: SpaceId = SpaceId(1);

#[path = "translate/unmapping.rs"]
mod unmapping;

fn main() {
    // Benchmarks that take turns are not for divan.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let names = args.iter().filter(|arg| !arg.starts_with('-')).count();
    let alone = args.iter().any(|arg| arg == "unmapping");
    let list = args.iter().any(|arg| arg == "--list" || arg == "--test");
    if !list && (alone || names == 0) {
        unmapping::main();
    }
    if !alone {
        divan::main();
    }
}

fn any_of(many: u64) -> Vec<u64> {
    let mut random = Shuffle::of(0x5EED);
    (0..LOOK_UPS).map(|_| random.below(many)).collect()
}

fn tlb(pages: u64) -> Tlb<u64> {
    let mut tlb = Tlb::new(Geometry::default()).expect("the default is possible");
    for page in 0..pages {
        let _ = tlb.insert(HERE, page * PAGE, Rights::ReadWrite, page);
    }
    tlb
}

#[divan::bench(args = [1, 100, 1000])]
fn tlb_look_up(bencher: Bencher, pages: u64) {
    let mut tlb = tlb(pages);
    let addresses: Vec<u64> = any_of(pages).iter().map(|page| page * PAGE + 64).collect();
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench_local(|| {
        let mut sum = 0;
        for address in &addresses {
            if let Lookup::Hit(value) = tlb.look_up(HERE, *address, Rights::Read) {
                sum += value;
            }
        }
        sum
    });
    assert_eq!(tlb.counters().misses(), 0);
}

#[divan::bench(args = [1, 100, 1000])]
fn tlb_begin_end(bencher: Bencher, pages: u64) {
    let mut tlb = tlb(pages);
    let addresses: Vec<u64> = any_of(pages).iter().map(|page| page * PAGE + 64).collect();
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench_local(|| {
        for address in &addresses {
            if let Lookup::Hit(transfer) = tlb.begin(HERE, *address, Rights::Read) {
                let _ = tlb.end(transfer);
            }
        }
    });
    assert_eq!(tlb.counters().misses(), 0);
}

/// Pins nothing.
struct Nothing;

impl Pinner for Nothing {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        Ok(Handle(area.start))
    }

    fn unpin(&mut self, _handle: Handle, _area: Area) {}
}

/// Bytes of an area, and from one to the next.
const AREA: u64 = 64 << 10;
const STRIDE: u64 = AREA + PAGE;

fn budget() -> Budget {
    Budget::of_bytes(1 << 40)
}

/// Begins and ends a transfer at each of these addresses.
macro_rules! transfers {
    ($cache:expr, $addresses:expr) => {
        for address in $addresses {
            if let Ok(hold) = $cache.begin(HERE, *address, PAGE) {
                $cache.end(hold);
            }
        }
    };
}

/// Addresses at the start of an area, or anywhere in it.
fn addresses(areas: u64, anywhere: bool) -> Vec<u64> {
    let mut random = Shuffle::of(0xBEEF);
    let mut within = || if anywhere { random.below(AREA - PAGE) } else { 0 };
    any_of(areas).iter().map(|area| area * STRIDE + within()).collect()
}

fn pin_all(areas: u64, mut pin: impl FnMut(u64)) {
    (0..areas).for_each(|area| pin(area * STRIDE));
}

fn alone(bencher: Bencher, areas: u64, anywhere: bool) {
    let mut cache = PinCache::new(Nothing, budget()).expect("the budget is possible");
    pin_all(areas, |start| {
        let hold = cache.begin(HERE, start, AREA).expect("there is room");
        cache.end(hold);
    });
    let addresses = addresses(areas, anywhere);
    transfers!(cache, &addresses);
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench_local(|| transfers!(cache, &addresses));
    assert_eq!(cache.counters().misses, areas);
}

fn shared_cache(areas: u64) -> SharedPinCache<Nothing> {
    let cache = SharedPinCache::new(Nothing, budget()).expect("the budget is possible");
    pin_all(areas, |start| cache.end(cache.begin(HERE, start, AREA).expect("there is room")));
    cache
}

/// A hit and its end, each transfer at the start of an area.
#[divan::bench(args = [1, 100, 10_000])]
fn pincache_begin_end(bencher: Bencher, areas: u64) {
    alone(bencher, areas, false);
}

/// The same anywhere in it.
#[divan::bench(args = [1, 100, 10_000])]
fn pincache_begin_end_anywhere(bencher: Bencher, areas: u64) {
    alone(bencher, areas, true);
}

/// The cache for many threads, used by one.
#[divan::bench(args = [1, 100, 10_000])]
fn shared_begin_end(bencher: Bencher, areas: u64) {
    let cache = shared_cache(areas);
    let addresses = addresses(areas, false);
    transfers!(cache, &addresses);
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench(|| transfers!(cache, &addresses));
}

/// The same by two threads at a time, each with all areas.
#[divan::bench(args = [1, 100, 10_000], threads = [2])]
fn shared_begin_end_of_two(bencher: Bencher, areas: u64) {
    let cache = shared_cache(areas);
    let addresses = addresses(areas, false);
    transfers!(cache, &addresses);
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench(|| transfers!(cache, &addresses));
}

/// The cost of a lock around the cache for one thread instead.
#[divan::bench(args = [1, 100, 10_000], threads = [1, 2])]
fn locked_begin_end(bencher: Bencher, areas: u64) {
    let cache = Mutex::new(PinCache::new(Nothing, budget()).expect("the budget is possible"));
    let transfers = |addresses: &[u64], len: u64| {
        for address in addresses {
            let hold = cache.lock().begin(HERE, *address, len);
            if let Ok(hold) = hold {
                cache.lock().end(hold);
            }
        }
    };
    pin_all(areas, |start| transfers(&[start], AREA));
    let addresses = addresses(areas, false);
    transfers(&addresses, PAGE);
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench(|| transfers(&addresses, PAGE));
}

/// A miss that evicts one of so many areas, apart from the cost of pinning.
#[divan::bench(args = [1, 100, 10_000])]
fn pincache_miss_and_evict(bencher: Bencher, areas: u64) {
    let budget = Budget { bytes_max: areas * AREA, ..budget() };
    let mut cache = PinCache::new(Nothing, budget).expect("the budget is possible");
    let mut next = 0;
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench_local(|| {
        for _ in 0..LOOK_UPS {
            next += STRIDE;
            let hold = cache.begin(HERE, next, AREA).expect("what is idle gives way");
            cache.end(hold);
        }
    });
    assert_eq!(cache.counters().hits, 0);
}

/// Memory of which every other page is sent from, each an area of its own.
fn pages(areas: u64) -> (Pages, u64) {
    let mut pages = Pages::new((2 * areas * PAGE) as usize, false).expect("memory");
    pages.as_mut_slice().fill(1);
    let start = pages.addr() as u64;
    (pages, start)
}

/// A cache of own memory that keeps its pins; `None` where that is impossible.
fn own(bytes: u64) -> Option<OwnMemory> {
    let own = OwnMemory::new(Budget::of_bytes(bytes)).expect("the budget is possible");
    if own.standing().not_kept.is_some() {
        eprintln!("SKIPPED: {}", own.standing());
        return None;
    }
    Some(own)
}

/// Hits of `OwnMemory`, by any form.
macro_rules! own_hits {
    ($bencher:expr, $areas:expr, $begin:ident, $end:ident) => {
        let Some(own) = own(1 << 30) else { return };
        let (_memory, start) = pages($areas);
        let addresses: Vec<u64> =
            any_of($areas).iter().map(|area| start + 2 * area * PAGE).collect();
        let transfers = |own: &OwnMemory| {
            for address in &addresses {
                if let Ok(hold) = own.$begin(*address, PAGE) {
                    own.$end(hold);
                }
            }
        };
        transfers(&own);
        let before = own.counters().pins.pins;
        $bencher.counter(ItemsCount::new(LOOK_UPS)).bench_local(|| transfers(&own));
        assert_eq!(own.counters().pins.pins, before);
    };
}

#[divan::bench(args = [1, 100, 10_000])]
fn own_begin_end(bencher: Bencher, areas: u64) {
    own_hits!(bencher, areas, begin, end);
}

#[divan::bench(args = [1, 100, 10_000])]
fn own_begin_exact_end(bencher: Bencher, areas: u64) {
    own_hits!(bencher, areas, begin_exact, end);
}

/// The pin-down cache alone, with areas as above.
#[divan::bench(args = [1, 100, 10_000])]
fn own_without_watch(bencher: Bencher, areas: u64) {
    let cache = SharedPinCache::new(Nothing, budget()).expect("the budget is possible");
    let start = 1 << 44;
    let addresses: Vec<u64> = any_of(areas).iter().map(|area| start + 2 * area * PAGE).collect();
    transfers!(cache, &addresses);
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench_local(|| transfers!(cache, &addresses));
}

/// Pages of a pin, from one to the next; as many pins as places.
const MISSES: u64 = 500;

/// A miss that evicts: it watches, pins, looks, unpins and watches no longer.
#[divan::bench(args = [1, 16])]
fn own_miss(bencher: Bencher, pages_each: u64) {
    let Some(own) = own(8 * pages_each * PAGE) else { return };
    let (_memory, start) = pages(MISSES * pages_each);
    bencher.counter(ItemsCount::new(MISSES)).bench_local(|| {
        for at in 0..MISSES {
            let hold = own.begin(start + 2 * at * pages_each * PAGE, pages_each * PAGE);
            own.end(hold.expect("what is idle gives way"));
        }
    });
    assert_eq!(own.counters().pins.hits, 0);
}

/// The cost of an io_uring's pin and its end alone.
#[divan::bench(args = [1, 16])]
fn own_miss_raw_pin(bencher: Bencher, pages_each: u64) {
    let Ok(ring) = Registered::new(16) else { return };
    let (_memory, start) = pages(MISSES * pages_each);
    bencher.counter(ItemsCount::new(MISSES)).bench_local(|| {
        for at in 0..MISSES {
            let from = (start + 2 * at * pages_each * PAGE) as usize;
            let slot = ring.pin(from..from + (pages_each * PAGE) as usize);
            ring.unpin(slot.expect("it is mapped")).expect("it is pinned");
        }
    });
}
