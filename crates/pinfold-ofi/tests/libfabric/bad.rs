//! Arguments that make no sense are refused, each with a code, and change nothing.

use std::{ffi::c_void, ptr::null_mut};

use pinfold_fi::ffi::{
    ep::{FiMsgRma, FiMsgTagged, FiRmaIov, FidEp},
    flags::*,
    object::{FiAvAttr, FiMrAttr, Fid, FidAv, FidMr},
    queue::{FiCntrAttr, FiCqAttr, FidCntr, FidCq},
};

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{Side, Terms, close, context},
};

fn is_refused(code: isize) -> bool {
    code < 0 && code != -(libc::EAGAIN as isize)
}

#[test]
fn hints_that_cannot_be_met_find_nothing() {
    let Some(host) = host() else { return };
    let base = Terms::default();
    let is_found = |change: &dyn Fn(*mut pinfold_fi::ffi::info::FiInfo)| {
        let hints = host.hints(&base);
        change(hints);
        let info = host.info(hints);
        // SAFETY: both are descriptions of libfabric's, freed once.
        unsafe {
            (host.freeinfo)(hints);
            info.map(|info| (host.freeinfo)(info)).is_ok()
        }
    };
    // SAFETY: the description has all of its parts, in this test.
    unsafe {
        assert!(is_found(&|_| ()));
        assert!(!is_found(&|hints| (*hints).caps |= FI_HMEM));
        assert!(!is_found(&|hints| (*(*hints).ep_attr).kind = 1));
        assert!(!is_found(&|hints| (*(*hints).tx_attr).inject_size = 1 << 30));
        assert!(!is_found(&|hints| (*(*hints).tx_attr).iov_limit = 1 << 20));
        assert!(!is_found(&|hints| (*(*hints).domain_attr).cq_data_size = 64));
        assert!(!is_found(&|hints| (*hints).addr_format = 12345));
        assert!(!is_found(&|hints| (*(*hints).tx_attr).rma_iov_limit = 1 << 20));
    }
}

#[test]
fn objects_of_senseless_attributes_are_not_made() {
    let Some(host) = host() else { return };
    let side = Side::new(host, Terms::default());
    let domain = side.domain;
    // SAFETY: the domain is open; attributes are whole, and places for results null or there.
    unsafe {
        let ops = &*(*domain).ops;
        let mut cq: *mut FidCq = null_mut();
        let good = FiCqAttr {
            size: 0,
            flags: 0,
            format: FI_CQ_FORMAT_TAGGED,
            wait_obj: FI_WAIT_NONE,
            signaling_vector: 0,
            wait_cond: FI_CQ_COND_NONE,
            wait_set: null_mut(),
        };
        let mut attr = FiCqAttr { format: 99, ..good };
        assert!((ops.cq_open)(domain, &mut attr, &mut cq, null_mut()) < 0);
        let mut attr = FiCqAttr { format: FI_CQ_FORMAT_MSG, wait_obj: 77, ..attr };
        assert!((ops.cq_open)(domain, &mut attr, &mut cq, null_mut()) < 0);
        let mut attr = FiCqAttr { wait_obj: FI_WAIT_NONE, wait_cond: 9, ..attr };
        assert!((ops.cq_open)(domain, &mut attr, &mut cq, null_mut()) < 0);
        assert!((ops.cq_open)(domain, &mut attr, null_mut(), null_mut()) < 0);
        let mut cntr: *mut FidCntr = null_mut();
        let mut attr =
            FiCntrAttr { events: 5, wait_obj: FI_WAIT_NONE, wait_set: null_mut(), flags: 0 };
        assert!((ops.cntr_open)(domain, &mut attr, &mut cntr, null_mut()) < 0);
        let mut attr = FiCntrAttr { events: FI_CNTR_EVENTS_COMP, wait_obj: 88, ..attr };
        assert!((ops.cntr_open)(domain, &mut attr, &mut cntr, null_mut()) < 0);
        let mut attr = FiCntrAttr { wait_obj: FI_WAIT_NONE, flags: 1 << 40, ..attr };
        assert!((ops.cntr_open)(domain, &mut attr, &mut cntr, null_mut()) < 0);
        let mut av: *mut FidAv = null_mut();
        let mut attr = FiAvAttr {
            kind: 55,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: std::ptr::null(),
            map_addr: null_mut(),
            flags: 0,
        };
        assert!((ops.av_open)(domain, &mut attr, &mut av, null_mut()) < 0);
        let mut ep: *mut FidEp = null_mut();
        assert!((ops.endpoint)(domain, null_mut(), &mut ep, null_mut()) < 0);
        assert!((ops.scalable_ep)(domain, side.info, &mut ep, null_mut()) < 0);
        assert!(cq.is_null() && cntr.is_null() && av.is_null() && ep.is_null());
    }
}

