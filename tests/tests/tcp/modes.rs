//! The ways that long messages leave: every mode, by a ring and by calls.

use std::{
    fs,
    io::{IoSlice, IoSliceMut},
    thread,
    time::{Duration, Instant},
};

use pinfold::{Builder, Endpoint, PeerId, Progress, Receipt, SendDriver, SendMode};
use pinfold_sys::trial;
use pinfold_tests::{
    Args, Network, Stage,
    filter::{deny, kill},
    network::where_allowed,
    role::say,
    skip::skip,
    stamp,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{builder, pair};

const LENGTHS: [usize; 11] =
    [1, 56, 4096, 16_383, 16_384, 16_385, 65_536, 100_001, 300_000, 1 << 20, 8 << 20];
/// Bytes from which on messages go past the lane.
const LONG: usize = 16 << 10;

/// Without a ring, and with one where there can be one.
pub(super) fn drivers() -> Vec<bool> {
    match trial::io_uring() {
        Ok(_) => vec![false, true],
        Err(error) => {
            skip(&format!("no io_uring: {error}"));
            vec![false]
        }
    }
}

/// Returns whether so many bytes may be pinned.
fn may_pin(bytes: usize) -> bool {
    let limit = getrlimit(Resource::Memlock).current;
    // Root is not held to the limit, but for that of a user namespace.
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_all = map.split_whitespace().nth(2) == Some("4294967295");
    let is_root = rustix::process::geteuid().is_root() && is_all;
    is_root || limit.is_none_or(|limit| limit >= bytes as u64)
}

pub(super) fn by(mode: SendMode, ring: bool) -> Builder {
    builder(Progress::Inline).send_mode(mode).io_uring(ring)
}

/// Checks the receipt of a message that a mode was insisted on for.
fn check(receipt: &Receipt, len: usize, mode: SendMode, ring: bool) {
    let what = format!("{len} bytes, {mode:?}, ring {ring}: {receipt}");
    if len < LONG {
        return assert_eq!(receipt.sent_by(), None, "{what}");
    }
    // To the same host the kernel copies under every mode, and says so.
    assert_eq!((receipt.copied_user, receipt.copied_kernel), (0, len as u64), "{what}");
    let sent = receipt.sent_by().expect("past the lane");
    let driver = receipt.send_driver().expect("something sent it");
    match sent {
        SendMode::Plain => assert_eq!(driver, SendDriver::Calls, "{what}"),
        // The little memory that may be pinned decides which it was.
        SendMode::PerSend if !ring => assert_eq!(driver, SendDriver::Calls, "{what}"),
        _ => assert!(ring && driver == SendDriver::Ring, "{what}"),
    }
    match (mode, ring) {
        (SendMode::Plain, _) | (SendMode::TwoCopy, false) => {
            assert_eq!(sent, SendMode::Plain, "{what}");
        }
        (SendMode::TwoCopy, true) => assert_eq!(sent, mode, "{what}"),
        _ if !may_pin(16 << 20) => {}
        (SendMode::PerSend, _) | (_, false) => assert_eq!(sent, SendMode::PerSend, "{what}"),
        // Without a userfaultfd nothing is kept pinned.
        (SendMode::Cached, true) => {
            assert!(matches!(sent, SendMode::Cached | SendMode::PerSend), "{what}");
        }
        (SendMode::Aligned, true) => assert!(!sent.copies(), "{what}"),
    }
}

/// Sends messages of all lengths, in one part and scattered, and compares the bytes that come.
fn exchange(
    (one, to_two): (&Endpoint, PeerId),
    (two, to_one): (&Endpoint, PeerId),
    mode: SendMode,
    ring: bool,
) {
    let mut receipts = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            for (tag, &len) in LENGTHS.iter().enumerate() {
                stamp::check(&two.recv(to_one, tag as u64).unwrap(), len as u64);
                let mut parts = [vec![0; len / 3], vec![0; len - len / 3]];
                let [first, second] = &mut parts;
                let mut into = [IoSliceMut::new(first), IoSliceMut::new(second)];
                two.recv_vectored(to_one, 100 + tag as u64, &mut into).unwrap();
                assert!(parts.concat() == stamp::bytes(len, 7), "{len} {mode:?}");
            }
            two.send(to_one, 1, b"all").unwrap();
        });
        for (tag, &len) in LENGTHS.iter().enumerate() {
            let receipt = one.send(to_two, tag as u64, &stamp::bytes(len, len as u64)).unwrap();
            receipts.push((receipt, len));
            // Pieces of all lengths, none of them next to another.
            let all = stamp::bytes(len, 7);
            let mut left = &all[..];
            let mut pieces = Vec::new();
            while !left.is_empty() {
                let step = (len / 90 + 1 + pieces.len() * 17).min(left.len());
                pieces.push(left[..step].to_vec());
                left = &left[step..];
            }
            let parts: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let receipt = one.send_vectored(to_two, 100 + tag as u64, &parts).unwrap();
            receipts.push((receipt, len));
        }
        assert_eq!(&*one.recv(to_two, 1).unwrap(), b"all");
    });
    for (receipt, len) in receipts {
        check(&receipt, len, mode, ring);
    }
}

