//! Receives match in the order in which they were posted, also where a program polls and the newest
//! of them is only looked for.

use pinfold_fi::ffi::{flags::*, object::Fid};

use crate::{
    couple::{Couple, Incoming, Outgoing, Recv, Send, recv, send},
    host::host,
    side::{Terms, context},
};

const TAG: u64 = 7;
const KINDS: [Recv; 3] = [Recv::Plain, Recv::Vector, Recv::Plain];

fn polls() -> Terms {
    Terms { wait: FI_WAIT_NONE, ..Terms::default() }
}

fn post(couple: &Couple, kind: Recv, memory: &mut [u8], from: u64, ignore: u64, number: usize) {
    let tag = Some((TAG, ignore));
    let flags = FI_COMPLETION;
    let mut incoming = Incoming { memory, from, tag, flags, context: context(number) };
    couple.post("fi_trecv", || recv(&couple.two, kind, &mut incoming));
}

fn inject(couple: &Couple, memory: &mut [u8], tag: u64) {
    let mut outgoing = Outgoing {
        memory,
        to: couple.to_two,
        tag: Some(tag),
        data: 0,
        flags: 0,
        context: context(0),
    };
    couple.post("fi_tinject", || send(&couple.one, Send::Inject, &mut outgoing));
}

fn turns(couple: &Couple, count: usize) {
    for _ in 0..count {
        couple.one.progress();
        couple.two.progress();
    }
}

#[test]
fn receives_match_in_their_order_however_long_they_wait() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, polls());
    for (round, waits) in [0, 3, 400, 0, 50].into_iter().enumerate() {
        for bytes in [8usize, 300, 4096, 9000] {
            let mut rooms = vec![vec![0u8; bytes]; 6];
            for (number, room) in rooms.iter_mut().enumerate() {
                let from = if (number + round) % 2 == 0 { couple.to_one } else { FI_ADDR_UNSPEC };
                let ignore = if number % 4 == 3 { u64::MAX >> 1 } else { 0 };
                post(&couple, KINDS[(number + round) % 3], room, from, ignore, number);
                turns(&couple, waits);
            }
            for number in 0..6 {
                inject(&couple, &mut vec![number as u8 + 1; bytes.min(4096)], TAG);
                let got = couple.at_two(couple.two.rx).unwrap();
                assert_eq!((got.context, got.tag), (context(number), TAG), "{bytes} {waits}");
                assert_eq!(got.len, bytes.min(4096));
            }
            for (number, room) in rooms.iter().enumerate() {
                assert!(room[..bytes.min(4096)].iter().all(|it| *it == number as u8 + 1));
            }
        }
    }
}

#[test]
fn the_newest_leaves_what_is_not_for_it() {
    let Some(host) = host() else { return };
    let couple = Couple::new(host, polls());
    let mut rooms = [[0u8; 8]; 3];
    let [one, two, three] = &mut rooms;
    post(&couple, Recv::Plain, one, couple.to_one, 0, 1);
    // Another tag comes first, and is left to a receive of its own.
    inject(&couple, &mut [9; 8], TAG + 1);
    inject(&couple, &mut [1; 8], TAG);
    assert_eq!(couple.at_two(couple.two.rx).unwrap().context, context(1));
    post(&couple, Recv::Plain, two, couple.to_one, 1 | TAG ^ (TAG + 1), 2);
    assert_eq!(couple.at_two(couple.two.rx).unwrap().tag, TAG + 1);

    // Its message is too long: it has the beginning, and is told so.
    post(&couple, Recv::Plain, three, couple.to_one, 0, 3);
    turns(&couple, 3);
    inject(&couple, &mut [3; 40], TAG);
    let error = couple.at_two(couple.two.rx).unwrap_err();
    assert_eq!((error.err, error.context, error.olen), (FI_ETRUNC, context(3), 32));
    assert_eq!(rooms, [[1; 8], [9; 8], [3; 8]]);

    // A receive that is cancelled has no message.
    let mut rooms = [[0u8; 8]; 2];
    let [one, two] = &mut rooms;
    post(&couple, Recv::Plain, one, couple.to_one, 0, 4);
    let fid = couple.two.ep.cast::<Fid>();
    // SAFETY: the endpoint is open.
    assert_eq!(unsafe { ((*(*couple.two.ep).ops).cancel)(fid, context(4)) }, 0);
    let error = couple.at_two(couple.two.rx).unwrap_err();
    assert_eq!((error.err, error.context), (libc::ECANCELED, context(4)));
    post(&couple, Recv::Plain, two, couple.to_one, 0, 5);
    inject(&couple, &mut [5; 8], TAG);
    assert_eq!(couple.at_two(couple.two.rx).unwrap().context, context(5));
    assert_eq!(rooms, [[0; 8], [5; 8]]);
}
