//! Processes that fork while their messages are on the way to other hosts.

use std::time::Duration;

use pinfold::{Endpoint, Error, Progress, SendMode};
use pinfold_sys::trial;
use pinfold_tests::{
    Args, Stage,
    host::{Ended, fork},
    role::{PATIENCE, hear, say},
    skip::skip,
    stamp,
};

use super::builder;

/// More messages than the buffers of a connection have room for, and the length of each.
const MESSAGES: u64 = 12;
const LEN: usize = 1 << 20;
/// A tag that no message has.
const NEVER: u64 = 1 << 40;

/// A message on its way goes on, however it leaves; the child has no part in it and is told so.
#[test]
fn a_forked_child_has_no_part_in_what_is_on_its_way() {
    let stage = Stage::new(120);
    for ring in [false, true] {
        if ring && let Err(error) = trial::io_uring() {
            skip(&format!("no io_uring: {error}"));
            continue;
        }
        for mode in [SendMode::Plain, SendMode::PerSend, SendMode::Cached] {
            let mut reader = stage.role("late").spawn();
            let forker = stage.role("forking").with("to", reader.hear());
            let forker = forker.with("ring", u8::from(ring)).with("mode", mode as usize);
            let mut forker = forker.spawn();
            forker.expect("forked");
            reader.say("read");
            reader.expect("all came");
            forker.expect("all are sent");
            forker.end_well();
            reader.end_well();
        }
    }
}

/// Reads when it is told to.
pub(super) fn late(_: &Args) {
    let endpoint = builder(Progress::Inline).listen("tcp:127.0.0.1:0").build().expect("a port");
    say(endpoint.listens_at().expect("it listens"));
    let peer = endpoint.accept().expect("somebody calls");
    hear();
    for tag in 0..MESSAGES {
        let message = endpoint.recv_timeout(peer, tag, PATIENCE).expect("it comes");
        assert_eq!(message.len(), LEN);
        stamp::check(&message, tag);
    }
    let last = endpoint.recv_timeout(peer, MESSAGES, PATIENCE).expect("the last word");
    assert_eq!(&*last, b"from the parent");
    endpoint.send(peer, 1, b"all of it").expect("it is there");
    say("all came");
    // Until it goes.
    assert!(endpoint.recv_timeout(peer, NEVER, PATIENCE).is_err());
}

pub(super) fn forking(args: &Args) {
    let mode = SendMode::ALL[args.number::<usize>("mode")];
    let sending = builder(Progress::Inline).send_mode(mode);
    let endpoint = sending.io_uring(args.number::<u8>("ring") == 1).build().expect("an endpoint");
    let peer = endpoint.connect(args.text("to")).expect("somebody listens");
    let mut sends: Vec<_> =
        (0..MESSAGES).map(|tag| endpoint.send_owned(peer, tag, stamp::bytes(LEN, tag))).collect();
    // The messages are asked for when the other side reads, and until then as many go as there is
    // room for.
    let turn = |endpoint: &Endpoint| {
        let nothing = endpoint.recv_timeout(peer, NEVER, Duration::from_millis(20));
        assert!(matches!(nothing, Err(Error::Timeout(_))), "{nothing:?}");
    };
    turn(&endpoint);
    let ended = fork(|| {
        let told = |what: &str, error: Option<Error>| {
            assert!(matches!(error, Some(Error::Forked)), "{what}: {error:?}");
        };
        for len in [8, 100, LEN] {
            told("send", endpoint.send(peer, 1, &stamp::bytes(len, 1)).err());
        }
        told("recv", endpoint.recv(peer, 1).err());
        let owned = endpoint.send_owned(peer, 1, vec![0; LEN]);
        told("send_owned", owned.wait().0.err());
        // The child's own memory is not the memory that is sent.
        for send in sends.drain(..) {
            let (done, mut buffer) = send.wait();
            told("what was begun", done.err());
            buffer.fill(0xee);
        }
        endpoint.disconnect(peer);
        endpoint.close();
        0
    });
    assert_eq!(ended, Ended::Code(0));
    turn(&endpoint);
    say("forked");
    for send in sends {
        let (done, _) = send.wait();
        let receipt = done.expect("it goes on");
        assert_eq!(receipt.bytes, LEN as u64);
    }
    endpoint.send(peer, MESSAGES, b"from the parent").expect("it goes on");
    assert_eq!(&*endpoint.recv_timeout(peer, 1, PATIENCE).expect("an answer"), b"all of it");
    say("all are sent");
}
