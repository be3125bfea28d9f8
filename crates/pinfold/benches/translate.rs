//! What hits cost: in the TLB, and in the pin-down cache with 1, 100 and 10,000 areas.
//!
//! Every measurement answers many look-ups, whose number is the count of items: read the time an
//! item. The order of the addresses is a fixed random one.

use divan::{Bencher, counter::ItemsCount};
use parking_lot::Mutex;
use pinfold::translate::{
    Rights, SpaceId,
    pincache::{Area, Budget, Handle, PinCache, Pinner, Refused, SharedPinCache},
    tlb::{Geometry, Lookup, Tlb},
};
use pinfold_sys::lots::Lots;

const LOOK_UPS: usize = 10_000;
const PAGE: u64 = 4096;
const HERE: SpaceId = SpaceId(1);

fn main() {
    divan::main();
}

fn any_of(many: u64) -> Vec<u64> {
    let mut random = Lots::of(0x5EED);
    (0..LOOK_UPS).map(|_| random.below(many)).collect()
}

fn tlb(pages: u64) -> Tlb<u64> {
    let mut tlb = Tlb::new(Geometry::default()).expect("the default is possible");
    for page in 0..pages {
        let _ = tlb.insert(HERE, page * PAGE, Rights::READ_WRITE, page);
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
            if let Lookup::Hit(value) = tlb.look_up(HERE, *address, Rights::READ) {
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
            if let Lookup::Hit(transfer) = tlb.begin(HERE, *address, Rights::READ) {
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
    let mut random = Lots::of(0xBEEF);
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

/// By two at the same time, each with all areas.
#[divan::bench(args = [1, 100, 10_000], threads = [2])]
fn shared_begin_end_of_two(bencher: Bencher, areas: u64) {
    let cache = shared_cache(areas);
    let addresses = addresses(areas, false);
    transfers!(cache, &addresses);
    bencher.counter(ItemsCount::new(LOOK_UPS)).bench(|| transfers!(cache, &addresses));
}

/// What a lock around the cache for one thread would cost instead.
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

/// A miss that evicts one of so many areas, apart from what pinning costs.
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
