//! Two endpoints in one process.

use std::{
    panic,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Instant,
};

use pinfold::{Arena, Builder, Endpoint, PeerId};

use crate::role::PATIENCE;

/// Two endpoints of one thread that are connected, each with its name for the other.
pub struct Pair {
    /// One, which listens.
    pub one: Endpoint,
    /// Its name for the other.
    pub to_two: PeerId,
    /// The other.
    pub two: Endpoint,
    /// Its name for the one.
    pub to_one: PeerId,
}

impl Pair {
    /// On one host, as [`pair`].
    ///
    /// # Panics
    /// As [`pair`].
    pub fn new(name: &str, builder: impl Fn() -> Builder) -> Pair {
        let (one, to_two, two, to_one) = pair(name, builder(), builder());
        Pair { one, to_two, two, to_one }
    }

    /// Over TCP.
    ///
    /// # Panics
    /// As [`tcp_pair`].
    pub fn tcp() -> Pair {
        let builder = || Endpoint::builder().local_shortcut(false);
        let (one, to_two, two, to_one) = tcp_pair(builder(), builder(), str::to_owned);
        Pair { one, to_two, two, to_one }
    }

    /// Both make progress until a condition holds.
    ///
    /// # Panics
    /// As [`progress_until`].
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        progress_until(&[&self.one, &self.two], what, is_so);
    }
}

/// Endpoints make progress until a condition holds.
///
/// # Panics
/// With `what`, if it does not within [`PATIENCE`], or one of them is closed.
#[track_caller]
pub fn progress_until(endpoints: &[&Endpoint], what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        for endpoint in endpoints {
            endpoint.progress().expect("open");
        }
    }
}

/// An endpoint makes progress until all buffers of an arena have been given back.
///
/// # Panics
/// As [`progress_until`].
#[track_caller]
pub fn wait_for_empty(endpoint: &Endpoint, arena: &Arena) {
    progress_until(&[endpoint], "not given back", || arena.stats().buffers == 0);
}

/// Two endpoints of the calling thread that are connected, each with its name for the other. The
/// first listens at a name that begins with `name`.
///
/// # Panics
/// If they cannot be made or connected.
pub fn pair(name: &str, ours: Builder, theirs: Builder) -> (Endpoint, PeerId, Endpoint, PeerId) {
    // Tests of one program run at the same time.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let address = format!("local:{name}-{}-{number}", std::process::id());
    join(ours.listen(&address), theirs, |_| address.clone())
}

/// The same over TCP, as far as the builders have them stay with it. The first listens at a free
/// port of this host; the second calls what `by` makes of its address.
///
/// # Panics
/// If they cannot be made or connected.
pub fn tcp_pair(
    ours: Builder,
    theirs: Builder,
    by: impl FnOnce(&str) -> String,
) -> (Endpoint, PeerId, Endpoint, PeerId) {
    join(ours.listen("tcp:127.0.0.1:0"), theirs, |a| by(&a.listens_at().expect("an address")))
}

fn join(
    ours: Builder,
    theirs: Builder,
    by: impl FnOnce(&Endpoint) -> String,
) -> (Endpoint, PeerId, Endpoint, PeerId) {
    let a = ours.build().expect("to listen");
    let b = theirs.build().expect("an endpoint");
    let address = by(&a);
    // The listener answers while it accepts.
    let (to_b, to_a) = thread::scope(|s| {
        let calls = s.spawn(|| b.connect(&address).expect("to connect"));
        (a.accept().expect("a peer"), calls.join().expect("no panic"))
    });
    (a, to_b, b, to_a)
}

/// Runs `work` while another thread drives an endpoint of which it asks something.
///
/// # Panics
/// If the work does, or the endpoint cannot be driven.
pub fn driven<T>(owner: &Endpoint, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if !owner.progress().unwrap() {
                    thread::yield_now();
                }
            }
        });
        let done = panic::catch_unwind(panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}
