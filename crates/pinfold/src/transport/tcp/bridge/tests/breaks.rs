//! Connections that break anywhere: all messages come once, in order and whole, and none is named
//! as sent before the peer has it.

mod stage;

use std::os::unix::net::UnixStream;

use self::stage::{End, Message, Wire, put_to};
use super::*;

/// Sends both plans over connections of which each breaks after so many bytes; the last one holds.
/// `told`: whether each side hears of a break before there is another connection.
fn play(plans: [&[Message]; 2], breaks: &[[usize; 2]], budget: usize, told: bool) {
    let mut breaks = breaks.iter().copied();
    let mut next = || Wire::new(breaks.next().unwrap_or([usize::MAX; 2]));
    let (mut wire, [one, two]) = next();
    let mut ends = [End::new(one, plans[0], budget), End::new(two, plans[1], budget)];
    let end = Instant::now() + Duration::from_secs(30);
    let is_over = |ends: &[End; 2]| {
        ends[0].came.len() == plans[1].len()
            && ends[1].came.len() == plans[0].len()
            && ends.iter().all(|end| end.side.bridge.is_flushed())
    };
    while !is_over(&ends) {
        assert!(Instant::now() < end, "stuck: {} and {}", ends[0].came.len(), ends[1].came.len());
        for way in [0, 1] {
            ends[way].feed();
            ends[way].turn().expect("it holds");
            let other = ends[1 - way].came.len() as u64;
            for &name in &ends[way].named {
                assert!(name < other, "message {name} is named, and {other} have come");
            }
        }
        if wire.pass() {
            continue;
        }
        drop(wire);
        for (way, end) in ends.iter_mut().enumerate() {
            if told || way == 0 {
                // All bytes that were passed on come first.
                while end.turn().is_ok() {}
            }
            end.side.bridge.lose_connection();
            // Without a connection it goes on as far as that is possible.
            end.feed();
            end.turn().unwrap();
        }
        let sockets;
        (wire, sockets) = next();
        let reached =
            [ends[0].side.bridge.reached().unwrap(), ends[1].side.bridge.reached().unwrap()];
        for (way, socket) in sockets.into_iter().enumerate() {
            ends[way]
                .side
                .bridge
                .go_on_over(OwnedFd::from(socket).into(), Vec::new(), reached[1 - way])
                .unwrap();
        }
    }
    // The last of them may have been said as a connection was resumed.
    ends.iter_mut().for_each(End::hear);
    for way in [0, 1] {
        let expected = plans[1 - way].iter().enumerate();
        let expected: Vec<_> = expected.map(|(number, message)| message.bytes(number)).collect();
        assert!(ends[way].came == expected, "other bytes than were sent");
        let direct = |number: &usize| matches!(plans[way][*number], Message::Direct(_));
        let mut names: Vec<usize> = ends[way].named.iter().map(|name| *name as usize).collect();
        names.sort_unstable();
        let sent: Vec<usize> = (0..plans[way].len()).filter(direct).collect();
        assert_eq!(names, sent, "named otherwise");
    }
}

const PLAN: &[Message] = &[
    Message::Inline(8),
    Message::Pieces(300, 300),
    Message::Direct(200),
    Message::Direct(9),
    Message::Inline(0),
    Message::Pieces(90, 40),
    Message::Direct(0),
    Message::Inline(56),
];
/// The least number of bytes that [`PLAN`] takes.
const PLAN_BYTES: usize = 8 + 300 + 200 + 9 + 90 + 56 + 9 * 32;

#[test]
fn a_connection_may_break_at_every_byte() {
    for told in [true, false] {
        for at in 1..PLAN_BYTES {
            play([PLAN, PLAN], &[[at, usize::MAX]], 1 << 20, told);
            play([PLAN, PLAN], &[[usize::MAX, at]], 0, told);
        }
    }
}

#[test]
fn it_may_break_again_and_again() {
    for at in 1..PLAN_BYTES {
        // The next one breaks also within the bytes that are sent again, or before any of them.
        let breaks =
            [[at, PLAN_BYTES - at], [at % 97 + 1, at % 53 + 1], [usize::MAX, at % 400 + 1]];
        play([PLAN, PLAN], &breaks, 1 << 20, at % 2 == 0);
    }
}

/// A piece for which the lane has no room as a whole is cut, and goes on in its middle.
#[test]
fn pieces_that_are_cut_go_on() {
    let plan = [Message::Pieces(200_000, 100_000), Message::Direct(3000), Message::Inline(3)];
    for at in (1..200_000).step_by(1777) {
        play([&plan, &plan], &[[at, usize::MAX], [at / 3 + 1, usize::MAX]], 0, true);
        play([&plan, &[]], &[[at, usize::MAX]], 4 << 20, false);
    }
}

