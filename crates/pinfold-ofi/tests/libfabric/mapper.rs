//! An adversarial mapper: buffers are unmapped, mapped anew and freed between operations, and each
//! operation has the bytes that are there at its time.

use std::ffi::c_void;

use pinfold_fi::ffi::flags::*;
use pinfold_tests::stamp::{self, Random};

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{Terms, close, context},
};

const LEN: usize = 3 << 20;

/// A range of addresses whose memory changes.
pub struct Place(*mut c_void);

impl Place {
    pub fn new() -> Place {
        Place(map(std::ptr::null_mut(), LEN))
    }

    /// Other memory in its place, by one way or another.
    pub fn change(&mut self, how: u64) {
        // SAFETY: a mapping of its own, to which no reference is left.
        unsafe {
            match how % 5 {
                0 => drop(map(self.0, LEN)),
                // Unmapped it would leave a hole, into which other threads could map something.
                1 => {
                    assert_eq!(libc::mprotect(self.0, LEN, libc::PROT_NONE), 0);
                    map(self.0, LEN);
                }
                2 => assert_eq!(libc::madvise(self.0, LEN, libc::MADV_DONTNEED), 0),
                3 => {
                    let other = map(std::ptr::null_mut(), LEN);
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                    assert_eq!(libc::mremap(other, LEN, LEN, flags, self.0), self.0);
                }
                // Half of it alone.
                _ => drop(map(self.0, LEN / 2)),
            }
        }
    }

    pub fn bytes(&mut self, len: usize) -> &mut [u8] {
        // SAFETY: mapped, and borrowed from here.
        unsafe { std::slice::from_raw_parts_mut(self.0.cast(), len) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: its own mapping.
        unsafe { libc::munmap(self.0, LEN) };
    }
}

fn map(at: *mut c_void, len: usize) -> *mut c_void {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: fresh memory, or in place of a mapping of this test's own.
    let mapped = unsafe { libc::mmap(at, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(mapped, libc::MAP_FAILED);
    mapped
}

#[test]
fn messages_have_the_bytes_of_their_time() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let (mut from, mut to) = (Place::new(), Place::new());
    let mut random = Random::new(1);
    for round in 0..150u64 {
        let len = random.pick(&[8, 5000, 70_000, 1 << 20, LEN]);
        stamp::fill(from.bytes(len), round);
        let posted = random.below(2) == 0;
        let mut incoming = Incoming::tagged(to.bytes(len), 1);
        if posted {
            couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
        }
        let mut outgoing = Outgoing::tagged(from.bytes(len), couple.to_two, 1);
        couple.post("fi_tsend", || send(&couple.one, Send::Plain, &mut outgoing));
        if !posted {
            couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
        }
        // The memory is the program's again as soon as it is told.
        couple.at_one(couple.one.tx).expect("no error");
        from.change(random.next());
        couple.at_two(couple.two.rx).expect("no error");
        stamp::check(to.bytes(len), round);
        to.change(random.next());
    }
}

#[test]
fn reads_and_writes_have_the_bytes_of_their_time() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms::default());
    let (mut near, mut far) = (Place::new(), Place::new());
    let rights = FI_REMOTE_READ | FI_REMOTE_WRITE;
    let (mr, key) = couple.two.register(far.bytes(LEN), rights, 3);
    let at = couple.two.place(far.bytes(LEN));
    let mut random = Random::new(2);
    let (ep, to, none) = (couple.one.ep, couple.to_two, std::ptr::null_mut());
    for round in 0..150u64 {
        let len = random.pick(&[8, 5000, 70_000, 1 << 20, LEN]);
        let reads = random.below(2) == 0;
        let (source, target) = if reads { (&mut far, &mut near) } else { (&mut near, &mut far) };
        stamp::fill(source.bytes(len), round);
        target.change(random.next());
        let buf = near.0;
        couple.post("fi_rma", || {
            // SAFETY: the memory is there until the completion, below.
            unsafe {
                let ops = &*(*ep).rma;
                match reads {
                    true => (ops.read)(ep, buf, len, none, to, at, key, context(1)),
                    false => (ops.write)(ep, buf, len, none, to, at, key, context(1)),
                }
            }
        });
        couple.at_one(couple.one.tx).expect("no error");
        let target = if reads { &mut near } else { &mut far };
        stamp::check(target.bytes(len), round);
        near.change(random.next());
        far.change(random.next());
    }
    assert_eq!(close(mr), 0);
}
