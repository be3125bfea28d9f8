//! Messages that come before their receives, as many as the receiver's memory for them has room
//! for, and senders that wait no longer than they want to.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Builder, Endpoint, Error, Path, PathSet, PeerId, Progress, Untaken};
use pinfold_tests::{driven, pair, stamp, status_of, tcp_pair};

const UNASKED: u64 = 1;
const LATER: u64 = 2;
/// Longer than any step here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

fn stores(bytes: usize) -> Builder {
    Endpoint::builder().unexpected_bytes_max(bytes)
}

/// Sends that many unexpected messages, and one that is waited for.
fn send_all(b: &Endpoint, to_a: PeerId, messages: u64, len: usize) {
    for at in 0..messages {
        let bytes = [at.to_ne_bytes(), (!at).to_ne_bytes()].concat();
        b.send_timeout(to_a, UNASKED, &bytes.repeat(len.div_ceil(16))[..len], PATIENCE).unwrap();
    }
    b.send(to_a, LATER, b"now").unwrap();
}

/// Takes them afterwards, in their order.
fn take_all(a: &Endpoint, from_b: PeerId, messages: u64, len: usize) {
    let mut into = vec![0; len];
    for at in 0..messages {
        let bytes = [at.to_ne_bytes(), (!at).to_ne_bytes()].concat();
        assert_eq!(a.recv_into(from_b, UNASKED, &mut into).unwrap().len, len as u64);
        assert_eq!(into, bytes.repeat(len.div_ceil(16))[..len], "message {at}");
    }
    assert!(a.try_probe(from_b, UNASKED).unwrap().is_none());
}

#[test]
fn as_many_messages_wait_as_there_is_memory_for_them() {
    let (a, from_b, b, to_a) =
        pair("credit-much", stores(2 << 30).label("much"), Endpoint::builder());
    let messages = 50_000;
    thread::scope(|scope| {
        scope.spawn(|| send_all(&b, to_a, messages, 8));
        assert_eq!(&a.recv(from_b, LATER).unwrap()[..], b"now");
        let status = status_of("much");
        assert_eq!(status.stored, messages);
        assert!(status.peers[0].granted >= messages * 136, "{}", status.peers[0].granted);
        take_all(&a, from_b, messages, 8);
    });
    // Each step of the credit cost one message that had to be asked for, but not each message.
    let stalls = b.counters().credit_stalls;
    assert!((1..100).contains(&stalls), "{stalls} stalls");
    assert_eq!(status_of("much").peers[0].owed, 0);
}

#[test]
fn messages_of_many_lengths_are_stored_by_every_way() {
    let short = [Path::Inline, Path::Eager];
    for paths in [PathSet::all(), PathSet::only(&short)] {
        // Bytes that might else be read out of the sender's memory are not stored.
        let whole = paths != PathSet::only(&short);
        let lengths = [0, 1, 56, 57, 4096, 4097, 20_000];
        for len in lengths.into_iter().filter(|len| !whole || *len <= 57) {
            let (a, from_b, b, to_a) =
                pair("credit-lengths", stores(256 << 20), Endpoint::builder().paths(paths));
            let messages = (2 << 20) / (len as u64 + 128);
            thread::scope(|scope| {
                scope.spawn(|| send_all(&b, to_a, messages, len));
                assert_eq!(&a.recv(from_b, LATER).unwrap()[..], b"now");
                take_all(&a, from_b, messages, len);
            });
        }
    }
}

#[test]
fn so_it_is_with_a_peer_on_another_host() {
    let far = Endpoint::builder().local_shortcut(false);
    let (a, from_b, b, to_a) = tcp_pair(stores(64 << 20), far, str::to_owned);
    for (messages, len) in [(30_000, 8), (1500, 8000)] {
        thread::scope(|scope| {
            scope.spawn(|| send_all(&b, to_a, messages, len));
            assert_eq!(&a.recv(from_b, LATER).unwrap()[..], b"now");
            take_all(&a, from_b, messages, len);
        });
    }
}

