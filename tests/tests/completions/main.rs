//! Completion queues: every operation's end comes once, with its buffer, whatever ends it.

mod ends;
mod kinds;
mod waits;

use pinfold::{Builder, Completion, CompletionQueue, Endpoint, PeerId};
use pinfold_tests::{pair, role::PATIENCE, tcp_pair};

use self::{
    ends::{mortal, survivor},
    waits::{ringer, waiter},
};

pinfold_tests::roles!(mortal, survivor, ringer, waiter);

/// Two endpoints, each with its name for the other.
struct Pair {
    one: Endpoint,
    to_two: PeerId,
    two: Endpoint,
    to_one: PeerId,
}

impl Pair {
    fn new(builder: impl Fn() -> Builder) -> Pair {
        let (one, to_two, two, to_one) = pair("completions", builder(), builder());
        Pair { one, to_two, two, to_one }
    }

    /// The same over TCP.
    fn tcp() -> Pair {
        let builder = || Endpoint::builder().local_shortcut(false);
        let (one, to_two, two, to_one) = tcp_pair(builder(), builder(), str::to_owned);
        Pair { one, to_two, two, to_one }
    }
}

/// Waits until nothing is outstanding.
fn all(queue: &CompletionQueue) -> Vec<Completion> {
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        let came = queue.wait(&mut ended, 7, Some(PATIENCE)).unwrap();
        assert!((1..=7).contains(&came), "{came} came, {} are outstanding", queue.outstanding());
    }
    ended
}
