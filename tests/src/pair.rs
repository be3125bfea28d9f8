//! Two endpoints in one process.

use std::thread;

use pinfold::{Builder, Endpoint, PeerId};

/// Two endpoints of the calling thread that are connected, each with its name for the other. The
/// first listens at a name that begins with `name`.
///
/// # Panics
/// If they cannot be made or connected.
pub fn pair(name: &str, ours: Builder, theirs: Builder) -> (Endpoint, PeerId, Endpoint, PeerId) {
    let address = format!("local:{name}-{}", std::process::id());
    let a = ours.listen(&address).build().expect("to listen");
    let b = theirs.build().expect("an endpoint");
    // The listener answers while it accepts.
    let (to_b, to_a) = thread::scope(|s| {
        let calls = s.spawn(|| b.connect(&address).expect("to connect"));
        (a.accept().expect("a peer"), calls.join().expect("no panic"))
    });
    (a, to_b, b, to_a)
}
