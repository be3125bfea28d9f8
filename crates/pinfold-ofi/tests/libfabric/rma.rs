//! Reads and writes of memory of peers: every call, size and mode; keys, rights and bounds.

use std::ffi::c_void;

use pinfold_fi::ffi::{
    ep::{FiMsgRma, FiRmaIov},
    flags::*,
    object::FidMr,
    queue::{FiCqErrEntry, FiCqTaggedEntry},
};
use pinfold_tests::stamp;

use crate::{
    couple::{Couple, Toward, inject_max, parts},
    host::host,
    side::{Terms, close, context},
};

pub const SIZES: [usize; 6] = [0, 1, 8, 4 << 10, 64 << 10, (1 << 20) + 1];
pub const RIGHTS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;

/// The calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    Readv,
    ReadMessage,
    Write,
    Writev,
    WriteMessage,
    Inject,
    WriteData,
    InjectData,
}

impl Call {
    pub const ALL: [Call; 9] = [
        Call::Read,
        Call::Readv,
        Call::ReadMessage,
        Call::Write,
        Call::Writev,
        Call::WriteMessage,
        Call::Inject,
        Call::WriteData,
        Call::InjectData,
    ];

    pub fn reads(self) -> bool {
        matches!(self, Call::Read | Call::Readv | Call::ReadMessage)
    }

    pub fn is_silent(self) -> bool {
        matches!(self, Call::Inject | Call::InjectData)
    }

    pub fn has_data(self) -> bool {
        matches!(self, Call::WriteData | Call::InjectData)
    }
}

/// Posts a call on the other side's memory.
pub fn call(toward: &Toward<'_>, call: Call, memory: &mut [u8], at: u64, key: u64) -> isize {
    let (ep, to, number) = (toward.side.ep, toward.to, context(7));
    let (buf, len) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
    let iov = parts(memory, 3);
    let none = std::ptr::null_mut::<c_void>();
    // Two ranges that lie side by side.
    let half = len / 2;
    let ranges = [
        FiRmaIov { addr: at, len: half, key },
        FiRmaIov { addr: at.wrapping_add(half as u64), len: len - half, key },
    ];
    let msg = FiMsgRma {
        msg_iov: iov.as_ptr(),
        desc: none.cast(),
        iov_count: 3,
        addr: to,
        rma_iov: ranges.as_ptr(),
        rma_iov_count: 2,
        context: number,
        data: 0,
    };
    let flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
    // SAFETY: the memory is there until the operation has ended, which the tests wait for.
    unsafe {
        let ops = &*(*ep).rma;
        let (buf_in, iov) = (buf.cast_const(), iov.as_ptr());
        match call {
            Call::Read => (ops.read)(ep, buf, len, none, to, at, key, number),
            Call::Readv => (ops.readv)(ep, iov, none.cast(), 3, to, at, key, number),
            Call::ReadMessage => (ops.readmsg)(ep, &msg, flags),
            Call::Write => (ops.write)(ep, buf_in, len, none, to, at, key, number),
            Call::Writev => (ops.writev)(ep, iov, none.cast(), 3, to, at, key, number),
            Call::WriteMessage => (ops.writemsg)(ep, &msg, flags),
            Call::Inject => (ops.inject)(ep, buf_in, len, to, at, key),
            Call::WriteData => (ops.writedata)(ep, buf_in, len, none, 77, to, at, key, number),
            Call::InjectData => (ops.injectdata)(ep, buf_in, len, 77, to, at, key),
        }
    }
}

