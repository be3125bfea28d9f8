#![allow(unsafe_code)]
//! Memory of posted receives is there before their messages come, and keeps its contents.
// Invariant: mapped memory is the test's own, and borrowed by one receive at a time.

use std::{
    io, ptr, slice, thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Progress};
use pinfold_sys::mem::fault_safe_copy::is_resident;
use pinfold_tests::{pair, skip::skip};

const LEN: usize = 3 << 20;

/// Memory that no thread has touched, or of which the first page was written.
fn fresh(first: &[u8]) -> &'static mut [u8] {
    let (protection, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which is never unmapped.
    let memory = unsafe {
        let at = libc::mmap(ptr::null_mut(), LEN, protection, kind, -1, 0);
        assert!(at != libc::MAP_FAILED, "{}", io::Error::last_os_error());
        // No page is to come with its neighbours.
        libc::madvise(at, LEN, libc::MADV_NOHUGEPAGE);
        slice::from_raw_parts_mut(at.cast::<u8>(), LEN)
    };
    memory[..first.len()].copy_from_slice(first);
    memory
}

fn pages_there(memory: &[u8]) -> usize {
    memory.chunks(4096).filter(|page| is_resident(page.as_ptr().addr() as u64, 4096)).count()
}

/// Returns whether the kernel can do it (Linux 5.14).
fn is_possible() -> bool {
    let memory = fresh(&[]);
    let put = pinfold_sys::mem::fault_safe_copy::put_pages(memory.as_ptr().addr() as u64, 4096);
    put.inspect_err(|error| skip(&format!("pages before they are written: {error}"))).is_ok()
}

/// Waits until so much of the memory is there. Returns how much there is after all.
fn await_pages(at: usize, len: usize) -> usize {
    let there = || (at..at + len).step_by(4096).filter(|at| is_resident(*at as u64, 1)).count();
    let end = Instant::now() + Duration::from_secs(20);
    while there() < len / 4096 && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    there()
}

/// The pages are made by the thread that waits for the message, or by the endpoint's own.
#[test]
fn the_memory_of_receives_that_wait_is_made_ready() {
    if !is_possible() {
        return;
    }
    for progress in [Progress::Inline, Progress::Dedicated] {
        let (a, from_b, b, to_a) =
            pair("ready", Endpoint::builder().progress(progress), Endpoint::builder());
        let memory = fresh(b"what was there");
        let at = memory.as_ptr().addr();
        assert_eq!(pages_there(memory), 1);
        let send = |there: usize| {
            assert_eq!(there, LEN / 4096);
            b.send(to_a, 1, b"short").unwrap();
        };
        a.scope(|scope| {
            let receive = scope.recv_into(from_b, 1, &mut memory[..]).unwrap();
            if progress == Progress::Dedicated {
                // No thread calls the endpoint meanwhile.
                send(await_pages(at, LEN));
                assert_eq!(receive.wait().0.unwrap().len, 5);
                return;
            }
            thread::scope(|threads| {
                let sends = threads.spawn(|| send(await_pages(at, LEN)));
                assert_eq!(receive.wait().0.unwrap().len, 5);
                sends.join().unwrap();
            });
        });
        assert_eq!(&memory[..14], b"shortwas there");
        assert!(memory[14..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn short_receives_and_those_that_have_their_message_are_left_alone() {
    let (a, from_b, b, to_a) = pair("unready", Endpoint::builder(), Endpoint::builder());
    let memory = fresh(&[]);
    let (short, long) = memory.split_at_mut(32 << 10);
    thread::scope(|threads| {
        threads.spawn(|| {
            thread::sleep(Duration::from_millis(30));
            b.send(to_a, 1, &[]).unwrap();
        });
        assert_eq!(a.recv_into(from_b, 1, short).unwrap().len, 0);
    });
    b.send(to_a, 2, b"there already").unwrap();
    while a.try_probe(from_b, 2).unwrap().is_none() {}
    assert_eq!(a.recv_into(from_b, 2, long).unwrap().len, 13);
    assert_eq!(pages_there(memory), 1);
}
