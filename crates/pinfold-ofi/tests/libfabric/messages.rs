//! Every send and receive, by size, mode of completion and wait object.

use pinfold_fi::ffi::flags::*;
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, inject_max, recv, send},
    host::host,
    side::{Terms, context},
};

const SIZES: [usize; 6] = [0, 1, 8, 4 << 10, 64 << 10, (1 << 20) + 1];
const TAG: u64 = 0x0000_4000_1234_5678;

/// One message there, and what is told of it on both sides.
fn exchange(couple: &Couple, kind: Send, into: Recv, tag: Option<u64>, size: usize, posted: bool) {
    let seed = size as u64 ^ kind as u64;
    let (mut from, mut to) = (stamp::bytes(size, seed), vec![0; size + 8]);
    let flags = if kind == Send::Message { FI_COMPLETION } else { 0 };
    let mut incoming = Incoming {
        memory: &mut to,
        from: couple.to_one,
        tag: tag.map(|tag| (tag, 0)),
        flags: FI_COMPLETION,
        context: context(7),
    };
    let mut outgoing = Outgoing {
        memory: &mut from,
        to: couple.to_two,
        tag,
        data: 0xdead_beef,
        flags,
        context: context(9),
    };
    if posted {
        couple.post("fi_recv", || recv(&couple.two, into, &mut incoming));
    }
    couple.post("fi_send", || send(&couple.one, kind, &mut outgoing));
    if !posted {
        // It comes before its receive.
        (0..50).for_each(|_| {
            couple.one.progress();
            couple.two.progress();
        });
        couple.post("fi_recv", || recv(&couple.two, into, &mut incoming));
    }
    let got = couple.at_two(couple.two.rx).expect("no error");
    assert_eq!(got.context, context(7));
    assert_eq!(got.len, size, "{kind:?} {into:?}");
    let class = if tag.is_some() { FI_TAGGED } else { FI_MSG };
    assert_eq!(got.flags & (FI_RECV | FI_MSG | FI_TAGGED), FI_RECV | class);
    assert_eq!(got.flags & FI_REMOTE_CQ_DATA != 0, kind.has_data(), "{kind:?}");
    if kind.has_data() {
        assert_eq!(got.data, 0xdead_beef);
    }
    if let Some(tag) = tag {
        assert_eq!(got.tag, tag);
    }
    if !kind.is_silent() {
        let sent = couple.at_one(couple.one.tx).expect("no error");
        assert_eq!(sent.context, context(9));
        assert_eq!(sent.flags & (FI_SEND | FI_MSG | FI_TAGGED), FI_SEND | class);
    }
    stamp::check(&to[..size], seed);
    assert_eq!(to[size..], [0; 8]);
}

fn all_kinds(couple: &Couple, sizes: &[usize]) {
    for &size in sizes {
        for kind in Send::ALL {
            if kind.is_silent() && size > inject_max(&couple.one) {
                continue;
            }
            for into in Recv::ALL {
                for tag in [None, Some(TAG)] {
                    for posted in [false, true] {
                        exchange(couple, kind, into, tag, size, posted);
                    }
                }
            }
        }
    }
}

#[test]
fn every_kind_at_every_size_by_every_mode() {
    let Some(host) = host() else { return };
    let modes = [0, FI_INJECT_COMPLETE, FI_TRANSMIT_COMPLETE, FI_DELIVERY_COMPLETE];
    for op_flags in modes {
        let terms = Terms { op_flags: op_flags | FI_COMPLETION, ..Terms::default() };
        all_kinds(&Couple::new(host, terms), &SIZES);
    }
}

#[test]
fn every_kind_with_every_wait_object() {
    let Some(host) = host() else { return };
    for wait in [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD] {
        for cq_size in [0, 1, 100, 4096] {
            let terms = Terms { wait, cq_size, ..Terms::default() };
            all_kinds(&Couple::new(host, terms), &[0, 8, 64 << 10]);
        }
    }
}

#[test]
fn every_kind_by_every_progress_and_threading() {
    let Some(host) = host() else { return };
    for progress in [FI_PROGRESS_MANUAL, FI_PROGRESS_AUTO] {
        for threading in [FI_THREAD_SAFE, FI_THREAD_DOMAIN] {
            for av in [FI_AV_MAP, FI_AV_TABLE] {
                let terms = Terms { progress, threading, av, ..Terms::default() };
                all_kinds(&Couple::new(host, terms), &[8, (1 << 20) + 1]);
            }
        }
    }
}