/// One operation, and what is told of it.
fn one(couple: &Couple, kind: Call, target: &mut [u8], base: u64, key: u64, size: usize) {
    let (seed, before) = (size as u64 + kind as u64, couple.one.count(3));
    stamp::fill(target, 1000);
    let mut memory = if kind.reads() { vec![0; size] } else { stamp::bytes(size, seed) };
    couple.post("fi_rma", || call(&couple.toward(), kind, &mut memory, base + 16, key));
    if kind.has_data() {
        let told = couple.at_two(couple.two.rx).expect("no error");
        assert_eq!((told.data, told.len), (77, size));
        let flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
        assert_eq!(told.flags & flags, flags);
    }
    if kind.is_silent() {
        couple.until("it is counted", || couple.one.count(3) == before + 1);
        assert!(couple.one.poll(couple.one.tx).unwrap().is_none());
    } else {
        let done = couple.at_one(couple.one.tx).expect("no error");
        assert_eq!(done.context, context(7));
        let flag = if kind.reads() { FI_READ } else { FI_WRITE };
        assert_eq!(done.flags & (FI_RMA | FI_READ | FI_WRITE), FI_RMA | flag);
    }
    let untouched = stamp::bytes(target.len(), 1000);
    if kind.reads() {
        assert!(memory == untouched[16..16 + size], "{kind:?} {size}");
        assert!(target == untouched);
    } else {
        assert!(target[..16] == untouched[..16], "{kind:?} {size}");
        assert!(target[16..16 + size] == stamp::bytes(size, seed), "{kind:?} {size}");
        assert!(target[16 + size..] == untouched[16 + size..], "{kind:?} {size}");
    }
}

fn all(terms: Terms) {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, terms);
    for size in SIZES {
        let mut target = vec![0; size + 64];
        let (mr, key) = couple.two.register(&mut target, RIGHTS, size as u64);
        let base = couple.two.place(&target);
        for kind in Call::ALL {
            if kind.is_silent() && size > inject_max(&couple.one) {
                continue;
            }
            one(&couple, kind, &mut target, base, key, size);
        }
        assert_eq!(close(mr), 0);
    }
}

#[test]
fn every_call_at_every_size_by_address() {
    all(Terms::default());
}

#[test]
fn every_call_at_every_size_by_the_old_basic_mode() {
    all(Terms { mr_mode: FI_MR_BASIC, ..Terms::default() });
}

#[test]
fn every_call_at_every_size_by_offset_and_wished_key() {
    all(Terms { mr_mode: 0, ..Terms::default() });
}

#[test]
fn every_call_with_every_wait_object_and_progress() {
    for wait in [FI_WAIT_UNSPEC, FI_WAIT_FD] {
        all(Terms { wait, ..Terms::default() });
    }
    all(Terms { progress: FI_PROGRESS_AUTO, ..Terms::default() });
}

fn failed(couple: &Couple, kind: Call, len: usize, at: u64, key: u64) -> FiCqErrEntry {
    let mut memory = vec![0; len];
    couple.post("fi_rma", || call(&couple.toward(), kind, &mut memory, at, key));
    let error: Result<FiCqTaggedEntry, FiCqErrEntry> = couple.at_one(couple.one.tx);
    let error = error.expect_err("an error");
    assert_eq!(error.context, context(7));
    error
}

/// Keys, rights and bounds are enforced, and nothing else is touched.
#[test]
fn what_is_not_allowed_fails() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let mut target = stamp::bytes(1000, 1);
    let at = couple.two.place(&target[100..900]).wrapping_sub(100);
    let (mr, key) = couple.two.register(&mut target[100..900], FI_REMOTE_READ, 1);
    assert_eq!(failed(&couple, Call::Write, 8, at.wrapping_add(100), key).err, libc::EACCES);
    assert_eq!(failed(&couple, Call::Read, 8, at.wrapping_add(99), key).err, libc::EACCES);
    assert_eq!(failed(&couple, Call::Read, 8, at.wrapping_add(893), key).err, libc::EACCES);
    assert_eq!(failed(&couple, Call::Read, 8, u64::MAX - 2, key).err, libc::EACCES);
    assert_eq!(failed(&couple, Call::Read, 8, at.wrapping_add(100), key + 1000).err, FI_ENOKEY);
    let mut memory = [0; 8];
    couple.post("fi_read", || {
        call(&couple.toward(), Call::Read, &mut memory, at.wrapping_add(892), key)
    });
    couple.at_one(couple.one.tx).unwrap();
    assert_eq!(memory[..], target[892..900]);
    assert_eq!(close(mr), 0);
    assert_eq!(failed(&couple, Call::Read, 8, at.wrapping_add(100), key).err, FI_ENOKEY);
    stamp::check(&target, 1);
    // A region that may only be written is not read.
    let (mr, key) = couple.two.register(&mut target, FI_REMOTE_WRITE, 2);
    let at = couple.two.place(&target);
    assert_eq!(failed(&couple, Call::Read, 8, at, key).err, libc::EACCES);
    assert_eq!(close(mr), 0);
}

