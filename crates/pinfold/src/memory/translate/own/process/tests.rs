//! Shares of one stack: each has its own pins, and none has old ones.

use std::{
    ops::Range,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use rustix::mm::{self, MapFlags, ProtFlags};

use super::*;
use crate::memory::translate::TranslationLevel;

const PAGE: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);

/// A share at a place of the test's own; nothing, where no memory is kept.
fn share(current: &AtomicPtr<Place>, bytes_max: u64, process_bytes_max: u64) -> Option<Share> {
    match Share::open_at(current, bytes_max, process_bytes_max) {
        Ok(share) => Some(share),
        Err(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

/// New memory, anywhere or in place of some of the test's.
fn map(at: Option<usize>, pages: usize) -> Range<usize> {
    let (fixed, start) = at.map_or((MapFlags::empty(), 0), |start| (MapFlags::FIXED, start));
    let hint = ptr::with_exposed_provenance_mut(start);
    let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | fixed);
    // SAFETY: a place that the kernel chooses, or memory of the test's to which nothing refers.
    let start = unsafe { mm::mmap_anonymous(hint, pages * PAGE, prot, flags) }.unwrap().addr();
    start..start + pages * PAGE
}

fn fill(range: &Range<usize>, byte: u8) {
    let at = ptr::with_exposed_provenance_mut::<u8>(range.start);
    // SAFETY: memory of the test's, to which there is no reference.
    unsafe { at.write_bytes(byte, range.len()) };
}

/// A transfer: the byte that is in all of the pinned memory, the level, and whether it stays.
fn sent(share: &Share, range: &Range<usize>) -> (u8, TranslationLevel, bool) {
    let file = pinfold_sys::mem::memfd::create_sealed("share-test", range.len()).unwrap();
    let hold = share.translate(range.start as u64, range.len() as u64).unwrap();
    let (ring, slot) = (share.ring().unwrap(), hold.slot().unwrap());
    assert_eq!(ring.write_out(slot, range.clone(), file.as_fd(), 0).unwrap(), range.len());
    let level = hold.level();
    let kept = share.end(hold);
    let mut found = vec![0; range.len()];
    rustix::io::pread(&file, &mut found, 0).unwrap();
    assert!(found.iter().all(|byte| *byte == found[0]), "a mixture");
    (found[0], level, kept)
}

/// Transfers until the memory is found without pinning: other tests' threads change theirs.
fn until_known(share: &Share, range: &Range<usize>) {
    let end = Instant::now() + PATIENCE;
    while sent(share, range).1 == TranslationLevel::Pinned {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn shares_have_one_stack_and_no_old_memory() {
    static HERE: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
    let Some(one) = share(&HERE, 1 << 20, 4 << 20) else { return };
    let two = share(&HERE, 1 << 20, 4 << 20).unwrap();
    assert!(Arc::ptr_eq(&one.memory, &two.memory));
    let range = map(None, 4);
    for round in 0..10 {
        fill(&range, 2 * round + 1);
        until_known(&one, &range);
        until_known(&two, &range);
        assert_eq!((sent(&one, &range).0, sent(&two, &range).0), (2 * round + 1, 2 * round + 1));
        // Both learn of a change.
        map(Some(range.start), 4);
        fill(&range, 2 * round + 2);
        assert_eq!((sent(&one, &range).0, sent(&two, &range).0), (2 * round + 2, 2 * round + 2));
    }
    until_known(&one, &range);
    until_known(&two, &range);
    let pinned = 4 * PAGE as u64;
    assert_eq!((one.pinned_bytes(), two.pinned_bytes()), (pinned, pinned));
    // One goes, with a transfer in flight, and leaves nothing; the other has what it had.
    let (memory, gauges) = (Arc::clone(&one.memory), Arc::clone(&one.account.gauges));
    let late = one.translate(range.start as u64, 1).unwrap();
    drop(one);
    assert_eq!((gauges.pinned_bytes(), memory.counters().pins.now.bytes), (0, pinned));
    assert!(!memory.end_told(late));
    until_known(&two, &range);
    // The last one takes the stack along; the next begins with another.
    drop((memory, two));
    assert!(place(&HERE).unwrap().memory.lock().upgrade().is_none());
    let three = share(&HERE, 1 << 20, 4 << 20).unwrap();
    assert_eq!((three.pinned_bytes(), sent(&three, &range).0), (0, 20));
    drop(three);
    // SAFETY: memory of the test's, which uses it no more.
    unsafe { mm::munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }.unwrap();
}

#[test]
fn a_share_at_its_limit_leaves_the_others_alone() {
    static HERE: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
    let Some(one) = share(&HERE, 8 * PAGE as u64, 1 << 20) else { return };
    let two = share(&HERE, 1 << 20, 0).unwrap();
    let range = map(None, 64);
    fill(&range, 1);
    let part = |page: usize| range.start + page * PAGE..range.start + (page + 4) * PAGE;
    until_known(&two, &part(0));
    for page in (0..64).step_by(8) {
        until_known(&one, &part(page));
        assert!(one.pinned_bytes() <= 8 * PAGE as u64);
    }
    assert!(one.evictions() >= 6 && two.evictions() == 0);
    assert_eq!(two.pinned_bytes(), 4 * PAGE as u64);
    assert!(one.translate(range.start as u64, 9 * PAGE as u64).is_err());
    drop((one, two));
    // SAFETY: memory of the test's, which uses it no more.
    unsafe { mm::munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }.unwrap();
}
