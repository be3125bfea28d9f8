#![allow(unsafe_code)]
//! An extent that was let go of comes back, as long as its descriptor is kept.

use super::*;

fn add(maps: &mut ImportedExtents, owner: u32, id: u64) -> bool {
    maps.add(peer(owner), extent(id, PAGE), tie())
}

/// Returns whether it can be had.
fn can(maps: &mut ImportedExtents, owner: u32, id: u64) -> bool {
    maps.get(peer(owner), id).is_some()
}

fn exported(extent: u64) -> Exported {
    Exported { extent, offset: 0 }
}

#[test]
fn what_was_evicted_is_mapped_again() {
    let mut maps = maps(1);
    assert!(add(&mut maps, 1, 1) && add(&mut maps, 1, 2));
    for _ in 0..5 {
        assert!(!maps.has(peer(1), 1) && can(&mut maps, 1, 1), "it came back");
        assert!(!maps.has(peer(1), 2) && can(&mut maps, 1, 2));
        assert_eq!((maps.count(), maps.bytes() as u64), (1, PAGE));
    }
    // It is the same file: of the same length, and with the access that its owner allows.
    assert_eq!(maps.get(peer(1), 1).unwrap().len(), PAGE);
    assert!(maps.get(peer(1), 1).unwrap().get_mut(0, 1).is_none(), "for reading only");
    maps.remove(peer(1), 1);
    assert!(!can(&mut maps, 1, 1) && can(&mut maps, 1, 2));
}

#[test]
fn what_is_lent_keeps_the_other_out() {
    let mut maps = maps(1);
    assert!(add(&mut maps, 1, 1) && add(&mut maps, 1, 2));
    let loan = maps.lend(peer(1), exported(1), 8, 7).unwrap();
    for _ in 0..3 {
        assert!(!can(&mut maps, 1, 2) && maps.has(peer(1), 1));
    }
    assert!(maps.is_known(peer(1), 2));
    maps.give_back(&loan);
    assert!(can(&mut maps, 1, 2) && !maps.has(peer(1), 1));
}

#[test]
fn loans_of_what_is_not_the_recent_one_are_counted() {
    let mut maps = maps(2);
    assert!(add(&mut maps, 1, 1) && add(&mut maps, 1, 2));
    let one = maps.lend(peer(1), exported(1), 8, 1).unwrap();
    let two = maps.lend(peer(1), exported(1), 8, 2).unwrap();
    assert!(can(&mut maps, 1, 2));
    // Neither is of the recent one any more.
    maps.give_back(&one);
    assert!(add(&mut maps, 1, 3) && maps.has(peer(1), 1));
    maps.give_back(&two);
    assert!(can(&mut maps, 1, 3) && can(&mut maps, 1, 2) && !maps.has(peer(1), 1));
}

#[test]
fn what_is_copied_stays_until_that_has_ended() {
    let mut maps = maps(1);
    assert!(add(&mut maps, 1, 1) && add(&mut maps, 1, 2));
    let copied = Arc::clone(maps.get(peer(1), 1).unwrap());
    assert!(!can(&mut maps, 1, 2) && maps.has(peer(1), 1));
    // Looked up meanwhile, and lent, and let go of.
    let loan = maps.lend(peer(1), exported(1), 8, 1).unwrap();
    assert!(!can(&mut maps, 1, 2));
    maps.give_back(&loan);
    assert!(!can(&mut maps, 1, 2));
    drop(copied);
    assert!(can(&mut maps, 1, 2) && !maps.has(peer(1), 1));
}

#[test]
fn one_of_its_own_goes_first_at_a_peers_limit() {
    let mut maps = ImportedExtents::bounded(1 << 30, 5, 2, account(1 << 20));
    assert!(add(&mut maps, 2, 1) && add(&mut maps, 1, 1) && add(&mut maps, 1, 2));
    assert!(can(&mut maps, 1, 1) && add(&mut maps, 1, 3));
    assert!(maps.has(peer(2), 1) && maps.has(peer(1), 1) && !maps.has(peer(1), 2));
    // It comes back in the same way.
    assert!(can(&mut maps, 1, 2) && !maps.has(peer(1), 1) && maps.has(peer(2), 1));
    // In all there are no more than five; an extent of a peer that is lent cannot go, though
    // others' could.
    assert!(add(&mut maps, 3, 1) && add(&mut maps, 3, 2) && add(&mut maps, 4, 1));
    assert_eq!((maps.count(), maps.has(peer(2), 1)), (5, false), "the oldest of all");
    let loans = [2, 3].map(|id| maps.lend(peer(1), exported(id), 8, 1).unwrap());
    assert!(!add(&mut maps, 1, 4) && !can(&mut maps, 1, 1));
    assert!(maps.has(peer(3), 1) && maps.has(peer(3), 2) && maps.has(peer(4), 1));
    // An extent that its peer took back counts until it is given back here.
    maps.remove(peer(1), 2);
    assert!(!can(&mut maps, 1, 1));
    maps.give_back(&loans[0]);
    assert!(can(&mut maps, 1, 1));
    maps.give_back(&loans[1]);
}

