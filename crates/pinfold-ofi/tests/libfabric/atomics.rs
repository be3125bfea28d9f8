//! Atomic operations: every operation, type and call against plain arithmetic.

use std::ffi::{c_int, c_void};

use pinfold_fi::ffi::{
    atomic::{FiIoc, FiMsgAtomic, FiRmaIoc},
    flags::*,
    object::FiAtomicAttr,
};

use crate::{
    couple::{Couple, Toward},
    host::host,
    side::{Terms, close, context},
};

const RIGHTS: u64 = FI_REMOTE_READ | FI_REMOTE_WRITE;
pub const COUNT: usize = 3;

/// An element as bits, and how it computes, written apart from the provider's own arithmetic.
pub trait Element: Copy + PartialEq + std::fmt::Debug {
    const NUMBER: c_int;
    fn of(value: i32) -> Self;
    /// The new value; `None`: there is no such operation.
    fn expected(op: c_int, old: Self, with: Self, compare: Self) -> Option<Self>;
}

macro_rules! integers {
    ($($kind:ty: $number:expr;)*) => {$(
        impl Element for $kind {
            const NUMBER: c_int = $number;
            fn of(value: i32) -> $kind {
                value as $kind
            }
            fn expected(op: c_int, old: $kind, with: $kind, compare: $kind) -> Option<$kind> {
                let truth = |is_so| if is_so { 1 } else { 0 };
                let swap = |does| if does { with } else { old };
                Some(match op {
                    0 => old.min(with),
                    1 => old.max(with),
                    2 => old.wrapping_add(with),
                    3 => old.wrapping_mul(with),
                    4 => truth(old != 0 || with != 0),
                    5 => truth(old != 0 && with != 0),
                    6 => old | with,
                    7 => old & with,
                    8 => truth((old != 0) ^ (with != 0)),
                    9 => old ^ with,
                    10 => old,
                    11 => with,
                    12 => swap(compare == old),
                    13 => swap(compare != old),
                    14 => swap(compare <= old),
                    15 => swap(compare < old),
                    16 => swap(compare >= old),
                    17 => swap(compare > old),
                    18 => (with & compare) | (old & !compare),
                    _ => return None,
                })
            }
        }
    )*};
}

integers! { i8: 0; u8: 1; i16: 2; u16: 3; i32: 4; u32: 5; i64: 6; u64: 7; }

macro_rules! floats {
    ($($kind:ty: $number:expr, $complex:expr;)*) => {$(
        impl Element for $kind {
            const NUMBER: c_int = $number;
            fn of(value: i32) -> $kind {
                value as $kind
            }
            fn expected(op: c_int, old: $kind, with: $kind, compare: $kind) -> Option<$kind> {
                let truth = |is_so| if is_so { 1.0 } else { 0.0 };
                let swap = |does| if does { with } else { old };
                Some(match op {
                    0 => old.min(with),
                    1 => old.max(with),
                    2 => old + with,
                    3 => old * with,
                    4 => truth(old != 0.0 || with != 0.0),
                    5 => truth(old != 0.0 && with != 0.0),
                    8 => truth((old != 0.0) ^ (with != 0.0)),
                    10 => old,
                    11 => with,
                    12 => swap(compare == old),
                    13 => swap(compare != old),
                    14 => swap(compare <= old),
                    15 => swap(compare < old),
                    16 => swap(compare >= old),
                    17 => swap(compare > old),
                    _ => return None,
                })
            }
        }

        impl Element for [$kind; 2] {
            const NUMBER: c_int = $complex;
            fn of(value: i32) -> [$kind; 2] {
                [value as $kind, if value == 0 { 0.0 } else { 1.0 - value as $kind }]
            }
            fn expected(op: c_int, a: Self, b: Self, compare: Self) -> Option<Self> {
                let truth = |is_so| if is_so { [1.0, 0.0] } else { [0.0, 0.0] };
                let zero = [0.0, 0.0];
                Some(match op {
                    2 => [a[0] + b[0], a[1] + b[1]],
                    3 => [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]],
                    4 => truth(a != zero || b != zero),
                    5 => truth(a != zero && b != zero),
                    8 => truth((a != zero) ^ (b != zero)),
                    10 => a,
                    11 => b,
                    12 => if compare == a { b } else { a },
                    13 => if compare != a { b } else { a },
                    _ => return None,
                })
            }
        }
    )*};
}

