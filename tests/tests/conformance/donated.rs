//! Donated buffers, their views and copies: the same bytes on every transport; receipts say whether
//! it was the memory itself that went, and it comes back in any case.

use std::thread;

use pinfold::{Arena, ArenaBuf, Completed, CompletionQueue, DonatedBuf, Path, Receipt, Refusal};
use pinfold_tests::{role::PATIENCE, stamp, until};

use crate::pair::{End, LENGTHS, Pair, Transport};

const PAGE: usize = 4096;
/// The parts of a message in several.
const PARTS: [usize; 3] = [64 << 10, 3 * PAGE, 5000];
/// The tags of a length: looked at, copied into memory of the receiver's, into the library's, and
/// taken by a queue.
const VIEW: u64 = 0;
const INTO: u64 = 1;
const MESSAGE: u64 = 2;
const QUEUED: u64 = 3;
const KINDS: u64 = 4;
const VECTORED: u64 = 100;
const LATEST: u64 = 101;
/// Messages of which the newest counts.
const FRAMES: u64 = 30;

pub fn holds(on: Transport) {
    let pair = Pair::new(on);
    pair.both(|end| {
        thread::scope(|scope| {
            scope.spawn(|| give(end, on));
            take(end, on);
        });
        end.meet();
    });
}

fn donation(arena: &Arena, len: usize, seed: u64) -> ArenaBuf {
    // An arena has no empty buffers.
    let mut buf = arena.alloc_aligned(len.max(1), PAGE).unwrap();
    stamp::fill(&mut buf, seed);
    buf
}

fn numbered() -> impl Iterator<Item = (u64, usize)> {
    (0..).step_by(KINDS as usize).zip(LENGTHS)
}

/// The memory itself went, or a copy of it and the receipt says why.
fn went(receipt: &Receipt, len: usize, on: Transport, looked_at: bool) {
    assert_eq!(receipt.bytes, len.max(1) as u64, "{receipt}");
    if on.shares_memory() {
        let path = if looked_at { Path::Handoff } else { Path::Mapped };
        assert_eq!(receipt.path, path, "{receipt}");
    } else {
        assert!(matches!(receipt.path, Path::Inline | Path::Eager), "{receipt}");
        assert_eq!(receipt.refused(Path::Handoff), Some(Refusal::OtherHost), "{receipt}");
    }
}

fn give(end: &End, on: Transport) {
    let (endpoint, peer, arena) = (&end.endpoint, end.peer, Arena::new().unwrap());
    let mut copied = Vec::new();
    for (tag, len) in numbered() {
        let buffer = donation(&arena, len, end.out(tag));
        let (receipt, back) = endpoint.handoff(peer, end.out(tag + VIEW), buffer).wait();
        went(&receipt.unwrap(), len, on, true);
        // It is the caller's again, and the same.
        let buffer = back.into_arena_buf().expect("nobody else has it");
        stamp::check(&buffer, end.out(tag));
        let buffer = DonatedBuf::from(buffer);
        endpoint.give(peer, end.out(tag + INTO), buffer.clone()).unwrap();
        endpoint.give(peer, end.out(tag + MESSAGE), buffer.clone()).unwrap();
        copied.push(endpoint.handoff(peer, end.out(tag + QUEUED), buffer));
    }
    for (handoff, len) in copied.into_iter().zip(LENGTHS) {
        let (receipt, back) = handoff.wait();
        went(&receipt.unwrap(), len, on, false);
        drop(back);
    }
    let parts = (0..).zip(PARTS).map(|(seed, len)| donation(&arena, len, seed));
    let (receipt, back) = endpoint.handoff_vectored(peer, end.out(VECTORED), parts).wait();
    assert_eq!(receipt.unwrap().bytes, PARTS.iter().sum::<usize>() as u64);
    assert_eq!(back.len(), PARTS.len());
    drop(back);
    let mut replaced = 0;
    for frame in 0..FRAMES {
        let buffer = donation(&arena, 100_000, frame);
        replaced +=
            u64::from(endpoint.give_latest(peer, end.out(LATEST), buffer).unwrap().is_some());
    }
    endpoint.drain(PATIENCE).unwrap();
    until(|| {
        endpoint.progress().unwrap();
        arena.stats().buffers == 0
    });
    let counters = end.status().1.counters;
    assert_eq!(counters.replaced, replaced);
}

fn take(end: &End, on: Transport) {
    let (endpoint, peer) = (&end.endpoint, end.peer);
    let queue = CompletionQueue::new().unwrap();
    for (tag, len) in numbered() {
        let (len, seed) = (len.max(1), end.into(tag));
        let view = endpoint.recv_view(peer, end.into(tag + VIEW)).unwrap();
        assert_eq!((view.peer(), view.tag(), view.len()), (peer, end.into(tag + VIEW), len));
        assert_eq!(view.bytes().is_none(), on.shares_memory());
        let receipt = view.receipt();
        if on.shares_memory() {
            let copied = (receipt.copied_user, receipt.copied_kernel);
            assert_eq!((receipt.path, copied), (Path::Handoff, (0, 0)), "{receipt}");
        } else {
            assert_ne!(receipt.path, Path::Handoff, "{receipt}");
        }
        stamp::check(&view.to_vec().unwrap(), seed);
        let mut last = [0];
        view.read(len - 1, &mut last).unwrap();
        assert_eq!(last, stamp::bytes(len, seed)[len - 1..]);
        drop(view);
        let mut bytes = vec![0; len];
        let received = endpoint.recv_into(peer, end.into(tag + INTO), &mut bytes).unwrap();
        assert_eq!(received.len, len as u64);
        stamp::check(&bytes, seed);
        let message = endpoint.recv(peer, end.into(tag + MESSAGE)).unwrap();
        assert_eq!(message.len(), len);
        stamp::check(&message, seed);
        queue.add(tag, endpoint.recv_request(peer, end.into(tag + QUEUED)));
        let mut ended = Vec::new();
        assert_eq!(queue.wait(&mut ended, 1, Some(PATIENCE)).unwrap(), 1);
        let Ok(Completed::Message(message)) = &ended[0].result else { panic!("{:?}", ended[0]) };
        assert_eq!((ended[0].context, message.len()), (tag, len));
        stamp::check(message, seed);
    }
    let row = endpoint.recv_view(peer, end.into(VECTORED)).unwrap();
    let (row, mut at) = (row.to_vec().unwrap(), 0);
    for (seed, len) in (0..).zip(PARTS) {
        stamp::check(&row[at..at + len], seed);
        at += len;
    }
    assert_eq!(at, row.len());
    // Some may be missing, but for the last one.
    let mut next = 0;
    while next < FRAMES {
        let view = endpoint.recv_view(peer, end.into(LATEST)).unwrap();
        let bytes = view.to_vec().unwrap();
        let frame = (next..FRAMES).find(|&frame| stamp::wrong_at(&bytes, frame).is_none());
        next = 1 + frame.expect("a whole one, newer than the last");
    }
}
