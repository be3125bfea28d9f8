#![allow(unsafe_code)]
//! Sends by an io_uring: every way, order, failures, broken connections.

use std::{os::fd::OwnedFd, sync::Arc, time::Instant};

use super::*;
use crate::{
    io::poll::{Epoll, Events, Interest},
    mem::pin::{Pin, Reason, Registered},
    socket::stream::{
        sever,
        tests::{bytes, pair, part_of as part, take, wait},
    },
};
use rustix::io::Errno;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// A ring, where there can be one.
fn ring() -> Option<SendRing> {
    let made = Registered::new(4).and_then(|ring| SendRing::new(Arc::new(ring)));
    made.map_err(|error| crate::skip::skip(&format!("{error}"))).ok()
}

/// Sends all of it, read at the other end as it comes: returns whether each flight was copied.
fn send_all(
    ring: &mut SendRing,
    (one, two): (&OwnedFd, &OwnedFd),
    parts: &[&[u8]],
    way: Way,
) -> Result<(Vec<u8>, Vec<bool>), Errno> {
    let (mut got, mut flights, mut copied) = (Vec::new(), Vec::new(), Vec::new());
    for bytes in parts {
        let mut done = 0;
        while done < bytes.len() {
            let mut launched = Vec::new();
            let left = [part(&bytes[done..])];
            let order = Order { parts: &left, way };
            // SAFETY: the slices live, unchanged, until all has landed, below.
            done += unsafe { ring.send(one, &[order], &mut launched) }?;
            flights.extend(launched.into_iter().filter_map(|it| it.flight));
            take(two, &mut got);
        }
    }
    let (all, end) = (parts.concat().len(), Instant::now() + PATIENCE);
    while got.len() < all || !flights.is_empty() {
        take(two, &mut got);
        ring.wait(Duration::from_millis(1));
        for flight in std::mem::take(&mut flights) {
            match ring.land(flight) {
                Ok(was_copied) => copied.push(was_copied),
                Err(flight) => flights.push(flight),
            }
        }
        assert!(Instant::now() < end, "{} of {all}, {} flights", got.len(), flights.len());
    }
    Ok((got, copied))
}

#[test]
fn every_way_sends_every_byte() {
    let Some(mut ring) = ring() else { return };
    let (one, two) = pair();
    for len in [1, 4095, 100_000, 3 << 20] {
        let memory = bytes(len, 7);
        for way in [Way::Copied, Way::Pinned] {
            let (got, copied) = match send_all(&mut ring, (&one, &two), &[&memory], way) {
                Err(Errno::NOMEM) => {
                    eprintln!("SKIPPED: {len} bytes by {way:?}: RLIMIT_MEMLOCK");
                    continue;
                }
                done => done.unwrap(),
            };
            assert!(got == memory, "{len} {way:?}");
            // Loopback copies bytes that it is not to copy, and says so.
            assert!(copied.iter().all(|copied| *copied), "{len} {way:?}");
            assert_eq!(copied.is_empty(), way == Way::Copied);
        }
        let start = memory.as_ptr().addr();
        let slot = match ring.registered().pin(start..start + len) {
            Err(error) if matches!(error.reason(), Reason::Memlock(_)) => {
                eprintln!("SKIPPED: {len}: {error}");
                continue;
            }
            slot => slot.unwrap(),
        };
        let way = Way::Registered(slot.id());
        let (got, copied) = send_all(&mut ring, (&one, &two), &[&memory], way).unwrap();
        assert!(got == memory && !copied.is_empty(), "{len}");
        // Only bytes in the slot can be sent from it.
        let mut launched = Vec::new();
        let other = bytes(10, 1);
        let (parts, beyond) = ([part(&other)], [part(&memory)]);
        let order = Order { parts: &parts, way };
        // SAFETY: nothing is sent.
        let error = unsafe { ring.send(&one, &[order], &mut launched) }.unwrap_err();
        assert!(matches!(error, Errno::FAULT | Errno::INVAL), "{error}");
        ring.registered().unpin(slot).unwrap();
        let order = Order { parts: &beyond, way };
        // SAFETY: as above.
        assert!(unsafe { ring.send(&one, &[order], &mut launched) }.is_err());
        assert!(launched.is_empty());
    }
    assert_eq!(ring.in_flight(), 0);
}

