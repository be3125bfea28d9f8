//! Long messages that their receivers ask for through the ring: a sender that does not go on with
//! one keeps nobody waiting, for the receiver takes the rest over.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::{Endpoint, Path, PeerId, Receipt, Refusal};
use pinfold_tests::{
    Args, Stage,
    filter::{CMA, deny},
    pair, role, skip, stamp,
};

pinfold_tests::roles!(silent, denied);

const MIB: usize = 1 << 20;
/// More messages than a pair sends before it has tried each path twice.
const MESSAGES: u64 = 96;

fn lacks_cma(endpoint: &Endpoint, peer: PeerId) -> bool {
    let refused = endpoint.peer(peer).unwrap().cma_refused;
    if let Some(why) = refused {
        skip(&format!("taking over, which needs the cma path: {why}"));
    }
    refused.is_some()
}

fn is_taken_over(receipt: &Receipt) -> bool {
    receipt.path == Path::Cma && receipt.refused(Path::Eager) == Some(Refusal::Stalled)
}

/// The sender posts a message and calls the library `calls` times while the receiver waits. Returns
/// both receipts.
fn message(
    one: &(Endpoint, PeerId),
    two: &(Endpoint, PeerId),
    number: u64,
    calls: u32,
) -> (Receipt, Receipt) {
    let mut receive = two.0.recv_owned(two.1, number, vec![0; MIB]);
    let send = one.0.send_owned(one.1, number, stamp::bytes(MIB, number));
    for _ in 0..calls {
        two.0.progress().unwrap();
        one.0.progress().unwrap();
    }
    // From here on the sender does nothing.
    let end = Instant::now() + Duration::from_secs(20);
    let (received, bytes) = loop {
        assert!(Instant::now() < end, "message {number} does not come");
        if let Some(done) = receive.try_wait() {
            break done;
        }
    };
    let received = received.unwrap().receipt;
    stamp::check(&bytes, number);
    let (sent, _) = send.wait();
    (sent.unwrap(), received)
}

/// A message of which nothing, or something, is in the ring when its sender stops calling.
#[test]
fn a_sender_that_stops_keeps_nobody_waiting() {
    let (one, to_two, two, to_one) = pair("requested", Endpoint::builder(), Endpoint::builder());
    let (one, two) = ((one, to_two), (two, to_one));
    if lacks_cma(&one.0, one.1) {
        return;
    }
    let (mut none, mut some) = (0, 0);
    for number in 0..MESSAGES {
        let (sent, received) = message(&one, &two, number, if number % 2 == 0 { 0 } else { 1 });
        assert_eq!((sent.bytes, received.bytes), (MIB as u64, MIB as u64));
        assert_eq!(is_taken_over(&sent), is_taken_over(&received), "{sent}, {received}");
        if is_taken_over(&received) {
            assert_eq!(received.copied_user + received.copied_kernel, MIB as u64);
            assert_eq!(sent.copied_user, received.copied_user);
            none += u32::from(received.copied_user == 0);
            some += u32::from(received.copied_user > 0);
        }
    }
    assert!(none > 0, "none was taken over from the beginning");
    assert!(some > 0, "none was taken over in the middle");
}

/// A sender that goes on sends all of it through the ring.
#[test]
fn a_sender_that_goes_on_is_left_to_it() {
    let (one, to_two, two, to_one) = pair("requested", Endpoint::builder(), Endpoint::builder());
    let (one, two) = ((one, to_two), (two, to_one));
    if lacks_cma(&one.0, one.1) {
        return;
    }
    let eager = (0..MESSAGES)
        .map(|number| message(&one, &two, number, 100))
        .filter(|(sent, received)| {
            assert_eq!(sent.path, received.path);
            sent.path == Path::Eager && received.copied_user == MIB as u64
        })
        .count();
    assert!(eager > 0, "none went through the ring");
}

/// A window of messages whose sender posts them and does nothing more.
#[test]
fn many_at_a_time() {
    let (one, to_two, two, to_one) = pair("requested", Endpoint::builder(), Endpoint::builder());
    if lacks_cma(&one, to_two) {
        return;
    }
    const LEN: usize = 600 << 10;
    // As many as the sender can announce without another call.
    const WINDOW: u64 = 40;
    for round in 0..4 {
        let receives: Vec<_> =
            (0..WINDOW).map(|number| two.recv_owned(to_one, number, vec![0; LEN])).collect();
        let bytes = |number| stamp::bytes(LEN, number ^ round << 8);
        let sends: Vec<_> =
            (0..WINDOW).map(|number| one.send_owned(to_two, number, bytes(number))).collect();
        for (number, receive) in receives.into_iter().enumerate() {
            let (received, bytes) = receive.wait();
            assert_eq!(received.unwrap().receipt.bytes, LEN as u64);
            stamp::check(&bytes, number as u64 ^ round << 8);
        }
        for send in sends {
            send.wait().0.unwrap();
        }
    }
}

/// The rest cannot be read out of the sender's memory: all of it is asked for again.
#[test]
fn what_cannot_be_taken_over_is_asked_for_again() {
    let stage = Stage::new(120);
    let mut denied = stage.role("denied").spawn();
    denied.expect("ready");
    let mut silent = stage.role("silent").spawn();
    silent.end_well();
    denied.end_well();
}

/// Sends, and does not call the library while the receiver loses its patience.
fn silent(args: &Args) {
    let (endpoint, peer) = role::connect(args.builder(), "requested");
    for number in 0..MESSAGES {
        let send = endpoint.send_owned(peer, number, stamp::bytes(MIB, number));
        thread::sleep(Duration::from_micros(300));
        let (receipt, _) = send.wait();
        assert_eq!(receipt.unwrap().bytes, MIB as u64);
    }
    endpoint.recv(peer, MESSAGES).unwrap();
}

fn denied(args: &Args) {
    let (endpoint, peer) = role::listen(args.builder(), "requested");
    if let Some(why) = endpoint.peer(peer).unwrap().cma_refused {
        role::skip(format_args!("losing the cma path, which this pair never had: {why}"));
    }
    // An answer that does not withdraw the path.
    deny(&CMA, libc::EFAULT);
    let mut again = 0;
    for number in 0..MESSAGES {
        let (received, bytes) = endpoint.recv_owned(peer, number, vec![0; MIB]).wait();
        let receipt = received.unwrap().receipt;
        // The sender can still have its kernel write the message.
        assert_eq!(receipt.copied_kernel, 0, "{receipt}");
        again += u32::from(receipt.refused(Path::Cma) == Some(Refusal::Denied(libc::EFAULT)));
        stamp::check(&bytes, number);
    }
    assert!(again > 0, "none was asked for again");
    endpoint.send(peer, MESSAGES, b"").unwrap();
}