#[test]
fn registrations_that_make_no_sense_are_refused() {
    let Some(host) = host() else { return };
    let side = Side::new(host, Terms::default());
    let (domain, mut memory) = (side.domain, [0u8; 8]);
    let at = memory.as_mut_ptr().cast::<c_void>();
    let fid = domain.cast::<Fid>();
    let mut mr: *mut FidMr = null_mut();
    // SAFETY: as above; the memory outlives the calls, which register nothing.
    unsafe {
        let ops = &*(*domain).mr;
        let none = null_mut();
        let mut refused = |at, len, access, flags| {
            (ops.reg)(fid, at, len, access, 0, 0, flags, &mut mr, none) < 0
        };
        assert!(refused(std::ptr::null(), 8, FI_REMOTE_READ, 0));
        assert!(refused(at.cast_const(), usize::MAX, FI_REMOTE_READ, 0));
        assert!(refused(at.cast_const(), 8, 1 << 60, 0));
        assert!(refused(at.cast_const(), 8, FI_REMOTE_READ, 1 << 3));
        let iov = [libc::iovec { iov_base: at, iov_len: 8 }; 3];
        let regv = |iov, count, mr| (ops.regv)(fid, iov, count, FI_SEND, 0, 0, 0, mr, none);
        assert!(regv(iov.as_ptr(), 0, &mut mr) < 0);
        assert!(regv(iov.as_ptr(), 3, &mut mr) < 0);
        assert!(regv(std::ptr::null(), 1, &mut mr) < 0);
        assert!(regv(iov.as_ptr(), 1, null_mut()) < 0);
        assert!((ops.regattr)(fid, std::ptr::null(), 0, &mut mr) < 0);
        let attr = FiMrAttr {
            mr_iov: std::ptr::null(),
            iov_count: 1,
            access: FI_SEND,
            offset: 0,
            requested_key: 0,
            context: none,
            auth_key_size: 0,
            auth_key: null_mut(),
            iface: 0,
            device: 0,
        };
        assert!((ops.regattr)(fid, &attr, 0, &mut mr) < 0);
        assert!(mr.is_null());
        // Of another object than a domain.
        let ep = side.ep.cast::<Fid>();
        assert!((ops.reg)(ep, at.cast_const(), 8, FI_SEND, 0, 0, 0, &mut mr, none) < 0);
        assert_eq!(regv(iov.as_ptr(), 1, &mut mr), 0);
        let bind = (*(*mr.cast::<Fid>()).ops).bind;
        assert!(bind(mr.cast(), side.counters[0].cast(), 1 << 40) < 0);
        assert!(bind(mr.cast(), null_mut(), FI_REMOTE_WRITE) < 0);
        assert_eq!(close(mr), 0);
    }
}

