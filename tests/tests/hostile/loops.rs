//! Peers that without end begin operations that they do not finish: they take back messages, or
//! receives, or send more than their receiver has room for. Each of these is honest; their number
//! is the attack.

use std::collections::VecDeque;

use pinfold::{Endpoint, PeerId, RecvRequest, SendRequest};
use pinfold_tests::{
    Args, Stage,
    role::{self, hear, say},
    stage::all_end_well,
    stamp::Random,
};

use super::{HOSTILE, freezes::serve};

const LEN: usize = 1 << 20;
/// Operations of a kind that either side has open at once.
const OPEN: usize = 16;

const WAYS: [&str; 3] = ["takes sends back", "takes receives back", "sends too much"];

#[test]
fn who_finishes_nothing_holds_nobody_up() {
    each("");
}

#[test]
fn who_finishes_nothing_holds_nobody_up_beside_a_thread_that_drives() {
    each(", a thread drives");
}

fn each(by: &str) {
    for way in WAYS {
        let stage = Stage::new(60);
        let looped = stage.role("looped").with("way", way);
        let looped = if by.is_empty() { looped } else { looped.with("dedicated", 1) };
        let mut looped = looped.spawn();
        looped.expect("ready");
        let mut looper = stage.role("looper").with("way", way).spawn();
        looper.expect("attacking");
        let attack = format!("a loop that {way}{by}");
        let mut friend = stage.role("friend").with("attack", attack).spawn();
        friend.expect("through");
        looped.expect("through");
        looper.kill();
        looper.end();
        friend.say("end");
        looped.say("end");
        all_end_well(&mut [friend, looped]);
    }
}

/// The operations that are open with the other side. Buffers are used again: to make them takes
/// longer than all else.
struct Open<'a> {
    endpoint: &'a Endpoint,
    peer: PeerId,
    sends: VecDeque<SendRequest<Vec<u8>>>,
    receives: VecDeque<RecvRequest<Vec<u8>>>,
}

impl Open<'_> {
    fn with(endpoint: &Endpoint, peer: PeerId) -> Open<'_> {
        Open { endpoint, peer, sends: VecDeque::new(), receives: VecDeque::new() }
    }

    /// Begins another send, if it may be.
    fn send(&mut self, len: usize) {
        let its = |send: &mut SendRequest<_>| send.try_wait().map(|(_, buffer)| buffer);
        let Some(mut buffer) = buffer(&mut self.sends, its) else { return };
        buffer.resize(len, 7);
        self.sends.push_back(self.endpoint.send_owned(self.peer, HOSTILE, buffer));
    }

    /// Begins another receive, if it may be.
    fn receive(&mut self, len: usize) {
        let its = |receive: &mut RecvRequest<_>| receive.try_wait().map(|(_, buffer)| buffer);
        let Some(mut buffer) = buffer(&mut self.receives, its) else { return };
        buffer.resize(len, 1);
        self.receives.push_back(self.endpoint.recv_owned(self.peer, HOSTILE, buffer));
    }
}

/// A buffer for another operation, unless all are open and the first of them has not ended.
fn buffer<T>(open: &mut VecDeque<T>, its: impl Fn(&mut T) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    if open.len() < OPEN {
        return Some(Vec::with_capacity(LEN));
    }
    let mut first = open.pop_front()?;
    let buffer = its(&mut first);
    if buffer.is_none() {
        open.push_back(first);
    }
    buffer
}

/// Serves the friend, and does with the attacker the operations that its way takes.
pub fn looped(args: &Args) {
    let (endpoint, attacker) = role::listen(args.builder(), "victim");
    endpoint.recv(attacker, HOSTILE).unwrap();
    let mut open = Open::with(&endpoint, attacker);
    serve(&endpoint, || match args.text("way") {
        "takes sends back" => open.receive(LEN),
        "takes receives back" => open.send(LEN),
        _ => open.receive(64),
    });
    hear();
}

/// Begins operations, and gives them up.
pub fn looper(args: &Args) {
    let (endpoint, victim) = role::connect(args.builder(), "victim");
    endpoint.send(victim, HOSTILE, b"").unwrap();
    say("attacking");
    let mut open = Open::with(&endpoint, victim);
    let mut random = Random::new(3);
    loop {
        let len = random.pick(&[8, 3000, 100_000, LEN]);
        match args.text("way") {
            "takes sends back" => open.send(len),
            "takes receives back" => open.receive(len),
            _ => {
                open.send(len.max(3000));
                continue;
            }
        }
        if random.below(4) == 0 {
            open.sends.iter_mut().for_each(|send| _ = send.cancel());
            open.receives.iter_mut().for_each(|receive| _ = receive.cancel());
        }
    }
}
