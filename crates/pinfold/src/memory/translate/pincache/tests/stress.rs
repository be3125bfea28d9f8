//! Many threads on one cache.

use std::sync::{
    Arc, Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use pinfold_sys::shuffle::Shuffle;

use super::*;

const THREADS: u64 = 4;

/// Each pin has a flag that says whether it stands, and where; no thread may hold one that does
/// not.
struct Flags {
    stands: Vec<AtomicBool>,
    start: Vec<AtomicU64>,
    end: Vec<AtomicU64>,
}

struct Flagged {
    flags: Arc<Flags>,
    next: usize,
    bytes: u64,
    bytes_max: u64,
}

impl Pinner for Flagged {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        let at = self.next;
        if at == self.flags.stands.len() {
            return Err(Refused::Denied);
        }
        self.next += 1;
        self.bytes += area.len();
        assert!(self.bytes <= self.bytes_max);
        self.flags.start[at].store(area.start, Ordering::Relaxed);
        self.flags.end[at].store(area.end, Ordering::Relaxed);
        self.flags.stands[at].store(true, Ordering::Relaxed);
        Ok(Handle(at as u64))
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        self.bytes -= area.len();
        assert!(self.flags.stands[handle.0 as usize].swap(false, Ordering::Relaxed));
    }
}

fn stress<E: Evict + Send + 'static>(evict: E) {
    let rounds: u64 = if cfg!(miri) { 60 } else { 20_000 };
    let pins = (rounds * THREADS) as usize;
    let flags = Arc::new(Flags {
        stands: (0..pins).map(|_| AtomicBool::new(false)).collect(),
        start: (0..pins).map(|_| AtomicU64::new(0)).collect(),
        end: (0..pins).map(|_| AtomicU64::new(0)).collect(),
    });
    let budget = Budget { entries_max: 24, ..budget(40) };
    let bytes_max = budget.bytes_max;
    let pinner = Flagged { flags: Arc::clone(&flags), next: 0, bytes: 0, bytes_max };
    let cache = Arc::new(SharedPinCache::with_policy(pinner, budget, evict).unwrap());
    let work = |seed: u64| {
        let (cache, flags) = (Arc::clone(&cache), Arc::clone(&flags));
        move || {
            let mut rng = Shuffle::of(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            let mut below = |end: u64| rng.below(end);
            let mut held: Vec<(Hold, u64)> = Vec::new();
            let (mut begun, mut busy) = (0, 0);
            for _ in 0..rounds {
                let (start, len) = (below(60 * PAGE), 1 + below(3 * PAGE));
                match below(16) {
                    0 => drop(cache.invalidate(HERE, start, len)),
                    _ if held.len() < 3 => match cache.begin(HERE, start, len) {
                        Ok(hold) => {
                            let at = hold.handle().0 as usize;
                            let from = flags.start[at].load(Ordering::Relaxed);
                            assert_eq!(from + hold.offset(), start);
                            assert!(start + len <= flags.end[at].load(Ordering::Relaxed));
                            begun += 1;
                            held.push((hold, start));
                        }
                        Err(NoPin::Busy) => busy += 1,
                        Err(other) => panic!("{other}"),
                    },
                    _ => {
                        let (hold, _) = held.swap_remove(below(3) as usize);
                        cache.end(hold);
                    }
                }
                for (hold, _) in &held {
                    let stands = &flags.stands[hold.handle().0 as usize];
                    assert!(stands.load(Ordering::Relaxed), "unpinned in flight");
                }
            }
            held.into_iter().for_each(|(hold, _)| cache.end(hold));
            (begun, busy)
        }
    };
    let threads: Vec<_> = (1..=THREADS).map(|seed| std::thread::spawn(work(seed))).collect();
    let (mut begun, mut busy) = (0, 0);
    for thread in threads {
        let (some, others) = thread.join().unwrap();
        begun += some;
        busy += others;
    }
    let counters = cache.counters();
    assert_eq!(counters.hits + counters.pins, begun);
    assert_eq!(counters.busy, busy);
    assert_eq!(counters.misses, counters.pins + busy);
    assert_eq!(counters.pins - counters.unpins, u64::from(counters.now.entries));
    assert!(cfg!(miri) || counters.hits > 0 && counters.evictions > 0 && counters.merges > 0);
    assert_eq!(cache.close(HERE).in_use, 0);
    assert_eq!(cache.counters().now, Pinned::default());
    assert!(flags.stands.iter().all(|stands| !stands.load(Ordering::Relaxed)));
}

