use super::{inbox::Verdict, outbox::Full, *};

mod model;

const BOUNDS: Bounds = Bounds {
    unacknowledged_frames_max: 4,
    unacknowledged_bytes_max: 100,
    acknowledge_every_frames: 3,
    acknowledge_every_bytes: 50,
};

fn session<P>() -> Session<P> {
    Session::new(BOUNDS)
}

/// What is released.
fn acknowledge(
    session: &mut Session<&'static str>,
    upto: u64,
) -> Result<Vec<&'static str>, Violation> {
    let mut released = Vec::new();
    session.outbox.acknowledge(upto, |what| released.push(what)).map(|()| released)
}

#[test]
fn frames_are_numbered_and_kept_until_acknowledged() {
    let mut session = session::<&'static str>();
    for (seq, what) in [(1, "a"), (2, "b"), (3, "c")] {
        assert_eq!(session.outbox.push(10, what), Ok(seq));
    }
    assert_eq!((session.outbox.held(), session.outbox.last()), ((3, 30), 3));
    assert_eq!(acknowledge(&mut session, 0), Ok(vec![]));
    assert_eq!(acknowledge(&mut session, 2), Ok(vec!["a", "b"]));
    assert_eq!(acknowledge(&mut session, 2), Ok(vec![]));
    assert_eq!((session.outbox.held(), session.outbox.last()), ((1, 10), 3));
    assert_eq!(session.outbox.push(1, "d"), Ok(4));
    assert_eq!(acknowledge(&mut session, 4), Ok(vec!["c", "d"]));
    assert_eq!((session.outbox.held(), session.outbox.last()), ((0, 0), 4));
}

#[test]
fn an_acknowledgement_that_cannot_be_releases_nothing() {
    let mut session = session::<&'static str>();
    for what in ["a", "b", "c"] {
        session.outbox.push(10, what).unwrap();
    }
    acknowledge(&mut session, 1).unwrap();
    let taken_back = Violation::TakenBack { upto: 0, acknowledged: 1 };
    let never_sent = |upto| Violation::NeverSent { upto, sent: 3 };
    assert_eq!(acknowledge(&mut session, 0), Err(taken_back));
    assert_eq!(acknowledge(&mut session, 4), Err(never_sent(4)));
    assert_eq!(acknowledge(&mut session, u64::MAX), Err(never_sent(u64::MAX)));
    assert_eq!(session.outbox.resume(0, |_| panic!()).err(), Some(taken_back));
    assert_eq!(session.outbox.resume(4, |_| panic!()).err(), Some(never_sent(4)));
    assert_eq!(session.outbox.held(), (2, 20));
}

#[test]
fn what_was_not_received_is_sent_again_in_order() {
    let mut session = session::<&'static str>();
    for what in ["a", "b", "c", "d"] {
        session.outbox.push(10, what).unwrap();
    }
    acknowledge(&mut session, 1).unwrap();
    for (received, released, again) in [
        (1, vec![], vec![(2, "b"), (3, "c"), (4, "d")]),
        (3, vec!["b", "c"], vec![(4, "d")]),
        (3, vec![], vec![(4, "d")]),
        (4, vec!["d"], vec![]),
    ] {
        let mut got = Vec::new();
        let frames = session.outbox.resume(received, |what| got.push(what)).unwrap();
        assert_eq!(frames.map(|(seq, what)| (seq, *what)).collect::<Vec<_>>(), again);
        assert_eq!(got, released);
    }
    assert_eq!(session.outbox.push(1, "e"), Ok(5));
}

#[test]
fn what_is_kept_is_bounded_by_count_and_bytes() {
    let mut session = session::<&'static str>();
    for what in ["a", "b", "c", "d"] {
        session.outbox.push(1, what).unwrap();
    }
    assert_eq!(session.outbox.push(1, "e"), Err(Full("e")));
    acknowledge(&mut session, 3).unwrap();
    assert_eq!(session.outbox.push(100, "e"), Err(Full("e")));
    assert_eq!(session.outbox.push(u64::MAX, "e"), Err(Full("e")));
    assert_eq!(session.outbox.push(99, "e"), Ok(5));
    assert!(!session.outbox.has_room(1) && session.outbox.has_room(0));
    // Alone it may be of any length, or it could never go.
    acknowledge(&mut session, 5).unwrap();
    assert_eq!(session.outbox.push(1 << 40, "f"), Ok(6));
    assert_eq!(session.outbox.push(0, "g"), Err(Full("g")));
}

#[test]
fn frames_are_received_once_and_in_order() {
    let mut inbox = session::<()>().inbox;
    assert_eq!(inbox.accept(1), Verdict::Deliver);
    // Not before it is there.
    assert_eq!(inbox.accept(1), Verdict::Deliver);
    inbox.received(1, 10);
    assert_eq!(inbox.accept(1), Verdict::Duplicate);
    assert_eq!(inbox.accept(2), Verdict::Deliver);
    let gap = |seq| Verdict::Gap(Violation::Gap { seq, expected: 2 });
    assert_eq!(inbox.accept(3), gap(3));
    assert_eq!(inbox.accept(u64::MAX), gap(u64::MAX));
    assert_eq!(inbox.last(), 1);
}

#[test]
#[should_panic(expected = "out of turn")]
fn a_frame_is_not_received_twice() {
    let mut inbox = session::<()>().inbox;
    inbox.received(1, 0);
    inbox.received(1, 0);
}

#[test]
fn the_peer_is_told_every_so_many_frames_or_bytes() {
    let mut inbox = session::<()>().inbox;
    assert!(!inbox.is_due() && !inbox.owes());
    for (seq, due) in [(1, false), (2, false), (3, true)] {
        inbox.received(seq, 1);
        assert_eq!((inbox.is_due(), inbox.owes()), (due, true), "frame {seq}");
    }
    assert_eq!(inbox.tell(), 3);
    assert!(!inbox.is_due() && !inbox.owes());
    for (seq, bytes, due) in [(4, 49, false), (5, 1, true)] {
        inbox.received(seq, bytes);
        assert_eq!(inbox.is_due(), due, "frame {seq}");
    }
    assert_eq!(inbox.tell(), 5);
    assert!(!inbox.is_due());
    // Who sends again has not been told.
    assert_eq!(inbox.accept(5), Verdict::Duplicate);
    assert!(inbox.owes());
    assert_eq!(inbox.tell(), 5);
    assert!(!inbox.owes());
}