/// Under selective completion an operation says whether it tells of its end.
#[test]
fn only_what_asks_for_a_completion_gets_one() {
    let Some(host) = host() else { return };
    let terms = Terms { bind: FI_SELECTIVE_COMPLETION, ..Terms::default() };
    let couple = Couple::new(host, terms);
    for size in SIZES {
        for flags in [0, FI_COMPLETION] {
            let (mut from, mut to) = (stamp::bytes(size, 3), vec![0; size]);
            let before = (couple.one.count(0), couple.two.count(1));
            let mut incoming = Incoming {
                memory: &mut to,
                from: FI_ADDR_UNSPEC,
                tag: Some((1, 0)),
                flags,
                context: context(1),
            };
            couple.post("fi_trecvmsg", || recv(&couple.two, Recv::Message, &mut incoming));
            let mut outgoing = Outgoing {
                memory: &mut from,
                to: couple.to_two,
                tag: Some(1),
                data: 0,
                flags,
                context: context(2),
            };
            couple.post("fi_tsendmsg", || send(&couple.one, Send::Message, &mut outgoing));
            couple.until("it is counted", || {
                (couple.one.count(0), couple.two.count(1)) == (before.0 + 1, before.1 + 1)
            });
            if flags == FI_COMPLETION {
                assert_eq!(couple.at_two(couple.two.rx).unwrap().context, context(1));
                assert_eq!(couple.at_one(couple.one.tx).unwrap().context, context(2));
            }
            assert!(couple.one.poll(couple.one.tx).unwrap().is_none());
            assert!(couple.two.poll(couple.two.rx).unwrap().is_none());
            stamp::check(&to, 3);
        }
    }
}

/// A message longer than its buffer is an error with the bytes that fit and those that did not.
#[test]
fn what_does_not_fit_is_truncated_and_said_so() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    for size in [2, 9, 5000, 64 << 10, (1 << 20) + 1] {
        for tag in [None, Some(TAG)] {
            for posted in [false, true] {
                let room = size / 2;
                let (mut from, mut to) = (stamp::bytes(size, 5), vec![0; room]);
                let mut incoming = Incoming {
                    memory: &mut to,
                    from: couple.to_one,
                    tag: tag.map(|tag| (tag, 0xff)),
                    flags: 0,
                    context: context(3),
                };
                let mut outgoing = Outgoing {
                    memory: &mut from,
                    to: couple.to_two,
                    tag,
                    data: 0,
                    flags: 0,
                    context: context(4),
                };
                if posted {
                    couple.post("fi_recv", || recv(&couple.two, Recv::Plain, &mut incoming));
                }
                couple.post("fi_send", || send(&couple.one, Send::Plain, &mut outgoing));
                if !posted {
                    (0..50).for_each(|_| couple.two.progress());
                    couple.post("fi_recv", || recv(&couple.two, Recv::Plain, &mut incoming));
                }
                let error = couple.at_two(couple.two.rx).unwrap_err();
                assert_eq!(error.err, FI_ETRUNC);
                assert_eq!(error.context, context(3));
                assert_eq!(error.olen, size - room);
                assert_eq!(error.len, room);
                assert_eq!(couple.at_one(couple.one.tx).unwrap().context, context(4));
                assert!(stamp::bytes(size, 5)[..room] == to);
            }
        }
    }
}

/// Tags match but for the bits that are ignored; a directed receive takes of one peer alone.
#[test]
fn receives_take_what_they_ask_for() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let third = crate::side::Side::new(host, Terms::default());
    let (from_third, to_two) = (couple.two.insert(&third.name()), third.insert(&couple.two.name()));
    let mut rooms = [[0u8; 8]; 3];
    let asks = [(from_third, (0x10, 0)), (couple.to_one, (0x20, 0xf)), (FI_ADDR_UNSPEC, (0, !0))];
    for (at, (room, (from, tag))) in rooms.iter_mut().zip(asks).enumerate() {
        let memory = &mut room[..];
        let mut incoming =
            Incoming { memory, from, tag: Some(tag), flags: 0, context: context(at + 1) };
        couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
    }
    let ours = |tag: u64, fill: u8| {
        let mut outgoing = Outgoing {
            memory: &mut [fill; 8],
            to: couple.to_two,
            tag: Some(tag),
            data: 0,
            flags: 0,
            context: context(9),
        };
        couple.post("fi_tsend", || send(&couple.one, Send::Inject, &mut outgoing));
    };
    // Not the first, whose peer is another, nor the second, whose tag is.
    ours(0x10, 1);
    assert_eq!(couple.at_two(couple.two.rx).unwrap().context, context(3));
    ours(0x2b, 2);
    assert_eq!(couple.at_two(couple.two.rx).unwrap().context, context(2));
    let mut outgoing = Outgoing {
        memory: &mut [3; 8],
        to: to_two,
        tag: Some(0x10),
        data: 0,
        flags: 0,
        context: context(9),
    };
    crate::couple::posted("fi_tsend", &[&third, &couple.two], || {
        send(&third, Send::Inject, &mut outgoing)
    });
    assert_eq!(couple.two.take(couple.two.rx, &[&third]).unwrap().context, context(1));
    assert_eq!(rooms, [[3; 8], [2; 8], [1; 8]]);
}