floats! { f32: 8, 10; f64: 9, 11; }

/// The calls, as the operation allows them.
fn calls(op: c_int) -> &'static [u64] {
    match op {
        12..=18 => &[FI_COMPARE_ATOMIC],
        10 => &[FI_FETCH_ATOMIC],
        _ => &[0, FI_FETCH_ATOMIC],
    }
}

fn check<E: Element>(couple: &Couple) {
    let mut target = [E::of(0); COUNT];
    // SAFETY: elements are plain numbers.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(target.as_mut_ptr().cast::<u8>(), size_of_val(&target))
    };
    let (place, at) = (bytes.as_ptr().addr(), couple.two.place(bytes));
    let (mr, key) = couple.two.register(bytes, RIGHTS, E::NUMBER as u64);
    let place = place as *mut [E; COUNT];
    // SAFETY: the array is there, and nobody uses it once what was waited for is done.
    let get = || unsafe { std::ptr::read_volatile(place) };
    // SAFETY: as above.
    let set = |all| unsafe { std::ptr::write_volatile(place, all) };
    check_there::<E>(&couple.toward(), (at, key), &get, &set);
    assert_eq!(close(mr), 0);
}

/// Every operation on elements at a place of the other's, which `get` and `set` reach in another
/// way.
pub fn check_there<E: Element>(
    toward: &Toward<'_>,
    (at, key): (u64, u64),
    get: &dyn Fn() -> [E; COUNT],
    set: &dyn Fn([E; COUNT]),
) {
    let domain = toward.side.domain;
    for op in 0..20 {
        let is_there = E::expected(op, E::of(1), E::of(1), E::of(1)).is_some();
        for &flags in calls(op) {
            let mut attr = FiAtomicAttr { count: 0, size: 0 };
            // SAFETY: the domain is open.
            let code = unsafe {
                let query = (*(*domain).ops).query_atomic;
                query(domain, E::NUMBER, op, &mut attr, flags)
            };
            if !is_there {
                assert_eq!(code, -libc::EOPNOTSUPP, "{} {op}", E::NUMBER);
                continue;
            }
            assert_eq!((code, attr.size), (0, size_of::<E>()));
            assert!(attr.count >= COUNT);
            for (old, with, compare) in [(3, 5, 3), (5, 3, 4), (0, 2, 7), (7, 0, 7), (0, 0, 0)] {
                let (old, with, compare) = (E::of(old), E::of(with), E::of(compare));
                set([old; COUNT]);
                let mut was = [E::of(9); COUNT];
                post(toward, op, flags, [with; COUNT], [compare; COUNT], &mut was, at, key);
                let done = toward.take().expect("no error");
                assert_eq!(done.context, context(3));
                let kind = if flags == 0 { FI_WRITE } else { FI_READ };
                assert_eq!(done.flags & (FI_ATOMIC | kind), FI_ATOMIC | kind);
                let expected = E::expected(op, old, with, compare).unwrap();
                assert_eq!(get(), [expected; COUNT], "{} {op} {flags:x}", E::NUMBER);
                if flags != 0 {
                    assert_eq!(was, [old; COUNT], "{} {op} {flags:x}", E::NUMBER);
                }
            }
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "as many as the call itself has")]
fn post<E: Element>(
    toward: &Toward<'_>,
    op: c_int,
    flags: u64,
    with: [E; COUNT],
    compare: [E; COUNT],
    was: &mut [E; COUNT],
    at: u64,
    key: u64,
) {
    let (ep, to, none) = (toward.side.ep, toward.to, std::ptr::null_mut::<c_void>());
    let (with, compare) = (with.as_ptr().cast(), compare.as_ptr().cast());
    let (was, of, number) = (was.as_mut_ptr().cast(), E::NUMBER, context(3));
    toward.post("fi_atomic", || {
        // SAFETY: operands are there for the call, results until the completion.
        unsafe {
            let ops = &*(*ep).atomic;
            match flags {
                0 => (ops.write)(ep, with, COUNT, none, to, at, key, of, op, number),
                FI_FETCH_ATOMIC => {
                    (ops.readwrite)(ep, with, COUNT, none, was, none, to, at, key, of, op, number)
                }
                _ => (ops.compwrite)(
                    ep, with, COUNT, none, compare, none, was, none, to, at, key, of, op, number,
                ),
            }
        }
    });
}

#[test]
fn every_operation_on_every_type() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    check::<i8>(&couple);
    check::<u8>(&couple);
    check::<i16>(&couple);
    check::<u16>(&couple);
    check::<i32>(&couple);
    check::<u32>(&couple);
    check::<i64>(&couple);
    check::<u64>(&couple);
    check::<f32>(&couple);
    check::<f64>(&couple);
    check::<[f32; 2]>(&couple);
    check::<[f64; 2]>(&couple);
}

