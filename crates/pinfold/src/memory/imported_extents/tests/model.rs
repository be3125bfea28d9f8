//! Maps beside a naive version: the same steps, and the sets of files mapped, known and in use
//! compared.
//!
//! The naive one has no cache. It knows of each file when it was used last, which is when it was in
//! use last, and finds the one that is to go by looking at all.

use proptest::prelude::*;

use super::*;

const PEERS: u32 = 3;
const IDS: u64 = 4;
const BUDGET: u64 = 5;
const MAPS: usize = 4;
const A_PEER: usize = 3;

#[derive(Clone, Debug)]
struct Naive {
    key: (u32, u64),
    pages: u64,
    is_mapped: bool,
    /// True if the peer still has it under that number.
    is_known: bool,
    loans: u32,
    used: u64,
}

#[derive(Default)]
struct Model {
    files: Vec<Naive>,
    recent: Option<usize>,
    time: u64,
    /// True if a descriptor is kept of each.
    keeps: bool,
}

impl Model {
    fn is_idle(&self, at: usize) -> bool {
        self.files[at].loans == 0 && self.recent != Some(at)
    }

    fn use_now(&mut self, at: usize) {
        self.time += 1;
        self.files[at].used = self.time;
    }

    fn known(&self, key: (u32, u64)) -> Option<usize> {
        self.files.iter().position(|file| file.is_known && file.key == key)
    }

    fn mapped(&self, owner: Option<u32>) -> impl Iterator<Item = usize> {
        let files = self.files.iter().enumerate().filter(move |(_, file)| {
            file.is_mapped && owner.is_none_or(|owner| file.key.0 == owner)
        });
        files.map(|(at, _)| at)
    }

    fn pages(&self) -> u64 {
        self.mapped(None).map(|at| self.files[at].pages).sum()
    }

    fn unmap(&mut self, at: usize) {
        self.files[at].is_mapped = false;
        self.files[at].is_known &= self.keeps;
    }

    /// The idle one that was used first.
    fn oldest(&self, owner: Option<u32>) -> Option<usize> {
        let idle = self.mapped(owner).filter(|at| self.files[*at].is_known && self.is_idle(*at));
        idle.min_by_key(|at| self.files[*at].used)
    }

    fn forget_recent(&mut self) {
        if let Some(at) = self.recent.take()
            && self.files[at].loans == 0
        {
            self.use_now(at);
            if !self.files[at].is_known {
                self.unmap(at);
            }
        }
    }

    fn map(&mut self, at: usize) -> bool {
        if self.files[at].is_mapped {
            return true;
        }
        let (owner, pages) = (self.files[at].key.0, self.files[at].pages);
        if self.mapped(Some(owner)).count() >= A_PEER {
            let Some(out) = self.oldest(Some(owner)) else { return false };
            self.unmap(out);
        }
        // All or nothing.
        let before = self.files.clone();
        while self.mapped(None).count() >= MAPS || self.pages() + pages > BUDGET {
            let Some(out) = self.oldest(None) else {
                self.files = before;
                return false;
            };
            self.unmap(out);
        }
        self.files[at].is_mapped = true;
        self.use_now(at);
        true
    }

    fn find(&mut self, key: (u32, u64)) -> Option<usize> {
        let at = self.known(key)?;
        if self.recent != Some(at) {
            self.forget_recent();
            if !self.map(at) {
                return None;
            }
            self.recent = Some(at);
        }
        Some(at)
    }

    fn remove(&mut self, key: (u32, u64)) {
        self.forget_recent();
        if let Some(at) = self.known(key) {
            self.files[at].is_known = false;
            if self.files[at].loans == 0 {
                self.files[at].is_mapped = false;
            }
        }
    }

    fn add(&mut self, key: (u32, u64), pages: u64) -> bool {
        self.remove(key);
        if pages > BUDGET {
            return false;
        }
        let at = self.files.len();
        let (is_mapped, is_known) = (false, true);
        self.files.push(Naive { key, pages, is_mapped, is_known, loans: 0, used: 0 });
        let can = self.map(at);
        self.files[at].is_known = can;
        if can {
            self.use_now(at);
        }
        can
    }

