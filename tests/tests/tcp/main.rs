//! Endpoints that reach each other as peers on different hosts do.

mod changed;
mod credit;
mod crowd;
mod donated;
mod encrypted;
mod ends;
mod forged;
mod forks;
mod huge;
mod keys;
mod memory;
mod messages;
mod modes;
mod polling;
mod regions;
mod translated;

use pinfold::{Builder, Endpoint, PeerId, Progress};
use pinfold_tests::{Args, role, roles, tcp_pair};

use self::{
    forks::{forking, late},
    modes::restricted,
    translated::forks_cached,
};

roles!(echo, restricted, late, forking, forks_cached);

/// The builder of endpoints that stay on their connections, as on different hosts.
fn builder(progress: Progress) -> Builder {
    Endpoint::builder().progress(progress).local_shortcut(false)
}

/// Two endpoints, and the id that each has for the other.
fn pair(one: Builder, two: Builder) -> ((Endpoint, PeerId), (Endpoint, PeerId)) {
    let (one, there, two, here) = tcp_pair(one, two, str::to_owned);
    assert_eq!(two.peer(here).unwrap().address, one.listens_at());
    ((one, there), (two, here))
}

/// Sends everything back.
fn echo(_: &Args) {
    let builder = builder(Progress::Inline).label("echo").listen("tcp:127.0.0.1:0");
    let endpoint = builder.build().expect("a free port");
    role::say(endpoint.listens_at().expect("it listens"));
    let peer = endpoint.accept().expect("somebody calls");
    while let Ok(message) = endpoint.recv(peer, pinfold::TagMatch::any()) {
        if endpoint.send(peer, message.tag(), &message).is_err() {
            return;
        }
    }
}