/// The new memory of a key may be longer than the old, and allow more.
#[test]
fn a_key_that_is_used_again_has_the_new_bounds_and_rights() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms { mr_mode: 0, ..Terms::default() });
    let mut target = stamp::bytes(5000, 1);
    for (len, rights) in [(8, RIGHTS), (5000, FI_REMOTE_READ), (5000, RIGHTS), (100, RIGHTS)] {
        let (mr, _) = couple.two.register(&mut target[..len], rights, 5);
        let mut memory = vec![0; len];
        couple.post("fi_read", || call(&couple.toward(), Call::Read, &mut memory, 0, 5));
        couple.at_one(couple.one.tx).unwrap();
        assert!(memory == target[..len]);
        if rights == RIGHTS {
            couple.post("fi_write", || call(&couple.toward(), Call::Write, &mut memory, 0, 5));
            couple.at_one(couple.one.tx).unwrap();
        } else {
            assert_eq!(failed(&couple, Call::Write, 8, 0, 5).err, libc::EACCES);
        }
        assert_eq!(failed(&couple, Call::Read, 8, len as u64 - 7, 5).err, libc::EACCES);
        assert_eq!(close(mr), 0);
    }
}

/// A key that is used again means the new memory at once, never the old.
#[test]
fn a_key_that_is_used_again_means_the_new_memory() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms { mr_mode: 0, ..Terms::default() });
    let mut targets: Vec<Vec<u8>> = (0..20).map(|seed| stamp::bytes(5000, seed)).collect();
    for round in 0..20 {
        let (mr, key) = couple.two.register(&mut targets[round], RIGHTS, 5);
        assert_eq!(key, 5);
        let mut memory = vec![0; 5000];
        couple.post("fi_read", || call(&couple.toward(), Call::Read, &mut memory, 0, 5));
        couple.at_one(couple.one.tx).unwrap();
        stamp::check(&memory, round as u64);
        memory.fill(9);
        couple.post("fi_write", || call(&couple.toward(), Call::Write, &mut memory, 0, 5));
        couple.at_one(couple.one.tx).unwrap();
        assert!(targets[round] == memory);
        assert!(
            targets[round + 1..]
                .iter()
                .zip(round as u64 + 1..)
                .all(|(target, seed)| { stamp::wrong_at(target, seed).is_none() })
        );
        assert_eq!(close(mr), 0);
    }
    // Taken while it is in use.
    let (mr, _) = couple.two.register(&mut targets[0], RIGHTS, 5);
    let mut other: *mut FidMr = std::ptr::null_mut();
    // SAFETY: the domain is open.
    let code = unsafe {
        let (domain, memory) = (couple.two.domain, &targets[1]);
        let at = memory.as_ptr().cast();
        let fid = domain.cast();
        let none = std::ptr::null_mut();
        ((*(*domain).mr).reg)(fid, at, 8, RIGHTS, 0, 5, 0, &mut other, none)
    };
    assert_eq!(code, -FI_ENOKEY);
    assert_eq!(close(mr), 0);
}

/// Buffers come, go and are used again between operations: contents are always those of the day.
#[test]
fn memory_that_is_remapped_between_operations_is_read_as_it_is() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let len = 64 << 10;
    let map = |at: *mut c_void| {
        let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
        // SAFETY: fresh memory, or in place of a mapping of this test's own.
        let at = unsafe { libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at
    };
    let (target, source) = (map(std::ptr::null_mut()), map(std::ptr::null_mut()));
    // SAFETY: mapped above, and mapped again in place only, while nobody has a reference.
    let view = |at: *mut c_void| unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), len) };
    let (mr, key) = couple.two.register(view(target), RIGHTS, 0);
    let place = couple.two.place(view(target));
    for round in 0..30u64 {
        stamp::fill(view(target), round);
        let at = couple.two.place(view(target));
        couple.post("fi_read", || call(&couple.toward(), Call::Read, view(source), at, key));
        couple.at_one(couple.one.tx).unwrap();
        stamp::check(view(source), round);
        map(source);
        stamp::fill(view(source), 1000 + round);
        map(target);
        couple.post("fi_write", || call(&couple.toward(), Call::Write, view(source), at, key));
        couple.at_one(couple.one.tx).unwrap();
        stamp::check(view(target), 1000 + round);
        map(target);
    }
    // SAFETY: nobody uses it any more but by the region.
    assert_eq!(unsafe { libc::munmap(target, len) }, 0);
    let error = failed(&couple, Call::Read, 8, place, key);
    assert_eq!(error.err, libc::EFAULT);
    assert_eq!(close(mr), 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munmap(source, len) }, 0);
}

