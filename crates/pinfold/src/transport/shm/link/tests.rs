//! Rings by the socket and by pipes.

use std::{fs, time::Duration};

use pinfold_sys::io::poll::Events;

use super::*;
use crate::transport::descriptor_channel::{ChannelMessage, take};

const NEWS: u64 = 1;
const BELL: u64 = 2;

/// Two ends, each with an epoll.
fn pair() -> [(Link, Arc<Epoll>); 2] {
    let (a, b) = seqpacket::pair().unwrap();
    [a, b].map(|socket| {
        let (mut link, epoll) = (Link::new(socket), Arc::new(Epoll::new().unwrap()));
        link.watch(&epoll, NEWS, BELL).unwrap();
        (link, epoll)
    })
}

/// The tokens of what the epoll tells of now.
fn told(epoll: &Epoll) -> Vec<u64> {
    let mut events = Events::with_capacity(8);
    epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    events.iter().map(|event| event.token).collect()
}

/// Takes all that the socket brings. Returns how many of them were rings.
fn take_all(link: &mut Link) -> u32 {
    let mut rings = 0;
    while let Some(message) = take(link.channel().unwrap()).unwrap() {
        match message {
            ChannelMessage::Bell => rings += 1,
            ChannelMessage::Pipe(pipe) => link.hear(pipe),
            ChannelMessage::Heard => link.is_heard(),
            other => panic!("{other:?}"),
        }
    }
    rings
}

fn pipes() -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    files.filter_map(|file| fs::read_link(file.path()).ok()).filter(|to| is_pipe(to)).count()
}

fn is_pipe(to: &std::path::Path) -> bool {
    to.to_string_lossy().starts_with("pipe:")
}

/// Rings until the peer has been told of the pipe, and this side that it hears it.
fn until_heard(a: &mut Link, b: &mut Link) {
    for _ in 0..=RINGS_BY_SOCKET {
        a.ring().unwrap();
        assert_eq!(take_all(b), 1);
        take_all(a);
    }
    assert!(matches!(a.ours, Ours::Heard(_)));
}

#[test]
fn rings_go_by_a_pipe_once_it_is_heard() {
    if !pipe_bell::tells_each_time() {
        return eprintln!("SKIPPED: this kernel tells of the first byte in a pipe alone");
    }
    let [(mut a, _), (mut b, epoll)] = pair();
    until_heard(&mut a, &mut b);
    told(&epoll);
    let mut by_socket = 0;
    for ring in 0..20_000 {
        a.ring().unwrap();
        match &told(&epoll)[..] {
            [BELL] => {}
            // The pipe was full. The peer hears of the next one, and of this ring.
            _ => {
                assert_eq!(take_all(&mut b), 1, "ring {ring}");
                take_all(&mut a);
                by_socket += 1;
            }
        }
    }
    // A pipe of one page holds 4096.
    assert!((1..=6).contains(&by_socket), "{by_socket}");
}

#[test]
fn a_side_that_does_not_hear_is_rung_by_the_socket() {
    let [(mut a, _), (b, epoll)] = pair();
    for ring in 0..100 {
        a.ring().unwrap();
        assert_eq!(told(&epoll), [NEWS], "ring {ring}");
        while let Some(message) = take(b.channel().unwrap()).unwrap() {
            // A descriptor that found no place.
            drop(message);
        }
    }
    assert!(matches!(a.ours, Ours::Offered(_)));
}

/// A peer says that it hears what it was never sent; one sends pipes without end.
#[test]
fn peers_that_lie_gain_nothing() {
    let [(mut a, _), (mut b, epoll)] = pair();
    a.is_heard();
    assert!(matches!(a.ours, Ours::None(0)));
    let before = pipes();
    for _ in 0..100 {
        let bell = PipeBell::new().unwrap();
        descriptor_channel::send_pipe(&a.socket, bell.heard()).unwrap();
        take_all(&mut b);
        while take(a.channel().unwrap()).unwrap().is_some() {}
    }
    assert!(pipes() <= before + 20, "other tests have some");
    // The last is still heard, if pipes are.
    assert_eq!(b.theirs.is_some(), pipe_bell::tells_each_time());
    drop(b);
    assert!(told(&epoll).iter().all(|token| *token != BELL));
}
