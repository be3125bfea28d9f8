//! Against a model of threads that discard.
use std::{cell::RefCell, collections::BTreeMap};

use proptest::{collection::vec, prelude::*};

use super::super::quarantine::{Places, Quarantine, RANGES_MAX, look};
use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Doing {
    Sleeps,
    Runs,
    /// In a call that discards this range; whether its event was noted, and whether it can be seen.
    Discards {
        range: (u64, u64),
        noted: bool,
        asleep: bool,
    },
}

#[derive(Clone, Debug)]
enum Step {
    Sleep(usize),
    Run(usize),
    Discard(usize, u64, u64),
    Note(usize),
    Stir(usize),
    Finish(usize),
    Exit(usize),
    /// A thread with this identifier, which may have been another's.
    Start(u32),
    /// A look, and the steps before it begins to ask, and after each answer.
    Look(Vec<Step>),
}

fn any_step() -> impl Strategy<Value = Step> {
    let leaf = prop_oneof![
        (0..4usize).prop_map(Step::Sleep),
        (0..4usize).prop_map(Step::Run),
        (0..4usize, 0..20u64, 1..6u64).prop_map(|(who, start, len)| Step::Discard(who, start, len)),
        (0..4usize).prop_map(Step::Note),
        (0..4usize).prop_map(Step::Note),
        (0..4usize).prop_map(Step::Stir),
        (0..4usize).prop_map(Step::Finish),
        (0..4usize).prop_map(Step::Exit),
        (0..6u32).prop_map(Step::Start),
    ];
    leaf.prop_recursive(1, 8, 6, |inner| vec(inner, 0..6).prop_map(Step::Look))
}

#[derive(Default)]
struct World {
    threads: BTreeMap<u32, Doing>,
    quarantine: Quarantine,
    now_ns: u64,
}

