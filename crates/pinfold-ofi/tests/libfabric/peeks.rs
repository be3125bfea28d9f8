//! Unexpected messages looked at, claimed, discarded; receives cancelled.

use std::ffi::c_void;

use pinfold_fi::ffi::{
    ep::FiMsgTagged,
    flags::*,
    object::Fid,
    queue::{FiCqErrEntry, FiCqTaggedEntry},
};
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{Terms, context},
};

const TAG: u64 = 7;
const SIZES: [usize; 5] = [0, 8, 4 << 10, 64 << 10, (1 << 20) + 1];

/// `fi_trecvmsg` with flags and no buffer, or one.
fn look(
    couple: &Couple,
    flags: u64,
    into: Option<&mut [u8]>,
    number: *mut c_void,
) -> Result<FiCqTaggedEntry, FiCqErrEntry> {
    let iov =
        into.map(|into| libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() });
    let msg = FiMsgTagged {
        msg_iov: iov.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
        desc: std::ptr::null_mut(),
        iov_count: usize::from(iov.is_some()),
        addr: FI_ADDR_UNSPEC,
        tag: TAG,
        ignore: 0,
        context: number,
        data: 0,
    };
    let ep = couple.two.ep;
    couple.post("fi_trecvmsg", || {
        // SAFETY: the memory is there until the completion, below.
        unsafe { ((*(*ep).tagged).recvmsg)(ep, &msg, flags | FI_COMPLETION) }
    });
    couple.at_two(couple.two.rx)
}

/// Looks until the message is there.
fn await_it(couple: &Couple, flags: u64, number: *mut c_void) -> FiCqTaggedEntry {
    let end = std::time::Instant::now() + crate::side::PATIENCE;
    loop {
        match look(couple, flags, None, number) {
            Ok(entry) => return entry,
            Err(error) => assert_eq!(error.err, libc::ENOMSG),
        }
        couple.one.progress();
        assert!(std::time::Instant::now() < end, "it never came");
    }
}

fn post(couple: &Couple, memory: &mut [u8], kind: Send, number: usize) {
    let mut outgoing = Outgoing {
        memory,
        to: couple.to_two,
        tag: Some(TAG),
        data: 0xabcd,
        flags: 0,
        context: context(number),
    };
    couple.post("fi_tsend", || send(&couple.one, kind, &mut outgoing));
}

#[test]
fn a_peek_shows_a_message_and_leaves_it() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    for size in SIZES {
        let error = look(&couple, FI_PEEK, None, context(1)).unwrap_err();
        assert_eq!((error.err, error.context), (libc::ENOMSG, context(1)));
        let mut from = stamp::bytes(size, 1);
        post(&couple, &mut from, Send::Data, 9);
        for _ in 0..2 {
            let seen = await_it(&couple, FI_PEEK, context(2));
            assert_eq!((seen.context, seen.len, seen.tag), (context(2), size, TAG));
            assert_eq!(seen.data, 0xabcd);
            assert_ne!(seen.flags & FI_REMOTE_CQ_DATA, 0);
        }
        let mut to = vec![0; size];
        let mut incoming = Incoming {
            memory: &mut to,
            from: couple.to_one,
            tag: Some((TAG, 0)),
            flags: 0,
            context: context(3),
        };
        couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
        assert_eq!(couple.at_two(couple.two.rx).unwrap().len, size);
        assert_eq!(couple.at_one(couple.one.tx).unwrap().context, context(9));
        stamp::check(&to, 1);
    }
}

/// Two messages are claimed at once: each is found again by the context of its claim.
#[test]
fn two_claims_at_once_are_both_received() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    for size in SIZES {
        for backwards in [false, true] {
            let (mut one, mut two) = (stamp::bytes(size, 1), stamp::bytes(size, 2));
            post(&couple, &mut one, Send::Plain, 9);
            post(&couple, &mut two, Send::Plain, 9);
            await_it(&couple, FI_PEEK | FI_CLAIM, context(11));
            await_it(&couple, FI_PEEK | FI_CLAIM, context(12));
            let error = look(&couple, FI_PEEK, None, context(1)).unwrap_err();
            assert_eq!(error.err, libc::ENOMSG);
            let mut order = [(11, 1), (12, 2)];
            if backwards {
                order.reverse();
            }
            for (number, seed) in order {
                let mut to = vec![0; size];
                let got = look(&couple, FI_CLAIM, Some(&mut to), context(number)).unwrap();
                assert_eq!((got.context, got.len), (context(number), size));
                stamp::check(&to, seed);
            }
            for _ in 0..2 {
                assert_eq!(couple.at_one(couple.one.tx).unwrap().context, context(9));
            }
        }
    }
}

#[test]
fn what_is_discarded_is_gone() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    for size in SIZES {
        let (mut one, mut two) = (stamp::bytes(size, 1), stamp::bytes(size, 2));
        // By a peek, and by a claim.
        for claims in [false, true] {
            post(&couple, &mut one, Send::Plain, 9);
            post(&couple, &mut two, Send::Plain, 9);
            if claims {
                await_it(&couple, FI_PEEK | FI_CLAIM, context(4));
                look(&couple, FI_CLAIM | FI_DISCARD, None, context(4)).unwrap();
            } else {
                await_it(&couple, FI_PEEK | FI_DISCARD, context(4));
            }
            let mut to = vec![0; size];
            let mut incoming = Incoming {
                memory: &mut to,
                from: FI_ADDR_UNSPEC,
                tag: Some((TAG, 0)),
                flags: 0,
                context: context(3),
            };
            couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
            assert_eq!(couple.at_two(couple.two.rx).unwrap().len, size);
            stamp::check(&to, 2);
            for _ in 0..2 {
                assert_eq!(couple.at_one(couple.one.tx).unwrap().context, context(9));
            }
        }
    }
}

/// A receive is cancelled by its context, and no other.
#[test]
fn what_is_cancelled_ends_so() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let fid = couple.two.ep.cast::<Fid>();
    // SAFETY: the endpoint is open.
    let cancel = |number| unsafe { ((*(*couple.two.ep).ops).cancel)(fid, context(number)) };
    for tag in [None, Some((TAG, 0))] {
        let mut rooms = [[0u8; 64]; 3];
        for (room, number) in rooms.iter_mut().zip(1..) {
            let mut incoming = Incoming {
                memory: &mut room[..],
                from: FI_ADDR_UNSPEC,
                tag,
                flags: 0,
                context: context(number),
            };
            couple.post("fi_recv", || recv(&couple.two, Recv::Plain, &mut incoming));
        }
        assert_eq!(cancel(2), 0);
        let error = couple.at_two(couple.two.rx).unwrap_err();
        assert_eq!((error.err, error.context), (libc::ECANCELED, context(2)));
        assert_ne!(cancel(2), 0);
        assert_ne!(cancel(99), 0);
        for number in [1, 3] {
            let mut outgoing = Outgoing {
                memory: &mut [number as u8; 64],
                to: couple.to_two,
                tag: tag.map(|tag| tag.0),
                data: 0,
                flags: 0,
                context: context(0),
            };
            couple.post("fi_send", || send(&couple.one, Send::Inject, &mut outgoing));
            assert_eq!(couple.at_two(couple.two.rx).unwrap().context, context(number));
        }
        assert_eq!(rooms, [[1; 64], [0; 64], [3; 64]]);
    }
}