    fn give_back(&mut self, at: usize) {
        self.files[at].loans -= 1;
        if self.is_idle(at) {
            self.use_now(at);
            if !self.files[at].is_known {
                self.files[at].is_mapped = false;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32, u64, u64),
    Get(u32, u64),
    Lend(u32, u64),
    GiveBack(usize),
    Remove(u32, u64),
    DropPeer(u32),
    /// Begins to copy.
    Copy(u32, u64),
    CopyEnds(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (owner, id) = (1..=PEERS, 1..=IDS);
    let key = (owner.clone(), id.clone());
    let pages = prop_oneof![6 => 1..=2u64, 2 => 3..=BUDGET, 1 => Just(BUDGET + 1)];
    prop_oneof![
        4 => (owner.clone(), id, pages).prop_map(|(o, id, pages)| Step::Add(o, id, pages)),
        6 => key.clone().prop_map(|(o, id)| Step::Get(o, id)),
        4 => key.clone().prop_map(|(o, id)| Step::Lend(o, id)),
        4 => (0..8usize).prop_map(Step::GiveBack),
        1 => key.clone().prop_map(|(o, id)| Step::Remove(o, id)),
        1 => owner.prop_map(Step::DropPeer),
        2 => key.prop_map(|(o, id)| Step::Copy(o, id)),
        2 => (0..8usize).prop_map(Step::CopyEnds),
    ]
}

struct Both {
    maps: ImportedExtents,
    model: Model,
    loans: Vec<(Loan, usize)>,
    copies: Vec<(Arc<Mapping>, u64)>,
    account: &'static Account,
}

impl Both {
    fn new(keeps: bool) -> Both {
        let account = account(if keeps { 1 << 20 } else { 0 });
        let maps =
            ImportedExtents::bounded((BUDGET * PAGE) as usize, MAPS as u32, A_PEER as u32, account);
        let model = Model { keeps, ..Model::default() };
        Both { maps, model, loans: Vec::new(), copies: Vec::new(), account }
    }

    /// `alone`: nothing is ever copied, so that the naive one knows all that is in use.
    fn step(&mut self, step: &Step, alone: bool) {
        let (maps, model) = (&mut self.maps, &mut self.model);
        match *step {
            Step::Add(owner, id, pages) => {
                let did = maps.add(peer(owner), extent(id, pages * PAGE), tie());
                let can = model.add((owner, id), pages);
                assert!(!alone || did == can, "{step:?}: {did}");
            }
            Step::Get(owner, id) => {
                let pages = maps.get(peer(owner), id).map(|mapping| mapping.len() / PAGE);
                let at = model.find((owner, id));
                assert!(!alone || pages == at.map(|at| model.files[at].pages), "{step:?}");
            }
            Step::Lend(owner, id) => {
                let exported = Exported { extent: id, offset: 8 };
                let loan = maps.lend(peer(owner), exported, 8, 1);
                let at = model.find((owner, id));
                assert!(!alone || loan.is_some() == at.is_some(), "{step:?}");
                if let Some(loan) = loan {
                    let at = at.unwrap_or(usize::MAX);
                    if let Some(file) = model.files.get_mut(at) {
                        file.loans += 1;
                    }
                    self.loans.push((loan, at));
                }
            }
            Step::GiveBack(which) => {
                if which < self.loans.len() {
                    let (loan, at) = self.loans.remove(which);
                    maps.give_back(&loan);
                    if at < model.files.len() && model.files[at].loans > 0 {
                        model.give_back(at);
                    }
                }
            }
            Step::Remove(owner, id) => {
                maps.remove(peer(owner), id);
                model.remove((owner, id));
            }
            Step::DropPeer(owner) => {
                maps.drop_peer(peer(owner));
                (1..=IDS).for_each(|id| model.remove((owner, id)));
            }
            Step::Copy(owner, id) if !alone => {
                if let Some(mapping) = maps.get(peer(owner), id) {
                    self.copies.push((Arc::clone(mapping), mapping.len()));
                }
                model.find((owner, id));
            }
            Step::CopyEnds(which) if which < self.copies.len() => {
                self.copies.remove(which);
            }
            Step::Copy(..) | Step::CopyEnds(_) => {}
        }
    }

    fn check(&self, alone: bool) {
        let (maps, model) = (&self.maps, &self.model);
        assert!(maps.bytes() as u64 <= BUDGET * PAGE && maps.count() <= MAPS);
        let Some(backend) = maps.backend() else { return };
        let slots = (0..64).filter_map(|slot| backend.held(slot));
        assert_eq!(slots.map(|held| held.mapping.len()).sum::<u64>(), maps.bytes() as u64);
        assert!(backend.files.len() <= (PEERS as u64 * IDS) as usize);
        assert!((1..=PEERS).all(|owner| backend.count(peer(owner)) <= A_PEER as u32));
        for (loan, _) in &self.loans {
            let is_it = |slot| backend.held(slot).is_some_and(|held| loan.is_of(held));
            assert!((0..64).any(is_it), "unmapped while lent");
        }
        for (mapping, len) in &self.copies {
            let is_it = |slot: u32| {
                backend.held(slot).is_some_and(|held| Arc::ptr_eq(&held.mapping, mapping))
            };
            assert!((0..64).any(is_it), "unmapped while copied");
            assert_eq!(mapping.len(), *len);
        }
        if !alone {
            return;
        }
        for (owner, id) in (1..=PEERS).flat_map(|owner| (1..=IDS).map(move |id| (owner, id))) {
            let at = model.known((owner, id));
            assert_eq!(maps.is_known(peer(owner), id), at.is_some(), "{owner}.{id}");
            let is_mapped = at.is_some_and(|at| model.files[at].is_mapped);
            assert_eq!(maps.has(peer(owner), id), is_mapped, "{owner}.{id}");
        }
        assert_eq!(maps.bytes() as u64, model.pages() * PAGE);
    }

    /// Once nothing is in use any more, every file that is known comes back.
    fn end(mut self) {
        self.copies.clear();
        for (loan, _) in std::mem::take(&mut self.loans) {
            self.maps.give_back(&loan);
        }
        for (owner, id) in (1..=PEERS).flat_map(|owner| (1..=IDS).map(move |id| (owner, id))) {
            let is_known = self.maps.is_known(peer(owner), id);
            assert_eq!(self.maps.get(peer(owner), id).is_some(), is_known);
        }
        (1..=PEERS).for_each(|owner| self.maps.drop_peer(peer(owner)));
        assert_eq!((self.maps.bytes(), self.maps.count(), self.account.kept()), (0, 0, 0));
    }
}

fn run(steps: &[Step], keeps: bool, alone: bool) {
    let mut both = Both::new(keeps);
    for step in steps {
        both.step(step, alone);
        both.check(alone);
    }
    both.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn with_descriptors(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps, true, true);
    }

    #[test]
    fn without_descriptors(steps in prop::collection::vec(step(), 1..60)) {
        run(&steps, false, true);
    }

    #[test]
    fn while_things_are_copied(steps in prop::collection::vec(step(), 1..60), keeps: bool) {
        run(&steps, keeps, false);
    }
}
