//! Peers whose address has changed since they were called.

use std::{
    fs, io,
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    path::Path,
    thread,
    time::Duration,
};

use pinfold::Progress;
use pinfold_tests::{
    Args, Stage, host,
    role::{hear, say},
    skip::is_root_or_skip,
    stamp,
};

use super::{PATIENCE, builder, until};

const LEN: usize = 1 << 20;

/// The name leads elsewhere once the connection has broken, and so does the next call.
#[test]
fn a_name_is_asked_for_again() {
    if !is_root_or_skip("a hosts file of one's own") {
        return;
    }
    let stage = Stage::new(60);
    let one = builder(Progress::Dedicated).listen("tcp:127.0.0.2:0").build().unwrap();
    let port: u16 = one.listens_at().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
    let old = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let hosts = stage.path().join("hosts");
    fs::write(&hosts, "127.0.0.1 moving.test\n").unwrap();
    let caller = stage.role("follower").with("hosts", hosts.display());
    let mut caller = caller.with("to", format!("tcp:moving.test:{port}")).spawn();
    let near = old.accept().unwrap().0;
    let far = TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), port)).unwrap();
    let streams = [near, far];
    let clone = |at: usize| streams[at].try_clone().unwrap();
    for (mut from, mut to) in [(clone(0), clone(1)), (clone(1), clone(0))] {
        thread::spawn(move || io::copy(&mut from, &mut to));
    }
    let peer = one.accept_timeout(PATIENCE).unwrap();
    caller.expect("met");
    one.send(peer, 1, &stamp::bytes(LEN, 1)).unwrap();
    caller.expect("got 1");
    // A caller there is refused from here on. The name leads to another endpoint for a while, which
    // has the key as well, and is not taken for one that was started anew.
    drop(old);
    let other = builder(Progress::Dedicated).listen(&format!("tcp:127.0.0.3:{port}"));
    let other = other.build().unwrap();
    fs::write(&hosts, "127.0.0.3 moving.test\n").unwrap();
    streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    thread::sleep(Duration::from_millis(500));
    assert!(other.peers().is_empty());
    fs::write(&hosts, "127.0.0.2 moving.test\n").unwrap();
    one.send(peer, 2, &stamp::bytes(LEN, 2)).unwrap();
    caller.expect("got 2");
    until(|| one.peer(peer).unwrap().reconnections == 1);
    caller.say("over");
    caller.end_well();
}

/// Gets two messages from the endpoint that it calls by name.
pub(super) fn follower(args: &Args) {
    host::own_hosts(Path::new(args.text("hosts"))).expect("as root");
    let endpoint = builder(Progress::Dedicated).build().expect("an endpoint");
    let peer = endpoint.connect(args.text("to")).expect("somebody listens");
    say("met");
    for tag in [1, 2] {
        let message = endpoint.recv_timeout(peer, tag, PATIENCE).expect("it comes");
        assert_eq!(message.len(), LEN);
        stamp::check(&message, tag);
        say(format_args!("got {tag}"));
    }
    hear();
}
