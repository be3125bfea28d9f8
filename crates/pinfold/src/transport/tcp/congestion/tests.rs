//! The times when a connection leaves the host's congestion control, and when it looks again.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::AsFd,
};

use super::*;

fn stream() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let two = listener.accept().unwrap().0;
    (one, two)
}

#[test]
fn a_paced_way_is_left_until_the_route_is_known_and_no_other() {
    let (one, _two) = stream();
    let own = congestion::way(&one).unwrap();
    let HostsWay(way) = HostsWay::put_off(&one);
    assert_eq!(way.as_deref(), Some(&*own).filter(|own| own.starts_with("bbr")));
    let now = congestion::way(&one).unwrap();
    assert_eq!(now, if way.is_some() { congestion::RENO } else { &own });
    if way.is_none() {
        eprintln!("SKIPPED: this host does not send at a pace, but by {own}");
    }
    assert!(HostsWay(None).settle(&one).is_none());
}

#[test]
fn one_look_a_stride_and_none_after_the_last() {
    let (one, _two) = stream();
    congestion::choose(&one, congestion::RENO).unwrap();
    let own: Arc<str> = "no way of any kernel".into();
    let mut it = Congestion { own, choice: Choice::default(), left: STRIDE };
    assert!(!it.sent(STRIDE as usize - 1));
    assert!(it.sent(1));
    assert!(it.look(one.as_fd()));
    assert!(!it.sent(1));
    assert!(it.sent(usize::MAX));
    assert_eq!(congestion::way(&one).unwrap(), congestion::RENO);
    // A pipe is no connection: nothing is said of it, nor can its way be chosen.
    let (pipe, _other) = std::io::pipe().unwrap();
    assert!(!it.look(pipe.as_fd()));
}
