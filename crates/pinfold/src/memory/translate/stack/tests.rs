//! The stack over a back end that pins nothing.

use std::collections::BTreeMap;

use super::*;

const PAGE: u64 = 4096;
/// Spaces of two accounts.
const HERE: SpaceId = SpaceId(0x10);
const THERE: SpaceId = SpaceId(0x20);

/// Accounts are the upper digits of spaces.
#[derive(Default)]
struct Fake {
    pinned: BTreeMap<u64, Area>,
    next: u64,
}

impl Pinner for Fake {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        self.next += 1;
        self.pinned.insert(self.next, area);
        Ok(Handle(self.next))
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        assert_eq!(self.pinned.remove(&handle.0), Some(area));
    }

    fn account(&self, space: SpaceId) -> AccountId {
        AccountId(space.0 >> 4)
    }
}

fn stack(pages: u64) -> Stack<Fake> {
    Stack::new(Fake::default(), Budget::of_bytes(pages * PAGE)).unwrap()
}

fn account(space: SpaceId) -> AccountId {
    AccountId(space.0 >> 4)
}

/// A transfer of a page: the level that answered.
fn touch(stack: &Stack<Fake>, space: SpaceId, page: u64) -> TranslationLevel {
    let it = stack.translate(space, page * PAGE, PAGE, Rights::Read).unwrap();
    let level = it.level;
    stack.end(it.hold);
    level
}

fn pinned(stack: &Stack<Fake>) -> Vec<(SpaceId, u64)> {
    let list = |it: &mut Forgetful<Fake>| -> Vec<_> {
        it.pinner.pinned.values().map(|area| (area.space, area.start / PAGE)).collect()
    };
    let mut all = stack.pins().with_pinner(list);
    all.sort_unstable();
    all
}

#[test]
fn each_level_is_filled_from_the_one_below() {
    let stack = stack(64);
    assert_eq!(touch(&stack, HERE, 1), TranslationLevel::Pinned);
    assert_eq!(touch(&stack, HERE, 1), TranslationLevel::Tlb);
    // Four pages as one: only the page asked for comes into the TLB.
    let it = stack.translate(HERE, 10 * PAGE, 4 * PAGE, Rights::Read).unwrap();
    assert_eq!(it.level, TranslationLevel::Pinned);
    assert!(stack.end(it.hold), "it stays pinned");
    assert_eq!(touch(&stack, HERE, 12), TranslationLevel::PinCache);
    assert_eq!(touch(&stack, HERE, 12), TranslationLevel::Tlb);
    // The same addresses of another space are other memory.
    assert_eq!(touch(&stack, THERE, 12), TranslationLevel::Pinned);
    // An entry that the TLB has evicted is still pinned.
    for page in 100..2200 {
        let known = stack.translate_known(HERE, page * PAGE, PAGE, Rights::Read);
        assert!(known.is_none());
        let _ = stack.tlb.lock().insert(HERE, page * PAGE, RIGHTS, 1);
    }
    assert_eq!(touch(&stack, HERE, 12), TranslationLevel::PinCache);
}

#[test]
fn what_is_not_pinned_any_more_is_not_in_the_tlb() {
    let stack = stack(4);
    (0..40).for_each(|page| assert_eq!(touch(&stack, HERE, page * 2), TranslationLevel::Pinned));
    assert_eq!((stack.pins().counters().evictions, stack.tlb_entries()), (36, 4));
    stack.pins().invalidate(HERE, 72 * PAGE, PAGE);
    assert_eq!(stack.tlb_entries(), 3);
    assert_eq!(touch(&stack, HERE, 72), TranslationLevel::Pinned);
    // One that is in flight is not found, and not put in again.
    let held = stack.translate(HERE, 72 * PAGE, PAGE, Rights::Read).unwrap();
    touch(&stack, THERE, 72);
    stack.pins().invalidate_everywhere(72 * PAGE, u64::MAX);
    assert_eq!((stack.tlb_entries(), pinned(&stack)), (0, vec![(HERE, 72)]));
    stack.fill(HERE, 72 * PAGE, &held.hold);
    assert_eq!(stack.tlb_entries(), 0);
    assert!(!stack.end(held.hold), "it was taken back meanwhile");
    assert!(pinned(&stack).is_empty());
}