/// Several orders are one call, go in their order, and stop where there is no more room.
#[test]
fn orders_are_a_chain() {
    let Some(mut ring) = ring() else { return };
    let (one, two) = pair();
    rustix::net::sockopt::set_socket_send_buffer_size(&one, 200_000).unwrap();
    let head = bytes(77, 1);
    let bodies: Vec<Vec<u8>> = (0..6).map(|seed| bytes(300_000, seed)).collect();
    let mut all = head.clone();
    all.extend(bodies.concat());
    let (mut got, mut sent, mut flights, mut short) = (Vec::new(), 0, Vec::new(), 0);
    let end = Instant::now() + PATIENCE;
    while sent < all.len() {
        assert!(Instant::now() < end);
        let mut parts = Vec::new();
        let mut begin = 0;
        for (at, memory) in std::iter::once(&head).chain(&bodies).enumerate() {
            let skip = sent.saturating_sub(begin).min(memory.len());
            begin += memory.len();
            if skip < memory.len() {
                parts.push((at, [part(&memory[skip..])]));
            }
        }
        let way = |at: usize| if at == 0 { Way::Copied } else { Way::Pinned };
        let orders: Vec<Order<'_>> =
            parts.iter().map(|(at, parts)| Order { parts, way: way(*at) }).collect();
        let mut launched = Vec::new();
        // SAFETY: the memory stays until all has landed.
        match unsafe { ring.send(&one, &orders, &mut launched) } {
            Ok(bytes) => {
                let with_bytes: Vec<_> = launched.iter().filter(|it| it.bytes > 0).collect();
                assert_eq!(bytes, with_bytes.iter().map(|it| it.bytes).sum::<usize>());
                for it in with_bytes.iter().rev().skip(1) {
                    assert_eq!(it.bytes, orders[it.order].parts[0].len, "whole but the last");
                }
                short += usize::from(with_bytes.len() < orders.len());
                sent += bytes;
            }
            Err(Errno::NOMEM) => return crate::skip::skip("RLIMIT_MEMLOCK"),
            Err(errno) => panic!("{errno}"),
        }
        flights.extend(launched.into_iter().filter_map(|it| it.flight));
        take(&two, &mut got);
        ring.collect();
        flights = flights.into_iter().filter_map(|flight| ring.land(flight).err()).collect();
    }
    assert!(short > 0, "there was room for all at once");
    while got.len() < all.len() || ring.in_flight() > 0 {
        assert!(Instant::now() < end, "{} of {}", got.len(), all.len());
        take(&two, &mut got);
        ring.wait(Duration::from_millis(1));
        flights = flights.into_iter().filter_map(|flight| ring.land(flight).err()).collect();
    }
    assert!(got == all);
}

/// An order behind one that fails is not sent.
#[test]
fn an_order_that_fails_ends_the_chain() {
    let Some(mut ring) = ring() else { return };
    let (one, two) = pair();
    let memory = bytes(1000, 1);
    let slot = ring.registered().pin(memory.as_ptr().addr()..memory.as_ptr().addr() + 1).unwrap();
    let mut launched = Vec::new();
    let (beyond, fine) = ([part(&memory)], [part(b"not sent")]);
    let registered = Order { parts: &beyond, way: Way::Registered(slot.id()) };
    let copied = Order { parts: &fine, way: Way::Copied };
    // SAFETY: nothing of the memory is sent.
    let sent = unsafe { ring.send(&one, &[registered, copied], &mut launched) };
    assert!(sent.is_err() && launched.is_empty(), "{sent:?} {launched:?}");
    // SAFETY: it is copied.
    let sent = unsafe { ring.send(&one, &[copied], &mut launched) };
    assert_eq!((sent, launched.len()), (Ok(8), 1));
    wait(&two, Interest::Read);
    let mut got = Vec::new();
    take(&two, &mut got);
    assert_eq!(got, b"not sent");
    ring.registered().unpin(slot).unwrap();
}

/// Bytes that nobody reads stay in flight, the ring says when they have landed, and to break the
/// connection lands them.
#[test]
fn flights_land_when_the_connection_is_broken() {
    let Some(mut ring) = ring() else { return };
    let (one, two) = pair();
    let epoll = Epoll::new().unwrap();
    epoll.add(&ring, 3, Interest::Read).unwrap();
    let memory = bytes(400_000, 3);
    let mut flights = Vec::new();
    loop {
        let mut launched = Vec::new();
        let parts = [part(&memory)];
        let order = Order { parts: &parts, way: Way::Pinned };
        // SAFETY: the memory stays until all has landed.
        match unsafe { ring.send(&one, &[order], &mut launched) } {
            Ok(0) | Err(Errno::NOMEM) => break,
            sent => assert!(sent.unwrap() > 0),
        }
        flights.extend(launched.into_iter().filter_map(|it| it.flight));
    }
    if flights.is_empty() {
        return crate::skip::skip("RLIMIT_MEMLOCK");
    }
    for _ in 0..5 {
        ring.wait(Duration::from_millis(2));
        flights = flights.into_iter().filter_map(|flight| ring.land(flight).err()).collect();
    }
    assert!(!flights.is_empty(), "nobody has read them");
    let other = self::ring().unwrap();
    let mut other = other;
    flights = flights.into_iter().filter_map(|flight| other.land(flight).err()).collect();
    sever(&one).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut events = Events::with_capacity(4);
    assert!(epoll.wait(&mut events, Some(PATIENCE)).unwrap() > 0);
    while !flights.is_empty() {
        assert!(Instant::now() < end, "{} flights", flights.len());
        ring.wait(Duration::from_millis(1));
        flights = flights.into_iter().filter_map(|flight| ring.land(flight).err()).collect();
    }
    assert_eq!(epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0);
    // And on such a connection nothing is sent.
    let mut launched = Vec::new();
    let parts = [part(&memory[..10])];
    let order = Order { parts: &parts, way: Way::Pinned };
    // SAFETY: nothing is sent.
    assert!(unsafe { ring.send(&one, &[order], &mut launched) }.is_err());
    wait(&two, Interest::Read);
}

#[test]
fn a_ring_has_one_to_send() {
    let Some(ring) = ring() else { return };
    let registered = Arc::clone(ring.registered());
    assert_eq!(SendRing::new(Arc::clone(&registered)).unwrap_err().errno(), Errno::BUSY);
    let memory = bytes(100, 1);
    let start = memory.as_ptr().addr();
    let slot = registered.pin(start..start + 100).unwrap();
    let file = crate::mem::memfd::create_sealed("pinfold-test", 4096).unwrap();
    let write = || {
        use std::os::fd::AsFd;
        registered.write_out(slot.id(), start..start + 100, file.as_fd(), 0)
    };
    assert_eq!(write().unwrap_err().errno(), Errno::BUSY);
    drop(ring);
    assert_eq!(write().unwrap(), 100);
    registered.unpin(slot).unwrap();
}