fn messages() -> impl Strategy<Value = Vec<Message>> {
    let message = prop_oneof![
        4 => (0..=56u8).prop_map(Message::Inline),
        2 => (1..40_000usize, 1..30_000usize).prop_map(|(len, most)| Message::Pieces(len, most)),
        2 => (0..60_000usize).prop_map(Message::Direct),
    ];
    prop::collection::vec(message, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn everything_comes_once_however_often_it_breaks(
        there in messages(),
        back in messages(),
        breaks in prop::collection::vec((1..150_000usize, 1..150_000usize), 0..12),
        ample: bool,
        told: bool,
    ) {
        let breaks: Vec<_> = breaks.into_iter().map(|(there, back)| [there, back]).collect();
        play([&there, &back], &breaks, if ample { 4 << 20 } else { 0 }, told);
    }
}

#[test]
fn lies_about_what_has_come_are_noticed() {
    let reached = |frames, bytes| Reached { frames, bytes };
    for (lie, ok) in [
        (reached(2, 0), true),
        (reached(2, 200), true),
        (reached(2, 201), false),
        (reached(3, 0), true),
        (reached(3, 1), false),
        (reached(4, 0), false),
        (reached(u64::MAX, 0), false),
        // It had acknowledged the first.
        (reached(0, 0), false),
    ] {
        let (mut wire, [one, two]) = Wire::new([usize::MAX; 2]);
        let mut one = End::new(one, &PLAN[..1], 0);
        let mut two = End::new(two, &[], 0);
        one.feed();
        while !one.side.bridge.is_flushed() {
            one.turn().unwrap();
            wire.pass();
            two.turn().unwrap();
        }
        one.plan = vec![PLAN[0], PLAN[0], Message::Direct(200)];
        one.memory = vec![Box::default(), PLAN[0].bytes(1).into(), PLAN[2].bytes(2).into()];
        one.feed();
        one.turn().unwrap();
        let (_wire, [again, _]) = Wire::new([usize::MAX; 2]);
        let resumed = one.side.bridge.go_on_over(OwnedFd::from(again).into(), Vec::new(), lie);
        assert_eq!(resumed.is_ok(), ok, "{lie:?}");
        assert_eq!(one.turn().is_ok(), ok, "{lie:?}");
    }
}

/// A side that sends another frame again than it had begun to send.
#[test]
fn another_frame_in_the_place_of_one_ends_it() {
    let data = Piece { offset: 0, len: 10, sample: 0 };
    let eager = Eager { tag: 1, len: 10, piece: data }.body();
    let begun = [frame(1, Header::new(Kind::Eager, 0, 9), &eager), vec![7; 4]].concat();
    for (what, again, ok) in [
        ("the same", [frame(1, Header::new(Kind::Eager, 0, 9), &eager), vec![7; 6]].concat(), true),
        ("another", frame(1, Header::new(Kind::Eager, 0, 8), &eager), false),
        ("a short one", frame(1, Header::new(Kind::Inline, 8, 9), &[1]), false),
        ("the next one", frame(2, Header::new(Kind::Eager, 0, 9), &eager), false),
    ] {
        let (mut stranger, socket) = UnixStream::pair().unwrap();
        let mut end = End::new(socket, &[], 0);
        stranger.write_all(&begun).unwrap();
        end.turn().unwrap();
        assert_eq!(end.side.bridge.reached().unwrap(), Reached { frames: 0, bytes: 4 });
        end.side.bridge.lose_connection();
        assert_eq!(end.side.bridge.reached().unwrap(), Reached { frames: 0, bytes: 4 });
        let (mut stranger, socket) = UnixStream::pair().unwrap();
        end.side
            .bridge
            .go_on_over(OwnedFd::from(socket).into(), again, Reached::default())
            .unwrap();
        stranger.set_nonblocking(true).unwrap();
        let _ = stranger.flush();
        let turned = end.turn();
        assert_eq!(turned.is_ok(), ok, "{what}: {turned:?}");
        assert_eq!(end.came, if ok { vec![vec![7; 10]] } else { vec![] }, "{what}");
    }
}

#[test]
fn without_sessions_the_kernel_is_enough() {
    let (near, _far) = UnixStream::pair().unwrap();
    let (mut bridge, _mapping) =
        Bridge::new(OwnedFd::from(near).into(), Vec::new(), false, &Arc::default()).unwrap();
    let mut memory = vec![1u8; 100];
    let part = Part { ptr: memory.as_mut_ptr(), len: memory.len() };
    let words = crate::wire::tcp::frame::long_eager(1, 100);
    // SAFETY: it is there until the end of the test.
    let handed = unsafe {
        bridge.send_directly(5, Header::new(Kind::Eager, 0, 1), &words, &mut [part].into_iter())
    };
    handed.unwrap();
    bridge.turn(false, &mut Budget::new(0)).unwrap();
    assert_eq!(bridge.take_sent().map(|sent| sent.name), Some(5));
}

/// Turns of a side that does not wait for anything.
fn turns(end: &mut End) {
    for _ in 0..20 {
        end.side.bridge.turn(false, &mut end.side.budget).unwrap();
        end.take();
        while let Some((_, left)) = end.side.bridge.direct() {
            let mut bytes = vec![0; left as usize];
            let part = Part { ptr: bytes.as_mut_ptr(), len: bytes.len() };
            // SAFETY: it has room for so many bytes.
            let took = unsafe { end.side.bridge.take_directly(part, &mut put_to(part)) }.unwrap();
            if took == 0 {
                break;
            }
            end.add(&bytes[..took]);
        }
        end.side.bridge.hand_on();
    }
}

/// Its sender may wait for nothing else, and ask for nothing.
#[test]
fn a_long_message_is_acknowledged_at_once() {
    let (mut wire, [one, two]) = Wire::new([usize::MAX; 2]);
    let mut one = End::new(one, &[Message::Direct(100)], 0);
    let mut two = End::new(two, &[], 0);
    one.feed();
    for _ in 0..5 {
        turns(&mut one);
        wire.pass();
        turns(&mut two);
    }
    assert!(one.side.bridge.is_flushed());
    assert_eq!(one.side.bridge.take_sent().map(|sent| sent.name), Some(0));
}

/// A side asks again for the credit that it had asked for before the connection broke.
#[test]
fn who_waits_asks_again() {
    let (mut wire, [one, two]) = Wire::new([usize::MAX; 2]);
    let mut one = End::new(one, &[Message::Inline(8)], 0);
    let mut two = End::new(two, &[], 0);
    one.feed();
    one.turn().unwrap();
    // The frame is on its way, and with it the question.
    drop(wire);
    let sockets;
    (wire, sockets) = Wire::new([usize::MAX; 2]);
    for (end, socket) in [&mut one, &mut two].into_iter().zip(sockets) {
        end.side.bridge.lose_connection();
        end.side
            .bridge
            .go_on_over(OwnedFd::from(socket).into(), Vec::new(), Reached::default())
            .unwrap();
    }
    for _ in 0..5 {
        one.turn().unwrap();
        wire.pass();
        turns(&mut two);
        wire.pass();
    }
    assert_eq!(two.came.len(), 1);
    assert!(one.side.bridge.is_flushed());
}

/// The sender hears first that the connection is over; bytes that have come by it are taken
/// nevertheless.
#[test]
fn what_came_before_the_end_is_taken() {
    let (mut stranger, socket) = UnixStream::pair().unwrap();
    let mut end = End::new(socket, &[Message::Inline(8)], 0);
    stranger.write_all(&frame(1, Header::new(Kind::Inline, 8, 9), &[1])).unwrap();
    let brings = Brings::Signal(Signal::Goodbye);
    let goodbye = Head { received: 0, released: 0, wants_word: false, brings };
    stranger.write_all(&goodbye.bytes()).unwrap();
    drop(stranger);
    end.feed();
    end.side.bridge.hand_on();
    let ended = loop {
        if let Err(ended) = end.turn() {
            break ended;
        }
    };
    assert_eq!((ended, end.came.len()), (Ended::Closed, 1));
}

/// The last word may not have come, and no other frame repeats it.
#[test]
fn credit_is_told_again() {
    let sockets = || UnixStream::pair().unwrap();
    let over = |socket: UnixStream| Side::over(socket.into(), 1 << 20, true);
    let (one, two) = sockets();
    let (mut one, mut two) = (over(one), over(two));
    one.rx.release(100);
    let _ = one.rx.publish();
    one.turn();
    let reached = [&mut one, &mut two].map(|side| {
        drop(side.bridge.lose_connection());
        side.bridge.reached().unwrap()
    });
    let (first, second) = sockets();
    one.bridge.go_on_over(OwnedFd::from(first).into(), Vec::new(), reached[1]).unwrap();
    two.bridge.go_on_over(OwnedFd::from(second).into(), Vec::new(), reached[0]).unwrap();
    assert_eq!(two.tx.released(), 0);
    one.turn();
    two.turn();
    assert_eq!(two.tx.released(), 100);
}
