//! Fenced operations: they begin when all before them have ended, and later ones not before them.

use pinfold_fi::ffi::{
    atomic::{FiIoc, FiMsgAtomic, FiRmaIoc},
    ep::{FiMsgRma, FiRmaIov},
    flags::*,
};
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    rma::RIGHTS,
    side::{Terms, context},
};

/// Turns in which something that must not happen would.
const TURNS: usize = 2000;
/// The tags of the message that holds all up, of the fenced one, and of a later one.
const LONG: u64 = 5;
const FENCED: u64 = 6;
const LATER: u64 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fenced {
    Send,
    Confirmed,
    Write,
    Read,
    Atomic,
}

/// Posts a fenced operation on a word of the second's.
fn post(couple: &Couple, kind: Fenced, word: &mut [u8; 8], at: u64, key: u64) -> isize {
    let (ep, to, none) = (couple.one.ep, couple.to_two, std::ptr::null_mut());
    let flags = FI_FENCE | FI_COMPLETION;
    let (buf, context) = (word.as_mut_ptr().cast(), context(FENCED as usize));
    if matches!(kind, Fenced::Send | Fenced::Confirmed) {
        let flags = flags | if kind == Fenced::Send { 0 } else { FI_DELIVERY_COMPLETE };
        let outgoing = Outgoing::tagged(word, to, FENCED);
        return send(&couple.one, Send::Message, &mut Outgoing { flags, context, ..outgoing });
    }
    let iov = [libc::iovec { iov_base: buf, iov_len: 8 }];
    let range = [FiRmaIov { addr: at, len: 8, key }];
    let access = FiMsgRma {
        msg_iov: iov.as_ptr(),
        desc: none,
        iov_count: 1,
        addr: to,
        rma_iov: range.as_ptr(),
        rma_iov_count: 1,
        context,
        data: 0,
    };
    let list = [FiIoc { addr: buf, count: 1 }];
    let element = [FiRmaIoc { addr: at, count: 1, key }];
    let change = FiMsgAtomic {
        msg_iov: list.as_ptr(),
        desc: none,
        iov_count: 1,
        addr: to,
        rma_iov: element.as_ptr(),
        rma_iov_count: 1,
        datatype: 7,
        op: 2,
        context,
        data: 0,
    };
    // SAFETY: the word is there until the operation has ended; the lists are for the call.
    unsafe {
        match kind {
            Fenced::Write => ((*(*ep).rma).writemsg)(ep, &access, flags),
            Fenced::Read => ((*(*ep).rma).readmsg)(ep, &access, flags),
            _ => ((*(*ep).atomic).writemsg)(ep, &change, flags),
        }
    }
}

#[test]
fn a_fenced_operation_begins_when_all_before_it_have_ended() {
    let Some(host) = host() else { return };
    let terms = Terms::default();
    let couple = Couple::new(host, Terms { caps: terms.caps | FI_FENCE, ..terms });
    for kind in [Fenced::Send, Fenced::Confirmed, Fenced::Write, Fenced::Read, Fenced::Atomic] {
        let mut target = 3u64.to_ne_bytes().to_vec();
        let (mr, key) = couple.two.register(&mut target, RIGHTS, 1);
        let at = couple.two.place(&target);
        let (mut from, mut to) = (stamp::bytes(1 << 20, 1), vec![0; 1 << 20]);
        let mut long = Outgoing::tagged(&mut from, couple.to_two, LONG);
        couple.post("fi_tsend", || send(&couple.one, Send::Plain, &mut long));
        let mut word = 4u64.to_ne_bytes();
        couple.post("a fenced call", || post(&couple, kind, &mut word, at, key));
        let mut later = 1u64.to_ne_bytes();
        let mut later = Outgoing::tagged(&mut later, couple.to_two, LATER);
        let (mut fenced_room, mut later_room) = ([0; 8], [0; 8]);
        for (room, tag) in [(&mut fenced_room, FENCED), (&mut later_room, LATER)] {
            let mut incoming = Incoming::tagged(room, tag);
            incoming.context = context(tag as usize);
            couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
        }
        for _ in 0..TURNS {
            let code = send(&couple.one, Send::Inject, &mut later);
            assert_eq!(code, -(libc::EAGAIN as isize), "{kind:?}");
            couple.two.progress();
            assert!(couple.two.poll(couple.two.rx).unwrap().is_none(), "{kind:?}");
            assert!(couple.one.poll(couple.one.tx).unwrap().is_none(), "{kind:?}");
        }
        let here = |target: &[u8]| u64::from_ne_bytes(target.try_into().expect("8 bytes"));
        assert_eq!((here(&target), here(&word)), (3, 4), "{kind:?}");
        let mut incoming = Incoming::tagged(&mut to, LONG);
        couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
        let ends = [(); 2].map(|()| couple.at_one(couple.one.tx).expect("no error").context);
        assert_eq!(ends, [context(2), context(FENCED as usize)], "{kind:?}");
        couple.post("fi_tinject", || send(&couple.one, Send::Inject, &mut later));
        let is_message = matches!(kind, Fenced::Send | Fenced::Confirmed);
        let mut came: Vec<usize> = (0..2 + usize::from(is_message))
            .map(|_| couple.at_two(couple.two.rx).expect("no error").context.addr())
            .collect();
        came.retain(|context| *context > 1);
        let fenced = is_message.then_some(FENCED as usize);
        assert_eq!(came, fenced.into_iter().chain([LATER as usize]).collect::<Vec<_>>());
        stamp::check(&to, 1);
        let (there, got) = match kind {
            Fenced::Write => (4, 4),
            Fenced::Read => (3, 3),
            Fenced::Atomic => (7, 4),
            Fenced::Send | Fenced::Confirmed => (3, 4),
        };
        assert_eq!((here(&target), here(&word)), (there, got), "{kind:?}");
        if !is_message {
            let number = context(FENCED as usize);
            // SAFETY: the endpoint is open.
            let cancelled = unsafe {
                let fid = couple.two.ep.cast::<pinfold_fi::ffi::object::Fid>();
                ((*(*couple.two.ep).ops).cancel)(fid, number)
            };
            assert_eq!(cancelled, 0);
            let error = couple.at_two(couple.two.rx).expect_err("a receive that is cancelled");
            assert_eq!(error.err, libc::ECANCELED);
        }
        assert_eq!(crate::side::close(mr), 0);
    }
}
