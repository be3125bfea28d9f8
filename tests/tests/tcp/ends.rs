//! How connections end.

use std::time::Duration;

use pinfold::{Endpoint, Error, Gone, Progress};
use pinfold_tests::{Stage, stamp};

use super::{builder, pair};

#[test]
fn who_is_killed_is_gone() {
    let stage = Stage::new(60);
    let mut echo = stage.role("echo").spawn();
    let address = echo.hear();
    // A process that is started anew would not know this one.
    let endpoint =
        builder(Progress::Inline).reconnect_timeout(Duration::from_secs(1)).build().unwrap();
    let peer = endpoint.connect(&address).unwrap();
    assert_eq!(endpoint.peer(peer).unwrap().name, format!("echo ({address})"));
    for tag in 0..50 {
        let sent = stamp::bytes(1 << (tag % 20), tag);
        endpoint.send(peer, tag, &sent).unwrap();
        assert_eq!(&*endpoint.recv(peer, tag).unwrap(), sent);
    }
    echo.kill();
    let error = endpoint.recv_timeout(peer, 99, Duration::from_secs(20)).unwrap_err();
    let how = match error {
        Error::PeerGone { how, .. } => how,
        other => panic!("{other}"),
    };
    assert!(matches!(how, Gone::Died | Gone::Lost(_)), "{how}");
    assert!(endpoint.peers().is_empty());
}

/// Memory of a send that is not received is its owner's again when the connection ends.
#[test]
fn what_was_on_its_way_ends_with_the_connection() {
    // No thread calls the endpoint while it sends.
    let sending = builder(Progress::Dedicated);
    let ((one, to_two), (two, to_one)) = pair(sending, builder(Progress::Inline));
    let sends: Vec<_> =
        (0..8).map(|tag| one.send_owned(to_two, tag, stamp::bytes(32 << 20, tag))).collect();
    stamp::check(&two.recv(to_one, 0).unwrap(), 0);
    drop(two);
    for (tag, send) in sends.into_iter().enumerate() {
        let (_, buffer) = send.wait();
        stamp::check(&buffer, tag as u64);
    }
    let error = one.recv(to_two, 99).unwrap_err();
    assert!(matches!(error, Error::PeerGone { .. }), "{error}");
}

#[test]
fn what_other_hosts_cannot_do_says_so() {
    let ((one, to_two), (_two, _)) = pair(builder(Progress::Inline), builder(Progress::Dedicated));
    let info = one.peer(to_two).unwrap();
    assert_eq!(info.pid, 0);
    let endpoint: &Endpoint = &one;
    let sent = endpoint.send_by(pinfold::Path::Cma, to_two, 1, b"x");
    let error = sent.unwrap_err();
    assert!(error.to_string().contains("another host"), "{error}");
}