/// Calls with null pointers, too many parts, unknown flags, too long messages.
#[test]
fn calls_that_make_no_sense_are_refused() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let (ep, to, none) = (couple.one.ep, couple.to_two, null_mut::<c_void>());
    let mut memory = [0u8; 8];
    let part = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: 1 };
    let parts = vec![part; 4096];
    // SAFETY: lists are as long as is said, or null.
    unsafe {
        let (msg, tagged) = (&*(*ep).msg, &*(*ep).tagged);
        let (rma, atomic) = (&*(*ep).rma, &*(*ep).atomic);
        assert!(is_refused((msg.send)(ep, std::ptr::null(), 8, none, to, none)));
        assert!(is_refused((msg.recv)(ep, null_mut(), 8, none, to, none)));
        assert!(is_refused((msg.sendv)(ep, parts.as_ptr(), none.cast(), 4096, to, none)));
        assert!(is_refused((msg.recvv)(ep, parts.as_ptr(), none.cast(), 4096, to, none)));
        assert!(is_refused((msg.sendv)(ep, std::ptr::null(), none.cast(), 2, to, none)));
        assert!(is_refused((msg.sendmsg)(ep, std::ptr::null(), 0)));
        assert!(is_refused((msg.recvmsg)(ep, std::ptr::null(), 0)));
        assert!(is_refused((tagged.sendmsg)(ep, std::ptr::null(), 0)));
        assert!(is_refused((tagged.recvmsg)(ep, std::ptr::null(), 0)));
        let it = FiMsgTagged {
            msg_iov: &part,
            desc: none.cast(),
            iov_count: 1,
            addr: to,
            tag: 0,
            ignore: 0,
            context: context(77),
            data: 0,
        };
        // Claims of nothing.
        assert!(is_refused((tagged.recvmsg)(ep, &it, FI_CLAIM)));
        let far = memory.as_mut_ptr().cast::<c_void>().cast_const();
        assert!(is_refused((msg.inject)(ep, far, 1 << 30, to)));
        assert!(is_refused((tagged.inject)(ep, far, 1 << 30, to, 0)));
        assert!(is_refused((rma.inject)(ep, far, 1 << 30, to, 0, 0)));
        assert!(is_refused((rma.write)(ep, std::ptr::null(), 8, none, to, 0, 0, none)));
        assert!(is_refused((rma.readmsg)(ep, std::ptr::null(), 0)));
        assert!(is_refused((rma.writemsg)(ep, std::ptr::null(), 0)));
        let ranges = vec![FiRmaIov { addr: 0, len: 1, key: 0 }; 4096];
        let it = FiMsgRma {
            msg_iov: &part,
            desc: none.cast(),
            iov_count: 1,
            addr: to,
            rma_iov: ranges.as_ptr(),
            rma_iov_count: 4096,
            context: none,
            data: 0,
        };
        assert!(is_refused((rma.writemsg)(ep, &it, 0)));
        // Not as many bytes there as here.
        assert!(is_refused((rma.writemsg)(ep, &FiMsgRma { rma_iov_count: 2, ..it }, 0)));
        assert!(is_refused((rma.writemsg)(ep, &FiMsgRma { rma_iov_count: 0, ..it }, 0)));
        assert!(is_refused((rma.writemsg)(ep, &FiMsgRma { rma_iov_count: 1, ..it }, 1 << 62)));
        assert!(is_refused((rma.readmsg)(ep, &FiMsgRma { rma_iov_count: 1, ..it }, FI_INJECT)));
        let write = |count, of, op| (atomic.write)(ep, far, count, none, to, 0, 0, of, op, none);
        assert!(is_refused(write(0, 7, 2)) && is_refused(write(1 << 20, 7, 2)));
        assert!(is_refused(write(1, 99, 2)) && is_refused(write(1, 7, 99)));
        // Changed by a comparison, or read without a place to read to.
        assert!(is_refused(write(1, 7, 12)) && is_refused(write(1, 7, 10)));
        assert!(is_refused((atomic.writemsg)(ep, std::ptr::null(), 0)));
        let mut count = 0;
        assert!((atomic.writevalid)(ep, 7, 12, &mut count) < 0);
        assert!((atomic.compwritevalid)(ep, 7, 2, &mut count) < 0);
        assert!((atomic.writevalid)(ep, 7, 2, null_mut()) < 0);
        let fid = ep.cast::<Fid>();
        let ops = &*(*ep).ops;
        assert_eq!((ops.setopt)(fid, FI_OPT_ENDPOINT, 999, far, 8), -libc::ENOPROTOOPT);
        let mut len = 8;
        let to_there = memory.as_mut_ptr().cast();
        assert_eq!((ops.getopt)(fid, FI_OPT_ENDPOINT, 999, to_there, &mut len), -libc::ENOPROTOOPT);
        assert!(((*(*fid).ops).bind)(fid, null_mut(), 0) < 0);
        assert!(((*(*fid).ops).control)(fid, 9999, null_mut()) < 0);
        // Enabled twice.
        assert!(((*(*fid).ops).control)(fid, FI_ENABLE, null_mut()) < 0);
    }
    assert!(couple.one.poll(couple.one.tx).unwrap().is_none());
    assert!(couple.two.poll(couple.two.rx).unwrap().is_none());
}

/// An endpoint that is not enabled, or lacks what it needs, takes no operation.
#[test]
fn an_endpoint_that_is_not_enabled_refuses() {
    let Some(host) = host() else { return };
    let side = Side::unbound(host, Terms::default());
    let mut memory = [0; 8];
    let mut outgoing =
        Outgoing { memory: &mut memory, to: 0, tag: None, data: 0, flags: 0, context: context(0) };
    for kind in Send::ALL {
        assert!(is_refused(send(&side, kind, &mut outgoing)), "{kind:?}");
    }
    let mut incoming = Incoming {
        memory: outgoing.memory,
        from: FI_ADDR_UNSPEC,
        tag: None,
        flags: 0,
        context: context(0),
    };
    for kind in Recv::ALL {
        assert!(is_refused(recv(&side, kind, &mut incoming)), "{kind:?}");
    }
    let fid = side.ep.cast::<Fid>();
    // SAFETY: the endpoint is open.
    let code = unsafe { ((*(*fid).ops).control)(fid, FI_ENABLE, null_mut()) };
    assert!([-FI_ENOAV, -FI_ENOCQ].contains(&code), "{code}");
}
