//! Queues of active messages: order, turns, budgets, peers that are gone.

use std::sync::Arc;

use super::*;
use crate::{
    Path,
    wire::{active::Verb, rendezvous::Place},
};

const BUDGET: usize = 1000;

fn peer(index: u32) -> PeerId {
    PeerId::new(index, 0)
}

fn queues() -> Queues {
    let mut handlers = Handlers::default();
    handlers.set(1, Arc::new(()));
    Queues::new(BUDGET, handlers)
}

fn item(token: u32, what: What) -> Item {
    Item { label: Label { verb: Verb::Call, id: 1, token }, what, cost: 0, room: 0 }
}

fn whole(token: u32) -> Item {
    let receipt = Receipt::new(Path::Inline, 0);
    item(token, What::Whole { bytes: Bytes::default(), receipt })
}

fn waiting(token: u32, len: u64) -> Item {
    let place = Place { at: 0, parts: 1 };
    let (exported, list) = (None, None);
    let rts = Rts {
        tag: 0,
        len,
        place,
        stream: false,
        prefers_ring: false,
        unasked: false,
        given: false,
        exported,
        list,
        number: 0,
        head: None,
    };
    item(token, What::Waiting { sid: token, rts })
}

fn key(index: u32) -> OpKey {
    let mut ops = crate::worker::op_table::OpTable::default();
    for _ in 0..index {
        ops.insert(dummy());
    }
    ops.insert(dummy())
}

fn dummy() -> crate::worker::op::Op {
    use crate::worker::op::{Op, OpKind, RecvOp};
    Op::new(OpKind::Recv(RecvOp::new(None)))
}

fn next(queues: &mut Queues) -> Option<(u32, u32)> {
    queues.next().map(|(peer, item)| (peer.index(), item.label.token))
}

fn came() -> Option<(Bytes, Receipt)> {
    Some((Bytes::default(), Receipt::new(Path::Cma, 0)))
}

#[test]
fn one_of_a_peer_at_a_time_and_peers_in_turn() {
    let mut queues = queues();
    for token in 0..3 {
        queues.push(peer(1), whole(token));
        queues.push(peer(2), whole(10 + token));
    }
    assert!(queues.take_news() && !queues.take_news());
    assert_eq!(next(&mut queues), Some((1, 0)));
    assert_eq!(next(&mut queues), Some((2, 10)));
    assert_eq!(next(&mut queues), None, "both are at work");
    queues.done(peer(2), 0);
    assert!(queues.take_news());
    queues.done(peer(1), 0);
    let order: Vec<_> = std::iter::from_fn(|| {
        let next = next(&mut queues)?;
        queues.done(peer(next.0), 0);
        Some(next)
    })
    .collect();
    assert_eq!(order, [(2, 11), (1, 1), (2, 12), (1, 2)]);
    assert!(!queues.is_due());
}

#[test]
fn nothing_overtakes_what_is_still_coming() {
    let mut queues = queues();
    queues.push(peer(1), item(0, What::Coming(key(3))));
    queues.push(peer(1), whole(1));
    queues.push(peer(1), item(2, What::Coming(key(4))));
    assert!(!queues.is_due());
    queues.landed(peer(1), key(4), 0, came());
    assert!(!queues.is_due());
    queues.landed(peer(1), key(3), 0, came());
    for token in 0..3 {
        assert_eq!(next(&mut queues), Some((1, token)));
        queues.done(peer(1), 0);
    }
    // The receive fails: the message is left out.
    queues.push(peer(1), item(0, What::Coming(key(3))));
    queues.push(peer(1), whole(1));
    queues.landed(peer(1), key(3), 0, None);
    assert_eq!(next(&mut queues), Some((1, 1)));
    // A message that holds credit stays, to give it back in its turn.
    queues.push(peer(2), Item { cost: 128, ..item(2, What::Coming(key(3))) });
    queues.landed(peer(2), key(3), 0, None);
    assert!(matches!(queues.next(), Some((_, Item { what: What::Lost, cost: 128, .. }))));
}

#[test]
fn what_is_fetched_stays_within_the_budget() {
    let mut queues = queues();
    for index in 1..=3 {
        queues.push(peer(index), waiting(index, 600));
        queues.push(peer(index), waiting(10 + index, 600));
    }
    let (first, sid, rts, _) = queues.next_chore().expect("there is room");
    assert_eq!((first, sid, rts.len), (peer(1), 1, 600));
    queues.fetching(first, key(1));
    assert!(queues.next_chore().is_none() && !queues.has_chores(), "no room, nothing to do");
    queues.landed(first, key(1), 600, came());
    assert_eq!(next(&mut queues), Some((1, 1)));
    assert!(queues.next_chore().is_none(), "its handler is at work");
    queues.done(first, 600);
    let (second, ..) = queues.next_chore().expect("there is room again");
    assert_eq!(second, peer(2));
    // Without a handler nothing is fetched, so no room is needed.
    queues.set_handler(1, None);
    queues.fetching(second, key(1));
    queues.push(peer(4), waiting(0, 600));
    assert!(queues.next_chore().is_some());
}

#[test]
fn a_peer_that_takes_nothing_makes_only_its_own_queue_rest() {
    let mut queues = queues();
    for index in 1..=2 {
        (0..3).for_each(|token| queues.push(peer(index), whole(token)));
    }
    assert_eq!(next(&mut queues), Some((1, 0)));
    queues.charge(peer(1), BACKLOG_MAX);
    queues.done(peer(1), 0);
    assert_eq!(next(&mut queues), Some((2, 0)));
    queues.done(peer(2), 0);
    assert_eq!(next(&mut queues), Some((2, 1)));
    assert_eq!(next(&mut queues), None);
    queues.discharge(peer(1), 1);
    assert_eq!(next(&mut queues), Some((1, 1)));
    (0..OPEN_MAX).for_each(|_| queues.open(peer(1)));
    queues.done(peer(1), 0);
    assert_eq!(next(&mut queues), None);
    queues.shut(peer(1));
    assert_eq!(next(&mut queues), Some((1, 2)));
}

#[test]
fn of_a_peer_that_is_gone_the_whole_ones_remain_up_to_a_gap() {
    let mut queues = queues();
    queues.push(peer(1), whole(0));
    queues.push(peer(1), whole(1));
    queues.push(peer(1), waiting(2, 10));
    queues.push(peer(1), whole(3));
    assert_eq!(queues.cut(peer(1)), 2);
    for token in 0..2 {
        assert_eq!(next(&mut queues), Some((1, token)));
        queues.done(peer(1), 0);
    }
    assert!(!queues.is_due() && queues.queues.is_empty());
    assert!(queues.next_chore().is_none());
}

#[test]
fn what_its_sender_takes_back_is_left_out() {
    let mut queues = queues();
    queues.push(peer(1), waiting(5, 10));
    queues.push(peer(1), whole(6));
    queues.take_back(peer(1), 4);
    assert!(!queues.is_due());
    queues.take_back(peer(1), 5);
    assert_eq!(next(&mut queues), Some((1, 6)));
}