#[test]
fn without_descriptors_what_was_evicted_is_lost() {
    let account = account(0);
    let mut maps = ImportedExtents::bounded(PAGE as usize, MAPS_MAX, MAPS_A_PEER, account);
    assert!(add(&mut maps, 1, 1) && can(&mut maps, 1, 1) && add(&mut maps, 1, 2));
    assert!(!can(&mut maps, 1, 1) && can(&mut maps, 1, 2));
    let files = &maps.backend().unwrap().files;
    assert_eq!((files.len(), account.kept()), (1, 0), "the other is forgotten");
    // As soon as it is sent anew it is there.
    assert!(add(&mut maps, 1, 1) && can(&mut maps, 1, 1));
}

#[test]
fn descriptors_are_given_up_by_who_has_most() {
    let account = account(4);
    let mut maps = ImportedExtents::bounded(1 << 30, MAPS_MAX, MAPS_A_PEER, account);
    let is_kept = |maps: &ImportedExtents, owner: u32, id: u64| {
        let files = &maps.backend().unwrap().files;
        files.get(files.space(peer(owner), id).unwrap()).unwrap().fd().is_some()
    };
    assert!(add(&mut maps, 2, 1));
    for id in 1..=20 {
        assert!(add(&mut maps, 1, id));
    }
    assert_eq!(account.kept(), 4);
    assert!(is_kept(&maps, 2, 1) && (18..=20).all(|id| is_kept(&maps, 1, id)));
    assert!((1..18).all(|id| !is_kept(&maps, 1, id) && maps.has(peer(1), id)));
    // With as many each, it is the one that sends.
    assert!(add(&mut maps, 2, 2));
    assert!(is_kept(&maps, 2, 1) && !is_kept(&maps, 1, 18) && is_kept(&maps, 1, 19));
    assert!(add(&mut maps, 2, 3));
    assert!(!is_kept(&maps, 2, 1) && is_kept(&maps, 2, 3) && is_kept(&maps, 1, 19));
    // An extent that goes gives its descriptor back.
    maps.remove(peer(1), 20);
    assert_eq!(account.kept(), 3);
    maps.drop_peer(peer(2));
    assert_eq!(account.kept(), 1);
    // Where the process has no descriptors left, none is kept, and mappings stay.
    maps.close_descriptors();
    assert_eq!((account.kept(), maps.count()), (0, 19));
    assert!((1..=19).all(|id| maps.has(peer(1), id)));
    assert!(add(&mut maps, 3, 1));
    drop(maps);
    assert_eq!(account.kept(), 0);
}

#[test]
fn what_was_evicted_and_gives_its_descriptor_up_is_lost() {
    let mut maps = ImportedExtents::bounded(2 * PAGE as usize, MAPS_MAX, MAPS_A_PEER, account(2));
    assert!((1..=3).all(|id| add(&mut maps, 1, id)));
    assert!(!maps.is_known(peer(1), 1) && maps.has(peer(1), 2) && maps.has(peer(1), 3));
    assert!(add(&mut maps, 1, 4) && !maps.is_known(peer(1), 2) && maps.has(peer(1), 3));
    // That of 3, which is still mapped, goes the next time.
    let loan = maps.lend(peer(1), exported(3), 8, 1).unwrap();
    assert!(add(&mut maps, 1, 5) && maps.has(peer(1), 3));
    assert!(can(&mut maps, 1, 4), "it was evicted, and is back");
    maps.give_back(&loan);
    assert!(can(&mut maps, 1, 5) && !maps.is_known(peer(1), 3));
}

#[test]
fn what_a_peer_took_back_is_not_mapped_again() {
    let mut maps = maps(1);
    assert!(add(&mut maps, 1, 1) && add(&mut maps, 1, 2) && add(&mut maps, 2, 1));
    maps.remove(peer(1), 1);
    maps.drop_peer(peer(2));
    assert!(!can(&mut maps, 1, 1) && !can(&mut maps, 2, 1) && can(&mut maps, 1, 2));
    maps.drop_peer(peer(1));
    assert!(!can(&mut maps, 1, 2));
    assert_eq!((maps.count(), maps.bytes(), maps.backend().unwrap().files.len()), (0, 0, 0));
}

#[test]
fn who_looks_at_what_a_peer_left_is_told() {
    let mut maps = maps(4);
    assert!(add(&mut maps, 1, 1) && add(&mut maps, 2, 1));
    let theirs = maps.lend(peer(1), exported(1), 8, 1).unwrap();
    let others = maps.lend(peer(2), exported(1), 8, 1).unwrap();
    maps.drop_peer(peer(1));
    // SAFETY: neither was given back.
    let is_orphaned =
        |loan: &Loan| unsafe { loan.held() }.orphaned.load(std::sync::atomic::Ordering::Relaxed);
    assert!(is_orphaned(&theirs) && !is_orphaned(&others));
    maps.give_back(&theirs);
    maps.give_back(&others);
    assert_eq!(maps.count(), 1);
}
