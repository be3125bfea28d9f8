//! Connecting and accepting by requests: beside other work, given up at any stage, and never
//! without an end.

mod ends;
mod given_up;
mod loops;
mod patience;
mod queued;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use pinfold::{AcceptRequest, Builder, ConnectRequest, Endpoint, PeerId, Result};
use pinfold_tests::{role::PATIENCE, stamp};

use self::{
    ends::{at_its_limits, forks},
    given_up::fickle,
};

pinfold_tests::roles!(at_its_limits, fickle, forks);

/// The addresses by which an endpoint is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Local,
    Tcp,
}

impl Link {
    const ALL: [Link; 2] = [Link::Local, Link::Tcp];

    /// An endpoint that listens, and its address.
    fn listen(self, builder: Builder) -> (Endpoint, String) {
        let address = match self {
            Link::Local => name(),
            Link::Tcp => "tcp:127.0.0.1:0".to_owned(),
        };
        let endpoint = builder.listen(&address).build().unwrap();
        let address = endpoint.listens_at().unwrap_or(address);
        (endpoint, address)
    }

    /// An address where nobody listens, of this process alone.
    fn free(self) -> String {
        let process = std::process::id();
        match self {
            Link::Local => name(),
            Link::Tcp => {
                let port = 7000 + NUMBER.fetch_add(1, Ordering::Relaxed);
                format!("tcp:127.9.{}.{}:{port}", process >> 8 & 255, process & 255)
            }
        }
    }
}

/// Tests of one program run at the same time.
static NUMBER: AtomicU32 = AtomicU32::new(0);

fn name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("local:connecting-{}-{number}", std::process::id())
}

/// An endpoint that takes a connection for one, also on this host.
fn builder() -> Builder {
    Endpoint::builder().local_shortcut(false)
}

/// Drives endpoints by this thread until there is an answer.
fn until<T>(endpoints: &[&Endpoint], mut answer: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        for endpoint in endpoints {
            endpoint.progress().unwrap();
        }
        if let Some(it) = answer() {
            return it;
        }
        assert!(Instant::now() < end, "it does not come");
    }
}

/// Drives endpoints for a while.
fn pass(endpoints: &[&Endpoint], time: Duration) {
    let end = Instant::now() + time;
    until(endpoints, || (Instant::now() >= end).then_some(()));
}

/// A request, and its outcome once there is one.
struct Awaited {
    look: Box<dyn FnMut() -> Option<Result<PeerId>>>,
    outcome: Option<PeerId>,
}

impl From<ConnectRequest> for Awaited {
    fn from(mut request: ConnectRequest) -> Awaited {
        Awaited { look: Box::new(move || request.try_wait()), outcome: None }
    }
}

impl From<AcceptRequest> for Awaited {
    fn from(mut request: AcceptRequest) -> Awaited {
        Awaited { look: Box::new(move || request.try_wait()), outcome: None }
    }
}

/// The peers of all requests, of endpoints that this thread drives.
fn peers(endpoints: &[&Endpoint], mut requests: Vec<Awaited>) -> Vec<PeerId> {
    until(endpoints, || {
        for request in &mut requests {
            if request.outcome.is_none() {
                request.outcome = (request.look)().map(Result::unwrap);
            }
        }
        requests.iter().map(|request| request.outcome).collect()
    })
}

/// The peer of one endpoint that calls another, and the other way round.
fn meet(caller: &Endpoint, listener: &Endpoint, address: &str) -> (PeerId, PeerId) {
    let requests = vec![caller.connect_request(address).into(), listener.accept_request().into()];
    let peers = peers(&[caller, listener], requests);
    (peers[0], peers[1])
}

/// Sends messages both ways between two ends of a pair, of endpoints that this thread drives.
fn talk(ends: [(&Endpoint, PeerId); 2]) {
    let both = [ends[0].0, ends[1].0];
    for (from, to) in [(0, 1), (1, 0)] {
        for (tag, len) in [(1, 8), (2, 20_000), (3, 300_000)] {
            let (sender, receiver) = (&ends[from], &ends[to]);
            let mut received = receiver.0.recv_owned(receiver.1, tag, vec![0; len]);
            let mut sent = sender.0.send_owned(sender.1, tag, stamp::bytes(len, tag));
            let (received, bytes) = until(&both, || received.try_wait());
            assert_eq!(received.unwrap().len, len as u64);
            stamp::check(&bytes, tag);
            until(&both, || sent.try_wait()).0.unwrap();
        }
    }
}

/// The label of a peer.
fn label(endpoint: &Endpoint, peer: PeerId) -> String {
    let name = endpoint.peer(peer).expect("it is connected").name;
    name.split(' ').next().unwrap_or_default().to_owned()
}
