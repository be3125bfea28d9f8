//! Floods: full queues and rings say that a call would have to wait, and nothing is ever lost.

use std::collections::VecDeque;

use pinfold_fi::ffi::flags::*;
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{PATIENCE, Terms, context},
};

/// Sends until it would have to wait, or so many; the receiver does not look. Then all of them are
/// received, once and in order.
fn flood(terms: Terms, kind: Send, size: usize, count: u64) {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, terms);
    // The first message waits for the connection.
    let mut memories: VecDeque<Vec<u8>> = VecDeque::new();
    let (mut sent, mut refused, mut told) = (0u64, 0u64, 0u64);
    let end = std::time::Instant::now() + PATIENCE;
    let one = |memory: &mut Vec<u8>, number: u64| {
        let mut outgoing = Outgoing {
            memory,
            to: couple.to_two,
            tag: Some(number),
            data: 0,
            flags: FI_COMPLETION,
            context: context(number as usize + 1),
        };
        send(&couple.one, kind, &mut outgoing)
    };
    let mut first = stamp::bytes(size, 0);
    couple.post("fi_tsend", || one(&mut first, 0));
    memories.push_back(first);
    sent += 1;
    while sent < count && refused < 1000 {
        let mut memory = stamp::bytes(size, sent);
        match one(&mut memory, sent) {
            0 => {
                sent += 1;
                memories.push_back(memory);
            }
            code if code == -(libc::EAGAIN as isize) => refused += 1,
            code => panic!("{}", host.error(code)),
        }
    }
    // Receives are posted now, and all that was sent comes.
    for number in 0..sent {
        let mut room = vec![0; size];
        let mut incoming = Incoming {
            memory: &mut room,
            from: FI_ADDR_UNSPEC,
            tag: Some((0, !0)),
            flags: 0,
            context: context(1),
        };
        couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
        let got = couple.at_two(couple.two.rx).expect("no error");
        assert_eq!((got.tag, got.len), (number, size), "{kind:?} after {refused}");
        stamp::check(&room, number);
        while let Some(done) = couple.one.poll(couple.one.tx).expect("no error") {
            assert!(!kind.is_silent() && done.flags & FI_SEND != 0);
            told += 1;
        }
    }
    while !kind.is_silent() && told < sent {
        couple.two.progress();
        if couple.one.poll(couple.one.tx).expect("no error").is_some() {
            told += 1;
        }
        assert!(std::time::Instant::now() < end, "{told} of {sent}");
    }
    assert!(couple.one.poll(couple.one.tx).unwrap().is_none());
    assert!(refused > 0 || sent == count);
}

#[test]
fn unexpected_messages_fill_the_peer_and_none_is_lost() {
    for kind in [Send::Plain, Send::Inject, Send::InjectData] {
        for size in [0, 8, 56, 2048] {
            flood(Terms::default(), kind, size, 100_000);
        }
    }
}

/// Queues of few entries refuse the next operation until the program has looked.
#[test]
fn full_queues_refuse_and_lose_nothing() {
    for cq_size in [1, 2, 100] {
        for (kind, size) in [(Send::Plain, 8), (Send::Message, 64 << 10), (Send::Inject, 8)] {
            flood(Terms { cq_size, ..Terms::default() }, kind, size, 5000);
        }
    }
}

#[test]
fn long_messages_wait_with_their_sender() {
    for size in [64 << 10, (1 << 20) + 1] {
        flood(Terms::default(), Send::Plain, size, 50);
    }
}
