//! The cache beside a naive one: the same steps, with every answer, every count and all pinned
//! areas compared.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
struct Naive {
    id: usize,
    area: Area,
    in_flight: u32,
    is_live: bool,
    used: u64,
}

struct Model {
    budget: Budget,
    areas: Vec<Naive>,
    next: usize,
    time: u64,
    memory: u64,
    hole: (u64, u64),
    counters: PinCounters,
}

fn needs(areas: &[Naive]) -> Pinned {
    areas.iter().fold(Pinned::default(), |sum, one| Pinned {
        bytes: sum.bytes + one.area.len(),
        entries: sum.entries + 1,
        slots: sum.slots + Fake::slots_of(one.area),
    })
}

fn has(outer: Area, inner: Area) -> bool {
    outer.space == inner.space && outer.start <= inner.start && inner.end <= outer.end
}

impl Model {
    fn fits(&self, areas: &[Naive]) -> bool {
        let sum = needs(areas);
        sum.bytes <= self.budget.bytes_max
            && sum.entries <= self.budget.entries_max
            && sum.slots <= self.budget.slots_max
    }

    fn naive(&self, area: Area) -> Naive {
        Naive { id: self.next, area, in_flight: 1, is_live: true, used: self.time }
    }

    /// Where several areas have all the bytes, the real one may take any: `taken` is the one it
    /// has.
    fn begin(
        &mut self,
        space: SpaceId,
        start: u64,
        len: u64,
        taken: Option<Area>,
    ) -> Result<(usize, u64, Area), NoPin> {
        self.time += 1;
        let bytes = Area { space, start, end: start + len };
        let hits = self.areas.iter_mut().filter(|one| one.is_live && has(one.area, bytes));
        let mut hits = hits.peekable();
        if hits.peek().is_some() {
            let one = hits.find(|one| Some(one.area) == taken).expect("it is a hit");
            one.in_flight += 1;
            one.used = self.time;
            self.counters.hits += 1;
            return Ok((one.id, start - one.area.start, one.area));
        }
        self.counters.misses += 1;
        let asked =
            Area { space, start: start / PAGE * PAGE, end: (start + len).div_ceil(PAGE) * PAGE };
        let answer = self.miss(asked);
        match answer {
            Ok(_) => {}
            Err(NoPin::Busy) => self.counters.busy += 1,
            Err(NoPin::TooLarge) => self.counters.too_large += 1,
            Err(_) => self.counters.refused += 1,
        }
        answer.map(|(id, area)| (id, start - area.start, area))
    }

    fn miss(&mut self, asked: Area) -> Result<(usize, Area), NoPin> {
        if !self.fits(&[self.naive(asked)]) {
            return Err(NoPin::TooLarge);
        }
        let longest = asked.len() * u64::from(self.budget.merge_growth_max);
        let mut union = asked;
        loop {
            let live =
                || self.areas.iter().filter(|one| one.is_live && one.area.space == asked.space);
            // The nearest on the left, then the last that begins within or just behind.
            let left = live().filter(|one| one.area.start < union.start);
            let right = live().filter(|one| one.area.start <= union.end);
            let start = |one: &&Naive| one.area.start;
            let mut next = None;
            for one in [left.max_by_key(start), right.max_by_key(start)].into_iter().flatten() {
                let both = Area {
                    start: one.area.start.min(union.start),
                    end: one.area.end.max(union.end),
                    ..union
                };
                if one.area.end >= union.start
                    && one.area.len() <= longest
                    && both != union
                    && self.fits(&[self.naive(both)])
                {
                    next = Some(both);
                    break;
                }
            }
            match next {
                Some(both) => union = both,
                None => break,
            }
        }
        if union != asked
            && let Ok(id) = self.pin(union, false)
        {
            return Ok((id, union));
        }
        self.pin(asked, true).map(|id| (id, asked))
    }

