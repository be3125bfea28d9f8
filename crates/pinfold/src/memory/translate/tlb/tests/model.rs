//! The TLB beside a naive one: the same steps, every answer and every count compared.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// An entry of the naive one; `id` tells the entries of a page apart.
#[derive(Clone, Debug)]
struct Naive {
    space: SpaceId,
    page: u64,
    rights: Rights,
    value: u32,
    id: usize,
    in_flight: u32,
}

impl Naive {
    fn gone(&self) -> Gone<u32> {
        let address = self.page * PAGE;
        Gone { space: self.space, address, value: self.value, transfers: self.in_flight }
    }
}

struct Model {
    geometry: Geometry,
    /// The newest first, in each.
    sets: Vec<Vec<Naive>>,
    /// The oldest first.
    victims: Vec<Naive>,
    aside: Vec<Naive>,
    known: BTreeSet<(SpaceId, u64)>,
    next: usize,
    counters: TlbCounters,
}

impl Model {
    fn new(geometry: Geometry) -> Model {
        Model {
            geometry,
            sets: vec![Vec::new(); geometry.sets],
            victims: Vec::new(),
            aside: Vec::new(),
            known: BTreeSet::new(),
            next: 0,
            counters: TlbCounters::default(),
        }
    }

    /// Looks up; the entry if it is a hit.
    fn look_up(
        &mut self,
        set: usize,
        space: SpaceId,
        page: u64,
        needed: Rights,
    ) -> Lookup<&mut Naive> {
        let is = |entry: &Naive| entry.space == space && entry.page == page;
        let first = self.sets[set].iter().position(is);
        let victim = self.victims.iter().position(is);
        assert!(first.is_none() || victim.is_none());
        if let Some(at) = first {
            if !self.sets[set][at].rights.allow(needed) {
                self.counters.denied += 1;
                return Lookup::Denied(self.sets[set][at].rights);
            }
            self.counters.hits_first += 1;
            return Lookup::Hit(&mut self.sets[set][at]);
        }
        let Some(at) = victim else {
            let is_new = self.known.insert((space, page));
            self.counters.misses_compulsory += u64::from(is_new);
            self.counters.misses_other += u64::from(!is_new);
            return Lookup::Miss;
        };
        if !self.victims[at].rights.allow(needed) {
            self.counters.denied += 1;
            return Lookup::Denied(self.victims[at].rights);
        }
        self.counters.hits_victim += 1;
        if self.victims.len() > self.geometry.victims {
            return Lookup::Hit(&mut self.victims[at]);
        }
        let entry = self.victims.remove(at);
        if let Some(out) = self.enter(set, entry) {
            self.victims.push(out);
        }
        Lookup::Hit(&mut self.sets[set][0])
    }

    fn enter(&mut self, set: usize, entry: Naive) -> Option<Naive> {
        let set = &mut self.sets[set];
        let out = (set.len() == self.geometry.ways).then(|| {
            let idle = set.iter().rposition(|entry| entry.in_flight == 0);
            set.remove(idle.unwrap_or(set.len() - 1))
        });
        set.insert(0, entry);
        out
    }

    fn trim(&mut self) -> Vec<Gone<u32>> {
        let mut gone = Vec::new();
        while self.victims.len() > self.geometry.victims {
            let Some(at) = self.victims.iter().position(|entry| entry.in_flight == 0) else {
                break;
            };
            self.counters.evictions += 1;
            gone.push(self.victims.remove(at).gone());
        }
        self.counters.victims_max = self.counters.victims_max.max(self.victims.len());
        gone
    }

    fn insert(
        &mut self,
        set: usize,
        space: SpaceId,
        page: u64,
        rights: Rights,
        value: u32,
    ) -> Vec<Gone<u32>> {
        self.counters.insertions += 1;
        self.known.insert((space, page));
        let mut gone = self.take(|entry| entry.space == space && entry.page == page);
        self.counters.replacements += gone.len() as u64;
        self.next += 1;
        let entry = Naive { space, page, rights, value, id: self.next, in_flight: 0 };
        if let Some(out) = self.enter(set, entry) {
            self.victims.push(out);
        }
        gone.retain(|gone| gone.transfers == 0);
        gone.extend(self.trim());
        gone
    }

