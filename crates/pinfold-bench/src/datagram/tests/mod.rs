//! Datagrams over the loopback device, where there is always a receiver in the same process.
#![allow(clippy::single_range_in_vec_init)] // One piece is meant.

use std::{
    net::UdpSocket,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    time::Duration,
};

use pinfold_tests::{
    filter,
    host::{self, Ended},
};
use rustix::io::Errno;

use super::*;

const SOON: Duration = Duration::from_secs(5);

/// One test at a time looks at the memory that the process has pinned.
static ALONE: Mutex<()> = Mutex::new(());

/// A number of `/proc/self/status`.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A socket connected to another one.
fn sockets() -> (UdpSocket, UdpSocket) {
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let (from, to) = (bind(), bind());
    from.connect(to.local_addr().unwrap()).unwrap();
    to.set_read_timeout(Some(SOON)).unwrap();
    (from, to)
}

/// A sender, and a receiving socket; `None`, loudly, where there is no io_uring.
fn pair(areas: usize, bytes: usize, registered: bool) -> Option<(Sender, UdpSocket)> {
    let (from, to) = sockets();
    match Sender::new(from, areas, bytes, registered) {
        Ok(sender) => Some((sender, to)),
        Err(error) if matches!(error.reason(), Reason::Denied | Reason::Absent) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn receive(from: &UdpSocket) -> Vec<u8> {
    let mut bytes = vec![0; BYTES_MAX + 1];
    let len = from.recv(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// `count` pieces of `bytes` in all, from `start` on, with gaps between them.
fn pieces(start: usize, bytes: usize, count: usize) -> Vec<Range<usize>> {
    let at = |n: usize| bytes * n / count;
    (0..count).map(|n| start + at(n) + 7 * n..start + at(n + 1) + 7 * n).collect()
}

/// Returns whether this kernel lacks the operation, which is then printed.
fn is_absent(sender: &Sender, way: Way, pieces: usize) -> bool {
    let checked = sender.check(way, pieces);
    if let Err(error) = &checked {
        assert_eq!(error.reason(), Reason::Absent, "{error}");
        eprintln!("SKIPPED: {error}");
    }
    checked.is_err()
}

#[test]
fn each_way_sends_the_very_bytes() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let Some((mut sender, to)) = pair(3, 70_000, true) else { return };
    for way in [Way::Call, Way::Copied, Way::Pinned, Way::Registered] {
        for (bytes, count) in [(1, 1), (136, 1), (3936, 2), (9000, 8), (40_000, 4), (63_000, 1)] {
            if is_absent(&sender, way, count) {
                continue;
            }
            let before = sender.counts();
            let parts = pieces(100, bytes, count);
            let mut area = sender.take().unwrap();
            let seed = bytes as u8 ^ count as u8;
            for (at, byte) in sender.bytes_mut(&mut area).iter_mut().enumerate() {
                *byte = (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed;
            }
            let all = sender.bytes(&area);
            let expected: Vec<u8> =
                parts.iter().flat_map(|part| all[part.clone()].to_vec()).collect();
            sender.send(area, &parts, way).unwrap();
            sender.settle(SOON).unwrap();
            let counts = sender.counts();
            if counts.errno == Some(Errno::INVAL) && way == Way::Registered && count > 1 {
                eprintln!("SKIPPED: {} before Linux 6.15", way.call(count));
                continue;
            }
            assert_eq!((counts.sent, counts.failed), (before.sent + 1, 0), "{way:?} {counts:?}");
            assert_eq!(counts.bytes, before.bytes + bytes as u64);
            assert!(receive(&to) == expected, "{way:?}, {bytes} bytes in {count}");
            // For a receiver on the same host the kernel copies, and says so.
            let told = u64::from(way.is_notified());
            assert_eq!(counts.notified, before.notified + told, "{way:?}");
            assert_eq!(counts.copied, before.copied + told, "{way:?}");
        }
    }
    assert_eq!(sender.in_flight(), 0);
}

#[test]
fn an_area_in_flight_is_not_lent() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    for way in [Way::Copied, Way::Pinned, Way::Registered] {
        let Some((mut sender, to)) = pair(2, 5000, true) else { return };
        if is_absent(&sender, way, 1) {
            continue;
        }
        assert_eq!(sender.area_bytes(), 8192);
        let (first, second) = (sender.take().unwrap(), sender.take().unwrap());
        assert!(sender.take().is_none());
        let name = first.index;
        sender.send(first, &[0..100], way).unwrap();
        // A queued send is in flight.
        assert_eq!((sender.in_flight(), sender.take()), (1, None));
        sender.settle(SOON).unwrap();
        assert_eq!(sender.in_flight(), 0);
        let again = sender.take().unwrap();
        assert_eq!((again.index, sender.take()), (name, None));
        // The areas go round: the one given back first comes first.
        sender.put_back(second).unwrap();
        sender.send(again, &[0..100], way).unwrap();
        sender.submit().unwrap();
        assert_ne!(sender.take().unwrap().index, name);
        sender.settle(SOON).unwrap();
        assert_eq!(sender.take().map(|area| area.index), Some(name), "{way:?}");
        assert_eq!((receive(&to).len(), receive(&to).len()), (100, 100));
        // Areas that callers keep do not come back, and nobody waits for them.
        sender.settle(SOON).unwrap();
        assert!(sender.take().is_none());
    }
}

#[test]
fn sends_are_begun_by_submit_or_the_end() {
    let Some((mut sender, to)) = pair(4, 100, false) else { return };
    to.set_nonblocking(true).unwrap();
    for _ in 0..4 {
        let area = sender.take().unwrap();
        sender.send(area, &[0..9], Way::Copied).unwrap();
    }
    assert!(to.recv(&mut [0; 9]).is_err());
    sender.submit().unwrap();
    let got = || (0..9).filter(|_| to.recv(&mut [0; 9]).is_ok()).count();
    assert_eq!(got(), 4);
    // A plain call needs neither.
    let area = sender.take().unwrap();
    sender.send(area, &[0..9], Way::Call).unwrap();
    assert_eq!(got(), 1);
    for way in [Way::Copied, Way::Pinned] {
        if !is_absent(&sender, way, 1) {
            let area = sender.take().unwrap();
            sender.send(area, &[0..9], way).unwrap();
        }
    }
    // A queued send is not lost with the sender.
    let queued = sender.in_flight();
    drop(sender);
    assert_eq!(got(), queued);
}

#[test]
fn refusals_give_the_area_back() {
    let Some((mut sender, _to)) = pair(2, 70_000, false) else { return };
    let Some((mut other, _)) = pair(1, 1, false) else { return };
    let mut refused = |pieces: &[Range<usize>], way| {
        let area = sender.take().unwrap();
        let index = area.index;
        let refused = sender.send(area, pieces, way).unwrap_err();
        assert_eq!(refused.area.index, index);
        sender.put_back(refused.area).unwrap();
        assert_eq!((sender.in_flight(), sender.counts()), (0, Counts::default()));
        refused.error.reason()
    };
    let end = 73_728;
    let backwards = Range { start: 9, end: 8 };
    for pieces in [&[][..], &[5..5], &[0..1, 5..5], &[0..BYTES_MAX + 1], &[end - 1..end + 1]] {
        assert_eq!(refused(pieces, Way::Copied), Reason::Length, "{pieces:?}");
        assert_eq!(refused(pieces, Way::Call), Reason::Length, "{pieces:?}");
    }
    assert_eq!(refused(&[backwards], Way::Copied), Reason::Length);
    assert_eq!(refused(&vec![0..1; PIECES_MAX + 1], Way::Copied), Reason::Length);
    assert_eq!(refused(&[0..40_000, 0..40_000], Way::Copied), Reason::Length);
    assert_eq!(refused(&[0..1], Way::Registered), Reason::Unregistered);
    assert_eq!(sender.check(Way::Registered, 1).unwrap_err().reason(), Reason::Unregistered);
    // Another sender's.
    let mut stranger = other.take().unwrap();
    let look = catch_unwind(AssertUnwindSafe(|| sender.bytes_mut(&mut stranger).fill(1)));
    assert!(look.is_err());
    let stranger = sender.put_back(stranger).unwrap_err();
    let refused = sender.send(stranger, &[0..1], Way::Call).unwrap_err();
    assert_eq!(refused.error.reason(), Reason::Stranger);
    other.put_back(refused.area).unwrap();
    let new = |areas, bytes| {
        Sender::new(sockets().0, areas, bytes, false).map(|_| ()).unwrap_err().reason()
    };
    assert_eq!(new(0, 1), Reason::Length);
    assert_eq!(new(AREAS_MAX + 1, 1), Reason::Length);
    assert_eq!(new(1, 0), Reason::Length);
    assert_eq!(new(2, (1 << 29) + 1), Reason::Length);
    assert_eq!(new(2, usize::MAX), Reason::Length);
}

#[test]
fn what_the_network_refuses_is_counted_and_comes_back() {
    let Some((mut sender, to)) = pair(1, 70_000, false) else { return };
    set_segment_bytes(&sender.socket, 500).unwrap();
    for way in [Way::Call, Way::Copied, Way::Pinned] {
        if is_absent(&sender, way, 1) {
            continue;
        }
        let before = sender.counts();
        let area = sender.take().unwrap();
        // More than 128 datagrams.
        sender.send(area, &[0..65_000], way).unwrap();
        sender.settle(SOON).unwrap();
        let counts = sender.counts();
        assert_eq!((counts.sent, counts.failed), (before.sent, before.failed + 1), "{way:?}");
        assert_eq!((counts.errno, sender.in_flight()), (Some(Errno::INVAL), 0), "{way:?}");
        let area = sender.take().expect("it is back");
        sender.send(area, &[0..1400], way).unwrap();
        sender.settle(SOON).unwrap();
        // Cut.
        assert_eq!([(); 3].map(|()| receive(&to).len()), [500, 500, 400], "{way:?}");
        assert_eq!(sender.counts().sent, before.sent + 1);
    }
}

#[test]
fn registered_areas_are_pinned_as_long_as_the_sender_lives() {
    let _alone = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    let before = status("VmPin");
    let Some((sender, _to)) = pair(4, 8192, true) else { return };
    assert_eq!(status("VmPin"), before + 32);
    drop(sender);
    assert_eq!(status("VmPin"), before);
    let Some((_sender, _to)) = pair(4, 8192, false) else { return };
    assert_eq!(status("VmPin"), before);
}

#[test]
fn a_child_has_no_sender() {
    let Some((sender, _to)) = pair(2, 100, false) else { return };
    let mut sender = Some(sender);
    let child = || {
        let Some(mut sender) = sender.take() else { return 9 };
        let Some(area) = sender.take() else { return 8 };
        let refused = sender.send(area, &[0..1], Way::Call);
        let refused = refused.is_err_and(|refused| refused.error.reason() == Reason::Child)
            && sender.settle(SOON).is_err_and(|error| error.reason() == Reason::Child);
        drop(sender);
        i32::from(!refused)
    };
    assert_eq!(host::fork(child), Ended::Code(0));
}

#[test]
fn a_filter_is_named() {
    for (errno, reason) in [(libc::EPERM, Reason::Denied), (libc::ENOSYS, Reason::Absent)] {
        let filtered = move || {
            filter::deny(&[libc::SYS_io_uring_setup], errno);
            let error = Sender::new(sockets().0, 1, 1, false).map(|_| ()).unwrap_err();
            assert_eq!((error.reason(), error.call()), (reason, "io_uring_setup"));
            assert!(error.to_string().contains("seccomp"));
            // A send that needs no ring still goes.
            let (from, to) = sockets();
            let mut sender = Sender::without_ring(from, 1, 9).unwrap();
            for way in [Way::Copied, Way::Pinned] {
                assert_eq!(sender.check(way, 1).unwrap_err().reason(), Reason::Absent);
                let area = sender.take().unwrap();
                let refused = sender.send(area, &[0..9], way).unwrap_err();
                assert_eq!(refused.error.reason(), Reason::Absent);
                sender.put_back(refused.area).unwrap();
            }
            let area = sender.take().unwrap();
            sender.send(area, &[0..9], Way::Call).unwrap();
            sender.settle(SOON).unwrap();
            assert_eq!((receive(&to).len(), sender.counts().sent), (9, 1));
            0
        };
        assert_eq!(host::fork(filtered), Ended::Code(0));
    }
}