impl World {
    fn thread(&mut self, which: usize) -> Option<&mut Doing> {
        let count = self.threads.len().max(1);
        self.threads.values_mut().nth(which % count)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Sleep(who) => {
                if let Some(doing @ Doing::Runs) = self.thread(who) {
                    *doing = Doing::Sleeps;
                }
            }
            Step::Run(who) => {
                if let Some(doing @ Doing::Sleeps) = self.thread(who) {
                    *doing = Doing::Runs;
                }
            }
            Step::Discard(who, start, len) => {
                if let Some(doing @ Doing::Runs) = self.thread(who) {
                    let range = (start, start + len);
                    *doing = Doing::Discards { range, noted: false, asleep: true };
                }
            }
            Step::Note(who) => {
                let mut range = (0, 0);
                if let Some(Doing::Discards { range: its, noted, .. }) = self.thread(who) {
                    *noted = true;
                    range = *its;
                }
                self.quarantine.note(range.0, range.1);
            }
            Step::Stir(who) => {
                if let Some(Doing::Discards { noted: true, asleep, .. }) = self.thread(who) {
                    *asleep = !*asleep;
                }
            }
            Step::Finish(who) => {
                if let Some(doing @ Doing::Discards { noted: true, .. }) = self.thread(who) {
                    *doing = Doing::Runs;
                }
            }
            Step::Exit(who) => {
                if let Some(Doing::Runs) = self.thread(who) {
                    let id = *self.threads.keys().nth(who % self.threads.len()).unwrap();
                    self.threads.remove(&id);
                }
            }
            Step::Start(id) => {
                self.threads.entry(id).or_insert(Doing::Runs);
            }
            Step::Look(ref meanwhile) => self.look(meanwhile),
        }
        self.check();
    }

    fn look(&mut self, meanwhile: &[Step]) {
        let Some(look) = self.quarantine.begin(self.now_ns) else { return };
        let ids: Vec<u32> = self.threads.keys().copied().collect();
        let mut meanwhile = meanwhile.iter();
        let mut found = Vec::new();
        for id in ids {
            if let Some(step) = meanwhile.next() {
                self.step(step);
            }
            let is_outside = match self.threads.get(&id) {
                Some(Doing::Sleeps) | None => true,
                Some(Doing::Runs | Doing::Discards { .. }) => false,
            };
            found.push((id, is_outside));
        }
        meanwhile.for_each(|step| self.step(step));
        self.quarantine.end(look, Some(found), self.now_ns);
    }

    fn check(&self) {
        for doing in self.threads.values() {
            if let Doing::Discards { range, noted: true, .. } = *doing {
                assert!(self.quarantine.concerns(range.0, range.1), "{range:?} is out too early");
                assert!(self.quarantine.concerns(range.1 - 1, range.1));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn nothing_leaves_before_its_discard_is_over(steps in vec(any_step(), 0..40)) {
        let mut world = World::default();
        world.threads.extend([(1, Doing::Runs), (2, Doing::Sleeps)]);
        for step in &steps {
            // Looks are always due.
            world.now_ns += 1_000_000;
            world.step(step);
        }
        // In the end everything does.
        world.threads.values_mut().for_each(|doing| *doing = Doing::Sleeps);
        world.now_ns += 1_000_000;
        world.step(&Step::Look(Vec::new()));
        prop_assert!(!world.quarantine.concerns(0, 100));
    }
}

/// Threads that are where they are said to be; counts the threads asked.
struct Fixed(RefCell<Vec<(u32, bool)>>, AtomicUsize);

impl Places for Fixed {
    fn threads(&self) -> Option<Vec<u32>> {
        Some(self.0.borrow().iter().map(|(id, _)| *id).collect())
    }

    fn is_outside(&self, thread: u32) -> bool {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.borrow().iter().any(|(id, outside)| *id == thread && *outside)
    }
}

#[test]
fn looks_are_rare_and_ask_nobody_twice() {
    let quarantine = Mutex::new(Quarantine::default());
    let threads = Fixed(RefCell::new(vec![(1, true), (2, false), (3, true)]), AtomicUsize::new(0));
    let asked = || threads.1.load(Ordering::Relaxed);
    look(&quarantine, &threads, || 0);
    assert_eq!(asked(), 0, "there is nothing to look for");
    quarantine.lock().note(10, 20);
    look(&quarantine, &threads, || 5);
    assert_eq!(asked(), 3);
    assert!(quarantine.lock().concerns(19, 30) && !quarantine.lock().concerns(20, 30));
    look(&quarantine, &threads, || 1_000_004);
    assert_eq!(asked(), 3, "too early");
    look(&quarantine, &threads, || 1_000_005);
    assert_eq!(asked(), 4, "only who is not known");
    threads.0.borrow_mut()[1].1 = true;
    // A look that took long makes the next one wait.
    let mut now = [3_000_000, 4_000_000].into_iter();
    let slow = RefCell::new(&mut now);
    look(&quarantine, &threads, || slow.borrow_mut().next().unwrap());
    assert!(!quarantine.lock().concerns(0, 100));
    quarantine.lock().note(10, 20);
    look(&quarantine, &threads, || 3_000_000 + 20_000_000 - 1);
    assert!(quarantine.lock().concerns(0, 100));
    look(&quarantine, &threads, || 3_000_000 + 20_000_000);
    assert!(!quarantine.lock().concerns(0, 100));
}

#[test]
fn more_ranges_than_fit_are_everything() {
    let quarantine = Mutex::new(Quarantine::default());
    for at in 0..RANGES_MAX as u64 {
        quarantine.lock().note(10 * at, 10 * at + 5);
        // The same range again takes no room.
        quarantine.lock().note(10 * at, 10 * at + 5);
    }
    assert!(!quarantine.lock().concerns(5, 10));
    quarantine.lock().note(7, 8);
    assert!(quarantine.lock().concerns(u64::MAX - 1, u64::MAX));
    let threads = Fixed(RefCell::new(vec![(1, true)]), AtomicUsize::new(0));
    look(&quarantine, &threads, || 0);
    assert!(!quarantine.lock().concerns(0, u64::MAX));
}

/// Places that cannot be read: no quarantine ends.
struct Unreadable;

impl Places for Unreadable {
    fn threads(&self) -> Option<Vec<u32>> {
        None
    }

    fn is_outside(&self, _thread: u32) -> bool {
        true
    }
}

#[test]
fn without_a_list_it_never_ends() {
    let quarantine = Mutex::new(Quarantine::default());
    quarantine.lock().note(1, 2);
    for round in 0..10 {
        look(&quarantine, &Unreadable, || round * 100_000_000);
        assert!(quarantine.lock().concerns(1, 2));
    }
}