#[test]
fn nobody_holds_what_is_unpinned() {
    stress(Lru::default());
    stress(Clock::default());
}

#[test]
fn a_cache_can_be_shared() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<SharedPinCache<Flagged>>();
}

#[test]
fn those_who_must_not_wait_hit_what_was_hit_before() {
    let budget = budget(10);
    let pinner = Flagged {
        flags: Arc::new(Flags {
            stands: vec![AtomicBool::new(false)],
            start: vec![AtomicU64::new(0)],
            end: vec![AtomicU64::new(0)],
        }),
        next: 0,
        bytes: 0,
        bytes_max: budget.bytes_max,
    };
    let mut cache = SharedPinCache::new(pinner, budget).unwrap();
    assert_eq!(cache.begin_pinned(HERE, 0, 1), None);
    assert_eq!(cache.begin_pinned_mut(HERE, 0, 1), None);
    cache.end(cache.begin(HERE, 0, 1).unwrap());
    cache.end(cache.begin_pinned(HERE, 0, 1).unwrap());
    let hold = cache.begin_pinned_mut(HERE, 0, 1).unwrap();
    let _ = cache.invalidate(HERE, 0, 1);
    assert_eq!(cache.begin_pinned(HERE, 0, 1), None);
    assert_eq!(cache.begin_pinned_mut(HERE, 0, 1), None);
    // The last one unpins the areas that are gone.
    assert_eq!(cache.counters().unpins, 0);
    cache.end_mut(hold);
    assert_eq!(cache.counters().unpins, 1);
    assert_eq!(cache.begin_pinned(HERE, 0, 0), None);
}

type Late = SharedPinCache<Flagged, EndsLate>;

/// A policy during which a transfer ends, as one of another thread may.
#[derive(Clone, Default)]
struct EndsLate {
    cache: Arc<OnceLock<Late>>,
    hold: Arc<Mutex<Option<Hold>>>,
    known: Vec<u32>,
}

impl Evict for EndsLate {
    fn insert(&mut self, area: u32, _: u64) {
        self.known.push(area);
    }

    fn forget(&mut self, area: u32) {
        self.known.retain(|known| *known != area);
    }

    fn choose(&mut self, areas: &mut dyn Candidates) -> Option<u32> {
        if let (Some(cache), Some(hold)) = (self.cache.get(), self.hold.lock().unwrap().take()) {
            cache.end(hold);
        }
        let place = self.known.iter().position(|area| areas.claim(*area))?;
        Some(self.known.remove(place))
    }
}

/// An area that is to give way to one that has it within itself is in flight when it is asked for
/// room, and not any more when the policy is: it goes once.
#[test]
fn what_ends_while_room_is_made_is_unpinned_once() {
    let budget = budget(2);
    let words = || (0..2).map(|_| AtomicU64::new(0)).collect();
    let stands = (0..2).map(|_| AtomicBool::new(false)).collect();
    let flags = Arc::new(Flags { stands, start: words(), end: words() });
    let pinner = Flagged { flags, next: 0, bytes: 0, bytes_max: budget.bytes_max };
    let policy = EndsLate::default();
    let (cache, hold) = (Arc::clone(&policy.cache), Arc::clone(&policy.hold));
    let made = SharedPinCache::with_policy(pinner, budget, policy).unwrap();
    let cache = cache.get_or_init(|| made);
    *hold.lock().unwrap() = Some(cache.begin(HERE, 0, 1).unwrap());
    let both = cache.begin(HERE, 0, 2 * PAGE).unwrap();
    assert!(hold.lock().unwrap().is_none());
    let counters = cache.counters();
    assert_eq!((counters.pins, counters.unpins, counters.now.entries), (2, 1, 1));
    cache.end(both);
    assert_eq!(cache.close(HERE).unpinned, 1);
}
