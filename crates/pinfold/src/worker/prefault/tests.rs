//! Memory of posted receives: how much of it is put there, when, and when no more.

use super::{
    super::op::{Op, OpKind, RecvOp},
    *,
};
use crate::worker::matching::{Matcher, TagMatch};

const MIB: u64 = 1 << 20;

/// Memory of which nothing but its place is used.
fn memory(parts: &[(u64, u64)]) -> Scatter {
    let parts = parts
        .iter()
        .map(|(at, len)| (std::ptr::without_provenance_mut(*at as usize), *len as usize));
    // SAFETY: no thread reads or writes it.
    #[allow(unsafe_code)]
    unsafe {
        Scatter::many(parts)
    }
}

fn peer(index: u32) -> PeerId {
    PeerId::new(index, 0)
}

/// Receives that are noted, and the part of their memory that is not there.
struct World {
    prefault: Prefault,
    ops: OpTable,
    matcher: Matcher<OpKey, ()>,
    absent: bool,
}

impl World {
    fn new() -> World {
        let (ops, matcher) = (OpTable::default(), Matcher::new(1));
        World { prefault: Prefault::new(true), ops, matcher, absent: true }
    }

    /// Posts a receive from this peer into this memory.
    fn post(&mut self, from: Source, parts: &[(u64, u64)]) -> (OpKey, bool) {
        let mut recv = RecvOp::new(Some(memory(parts)));
        let key = self.ops.insert(Op::new(OpKind::Recv(RecvOp::new(None))));
        recv.stage = RecvStage::Posted(self.matcher.post(from, TagMatch::from(1), key));
        let noted =
            self.prefault.wants(recv.memory.len()) && self.prefault.note(key, from, &recv.memory);
        *self.ops.recv_mut(key).unwrap() = recv;
        (key, noted)
    }

    /// A step as the kernel would do it. Returns the bytes asked about and those put there.
    fn step(&mut self) -> Option<(u64, u64)> {
        let step = self.prefault.next(&mut self.ops)?;
        assert!(step.most == STEP && step.len > 0);
        let seen = if self.absent { step.len.min(step.most) } else { step.len.min(4 * STEP) };
        let made = if self.absent { seen } else { 0 };
        self.prefault.did(&mut self.ops, &step, Outcome::Saw { seen, made });
        Some((step.address, seen))
    }

    /// Steps until there are none. Returns the bytes that were put there.
    fn all(&mut self) -> u64 {
        let absent = self.absent;
        std::iter::from_fn(|| self.step()).map(|(_, seen)| if absent { seen } else { 0 }).sum()
    }
}

#[test]
fn memory_is_made_ready_step_by_step_until_the_message_comes() {
    let mut world = World::new();
    assert!(world.prefault.wants(PREFAULT_FROM) && !world.prefault.wants(PREFAULT_FROM - 1));
    assert_eq!(world.step(), None);
    let (one, _) = world.post(Source::Any, &[(4096, STEP + 5)]);
    let (other, _) = world.post(Source::Any, &[(1 << 30, 3 * MIB)]);
    assert_eq!(world.step(), Some((4096, STEP)));
    assert_eq!(world.step(), Some((4096 + STEP, 5)));
    assert_eq!(world.ops.recv_mut(one).unwrap().prefaulted, STEP + 5);
    assert_eq!(world.step(), Some((1 << 30, STEP)));
    assert_eq!(world.step(), Some(((1 << 30) + STEP, STEP)));
    world.ops.recv_mut(other).unwrap().stage = RecvStage::Moving;
    assert_eq!(world.step(), None);
    assert_eq!(world.ops.recv_mut(other).unwrap().prefaulted, 2 * STEP);
}

#[test]
fn all_parts_are_seen_to_and_each_by_itself() {
    let mut world = World::new();
    world.post(Source::Any, &[(1 << 20, 10), (1 << 30, STEP + 7), (1 << 40, 20)]);
    let steps: Vec<_> = std::iter::from_fn(|| world.step()).collect();
    assert_eq!(steps, [(1 << 20, 10), (1 << 30, STEP), ((1 << 30) + STEP, 7), (1 << 40, 20)]);
}

#[test]
fn room_for_much_is_not_filled_and_what_came_says_how_much_will_come() {
    let (mut world, from) = (World::new(), Source::Peer(peer(3)));
    world.post(from, &[(1 << 40, 1 << 30)]);
    assert_eq!(world.all(), UNKNOWN_MAX);
    world.prefault.came(peer(3), 5);
    assert!(!world.post(from, &[(1 << 41, 1 << 30)]).1, "a few bytes are expected");
    assert!(world.post(Source::Peer(peer(4)), &[(1 << 41, 1 << 30)]).1, "another sender");
    assert_eq!(world.all(), UNKNOWN_MAX);
    world.prefault.came(peer(3), 9 * MIB);
    world.post(from, &[(1 << 42, 1 << 30)]);
    assert_eq!(world.all(), 9 * MIB);
    world.prefault.came(peer(3), 1 << 33);
    world.post(from, &[(1 << 42, 1 << 40)]);
    assert_eq!(world.all(), PREFAULT_MAX);
}