#[test]
fn every_mode_sends_every_length() {
    for ring in drivers() {
        for mode in SendMode::ALL {
            let ((one, to_two), (two, to_one)) = pair(by(mode, ring), builder(Progress::Inline));
            exchange((&one, to_two), (&two, to_one), mode, ring);
        }
    }
}

/// The same between networks within this machine, which copy as well.
#[test]
fn every_mode_crosses_a_network() {
    where_allowed("modes::every_mode_crosses_a_network", || {
        let network = Network::new(2);
        let each = |ring| SendMode::ALL.into_iter().map(move |mode| (mode, ring));
        for (mode, ring) in drivers().into_iter().flat_map(each) {
            let make = |builder: Builder| builder.key(&[3; 32]);
            let one =
                network.run(0, || make(by(mode, ring)).listen("tcp:0.0.0.0:0").build()).unwrap();
            let at = one.listens_at().unwrap();
            let port = at.rsplit_once(':').unwrap().1.to_owned();
            let address = format!("tcp:{}:{port}", network.address(0));
            let two = network.run(1, || make(builder(Progress::Inline)).build()).unwrap();
            let (to_two, to_one) = thread::scope(|scope| {
                let there = scope.spawn(|| one.accept().unwrap());
                let here = network.run(1, || two.connect(&address).unwrap());
                (there.join().unwrap(), here)
            });
            exchange((&one, to_two), (&two, to_one), mode, ring);
        }
    });
}

/// A route that copies is tried a few times and then let be.
#[test]
fn a_route_that_copies_is_given_up() {
    drivers().into_iter().for_each(is_given_up);
}

fn is_given_up(ring: bool) {
    const MESSAGES: u64 = 300;
    let sending = builder(Progress::Inline).io_uring(ring);
    let ((one, to_two), (two, to_one)) = pair(sending, builder(Progress::Inline));
    let message = stamp::bytes(1 << 20, 1);
    let modes = thread::scope(|scope| {
        scope.spawn(|| {
            let mut into = vec![0; 1 << 20];
            for tag in 0..MESSAGES {
                two.recv_into(to_one, tag, &mut into).unwrap();
            }
            assert!(into == message);
            two.send(to_one, 1, b"all").unwrap();
        });
        let modes = (0..MESSAGES).map(|tag| {
            let receipt = one.send(to_two, tag, &message).unwrap();
            (receipt.copied_user, receipt.copied_kernel, receipt.sent_by())
        });
        let modes: Vec<_> = modes.collect();
        one.recv(to_two, 1).unwrap();
        modes
    });
    let modes: Vec<SendMode> = modes
        .into_iter()
        .map(|(user, kernel, mode)| {
            assert_eq!((user, kernel), (0, 1 << 20), "{mode:?}");
            mode.unwrap()
        })
        .collect();
    let tried = modes.iter().filter(|mode| **mode != SendMode::Plain).count();
    if !may_pin(1 << 20) {
        return assert_eq!(tried, 0);
    }
    assert!((1..=3).contains(&tried), "{tried} trials");
    assert!(modes[..16].iter().all(|mode| *mode == SendMode::Plain));
}

