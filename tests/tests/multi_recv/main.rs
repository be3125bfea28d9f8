//! Receives of many messages into one buffer: each message is placed whole and once, in order, by
//! whatever path it comes, and the buffer comes back when nothing writes to it any more.

mod ends;
mod order;
mod paths;
mod queued;
mod races;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use pinfold::{
    Builder, Endpoint, MultiReceived, MultiRecv, OwnedBufMut, Path, PathSet, PeerId, TagMatch,
};
use pinfold_tests::{pair, progress_until, role::PATIENCE, tcp_pair};

use self::ends::{mortal, survivor};

pinfold_tests::roles!(mortal, survivor);

const MIB: usize = 1 << 20;

/// Two endpoints, each with its name for the other. The first receives.
struct Pair {
    one: Endpoint,
    to_two: PeerId,
    two: Endpoint,
    to_one: PeerId,
}

impl Pair {
    fn new() -> Pair {
        Pair::of(Endpoint::builder)
    }

    fn of(builder: impl Fn() -> Builder) -> Pair {
        let (one, to_two, two, to_one) = pair("multi-recv", builder(), builder());
        Pair { one, to_two, two, to_one }
    }

    /// Messages go through the ring alone.
    fn ring_only() -> Pair {
        Pair::of(|| Endpoint::builder().paths(PathSet::only(&[Path::Inline, Path::Eager])))
    }

    fn tcp() -> Pair {
        let builder = || Endpoint::builder().local_shortcut(false);
        let (one, to_two, two, to_one) = tcp_pair(builder(), builder(), str::to_owned);
        Pair { one, to_two, two, to_one }
    }

    /// A receive of all that comes.
    fn all<B: OwnedBufMut>(&self, buffer: B, min_free: usize) -> MultiRecv<B> {
        self.one.multi_recv(self.to_two, TagMatch::any(), buffer, min_free)
    }

    /// Has both make progress until `is_so`.
    fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        progress_until(&[&self.one, &self.two], what, is_so);
    }

    /// Both make progress for a while.
    fn work(&self, turns: u32) {
        for _ in 0..turns {
            self.two.progress().unwrap();
            self.one.progress().unwrap();
        }
    }
}

/// The next `count` messages.
fn take<B: OwnedBufMut>(multi: &mut MultiRecv<B>, count: usize) -> Vec<MultiReceived> {
    let next = |_| multi.next_timeout(PATIENCE).expect("a message").expect("no end");
    (0..count).map(next).collect()
}

/// Checks that messages do not overlap, and returns them by their places.
fn in_order(mut all: Vec<MultiReceived>) -> Vec<MultiReceived> {
    all.sort_by_key(|message| message.range.start);
    for both in all.windows(2) {
        let [first, second] = both else { unreachable!() };
        assert!(first.range.end.max(first.range.start + 1) <= second.range.start);
    }
    assert!(all.iter().all(|message| message.range.start % 8 == 0));
    all
}

/// A buffer that is counted.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Counted {
    fn new(len: usize, count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(vec![0; len], Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[allow(unsafe_code)]
// SAFETY: a vector's elements do not move with it.
unsafe impl OwnedBufMut for Counted {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.0.as_mut_ptr(), self.0.len())
    }
}