/// For any program, the memory put there in vain is bounded.
#[test]
fn no_more_is_put_there_in_vain_than_came_and_some() {
    let (mut world, mut made, mut came) = (World::new(), 0, 0);
    for round in 0..3000u64 {
        let (key, _) = world.post(Source::Peer(peer(round as u32 % 50)), &[(round << 32, 1 << 30)]);
        if round % 3 == 0 {
            made += world.all();
        }
        world.ops.remove(key);
        if round % 100 == 99 {
            let len = 3 * MIB;
            world.prefault.came(peer(7), len);
            came += len;
        }
        assert!(made <= IN_VAIN_MAX + came, "round {round}");
    }
    assert!(made > IN_VAIN_MAX && world.prefault.allowance < UNKNOWN_MAX);
    // Nor more than that after much has come.
    (0..1000).for_each(|_| world.prefault.came(peer(7), 1 << 40));
    assert_eq!(world.prefault.allowance, IN_VAIN_MAX);
}

#[test]
fn steps_that_are_out_count() {
    let mut world = World::new();
    for at in 1..40 {
        world.post(Source::Peer(peer(at)), &[(u64::from(at) << 32, UNKNOWN_MAX)]);
    }
    world.prefault.allowance = 2 * STEP + 1;
    let out: Vec<_> = std::iter::from_fn(|| world.prefault.next(&mut world.ops)).collect();
    assert_eq!(out.len(), 2);
    // A page more at either end.
    let outcome = Outcome::Saw { seen: STEP, made: STEP + 4096 };
    out.iter().for_each(|step| world.prefault.did(&mut world.ops, step, outcome));
    assert!(world.prefault.allowance == 0 && world.step().is_none());
}

#[test]
fn memory_that_is_used_again_takes_no_looks() {
    let mut world = World { absent: false, ..World::new() };
    let mut looked = 0;
    for _ in 0..1000 {
        let (key, noted) = world.post(Source::Any, &[(1 << 30, MIB)]);
        looked += u32::from(noted);
        assert_eq!(world.all(), 0);
        assert_eq!(world.ops.remove(key).map(|_| ()), Some(()));
    }
    assert!((5..40).contains(&looked), "{looked}");
    // Of memory that was not there, each.
    world.absent = true;
    for at in 1..20 {
        assert!(world.post(Source::Any, &[(at << 40, MIB)]).1);
        assert_eq!(world.all(), MIB);
        assert!(world.post(Source::Any, &[(at << 40, MIB)]).1);
        world.all();
    }
}

#[test]
fn what_fails_is_left_alone_for_some_time_or_for_good() {
    let mut world = World::new();
    let fail = |world: &mut World, outcome| {
        let before = world.prefault.allowance;
        let step = world.prefault.next(&mut world.ops).unwrap();
        world.prefault.did(&mut world.ops, &step, outcome);
        assert_eq!(world.prefault.allowance, before);
    };
    world.post(Source::Any, &[(1 << 30, MIB)]);
    world.post(Source::Any, &[(1 << 31, MIB)]);
    fail(&mut world, Outcome::NotOurs);
    assert!(!world.post(Source::Any, &[(1 << 30, MIB)]).1, "this memory");
    assert_eq!(world.all(), MIB, "and no other");
    for rest in [REST, 2 * REST] {
        while !world.post(Source::Any, &[(1 << 32, MIB)]).1 {}
        fail(&mut world, Outcome::NotNow);
        let posts = (0..).take_while(|_| !world.post(Source::Any, &[(1 << 33, MIB)]).1).count();
        assert_eq!(posts as u32, rest);
        fail(&mut world, Outcome::NotNow);
        world.prefault.rest = 2 * rest;
        world.prefault.rests = 0;
    }
    world.post(Source::Any, &[(1 << 34, MIB)]);
    fail(&mut world, Outcome::Never);
    assert!(!world.prefault.wants(u64::MAX) && world.step().is_none());
    assert!(!Prefault::new(false).wants(u64::MAX));
}

#[test]
fn few_are_noted() {
    let mut world = World::new();
    for at in 1..=NOTED_MAX as u64 + 10 {
        world.post(Source::Any, &[(at << 32, PREFAULT_FROM)]);
    }
    assert_eq!(world.prefault.queue.len(), NOTED_MAX);
    assert_eq!(world.step(), Some((11 << 32, PREFAULT_FROM)));
}