/// More bytes than the buffers of a connection have room for.
const MUCH: usize = 2 << 20;

/// Memory that is on its way is not given back before the kernel is done with it, however the
/// endpoint ends.
#[test]
fn memory_in_flight_is_not_given_back() {
    // More messages than buffers take, and than one look.
    const MESSAGES: u64 = 40;
    let each =
        |ring| [SendMode::PerSend, SendMode::Cached, SendMode::Plain].map(|mode| (mode, ring));
    for (mode, ring) in drivers().into_iter().flat_map(each) {
        let sending = by(mode, ring).progress(Progress::Dedicated);
        let receiving = builder(Progress::Inline).reconnect_timeout(Duration::from_millis(200));
        let ((one, to_two), (two, to_one)) = pair(sending, receiving);
        // They are asked for, so they come, and then the receiver reads no more.
        let receive = |tag: u64| two.recv_owned(to_one, tag, vec![0; MUCH]);
        let receives: Vec<_> = (0..MESSAGES).map(receive).collect();
        let send = |tag: u64| one.send_owned(to_two, tag, stamp::bytes(MUCH, tag));
        let sends: Vec<_> = (0..MESSAGES).map(send).collect();
        thread::sleep(Duration::from_millis(50));
        let _ = two.recv_timeout(to_one, u64::MAX, Duration::from_micros(1));
        thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        drop(one);
        let mut arrived = 0;
        for send in sends {
            let (done, mut buffer) = send.wait();
            arrived += u64::from(done.is_ok());
            // From here on the buffer is the program's.
            buffer.fill(0xee);
        }
        assert!(arrived < MESSAGES, "{mode:?}: there was room for all of it");
        assert!(started.elapsed() < Duration::from_secs(20), "{mode:?}");
        for (tag, receive) in receives.into_iter().enumerate() {
            let (done, buffer) = receive.wait();
            match done {
                Ok(_) => stamp::check(&buffer, tag as u64),
                Err(error) => {
                    assert!(matches!(error, pinfold::Error::PeerGone { .. }), "{error}");
                }
            }
        }
    }
}

/// The bytes that wait in the kernel are the bytes that were sent, frames and short messages
/// between long ones as well.
#[test]
fn what_waits_in_the_kernel_stays_as_it_is() {
    const MESSAGES: u64 = 300;
    let len = |tag: u64| if tag.is_multiple_of(3) { 200_000 } else { 40 * tag as usize };
    for (mode, ring) in
        drivers().into_iter().flat_map(|ring| SendMode::ALL.map(|mode| (mode, ring)))
    {
        let sending = by(mode, ring).progress(Progress::Dedicated);
        let ((one, to_two), (two, to_one)) = pair(sending, builder(Progress::Inline));
        let send = |tag: u64| one.send_owned(to_two, tag, stamp::bytes(len(tag), tag));
        let sends: Vec<_> = (0..MESSAGES).map(send).collect();
        thread::sleep(Duration::from_millis(100));
        for tag in 0..MESSAGES {
            let message = two.recv_timeout(to_one, tag, Duration::from_secs(20)).unwrap();
            assert_eq!(message.len(), len(tag));
            stamp::check(&message, tag);
        }
        for send in sends {
            send.wait().0.unwrap();
        }
    }
}