/// Additions of two peers to one word are all there in the end.
#[test]
fn additions_of_several_peers_are_all_there() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let third = crate::side::Side::new(host, Terms::default());
    let from_third = third.insert(&couple.two.name());
    let mut word = 0u64.to_ne_bytes().to_vec();
    let at = couple.two.place(&word);
    let (mr, key) = couple.two.register(&mut word, RIGHTS, 1);
    let add = |side: &crate::side::Side, to: u64| {
        let one = 1u64;
        let one = (&raw const one).cast();
        let (ep, none) = (side.ep, std::ptr::null_mut());
        crate::couple::posted("fi_atomic", &[side, &couple.two], || {
            // SAFETY: the operand is there for the call.
            unsafe {
                let write = (*(*ep).atomic).write;
                write(ep, one, 1, none, to, at, key, 7, 2, context(1))
            }
        });
    };
    for _ in 0..500 {
        add(&couple.one, couple.to_two);
        add(&third, from_third);
    }
    for _ in 0..500 {
        couple.one.take(couple.one.tx, &[&couple.two, &third]).unwrap();
        third.take(third.tx, &[&couple.two, &couple.one]).unwrap();
    }
    assert_eq!(word, 1000u64.to_ne_bytes());
    assert_eq!(close(mr), 0);
}

#[test]
fn what_is_not_allowed_fails_and_changes_nothing() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let mut memory = [5u8; 64];
    let at = couple.two.place(&memory[8..56]).wrapping_sub(8);
    let (mr, key) = couple.two.register(&mut memory[8..56], FI_REMOTE_READ, 1);
    let fails = |op, flags, at, key| {
        let mut was = [0u64; COUNT];
        post(&couple.toward(), op, flags, [1u64; COUNT], [0; COUNT], &mut was, at, key);
        couple.at_one(couple.one.tx).unwrap_err().err
    };
    assert_eq!(fails(2, 0, at.wrapping_add(8), key), libc::EACCES);
    assert_eq!(fails(2, FI_FETCH_ATOMIC, at.wrapping_add(8), key), libc::EACCES);
    assert_eq!(fails(10, FI_FETCH_ATOMIC, at, key), libc::EACCES);
    assert_eq!(fails(10, FI_FETCH_ATOMIC, at.wrapping_add(40), key), libc::EACCES);
    assert_eq!(fails(10, FI_FETCH_ATOMIC, at.wrapping_add(8), key + 100), FI_ENOKEY);
    assert_eq!(memory, [5; 64]);
    assert_eq!(close(mr), 0);
}

/// Where a region has no memory any more nothing is changed, and its owner comes to no harm.
#[test]
fn memory_that_is_not_there_is_not_changed() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let len = 2 << 20;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: fresh memory.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    // SAFETY: mapped just now; the reference is gone before the memory is.
    let memory = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), len) };
    let at = couple.two.place(memory) + (1 << 20);
    let (mr, key) = couple.two.register(memory, RIGHTS, 1);
    // Unmapped it would leave a hole, into which other threads could map something.
    // SAFETY: nobody has a reference to it any more.
    let protect = |how| unsafe { libc::mprotect(mapped.byte_add(1 << 20), 1 << 20, how) };
    let absent = |op, flags| {
        let mut was = [0u64; COUNT];
        post(&couple.toward(), op, flags, [1u64; COUNT], [0; COUNT], &mut was, at, key);
        assert_eq!(couple.at_one(couple.one.tx).unwrap_err().err, libc::EFAULT);
    };
    assert_eq!(protect(libc::PROT_NONE), 0);
    for (op, flags) in [(2, 0), (2, FI_FETCH_ATOMIC), (10, FI_FETCH_ATOMIC)] {
        absent(op, flags);
    }
    assert_eq!(protect(libc::PROT_READ), 0);
    absent(2, 0);
    let mut was = [7u64; COUNT];
    post(&couple.toward(), 2, FI_FETCH_ATOMIC, [1u64; COUNT], [0; COUNT], &mut was, at - 64, key);
    couple.at_one(couple.one.tx).unwrap();
    assert_eq!(was, [0; COUNT]);
    assert_eq!(close(mr), 0);
    // SAFETY: the rest of it.
    assert_eq!(unsafe { libc::munmap(mapped, len) }, 0);
}