    /// The idle area that goes next: one within `area`, else the least recently used.
    fn out(areas: &[Naive], area: Area) -> Option<usize> {
        let idle = |at: &usize| areas[*at].is_live && areas[*at].in_flight == 0;
        let within = (0..areas.len()).filter(|at| idle(at) && has(area, areas[*at].area));
        let lru = (0..areas.len()).filter(idle).min_by_key(|at| areas[*at].used);
        within.min_by_key(|at| areas[*at].area.start).or(lru)
    }

    fn pin(&mut self, area: Area, may_retry: bool) -> Result<usize, NoPin> {
        let mut left = self.areas.clone();
        while !self.fits(&[left.clone(), vec![self.naive(area)]].concat()) {
            let Some(out) = Model::out(&left, area) else { return Err(NoPin::Busy) };
            left.remove(out);
        }
        let evicted = self.areas.len() - left.len();
        self.areas = left;
        self.counters.evictions += evicted as u64;
        self.counters.unpins += evicted as u64;
        loop {
            let pinned = needs(&self.areas).bytes;
            let Some(refused) = Fake::says(area, pinned, self.memory, self.hole) else { break };
            if !may_retry || !refused.is_shortage() {
                return Err(NoPin::Refused(refused));
            }
            let Some(out) = Model::out(&self.areas, area) else {
                let is_empty = self.areas.is_empty();
                return Err(if is_empty { NoPin::Refused(refused) } else { NoPin::Busy });
            };
            self.areas.remove(out);
            self.counters.evictions += 1;
            self.counters.unpins += 1;
        }
        self.counters.pins += 1;
        self.next += 1;
        let new = self.naive(area);
        let both = needs(&[self.areas.clone(), vec![new]].concat());
        self.counters.most = self.counters.most.most(both);
        let mut absorbed = 0;
        for one in &mut self.areas {
            if one.is_live && has(area, one.area) {
                one.is_live = false;
                absorbed += 1;
            }
        }
        self.counters.absorbed += absorbed;
        self.counters.merges += u64::from(absorbed > 0);
        self.areas.push(new);
        self.sweep();
        Ok(new.id)
    }

    /// Unpins areas that are out of reach and idle.
    fn sweep(&mut self) {
        let before = self.areas.len();
        self.areas.retain(|one| one.is_live || one.in_flight > 0);
        self.counters.unpins += (before - self.areas.len()) as u64;
    }

    fn end(&mut self, id: usize) {
        self.time += 1;
        let time = self.time;
        let one = self.areas.iter_mut().find(|one| one.id == id).unwrap();
        one.in_flight -= 1;
        one.used = time;
        self.counters.deferred += 1;
        if !one.is_live && one.in_flight == 0 {
            self.counters.deferred -= 1;
        }
        self.sweep();
    }

    fn invalidate(&mut self, space: SpaceId, start: u64, end: u64) -> Invalidated {
        let mut done = Invalidated::default();
        for one in &mut self.areas {
            if one.is_live
                && one.area.space == space
                && one.area.start < end
                && start < one.area.end
            {
                one.is_live = false;
                self.counters.invalidations += 1;
                *(if one.in_flight > 0 { &mut done.in_use } else { &mut done.unpinned }) += 1;
            }
        }
        self.sweep();
        done
    }
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u64, u64, u64),
    Touch(u64, u64, u64),
    End(usize),
    Invalidate(u64, u64, u64),
    Close(u64),
    Memory(u64),
    Hole(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let space = || prop_oneof![4 => Just(1u64), 1 => Just(2u64)];
    let start = || 0..40 * PAGE;
    let len = || prop_oneof![8 => 1..5 * PAGE, 1 => 1..30 * PAGE, 1 => Just(PAGE)];
    let step = prop_oneof![
        8 => (space(), start(), len()).prop_map(|(s, a, l)| Step::Begin(s, a, l)),
        10 => (space(), start(), len()).prop_map(|(s, a, l)| Step::Touch(s, a, l)),
        8 => any::<usize>().prop_map(Step::End),
        2 => (space(), start(), 0..6 * PAGE).prop_map(|(s, a, l)| Step::Invalidate(s, a, l)),
        1 => space().prop_map(Step::Close),
        1 => prop_oneof![(0..40u64).prop_map(|pages| Step::Memory(pages * PAGE)),
            Just(Step::Memory(u64::MAX))],
        1 => prop_oneof![(start(), 0..4 * PAGE).prop_map(|(a, l)| Step::Hole(a, a + l)),
            Just(Step::Hole(0, 0))],
    ];
    prop::collection::vec(step, 1..200)
}