/// A sender that sleeps is woken when its memory is its own again.
#[test]
fn who_sleeps_hears_that_memory_is_back() {
    let each = |ring| [SendMode::PerSend, SendMode::Cached].map(|mode| (mode, ring));
    for (mode, ring) in drivers().into_iter().flat_map(each) {
        let ((one, to_two), (two, to_one)) = pair(by(mode, ring), builder(Progress::Inline));
        thread::scope(|scope| {
            scope.spawn(|| {
                for tag in 0..10 {
                    thread::sleep(Duration::from_millis(20));
                    stamp::check(&two.recv(to_one, tag).unwrap(), tag);
                }
            });
            for tag in 0..10 {
                one.send(to_two, tag, &stamp::bytes(200_000, tag)).unwrap();
            }
        });
        assert!(one.counters().sleeps > 0);
    }
}

/// Sends to the caller, under the restrictions that the arguments name, and says by which mode.
pub(super) fn restricted(args: &Args) {
    let setup = [libc::SYS_io_uring_setup];
    match args.text("by") {
        "deny" => deny(&setup, libc::EPERM),
        "absent" => deny(&setup, libc::ENOSYS),
        "enter" | "limit" => {}
        "kill" => kill(&setup),
        other => panic!("{other}?"),
    }
    if args.text("by") == "limit" {
        let limit = Some(64 << 10);
        setrlimit(Resource::Memlock, Rlimit { current: limit, maximum: limit }).expect("a limit");
    }
    let sending = match args.text("by") {
        // An endpoint that does not ask for a ring makes none of the calls that would kill it.
        "kill" => builder(Progress::Inline).send_mode(SendMode::PerSend),
        _ => by(SendMode::ALL[args.number::<usize>("mode")], true),
    };
    let endpoint = sending.listen("tcp:127.0.0.1:0").build().expect("a free port");
    say(endpoint.listens_at().expect("it listens"));
    let peer = endpoint.accept().expect("somebody calls");
    for tag in 0..30 {
        if tag == 10 && args.text("by") == "enter" {
            deny(&[libc::SYS_io_uring_enter], libc::EPERM);
        }
        let sent = endpoint.send(peer, tag, &stamp::bytes(300_000, tag)).expect("it goes");
        assert_eq!(sent.copied_kernel, 300_000, "{sent}");
        let (mode, driver) = sent.sent_by().zip(sent.send_driver()).expect("past the lane");
        say(format_args!("{} by {}", mode.name(), driver.name()));
    }
    // Until the other side has all messages.
    let _ = endpoint.recv(peer, 1);
}

/// Where rings are denied, at first or later, messages go by calls; where little may be pinned,
/// they are copied. The receipts say so.
#[test]
fn what_is_denied_goes_otherwise() {
    let stage = Stage::new(60);
    for mode in [SendMode::TwoCopy, SendMode::PerSend, SendMode::Cached] {
        for by in ["deny", "absent", "kill", "enter", "limit"] {
            let role = stage.role("restricted").with("by", by);
            let mut sender = role.with("mode", mode as usize).spawn();
            let address = sender.hear();
            let two = builder(Progress::Inline).build().unwrap();
            let peer = two.connect(&address).unwrap();
            for tag in 0..30 {
                stamp::check(&two.recv(peer, tag).unwrap(), tag);
                let sent = sender.hear();
                // Under `kill` the sender has asked for one mode, `PerSend`, and for no ring:
                // nothing is copied.
                let held = mode != SendMode::TwoCopy || by == "kill";
                let held = held && by != "limit" && may_pin(1 << 20);
                match by {
                    // Root is not held to the limit.
                    "limit" if mode == SendMode::TwoCopy || may_pin(usize::MAX) => {}
                    // The message that finds out may go either way.
                    "enter" if tag <= 10 => {}
                    _ if held => assert_eq!(sent, "per-send by calls", "{by} {mode:?} {tag}"),
                    _ => assert_eq!(sent, "plain by calls", "{by} {mode:?} {tag}"),
                }
            }
            two.send(peer, 1, b"").unwrap();
            sender.end_well();
        }
    }
}