/// The counter of a region counts what peers do to it.
#[test]
fn a_region_counts_its_uses() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let mut target = vec![0; 100];
    let at = couple.two.place(&target);
    let (mr, key) = couple.two.register(&mut target, RIGHTS, 0);
    let counter = couple.two.open_counter(FI_WAIT_UNSPEC);
    let fid = mr.cast::<pinfold_fi::ffi::object::Fid>();
    // SAFETY: both are open.
    let code = unsafe { ((*(*fid).ops).bind)(fid, counter.cast(), FI_REMOTE_WRITE) };
    assert_eq!(code, 0);
    for round in 1..4 {
        let mut memory = [1; 50];
        couple.post("fi_write", || call(&couple.toward(), Call::Write, &mut memory, at, key));
        couple.at_one(couple.one.tx).unwrap();
        couple.post("fi_read", || call(&couple.toward(), Call::Read, &mut memory, at, key));
        couple.at_one(couple.one.tx).unwrap();
        // SAFETY: the counter is open.
        let count = || unsafe { ((*(*counter).ops).read)(counter) };
        couple.until("it is counted", || count() == round);
    }
    assert_eq!(close(mr), 0);
    assert_eq!(close(counter), 0);
}

/// A counter of an endpoint counts what peers do to any region of its domain.
#[test]
fn an_endpoint_counts_what_peers_do() {
    let Some(host) = host() else { return };
    let one = crate::side::Side::new(host, Terms::default());
    let two = crate::side::Side::unbound(host, Terms::default());
    let counter = two.open_counter(FI_WAIT_UNSPEC);
    let fid = two.ep.cast::<pinfold_fi::ffi::object::Fid>();
    // SAFETY: both are open.
    let code = unsafe { ((*(*fid).ops).bind)(fid, counter.cast(), FI_REMOTE_WRITE) };
    assert_eq!(code, 0);
    two.bind();
    let (to_two, to_one) = (one.insert(&two.name()), two.insert(&one.name()));
    let couple = Couple { one, two, to_two, to_one };
    let mut target = vec![0; 100];
    let at = couple.two.place(&target);
    let (mr, key) = couple.two.register(&mut target, RIGHTS, 0);
    // SAFETY: the counter is open.
    let count = || unsafe { ((*(*counter).ops).read)(counter) };
    for round in 1..4 {
        let mut memory = [1; 50];
        couple.post("fi_write", || call(&couple.toward(), Call::Write, &mut memory, at, key));
        couple.at_one(couple.one.tx).unwrap();
        couple.post("fi_read", || call(&couple.toward(), Call::Read, &mut memory, at, key));
        couple.at_one(couple.one.tx).unwrap();
        couple.until("it is counted", || count() == round);
    }
    let (ep, to, one, none) = (couple.one.ep, couple.to_two, 1u64, std::ptr::null_mut());
    couple.post("fi_atomic", || {
        // SAFETY: the operand is there for the call.
        unsafe {
            let one = (&raw const one).cast();
            ((*(*ep).atomic).write)(ep, one, 1, none, to, at, key, 7, 2, context(1))
        }
    });
    couple.at_one(couple.one.tx).unwrap();
    couple.until("it is counted", || count() == 4);
    assert_eq!(close(mr), 0);
    // The endpoint first, then what it is bound to.
    assert_eq!(couple.two.close_endpoint(), 0);
    assert_eq!(close(counter), 0);
}