/// The other forms of each call: of several lists, by a message, injected.
#[test]
fn every_form_of_every_call() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let mut words: Vec<u8> = [1u64, 2, 3, 4].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let at = couple.two.place(&words);
    let (mr, key) = couple.two.register(&mut words, RIGHTS, 1);
    let (ep, to, none) = (couple.one.ep, couple.to_two, std::ptr::null_mut::<c_void>());
    let (with, compare) = ([10u64, 20, 30, 40], [11u64, 22, 33, 44]);
    let mut was = [0u64; 4];
    let halves = |array: *const u64| {
        let at = |index| array.wrapping_add(index).cast_mut().cast::<c_void>();
        [FiIoc { addr: at(0), count: 1 }, FiIoc { addr: at(1), count: 3 }]
    };
    let (lists, compares) = (halves(with.as_ptr()), halves(compare.as_ptr()));
    let mut results = halves(was.as_ptr());
    results[0].addr = was.as_mut_ptr().cast();
    results[1].addr = was.as_mut_ptr().wrapping_add(1).cast();
    let ranges = [FiRmaIoc { addr: at, count: 2, key }, FiRmaIoc { addr: at + 16, count: 2, key }];
    let message = |op| FiMsgAtomic {
        msg_iov: lists.as_ptr(),
        desc: none.cast(),
        iov_count: 2,
        addr: to,
        rma_iov: ranges.as_ptr(),
        rma_iov_count: 2,
        datatype: 7,
        op,
        context: context(3),
        data: 0,
    };
    let done = || couple.at_one(couple.one.tx).expect("no error").context;
    let (flags, number, sum, swap) = (FI_COMPLETION, context(3), 2, 12);
    let results = results.as_mut_ptr();
    // SAFETY: lists and operands are there until each call has ended.
    unsafe {
        let ops = &*(*ep).atomic;
        couple.post("fi_atomicv", || {
            (ops.writev)(ep, lists.as_ptr(), none.cast(), 2, to, at, key, 7, sum, number)
        });
        assert_eq!(done(), number);
        let msg = message(sum);
        couple.post("fi_atomicmsg", || (ops.writemsg)(ep, &msg, flags));
        assert_eq!(done(), number);
        couple.post("fi_inject_atomic", || {
            (ops.inject)(ep, with.as_ptr().cast(), 4, to, at, key, 7, sum)
        });
        couple.post("fi_fetch_atomicv", || {
            let (lists, none) = (lists.as_ptr(), none.cast());
            (ops.readwritev)(ep, lists, none, 2, results, none, 2, to, at, key, 7, sum, number)
        });
        assert_eq!(done(), number);
        assert_eq!(std::ptr::read_volatile(&raw const was), [31, 62, 93, 124]);
        couple.post("fi_fetch_atomicmsg", || {
            (ops.readwritemsg)(ep, &msg, results, none.cast(), 2, flags)
        });
        assert_eq!(done(), number);
        assert_eq!(std::ptr::read_volatile(&raw const was), [41, 82, 123, 164]);
        couple.post("fi_compare_atomicv", || {
            let (lists, none) = (lists.as_ptr(), none.cast());
            let compares = compares.as_ptr();
            (ops.compwritev)(
                ep, lists, none, 2, compares, none, 2, results, none, 2, to, at, key, 7, swap,
                number,
            )
        });
        assert_eq!(done(), number);
        assert_eq!(std::ptr::read_volatile(&raw const was), [51, 102, 153, 204]);
        let msg = message(11 + 2);
        couple.post("fi_compare_atomicmsg", || {
            let none = none.cast();
            (ops.compwritemsg)(ep, &msg, compares.as_ptr(), none, 2, results, none, 2, flags)
        });
        assert_eq!(done(), number);
    }
    assert!(couple.one.poll(couple.one.tx).unwrap().is_none());
    let expected: Vec<u8> = with.iter().flat_map(|word| word.to_ne_bytes()).collect();
    assert_eq!(words, expected);
    assert_eq!(close(mr), 0);
}