#[test]
fn an_account_at_its_limit_evicts_its_own() {
    let stack = stack(8);
    let gauges = stack.pins().open_account(account(HERE), 2 * PAGE);
    stack.pins().open_account(account(THERE), 8 * PAGE);
    (0..3).for_each(|page| _ = touch(&stack, THERE, page * 2));
    (10..14).for_each(|page| _ = touch(&stack, HERE, page * 2));
    let there = |page: u64| (THERE, page);
    let own = [(HERE, 24), (HERE, 26)];
    assert_eq!(pinned(&stack), [&own[..], &[there(0), there(2), there(4)]].concat());
    assert_eq!((gauges.evictions(), gauges.pinned_bytes()), (2, 2 * PAGE));
    // In flight, all of it: no other's gives way.
    let holds = [24, 26].map(|page| stack.translate(HERE, page * PAGE, 1, Rights::Read).unwrap());
    assert_eq!(stack.translate(HERE, 0, 1, Rights::Read).unwrap_err(), NoPin::Busy);
    assert_eq!(stack.translate(HERE, 0, 3 * PAGE, Rights::Read).unwrap_err(), NoPin::TooLarge);
    assert_eq!(pinned(&stack).len(), 5);
    holds.into_iter().for_each(|it| _ = stack.end(it.hold));
}

#[test]
fn at_the_limit_of_all_the_largest_gives_way() {
    let stack = stack(8);
    (0..6).for_each(|page| _ = touch(&stack, THERE, page * 2));
    (10..14).for_each(|page| _ = touch(&stack, HERE, page * 2));
    let count = |space| pinned(&stack).iter().filter(|it| it.0 == space).count();
    // The least recently used of the account with more, though the other's are older.
    assert_eq!((count(HERE), count(THERE)), (4, 4));
    // Of equals, the one that asks.
    touch(&stack, HERE, 40);
    assert_eq!((count(HERE), count(THERE)), (4, 4));
    // The smaller one gives way only if the larger one has nothing idle.
    let held = pinned(&stack).into_iter().filter(|it| it.0 == THERE);
    let held: Vec<_> =
        held.map(|it| stack.translate(THERE, it.1 * PAGE, 1, Rights::Read).unwrap()).collect();
    touch(&stack, THERE, 60);
    assert_eq!((count(HERE), count(THERE)), (3, 5));
    held.into_iter().for_each(|it| _ = stack.end(it.hold));
}

#[test]
fn a_closed_account_leaves_nothing() {
    let stack = stack(8);
    let gauges = stack.pins().open_account(account(HERE), 4 * PAGE);
    (0..2).for_each(|page| _ = touch(&stack, HERE, page * 2));
    touch(&stack, THERE, 2);
    let late = stack.translate(HERE, 0, 1, Rights::Read).unwrap();
    let retired = stack.translate(HERE, 2 * PAGE, 1, Rights::Read).unwrap();
    stack.pins().invalidate(HERE, 2 * PAGE, PAGE);
    stack.pins().close_account(account(HERE));
    assert_eq!(pinned(&stack), [(THERE, 2)]);
    assert_eq!((gauges.pinned_bytes(), stack.pins().counters().now.entries), (0, 1));
    // The ends that come late are those of nobody's transfers, also where others have the slots.
    let others = [20, 30].map(|page| stack.translate(THERE, page * PAGE, 1, Rights::Read).unwrap());
    assert!(!stack.end(late.hold) && !stack.end(retired.hold));
    assert_eq!(pinned(&stack).len(), 3);
    (4..30).for_each(|page| _ = touch(&stack, THERE, page * 100));
    let still = |page| pinned(&stack).contains(&(THERE, page));
    assert!(still(20) && still(30), "what is in flight is not evicted");
    others.into_iter().for_each(|it| _ = stack.end(it.hold));
}
