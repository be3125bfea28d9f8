#![allow(unsafe_code)]
//! The order in which the greeting of a peer and its first message are told.
// Invariant: objects are opened as libfabric opens them, by whole descriptions, and stay open.

use std::{
    ffi::c_int,
    ptr::{null, null_mut},
    sync::Arc,
};

use super::*;
use crate::{
    av,
    cq::{self, Cq, Event, Failure},
    domain,
    ep::{self, Ep},
    fabric,
    ffi::{
        flags::*,
        info::FiInfo,
        object::{FiAvAttr, Fid, FidAv},
        queue::FiCqAttr,
    },
    getinfo::getinfo,
    handle,
    op::Kind,
};

const TAG: u64 = 7;
const WORD: usize = 8;
const MESSAGE: [u8; header::BYTES + WORD] = [1; header::BYTES + WORD];

/// An endpoint with a queue and an address vector.
struct Side {
    ep: Arc<Ep>,
    cq: Arc<Cq>,
    av: *mut FidAv,
}

/// The object that a function of the interface opens.
#[track_caller]
fn opened<T>(open: impl FnOnce(*mut *mut T) -> c_int) -> *mut T {
    let mut made = null_mut();
    assert_eq!(open(&mut made), 0);
    made
}

impl Side {
    fn new() -> Side {
        let none = null_mut();
        let kind = FI_AV_TABLE;
        let mut table = FiAvAttr {
            kind,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: null(),
            map_addr: none,
            flags: 0,
        };
        let mut queue = FiCqAttr {
            size: 0,
            flags: 0,
            format: FI_CQ_FORMAT_TAGGED,
            wait_obj: FI_WAIT_NONE,
            signaling_vector: 0,
            wait_cond: FI_CQ_COND_NONE,
            wait_set: none,
        };
        // SAFETY: descriptions are whole, and each object is opened in one that is open.
        unsafe {
            let info: *mut FiInfo =
                opened(|to| getinfo(version(1, 17), null(), null(), 0, null(), to));
            (*info).caps |= FI_SOURCE;
            (*(*info).domain_attr).data_progress = FI_PROGRESS_MANUAL;
            let of = opened(|to| fabric::open((*info).fabric_attr, to, none));
            let domain = opened(|to| domain::open(of, info, to, none));
            let av = opened(|to| av::open(domain, &mut table, to, none));
            let cq = opened(|to| cq::open(domain, &mut queue, to, none));
            let ep = opened(|to| ep::open(domain, info, to, none));
            let fid = ep.cast::<Fid>();
            assert_eq!(((*(*fid).ops).bind)(fid, av.cast(), 0), 0);
            assert_eq!(((*(*fid).ops).bind)(fid, cq.cast(), FI_SEND | FI_RECV), 0);
            assert_eq!(((*(*fid).ops).control)(fid, FI_ENABLE, null_mut()), 0);
            let (ep, cq) = (handle::of(ep).unwrap(), handle::of(cq).unwrap());
            Side { ep: Arc::clone(ep), cq: Arc::clone(cq), av }
        }
    }

    /// The number of another side here.
    fn insert(&self, other: &Side) -> u64 {
        let address = other.ep.inside(|inside| inside.state.address);
        let mut number = FI_ADDR_UNSPEC;
        // SAFETY: one address, and the table is open.
        let count = unsafe {
            let insert = (*(*self.av).ops).insert;
            insert(self.av, address.bytes().as_ptr().cast(), 1, &mut number, 0, null_mut())
        };
        assert_eq!(count, 1);
        number
    }

    /// Has the library make progress, and takes nothing of what has ended.
    fn progress(&self) {
        self.ep.inside(|inside| inside.state.endpoint.progress().unwrap());
    }

    /// The only thing that the program is told.
    #[track_caller]
    fn told(&self) -> Result<Event, Failure> {
        let held = self.ep.domain.hold();
        let mut entries = self.cq.entries.open(&held);
        assert_eq!(entries.len(), 1);
        entries.pop_front().unwrap()
    }
}

/// Two sides, the second's number of the first, and the connection on which the first has greeted
/// and sent a message. The second has taken the call, and has looked for nothing since.
fn greeted() -> (Side, Side, u64) {
    let (one, two) = (Side::new(), Side::new());
    let (to_two, one_is) = (one.insert(&two), two.insert(&one));
    let contact = one.ep.inside(|inside| {
        let contact = inside.contact(to_two).unwrap();
        inside.dial(contact, 0);
        contact
    });
    let peer = loop {
        two.progress();
        one.progress();
        // One turn may not be enough for the call; the greeting is sent by the one that is.
        let to = one.ep.inside(|inside| {
            inside.turn();
            inside.state.contacts.get(contact).to
        });
        if let Some(peer) = to {
            break peer;
        }
    };
    one.ep.inside(|inside| inside.state.endpoint.send(peer, TAG, &MESSAGE).unwrap());
    (one, two, one_is)
}