    fn take(&mut self, is_meant: impl Fn(&Naive) -> bool) -> Vec<Gone<u32>> {
        let mut gone = Vec::new();
        for list in self.sets.iter_mut().chain([&mut self.victims]) {
            while let Some(at) = list.iter().position(&is_meant) {
                let entry = list.remove(at);
                gone.push(entry.gone());
                if entry.in_flight > 0 {
                    self.aside.push(entry);
                }
            }
        }
        gone
    }

    fn invalidate(&mut self, is_meant: impl Fn(&Naive) -> bool) -> Vec<Gone<u32>> {
        let gone = self.take(is_meant);
        self.counters.invalidations += gone.len() as u64;
        gone
    }

    fn end(&mut self, id: usize) -> Vec<Gone<u32>> {
        let lists = self.sets.iter_mut().chain([&mut self.victims, &mut self.aside]);
        let entry = lists.flatten().find(|entry| entry.id == id).unwrap();
        entry.in_flight -= 1;
        if let Some(at) = self.aside.iter().position(|entry| entry.in_flight == 0) {
            return vec![self.aside.remove(at).gone()];
        }
        self.trim()
    }
}

#[derive(Clone, Debug)]
enum Step {
    LookUp(u64, u64, u64, Rights),
    Begin(u64, u64, Rights),
    End(usize),
    Insert(u64, u64, Rights),
    Invalidate(u64, u64),
    Range(u64, u64, u64),
    Close(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = || prop_oneof![3 => 0..12u64, 1 => 0..60u64];
    let space = || 0..3u64;
    let rights = || prop_oneof![Just(Rights::Read), Just(Rights::ReadWrite)];
    let step = prop_oneof![
        8 => (space(), page(), 0..PAGE, rights()).prop_map(|(s, p, o, r)| Step::LookUp(s, p, o, r)),
        6 => (space(), page(), rights()).prop_map(|(s, p, r)| Step::Begin(s, p, r)),
        6 => any::<usize>().prop_map(Step::End),
        8 => (space(), page(), rights()).prop_map(|(s, p, r)| Step::Insert(s, p, r)),
        2 => (space(), page()).prop_map(|(s, p)| Step::Invalidate(s, p)),
        1 => (space(), 0..60 * PAGE, 0..90 * PAGE).prop_map(|(s, a, l)| Step::Range(s, a, l)),
        1 => space().prop_map(Step::Close),
    ];
    prop::collection::vec(step, 1..250)
}

fn sorted(mut gone: Vec<Gone<u32>>) -> Vec<Gone<u32>> {
    gone.sort_unstable_by_key(|gone| (gone.space, gone.address, gone.value));
    gone
}

fn invariants(tlb: &Tlb<u32>) {
    let live = tlb.sets.iter().filter(|entry| entry.is_there()).chain(&tlb.victims);
    let mut pages: Vec<_> = live.map(|entry| (entry.space, entry.page())).collect();
    let entries = pages.len();
    pages.sort_unstable();
    pages.dedup();
    assert_eq!((pages.len(), tlb.entries()), (entries, entries), "a page has two entries");
    assert!(
        tlb.victims.len() <= tlb.geometry.victims
            || tlb.victims.iter().all(|entry| entry.transfers() > 0),
        "the victim list is not trimmed"
    );
    assert!(tlb.aside.iter().all(|entry| entry.transfers() > 0));
    let counters = tlb.counters;
    assert_eq!(
        counters.insertions,
        entries as u64 + counters.evictions + counters.replacements + counters.invalidations
    );
}

fn compare(geometry: Geometry, steps: Vec<Step>) {
    let mut tlb = Tlb::<u32>::new(geometry).unwrap();
    let mut model = Model::new(geometry);
    let mut transfers: Vec<(Transfer<u32>, usize)> = Vec::new();
    let mut value = 0;
    for step in steps {
        match step {
            Step::LookUp(space, page, offset, rights) => {
                let space = SpaceId(space);
                let expected = match model.look_up(tlb.set_of(space, page), space, page, rights) {
                    Lookup::Hit(entry) => Lookup::Hit(entry.value),
                    Lookup::Miss => Lookup::Miss,
                    Lookup::Denied(rights) => Lookup::Denied(rights),
                };
                assert_eq!(tlb.look_up(space, page * PAGE + offset, rights), expected);
            }
            Step::Begin(space, page, rights) => {
                let space = SpaceId(space);
                let expected = model.look_up(tlb.set_of(space, page), space, page, rights);
                match (tlb.begin(space, page * PAGE, rights), expected) {
                    (Lookup::Hit(transfer), Lookup::Hit(entry)) => {
                        assert_eq!(transfer.value(), entry.value);
                        entry.in_flight += 1;
                        transfers.push((transfer, entry.id));
                    }
                    (Lookup::Miss, Lookup::Miss) => {}
                    (Lookup::Denied(one), Lookup::Denied(other)) => assert_eq!(one, other),
                    (one, other) => panic!("{one:?}, not {other:?}"),
                }
            }
            Step::End(which) => {
                if !transfers.is_empty() {
                    let (transfer, id) = transfers.swap_remove(which % transfers.len());
                    let gone: Vec<_> = tlb.end(transfer).into_iter().collect();
                    assert_eq!(gone, model.end(id));
                }
            }
            Step::Insert(space, page, rights) => {
                let space = SpaceId(space);
                value += 1;
                let gone = tlb.insert(space, page * PAGE, rights, value);
                let set = tlb.set_of(space, page);
                let expected = model.insert(set, space, page, rights, value);
                assert_eq!(gone.into_iter().collect::<Vec<_>>(), expected);
            }
            Step::Invalidate(space, page) => {
                let space = SpaceId(space);
                let gone: Vec<_> = tlb.invalidate(space, page * PAGE).into_iter().collect();
                let is = |entry: &Naive| entry.space == space && entry.page == page;
                assert_eq!(gone, model.invalidate(is));
            }
            Step::Range(space, start, len) => {
                let space = SpaceId(space);
                let mut gone = Vec::new();
                tlb.invalidate_range(space, start, len, |one| gone.push(one));
                let expected = model.invalidate(|entry| {
                    let at = entry.page * PAGE;
                    entry.space == space && at < start + len && start < at + PAGE && len > 0
                });
                assert_eq!(sorted(gone), sorted(expected));
            }
            Step::Close(space) => {
                let space = SpaceId(space);
                let mut gone = Vec::new();
                tlb.close(space, |one| gone.push(one));
                let expected = model.invalidate(|entry| entry.space == space);
                model.known.retain(|(known, _)| *known != space);
                assert_eq!(sorted(gone), sorted(expected));
            }
        }
        assert_eq!(*tlb.counters(), model.counters);
        assert_eq!(tlb.in_use_aside(), model.aside.len());
        assert_eq!(tlb.victims(), model.victims.len());
        invariants(&tlb);
    }
    for (transfer, id) in transfers {
        let gone: Vec<_> = tlb.end(transfer).into_iter().collect();
        assert_eq!(gone, model.end(id));
    }
    assert_eq!(tlb.in_use_aside(), 0);
    assert!(tlb.victims() <= geometry.victims);
}

proptest! {
    #[test]
    fn it_answers_as_a_naive_one(
        sets in prop::sample::select(vec![1usize, 2, 4, 16]),
        ways in 1usize..4,
        victims in 0usize..5,
        steps in steps(),
    ) {
        compare(Geometry { sets, ways, victims, ..Geometry::default() }, steps);
    }
}
