//! Two endpoints in one process.

use std::{
    panic,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use pinfold::{Builder, Endpoint, PeerId};

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
