//! Messages, and one-sided operations, beyond 4 GiB.

use std::thread;

use pinfold::{Path, Progress, Rights, TagMatch};
use pinfold_tests::{
    driven,
    huge::{self, HUGE},
};

use super::{builder, pair};

#[test]
fn beyond_four_gib() {
    if !huge::is_possible() {
        return;
    }
    let ((one, to_two), (two, to_one)) = pair(builder(Progress::Inline), builder(Progress::Inline));
    let mut memory = vec![0u8; HUGE];
    huge::mark(&mut memory, 1);
    let mut room = vec![0u8; HUGE];
    let (sent, received) = thread::scope(|scope| {
        let sends = scope.spawn(|| two.send(to_one, 7, &memory).unwrap());
        let received = one.recv_into(to_two, TagMatch::exact(7), &mut room).unwrap();
        (sends.join().unwrap(), received)
    });
    for receipt in [sent, received.receipt] {
        assert_eq!((receipt.path, receipt.bytes), (Path::Eager, HUGE as u64));
        assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, HUGE as u64));
    }
    huge::check(&room, 1);
    let region = one.region(HUGE, Rights::ReadWrite).unwrap();
    let key = region.key().unwrap();
    driven(&one, || {
        let remote = two.open_region(to_one, &key).unwrap();
        huge::mark(&mut memory, 2);
        let wrote = remote.write(0, &memory).unwrap();
        assert_eq!((wrote.path, wrote.bytes), (Path::Eager, HUGE as u64));
        // The write is in the owner's memory by now.
        let mut end = [0; 64];
        region.read(HUGE - end.len(), &mut end).unwrap();
        assert_eq!(end, memory[HUGE - end.len()..]);
        let read = remote.read(0, &mut room).unwrap();
        assert_eq!((read.path, read.bytes), (Path::Eager, HUGE as u64));
        huge::check(&room, 2);
    });
}