fn compare(budget: Budget, steps: Vec<Step>) {
    let mut cache = cache_of(budget);
    let mut model = Model {
        budget,
        areas: Vec::new(),
        next: 0,
        time: 0,
        memory: u64::MAX,
        hole: (0, 0),
        counters: PinCounters::default(),
    };
    let mut holds: Vec<(Hold, usize)> = Vec::new();
    for step in steps {
        let is_touch = matches!(step, Step::Touch(..));
        match step {
            Step::Begin(space, start, len) | Step::Touch(space, start, len) => {
                let space = SpaceId(space);
                let answer = cache.begin(space, start, len);
                let handle = answer.as_ref().ok().map(|hold| hold.handle().0);
                let taken = handle.and_then(|handle| cache.pinner().pinned.get(&handle).copied());
                match (answer, model.begin(space, start, len, taken)) {
                    (Ok(hold), Ok((id, offset, area))) => {
                        assert_eq!(hold.offset(), offset);
                        assert_eq!(cache.pinner().pinned.get(&hold.handle().0), Some(&area));
                        if is_touch {
                            cache.end(hold);
                            model.end(id);
                        } else {
                            holds.push((hold, id));
                        }
                    }
                    (Err(one), Err(other)) => assert_eq!(one, other),
                    (one, other) => panic!("{one:?}, not {other:?}"),
                }
            }
            Step::End(which) => {
                if !holds.is_empty() {
                    let (hold, id) = holds.swap_remove(which % holds.len());
                    cache.end(hold);
                    model.end(id);
                }
            }
            Step::Invalidate(space, start, len) => {
                let space = SpaceId(space);
                let expected = match len {
                    0 => Invalidated::default(),
                    _ => model.invalidate(space, start, start + len),
                };
                assert_eq!(cache.invalidate(space, start, len), expected);
            }
            Step::Close(space) => {
                let space = SpaceId(space);
                assert_eq!(cache.close(space), model.invalidate(space, 0, u64::MAX));
            }
            Step::Memory(bytes) => {
                cache.pinner().memory.set(bytes);
                model.memory = bytes;
            }
            Step::Hole(start, end) => {
                cache.pinner().hole.set((start, end));
                model.hole = (start, end);
            }
        }
        model.counters.now = needs(&model.areas);
        assert_eq!(cache.counters(), model.counters);
        assert_eq!(cache.counters().now, cache.pinner().sum());
        let mut real: Vec<Area> = cache.pinner().pinned.values().copied().collect();
        let mut naive: Vec<Area> = model.areas.iter().map(|one| one.area).collect();
        real.sort_unstable();
        naive.sort_unstable();
        assert_eq!(real, naive);
        // In flight is pinned; and no live area has all of another.
        assert!(holds.iter().all(|(hold, _)| cache.pinner().pinned.contains_key(&hold.handle().0)));
        let live: Vec<Area> =
            model.areas.iter().filter(|one| one.is_live).map(|one| one.area).collect();
        for (at, one) in live.iter().enumerate() {
            assert!(!live.iter().enumerate().any(|(other, area)| other != at && has(*one, *area)));
        }
    }
    for (hold, id) in holds {
        cache.end(hold);
        model.end(id);
    }
    let (one, two) = (cache.close(HERE), cache.close(THERE));
    assert_eq!(one.in_use + two.in_use, 0);
    assert!(cache.pinner().pinned.is_empty());
}

proptest! {
    #[test]
    fn it_answers_as_a_naive_one(
        pages in 4u64..40,
        entries_max in 1u32..10,
        slots_max in 2u32..12,
        merge_growth_max in prop::sample::select(vec![0, 1, 4, u32::MAX]),
        steps in steps(),
    ) {
        compare(Budget { bytes_max: pages * PAGE, entries_max, slots_max, merge_growth_max }, steps);
    }
}