#[test]
fn the_newest_is_told_with_a_sender_that_greeted_by_the_same_look() {
    for room in [WORD, WORD / 2] {
        let (_one, two, one_is) = greeted();
        let mut word = [0u8; WORD];
        two.ep.inside(|inside| {
            let state = &mut *inside.state;
            // The greeting came first, and has ended in the library.
            let into = &mut state.short[..header::BYTES + room];
            let result = state.endpoint.recv_into(Source::Any, TAG, into);
            let peer = match &result {
                Ok(received) => received.peer,
                Err(Error::Truncated { peer, .. }) => *peer,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(state.contacts.of_peer(peer), None);
            let buf = word.as_mut_ptr().expose_provenance();
            let event = Event { flags: FI_RECV | FI_TAGGED, buf, ..Event::default() };
            let key = state.ops.insert(Kind::Receive, event, true);
            let part = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: room };
            let tag = TagMatch::exact(TAG);
            let parts = &[part];
            let receive = Receive { from: FI_ADDR_UNSPEC, tag, parts, context: 0, flags: 0 };
            state.newest = Some(Newest::new(key, Source::Any, &receive));
            inside.end_newest(key, room, result);
        });
        let (event, beyond) = match two.told() {
            Ok(event) => (event, 0),
            Err(failure) => (failure.event, failure.beyond),
        };
        assert_eq!((event.source, event.len, beyond), (one_is, room, WORD - room));
        assert_eq!(word[..room], MESSAGE[..room]);
    }
}

#[test]
fn a_look_tells_of_a_sender_that_greeted_by_the_same_look() {
    for flags in [FI_PEEK, FI_PEEK | FI_CLAIM] {
        let (_one, two, one_is) = greeted();
        let tag = TagMatch::exact(TAG);
        let receive = Receive { from: FI_ADDR_UNSPEC, tag, parts: &[], context: 0, flags };
        // The call has ended, so the turn before the look makes no progress of its own.
        two.ep.inside(|inside| inside.peek(&receive).unwrap());
        let event = two.told().unwrap();
        assert_eq!((event.source, event.len), (one_is, WORD), "{flags:x}");
    }
}

/// A receive of the first side's message, into `word`.
fn receive(side: &Side, word: &mut [u8; WORD]) {
    let parts = [libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: WORD }];
    let tag = TagMatch::exact(TAG);
    let receive = Receive { from: FI_ADDR_UNSPEC, tag, parts: &parts, context: 0, flags: 0 };
    side.ep.inside(|inside| inside.receive(&receive).unwrap());
}

fn is_newest(side: &Side) -> bool {
    side.ep.inside(|inside| inside.state.newest.is_some())
}

/// Has the library store the message that was sent.
fn store(side: &Side) {
    while !side.ep.inside(|inside| inside.has_stored()) {
        side.progress();
    }
}

#[test]
fn a_receive_whose_message_is_stored_is_posted() {
    let (one, two, _) = greeted();
    let mut words = [[0u8; WORD]; 2];
    let [first, second] = &mut words;
    store(&two);
    receive(&two, first);
    assert!(!is_newest(&two));
    two.ep.inside(|inside| inside.turn());
    assert_eq!(two.told().unwrap().len, WORD);

    // A call that made progress has it stored behind the receive's back.
    receive(&two, second);
    assert!(is_newest(&two));
    one.ep.inside(|inside| {
        let peer = inside.state.contacts.get(0).to.unwrap();
        inside.state.endpoint.send(peer, TAG, &MESSAGE).unwrap();
    });
    store(&two);
    (0..2 * LOOKS_A_TURN).for_each(|_| two.ep.inside(|inside| inside.turn()));
    assert!(!is_newest(&two));
    assert_eq!(two.told().unwrap().len, WORD);
    assert_eq!(words, [[1; WORD]; 2]);
}

#[test]
fn a_look_in_vain_is_no_news() {
    let (_one, two, _) = greeted();
    let mut words = [[0u8; WORD]; 2];
    let [first, second] = &mut words;
    store(&two);
    receive(&two, first);
    two.ep.inside(|inside| inside.turn());
    assert!(two.told().is_ok());
    receive(&two, second);
    assert!(is_newest(&two));
    let polls_until = |turn: &dyn Fn()| {
        idle::end();
        let gives_way = |_: &u32| {
            turn();
            idle::poll()
        };
        (1..).find(gives_way)
    };
    let alone = polls_until(&|| {});
    assert_eq!(polls_until(&|| two.ep.inside(|inside| inside.turn())), alone);
}