/// Sends until that fails. Returns how many went.
fn fill(b: &Endpoint, to_a: PeerId, patience: Duration) -> (u64, Untaken) {
    for at in 0.. {
        match b.send_timeout(to_a, UNASKED, &u64::to_ne_bytes(at), patience) {
            Ok(_) => {}
            Err(Error::NotTaken { why, .. }) => return (at, why),
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

#[test]
fn the_limit_is_a_limit_and_is_said() {
    let limit = 1 << 20;
    let (a, from_b, b, to_a) =
        pair("credit-limit", stores(limit).label("limit"), Endpoint::builder());
    driven(&a, || {
        let (sent, why) = fill(&b, to_a, SHORT);
        let Untaken::NoCredit { credit } = why else { panic!("{why:?}") };
        assert!(credit <= limit as u64 * 3 / 4 + 136, "{credit}");
        assert!(sent > limit as u64 / 2 / 136 && sent * 136 <= limit as u64, "{sent}");
        // Nothing of the failed message is there, and nothing waits, once it has been put down.
        let end = Instant::now() + PATIENCE;
        let mut status = status_of("limit");
        while (status.stored, status.peers[0].announced) != (sent, 0) && Instant::now() < end {
            status = status_of("limit");
        }
        assert_eq!((status.stored, status.peers[0].announced), (sent, 0));
        assert_eq!(status.granted_bytes as usize / limit, 0);
        // A peer that is waited for is not held up by the others.
        let text = b.send_timeout(to_a, UNASKED, b"x", SHORT).unwrap_err().to_string();
        assert!(
            text.contains("unexpected_bytes_max") && text.contains(&credit.to_string()),
            "{text}"
        );
    });
    thread::scope(|scope| {
        scope.spawn(|| b.send(to_a, LATER, b"passes").unwrap());
        assert_eq!(&a.recv(from_b, LATER).unwrap()[..], b"passes");
    });
    let mut count = 0;
    while a.try_probe(from_b, UNASKED).unwrap().is_some() {
        let message = a.recv(from_b, UNASKED).unwrap();
        assert_eq!(message[..], u64::to_ne_bytes(count));
        count += 1;
    }
    assert!(count > limit as u64 / 2 / 136);
    // There is credit again.
    b.send_timeout(to_a, UNASKED, b"again", SHORT).unwrap();
    assert_eq!(&a.recv(from_b, UNASKED).unwrap()[..], b"again");
}

/// One sender does not get the credit that others need.
#[test]
fn a_quarter_is_for_those_who_come_later() {
    let address = format!("local:credit-late-{}", std::process::id());
    let a = stores(8 << 20).listen(&address).build().unwrap();
    let joins = || {
        let caller = Endpoint::builder().build().unwrap();
        let (from, to_a) = thread::scope(|scope| {
            let calls = scope.spawn(|| caller.connect(&address).unwrap());
            (a.accept().unwrap(), calls.join().unwrap())
        });
        (from, caller, to_a)
    };
    let (from_b, b, to_a) = joins();
    driven(&a, || _ = fill(&b, to_a, SHORT));
    let (from_c, c, to_a) = joins();
    // It is stored although no receive asks for it, and none of the first one's has been taken.
    driven(&a, || {
        for _ in 0..500 {
            c.send_timeout(to_a, UNASKED, b"late", PATIENCE).unwrap();
        }
    });
    (0..500).for_each(|_| assert_eq!(&a.recv(from_c, UNASKED).unwrap()[..], b"late"));
    assert!(a.try_probe(from_b, UNASKED).unwrap().is_some());
}

#[test]
fn a_receiver_that_does_not_look_holds_nobody_up() {
    let (a, from_b, b, to_a) = pair("credit-idle", Endpoint::builder(), Endpoint::builder());
    let (sent, why) = fill(&b, to_a, SHORT);
    assert_eq!(why, Untaken::Behind, "after {sent}");
    // Every message that was said to have gone is there, and no other.
    for at in 0..sent {
        assert_eq!(a.recv(from_b, UNASKED).unwrap()[..], at.to_ne_bytes());
    }
    assert!(a.try_probe(from_b, UNASKED).unwrap().is_none());
}

/// The credit is spent; the receiver has been told of one more message, and does not look any more.
#[test]
fn where_that_is_unsure_it_is_said_and_the_message_comes_at_most_once() {
    let (a, from_b, b, to_a) = pair("credit-unsure", stores(1 << 20), Endpoint::builder());
    let sent = driven(&a, || fill(&b, to_a, SHORT).0);
    let bytes = stamp::bytes(40, 7);
    let mut ours = bytes.clone();
    let failed = b.send_timeout(to_a, UNASKED, &ours, SHORT).unwrap_err();
    assert!(matches!(failed, Error::NotTaken { why: Untaken::Unsure, .. }), "{failed}");
    // The memory is this side's again.
    ours.fill(0);
    for at in 0..sent {
        assert_eq!(a.recv(from_b, UNASKED).unwrap()[..], at.to_ne_bytes());
    }
    driven(&a, || (0..1000).for_each(|_| _ = b.progress().unwrap()));
    let late = a.try_probe(from_b, UNASKED).unwrap();
    if late.is_some() {
        assert_eq!(a.recv(from_b, UNASKED).unwrap()[..], bytes);
    }
    b.send_timeout(to_a, UNASKED, b"next", PATIENCE).unwrap();
    assert_eq!(&a.recv(from_b, UNASKED).unwrap()[..], b"next");
}

#[test]
fn a_long_message_is_taken_back_when_its_time_is_up() {
    let (a, from_b, b, to_a) =
        pair("credit-long", Endpoint::builder().progress(Progress::Dedicated), Endpoint::builder());
    let mut bytes = stamp::bytes(4 << 20, 3);
    let failed = b.send_timeout(to_a, UNASKED, &bytes, SHORT).unwrap_err();
    assert!(matches!(failed, Error::NotTaken { why: Untaken::NoReceive, .. }), "{failed}");
    bytes.fill(0);
    assert!(a.try_probe(from_b, UNASKED).unwrap().is_none());
    thread::scope(|scope| {
        scope.spawn(|| b.send_timeout(to_a, UNASKED, &stamp::bytes(4 << 20, 4), PATIENCE).unwrap());
        stamp::check(&a.recv(from_b, UNASKED).unwrap(), 4);
    });
}

/// A message that is half in the ring goes on out of other memory.
#[test]
fn a_message_under_way_goes_on() {
    let short = PathSet::only(&[Path::Inline, Path::Eager]);
    let lane = 64 << 10;
    let builder = || Endpoint::builder().paths(short).lane_bytes_max(lane);
    let (a, from_b, b, to_a) = pair("credit-half", builder(), builder());
    let mut ours = stamp::bytes(200_000, 5);
    let receipt = b.send_timeout(to_a, UNASKED, &ours, SHORT).unwrap();
    assert_eq!((receipt.path, receipt.bytes), (Path::Eager, 200_000));
    ours.fill(0);
    driven(&b, || stamp::check(&a.recv(from_b, UNASKED).unwrap(), 5));
}

#[test]
fn who_waits_and_since_when_can_be_seen() {
    let (a, from_b, b, to_a) =
        pair("credit-seen", stores(1 << 20), Endpoint::builder().label("sender"));
    driven(&a, || {
        fill(&b, to_a, SHORT);
    });
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| b.send(to_a, UNASKED, b"waits").unwrap());
        scope.spawn(|| {
            loop {
                let status = status_of("sender");
                let peer = &status.peers[0];
                match peer.waits {
                    Some(waits) if waits >= SHORT => {
                        assert_eq!(peer.waiting + peer.queued, 1);
                        break seen.store(1, Ordering::Release);
                    }
                    _ => thread::sleep(SHORT / 20),
                }
            }
        });
        // The receiver looks, and takes nothing.
        while seen.load(Ordering::Acquire) == 0 {
            assert!(a.try_probe(from_b, LATER).unwrap().is_none());
        }
        while a.recv(from_b, UNASKED).unwrap()[..] != *b"waits" {}
    });
    assert_eq!(status_of("sender").peers[0].waits, None);
}
