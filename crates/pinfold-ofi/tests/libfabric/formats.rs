//! Completion queues in every format: as much of an entry as the format has, and no more.

use pinfold_fi::ffi::{flags::*, queue::FiCqTaggedEntry};

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{PATIENCE, Terms, blank, context},
};

const CANARY: u8 = 0xa5;

/// Reads one entry of `bytes` bytes into room that is marked.
fn read(couple: &Couple, bytes: usize, with_source: bool) -> (FiCqTaggedEntry, u64) {
    let end = std::time::Instant::now() + PATIENCE;
    let cq = couple.two.rx;
    loop {
        let mut room = [CANARY; 64];
        let mut source = 77;
        // SAFETY: room for more than one entry of any format.
        let count = unsafe {
            let ops = &*(*cq).ops;
            match with_source {
                true => (ops.readfrom)(cq, room.as_mut_ptr().cast(), 1, &mut source),
                false => (ops.read)(cq, room.as_mut_ptr().cast(), 1),
            }
        };
        if count == 1 {
            assert!(room[bytes..].iter().all(|byte| *byte == CANARY), "{bytes}");
            let mut entry = blank();
            // SAFETY: the beginning of an entry, whose rest stays zero.
            unsafe {
                let to = (&raw mut entry).cast::<u8>();
                std::ptr::copy_nonoverlapping(room.as_ptr(), to, bytes);
            }
            return (entry, source);
        }
        assert_eq!(count, -(libc::EAGAIN as isize));
        couple.one.progress();
        assert!(std::time::Instant::now() < end);
    }
}

#[test]
fn entries_are_as_long_as_their_format() {
    let Some(host) = host() else { return };
    let formats = [
        (FI_CQ_FORMAT_CONTEXT, 8),
        (FI_CQ_FORMAT_MSG, 24),
        (FI_CQ_FORMAT_DATA, 40),
        (FI_CQ_FORMAT_TAGGED, 48),
    ];
    for (format, bytes) in formats {
        for wait in [FI_WAIT_NONE, FI_WAIT_UNSPEC, FI_WAIT_FD] {
            let couple = Couple::new(host, Terms { format, wait, ..Terms::default() });
            for with_source in [false, true] {
                let (mut from, mut to) = ([3u8; 24], [0; 24]);
                let mut incoming = Incoming {
                    memory: &mut to,
                    from: FI_ADDR_UNSPEC,
                    tag: Some((0x1234, 0)),
                    flags: 0,
                    context: context(6),
                };
                couple.post("fi_trecv", || recv(&couple.two, Recv::Plain, &mut incoming));
                let mut outgoing = Outgoing {
                    memory: &mut from,
                    to: couple.to_two,
                    tag: Some(0x1234),
                    data: 0xbeef,
                    flags: 0,
                    context: context(9),
                };
                couple.post("fi_tsend", || send(&couple.one, Send::InjectData, &mut outgoing));
                let (entry, source) = read(&couple, bytes, with_source);
                assert_eq!(entry.context, context(6));
                assert_eq!(entry.len, if bytes >= 24 { 24 } else { 0 });
                assert_eq!(entry.data, if bytes >= 40 { 0xbeef } else { 0 });
                assert_eq!(entry.tag, if bytes >= 48 { 0x1234 } else { 0 });
                assert_eq!(source, if with_source { couple.to_one } else { 77 });
                assert_eq!(to, from);
            }
        }
    }
}

/// A wait that is over without a completion says so, and a signal ends one.
#[test]
fn waits_end_by_time_and_by_signal() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, Terms { wait: FI_WAIT_UNSPEC, ..Terms::default() });
    let cq = couple.two.rx;
    let mut entry = blank();
    // SAFETY: room for one entry.
    let read = unsafe {
        let to = (&raw mut entry).cast();
        ((*(*cq).ops).sread)(cq, to, 1, std::ptr::null(), 20)
    };
    assert_eq!(read, -(libc::EAGAIN as isize));
    let there = cq.expose_provenance();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            let cq = std::ptr::with_exposed_provenance_mut::<pinfold_fi::ffi::queue::FidCq>(there);
            let mut entry = blank();
            // SAFETY: room for one entry; the queue is open until both threads are done.
            unsafe {
                let to = (&raw mut entry).cast();
                ((*(*cq).ops).sread)(cq, to, 1, std::ptr::null(), 20_000)
            }
        });
        while !waits.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(10));
            // SAFETY: as above.
            assert_eq!(unsafe { ((*(*cq).ops).signal)(cq) }, 0);
        }
        let code = waits.join().unwrap();
        let ends = [-(libc::ECANCELED as isize), -(libc::EAGAIN as isize)];
        assert!(ends.contains(&code), "{code}");
    });
}
