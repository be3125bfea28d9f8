//! Bytes out of pinned pages, and into them.
use std::os::fd::AsFd;

use super::*;

fn file() -> std::os::fd::OwnedFd {
    crate::mem::memfd::create_sealed("transfer", 16 * PAGE).unwrap()
}

fn back(fd: &impl AsFd, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(rustix::io::pread(fd, &mut bytes, 0).unwrap(), len);
    bytes
}

#[test]
fn bytes_come_out_of_pinned_pages_though_others_are_mapped_there() {
    let _alone = alone();
    let Some(ring) = ring(4) else { return };
    let range = crate::mem::userfault::tests::mapped(4);
    let slot = ring.pin(range.clone()).unwrap();
    let file = file();
    let bytes = range.start + 100..range.start + 2 * PAGE + 3;
    rustix_munmap(range.start);
    assert_eq!(remap_at(range.start), range.start);
    assert_eq!(ring.write_out(slot.id(), bytes.clone(), file.as_fd(), 0).unwrap(), bytes.len());
    // The tests' memory has a 1 at the start of each page.
    let found = back(&file, bytes.len());
    let ones: Vec<_> = (0..found.len()).filter(|&at| found[at] == 1).collect();
    assert_eq!(ones, [PAGE - 100, 2 * PAGE - 100]);
    assert_eq!(
        ring.write_out(slot.id(), range.start..range.start + 1, file.as_fd(), 0).unwrap(),
        1
    );
    assert_eq!(back(&file, 1), [1]);
    // The memory mapped there now is new.
    assert_eq!(write_mapped(range.start..range.start + 1, file.as_fd(), 0).unwrap(), 1);
    assert_eq!(back(&file, 1), [0]);
    ring.unpin(slot).unwrap();
}

#[test]
fn bytes_come_into_pinned_pages() {
    let _alone = alone();
    let Some(ring) = ring(4) else { return };
    let (memory, range) = memory(4);
    let slot = ring.pin(range.clone()).unwrap();
    let file = file();
    rustix::io::pwrite(&file, &[7; 5000], 0).unwrap();
    let bytes = range.start + 10..range.start + 5010;
    // SAFETY: the test's memory, looked at only afterwards.
    let read = unsafe { ring.read_in(slot.id(), bytes, file.as_fd(), 0) };
    assert_eq!(read.unwrap(), 5000);
    let found = memory.as_slice();
    assert!(found[10..5010].iter().all(|&byte| byte == 7) && found[9] == 1 && found[5010] == 1);
    ring.unpin(slot).unwrap();
}

#[test]
fn only_bytes_of_the_slot_are_reached() {
    let _alone = alone();
    let (Some(ring), Some(other)) = (ring(4), ring(4)) else { return };
    let (_memory, range) = memory(4);
    let file = file();
    let slot = ring.pin(range.start + PAGE..range.start + 2 * PAGE).unwrap();
    let why = |ring: &Registered, id, bytes: Range<usize>| {
        ring.write_out(id, bytes, file.as_fd(), 0).unwrap_err().reason()
    };
    let (from, to) = (range.start + PAGE, range.start + 2 * PAGE);
    for bad in [from - 1..to, from..to + 1, from - PAGE..from, to..to + 1] {
        assert_eq!(why(&ring, slot.id(), bad), Reason::Unmapped);
    }
    assert_eq!(why(&other, slot.id(), from..to), Reason::Stranger);
    assert_eq!(why(&ring, SlotId::of_bits(slot.id().bits() + 1), from..to), Reason::Unmapped);
    assert_eq!(why(&ring, SlotId::of_bits(slot.id().bits() + 9), from..to), Reason::Unmapped);
    assert_eq!(SlotId::of_bits(slot.id().bits()), slot.id());
    let id = slot.id();
    ring.unpin(slot).unwrap();
    assert_eq!(why(&ring, id, from..to), Reason::Unmapped);
    assert_eq!(back(&file, 1), [0]);
}
