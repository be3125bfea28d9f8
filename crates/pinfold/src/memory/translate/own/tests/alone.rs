//! One thread alone: memory that changed is not found, and hits are counted.
use super::*;

#[test]
fn what_was_mapped_anew_is_what_is_sent() {
    let Some(own) = keeping() else { return };
    let (file, range) = (file(), mapped(4));
    for _ in 0..20 {
        let one = fill(range.clone());
        until_kept(&own, range.clone());
        assert_eq!(sent(&own, &file, range.clone()), one);
        unmap(range.clone());
        map(range.clone());
        assert_eq!(sent(&own, &file, range.clone()), 0);
        let two = fill(range.clone());
        assert_eq!(sent(&own, &file, range.clone()), two);
    }
    unmap(range);
}

#[test]
fn hits_count_as_all_do() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    fill(range.clone());
    until_kept(&own, range.clone());
    let (start, len) = (range.start as u64, range.len() as u64);
    let before = own.counters().pins;
    // In any order.
    let first = own.begin(start, len).unwrap();
    let second = own.begin(start, PAGE as u64).unwrap();
    let third = own.begin(start + 1, 1).unwrap();
    own.end(second);
    own.end(first);
    own.end(third);
    let after = own.counters().pins;
    assert_eq!((after.hits - before.hits, after.pins - before.pins), (3, 0));
    assert_eq!(after.deferred - before.deferred, 3);
    unmap(range);
}

#[test]
fn the_last_transfer_of_what_is_gone_unpins_it() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    let byte = fill(range.clone());
    until_kept(&own, range.clone());
    let hold = own.begin(range.start as u64, range.len() as u64).unwrap();
    unmap(range.clone());
    map(range.clone());
    // The hit sees that memory has changed, and none of it is found.
    assert_eq!(sent(&own, &file(), range.clone()), 0);
    let unpins = own.counters().pins.unpins;
    let file = file();
    own.write_out(&hold, file.as_fd(), 0).unwrap();
    let mut old = [0];
    assert_eq!(rustix::io::pread(&file, &mut old, 0).unwrap(), 1);
    assert_eq!(old[0], byte, "a transfer in flight has its pages");
    own.end(hold);
    assert_eq!(own.counters().pins.unpins, unpins + 1);
    unmap(range);
}
