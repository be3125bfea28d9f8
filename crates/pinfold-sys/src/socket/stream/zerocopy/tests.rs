#![allow(unsafe_code)]
//! Sends by `MSG_ZEROCOPY`: every byte, every notice, broken connections.

use std::{
    net::Ipv6Addr,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use super::*;
use crate::{
    io::poll::{Epoll, Events, Interest},
    socket::stream::{
        self, sever,
        tests::{bytes, pair, part_of as part, take},
    },
};

const PATIENCE: Duration = Duration::from_secs(20);

fn zerocopy(socket: &OwnedFd) -> Option<ZeroCopy> {
    ZeroCopy::new(socket).map_err(|error| crate::skip::skip(&format!("SO_ZEROCOPY: {error}"))).ok()
}

/// A connection by the other family of addresses.
fn pair_v6() -> Option<(OwnedFd, OwnedFd)> {
    let listener = stream::listen((Ipv6Addr::LOCALHOST, 0).into(), 4);
    let listener = listener.map_err(|error| crate::skip::skip(&format!("IPv6: {error}"))).ok()?;
    let one = stream::connect(stream::local_address(&listener).unwrap()).unwrap();
    stream::tests::wait(&listener, Interest::Read);
    let two = stream::accept(&listener).unwrap().unwrap().0;
    Some((one, two))
}

/// All bytes come, in order, between copied ones; each flight lands, and says that the kernel
/// copied.
#[test]
fn every_byte_comes_and_every_flight_lands() {
    for (one, two) in std::iter::once(pair()).chain(pair_v6()) {
        let Some(mut calls) = zerocopy(&one) else { return };
        let memory: Vec<Vec<u8>> = (0..40).map(|at| bytes(1 + at * 4001, at as u8)).collect();
        let (mut got, mut flights) = (Vec::new(), Vec::new());
        for (at, memory) in memory.iter().enumerate() {
            let mut done = 0;
            while done < memory.len() {
                let (first, rest) = memory[done..].split_at((memory.len() - done) / 3);
                let parts = [part(first), part(rest)];
                done += if at % 4 == 3 {
                    // SAFETY: they are these slices.
                    unsafe { stream::send(&one, &parts, false) }.unwrap()
                } else {
                    // SAFETY: the slices live, unchanged, until all has landed, below.
                    match unsafe { calls.send(&one, &parts) } {
                        Ok(None) => 0,
                        Ok(Some((bytes, flight))) => {
                            flights.push(flight);
                            bytes
                        }
                        Err(Errno::NOBUFS) if calls.in_flight() == 0 => {
                            return crate::skip::skip("RLIMIT_MEMLOCK");
                        }
                        Err(Errno::NOBUFS) => 0,
                        Err(errno) => panic!("{errno}"),
                    }
                };
                take(&two, &mut got);
                calls.collect(&one);
            }
        }
        let (all, end) = (memory.concat(), Instant::now() + PATIENCE);
        while got.len() < all.len() || !flights.is_empty() {
            assert!(Instant::now() < end, "{} of {}", got.len(), all.len());
            take(&two, &mut got);
            calls.collect(&one);
            flights.retain_mut(|flight| {
                let Flight { owner, number } = *flight;
                let landed = calls.land(Flight { owner, number });
                assert!(landed.as_ref().ok().is_none_or(|copied| *copied), "to this very host");
                landed.is_err()
            });
        }
        assert!(got == all);
        assert_eq!((calls.in_flight(), calls.over()), (0, 0));
    }
}

/// Bytes that nobody reads stay in flight; epoll tells once that they have landed, and the
/// connection is as it was.
#[test]
fn a_notice_is_no_error() {
    let (one, two) = pair();
    let Some(mut calls) = zerocopy(&one) else { return };
    let memory = bytes(300_000, 5);
    let epoll = Epoll::new().unwrap();
    epoll.add(&one, 3, Interest::Changes).unwrap();
    let mut flights = Vec::new();
    let mut sent = 0;
    // SAFETY: the memory stays until all has landed.
    while let Ok(Some((bytes, flight))) = unsafe { calls.send(&one, &[part(&memory)]) } {
        sent += bytes;
        flights.push(flight);
    }
    if flights.is_empty() {
        return crate::skip::skip("RLIMIT_MEMLOCK");
    }
    std::thread::sleep(Duration::from_millis(20));
    calls.collect(&one);
    assert!(calls.in_flight() > 0, "nobody has read it");
    let mut events = Events::with_capacity(4);
    let _ = epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    let mut got = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut told = 0;
    while calls.in_flight() > 0 {
        assert!(Instant::now() < end);
        take(&two, &mut got);
        let _ = epoll.wait(&mut events, Some(Duration::from_millis(10))).unwrap();
        if events.iter().any(|event| event.hung_up) {
            told += 1;
            calls.collect(&one);
        }
    }
    assert!(told > 0);
    assert!(flights.into_iter().all(|flight| calls.land(flight).is_ok()));
    assert!(stream::is_connected(&one).unwrap());
    while got.len() < sent {
        take(&two, &mut got);
    }
    // SAFETY: it is copied.
    assert_eq!(unsafe { stream::send(&one, &[part(b"on")], false) }.unwrap(), 2);
    assert!(got.chunks(memory.len()).all(|some| memory.starts_with(some)));
}

/// Breaking the connection lands the bytes in flight; another's flights are nobody's here.
#[test]
fn flights_land_when_the_connection_is_broken() {
    let (one, _two) = pair();
    let (other, _) = pair();
    let (Some(mut calls), Some(mut others)) = (zerocopy(&one), zerocopy(&other)) else { return };
    let memory = bytes(300_000, 3);
    let mut flights = Vec::new();
    // SAFETY: the memory stays until all has landed.
    while let Ok(Some((_, flight))) = unsafe { calls.send(&one, &[part(&memory)]) } {
        flights.push(flight);
    }
    if flights.is_empty() {
        return crate::skip::skip("RLIMIT_MEMLOCK");
    }
    calls.collect(&one);
    assert!(calls.in_flight() > 0);
    flights = flights.into_iter().filter_map(|flight| others.land(flight).err()).collect();
    sever(&one).unwrap();
    let end = Instant::now() + PATIENCE;
    while !flights.is_empty() {
        assert!(Instant::now() < end, "{} flights", flights.len());
        calls.collect(&one);
        flights = flights.into_iter().filter_map(|flight| calls.land(flight).err()).collect();
    }
    // And on such a connection nothing is sent.
    // SAFETY: nothing is sent.
    assert!(unsafe { calls.send(&one, &[part(&memory[..10])]) }.is_err());
    assert_eq!(calls.in_flight(), 0);
}

/// A socket that is no stream has no such calls, or says so.
#[test]
fn what_cannot_says_so() {
    let (one, _two) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(ZeroCopy::new(&one).is_err());
}
