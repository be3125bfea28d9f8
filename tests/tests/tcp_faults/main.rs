//! Connections with other hosts that break: every message comes once, or there is an error.

mod congested;
mod encrypted;
mod ends;
mod links;
mod moved;
mod regions;
mod resets;
mod slow;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use pinfold::{Builder, Endpoint, Error, PeerId, Progress, TagMatch};
use pinfold_tests::{
    Args,
    network::Relay,
    role::{self, hear, say},
    stamp, tcp_pair, until,
};

use self::{
    congested::congested,
    moved::follower,
    slow::{pusher, sleeper},
};

pinfold_tests::roles!(talker, idler, pusher, sleeper, follower, congested);

const KEY: [u8; 32] = [5; 32];
/// The time in which a message that can come must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// The tag of the last message each way.
const LAST: u64 = u64::MAX >> 1;
/// A tag that no message has.
const NEVER: u64 = LAST - 1;
/// Lengths of all ways that messages go, and between them.
const LENGTHS: [usize; 12] =
    [8, 0, 4096, 65_536, 56, 1 << 20, 100, 20_000, 16_384, 300_000, 8, 5000];

fn builder(progress: Progress) -> Builder {
    Endpoint::builder().progress(progress).key(&KEY).local_shortcut(false)
}

/// Two endpoints with a relay on the way between them. The second has called.
struct Pair {
    one: Endpoint,
    to_two: PeerId,
    two: Endpoint,
    to_one: PeerId,
    relay: Relay,
}

impl Pair {
    fn new(one: Builder, two: Builder) -> Pair {
        Pair::by(one, two, |_| ())
    }

    /// The same, by a relay that has its `orders` before anything goes over it.
    fn by(one: Builder, two: Builder, orders: impl FnOnce(&Relay)) -> Pair {
        let mut relay = None;
        let (one, to_two, two, to_one) = tcp_pair(one, two, |to| {
            let relay = relay.insert(Relay::to(to));
            orders(relay);
            relay.called_at()
        });
        Pair { one, to_two, two, to_one, relay: relay.expect("it was called") }
    }

    /// Sends messages of these lengths both ways at the same time.
    fn talk(&self, lengths: &[usize]) {
        let over = AtomicUsize::new(0);
        let talks = |endpoint: &Endpoint, peer, seeds| {
            exchange(endpoint, peer, seeds, lengths);
            over.fetch_add(1, Ordering::Relaxed);
            // Messages that the other side lacks may have to be sent again.
            until(|| {
                let nothing = endpoint.recv_timeout(peer, NEVER, Duration::from_millis(1));
                assert!(matches!(nothing, Err(Error::Timeout(_))), "{nothing:?}");
                over.load(Ordering::Relaxed) == 2
            });
        };
        thread::scope(|scope| {
            scope.spawn(|| talks(&self.one, self.to_two, [1, 2]));
            talks(&self.two, self.to_one, [2, 1]);
        });
    }

    /// Breaks the connection, no matter what goes on there.
    fn reset(&self) {
        let before = self.relay.resets();
        self.relay.reset_after(pinfold_tests::network::Way::There, 0);
        until(|| self.relay.resets() > before);
        self.relay.reset_never();
    }
}

/// Sends messages of these lengths with the first seed, and takes as many with the second: all of
/// them, in order, and nothing else before the last word.
fn exchange(endpoint: &Endpoint, peer: PeerId, seeds: [u64; 2], lengths: &[usize]) {
    let numbered = || (0u64..).zip(lengths.iter().copied());
    thread::scope(|scope| {
        scope.spawn(|| {
            for (number, len) in numbered() {
                let sent = stamp::bytes(len, seeds[0] << 32 | number);
                endpoint.send(peer, number, &sent).unwrap();
            }
            endpoint.send(peer, LAST, b"over").unwrap();
        });
        for (number, len) in numbered() {
            let message = endpoint.recv_timeout(peer, TagMatch::any(), PATIENCE).unwrap();
            assert_eq!((message.tag(), message.len()), (number, len));
            stamp::check(&message, seeds[1] << 32 | number);
        }
        let last = endpoint.recv_timeout(peer, TagMatch::any(), PATIENCE).unwrap();
        assert_eq!((last.tag(), &*last), (LAST, &b"over"[..]));
    });
}

/// An endpoint as a role's arguments say, and its peer: a listener waits for one, any other role
/// calls.
fn meet(args: &Args) -> (Endpoint, PeerId) {
    let progress = if args.has("dedicated") { Progress::Dedicated } else { Progress::Inline };
    let builder =
        builder(progress).reconnect_timeout(Duration::from_millis(args.number("away_ms")));
    if args.has("listen") {
        let builder = builder.listen(&format!("tcp:{}", args.text("listen")));
        let endpoint = builder.build().expect("a free port");
        say(endpoint.listens_at().expect("it listens"));
        let peer = endpoint.accept().expect("somebody calls");
        (endpoint, peer)
    } else {
        let endpoint = builder.build().expect("an endpoint");
        let peer = endpoint.connect(args.text("to")).expect("somebody listens");
        (endpoint, peer)
    }
}

/// Exchanges so many rounds of messages with its peer, says after each that it is over, and at the
/// end how often there was another connection.
fn talker(args: &Args) {
    let (endpoint, peer) = meet(args);
    let seeds = if args.has("listen") { [1, 2] } else { [2, 1] };
    for round in 0..args.number::<usize>("rounds") {
        if args.has("slow") {
            thread::sleep(Duration::from_millis(args.number("slow")));
        }
        exchange(&endpoint, peer, seeds, &LENGTHS);
        say(format_args!("round {round}"));
    }
    let times = endpoint.peer(peer).expect("it is there").reconnections;
    say(format_args!("reconnections {times}"));
    hear();
}

/// Waits for its peer to go, and says how it did.
fn idler(args: &Args) {
    let (endpoint, peer) = meet(args);
    say("met");
    let error = endpoint.recv_timeout(peer, 1, role::PATIENCE).expect_err("nobody sends");
    say(format_args!("{error:?}"));
    assert!(endpoint.peers().is_empty());
}
