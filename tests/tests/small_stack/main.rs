//! Every public call, from endpoints to tables of copies, in threads with little stack, as in
//! programs that have many threads: fibers, runtimes of other languages, `ulimit -s`.

mod active;
mod choosing;
mod claims;
mod copying;
mod covered;
mod folding;
mod memory;
mod messages;
mod one_sided;
mod queues;
mod tcp;
mod translating;

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use pinfold::{Builder, Endpoint, PeerId};

/// The stack of each call, thread-local variables and the test's own frames included.
const STACK_BYTES: usize = 64 << 10;

/// Runs `work` in a thread with that stack.
fn small<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("small".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).expect("a thread");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs both sides of a conversation, each in a small thread that also makes its endpoint. The
/// first listens.
#[inline(never)]
fn both(
    address: &str,
    builders: [Builder; 2],
    one: impl FnOnce(&Endpoint, PeerId) + Send,
    two: impl FnOnce(&Endpoint, PeerId) + Send,
) {
    let [ours, theirs] = builders.map(Box::new);
    let (tell, told) = mpsc::channel();
    let over = AtomicUsize::new(0);
    // Neither ends before the other has all that it wants.
    let stay = |endpoint: &Endpoint| {
        over.fetch_add(1, Ordering::Relaxed);
        while over.load(Ordering::Relaxed) < 2 {
            endpoint.progress().unwrap();
            thread::yield_now();
        }
        endpoint.close();
    };
    let stay = &stay;
    thread::scope(|scope| {
        scope.spawn(|| {
            small(move || {
                let endpoint = ours.listen(address).build().unwrap();
                tell.send(endpoint.listens_at()).unwrap();
                let peer = endpoint.accept().unwrap();
                one(&endpoint, peer);
                stay(&endpoint);
            });
        });
        small(move || {
            let endpoint = theirs.build().unwrap();
            let address = told.recv().unwrap().unwrap_or_else(|| address.to_owned());
            let peer = endpoint.connect(&address).unwrap();
            two(&endpoint, peer);
            stay(&endpoint);
        });
    });
}

/// The same between two endpoints on this host.
fn here(
    name: &str,
    one: impl FnOnce(&Endpoint, PeerId) + Send,
    two: impl FnOnce(&Endpoint, PeerId) + Send,
) {
    let address = format!("local:small-{name}-{}", std::process::id());
    both(&address, [Endpoint::builder(), Endpoint::builder()], one, two);
}
