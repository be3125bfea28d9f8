//! Long messages of a bridge, by every mode of sending.

use pinfold_sys::io::poll::Epoll;

use super::*;
use crate::{
    SendMode,
    transport::tcp::transmit::{Driver, Settings},
    wire::tcp::frame,
};

const LONG: usize = 60_000;
const ROUNDS: u64 = 4;

/// The bytes of a connection whose far end reads only afterwards: long messages with short frames
/// between them.
fn stream(mode: SendMode, ring: bool) -> Vec<u8> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    // A side that cannot go on over another connection: there is no peer to say how much has come.
    let mut side = Side::over(near.try_clone().unwrap().into(), 1 << 20, false);
    rustix::net::sockopt::set_socket_send_buffer_size(&near, 2 << 20).unwrap();
    near.set_nonblocking(true).unwrap();
    let settings = Settings { mode: Some(mode), ring: Some(ring) };
    let driver = Driver::new(settings, Arc::new(Epoll::new().unwrap()), 1);
    side.bridge.begin(&Arc::new(driver), Duration::from_secs(3600));
    let memory: Vec<u8> = (0..LONG).map(|at| (at * 7) as u8 ^ (at >> 8) as u8).collect();
    for round in 0..ROUNDS {
        // Two in a row: the frame of the second stands behind the bytes of the first.
        for name in [2 * round, 2 * round + 1] {
            let header = Header::new(Kind::Eager, 0, name as u32);
            let part = Part { ptr: memory.as_ptr().cast_mut(), len: LONG };
            let (words, mut parts) = (frame::long_eager(name, LONG as u64), std::iter::once(part));
            // SAFETY: the memory stays as it is until the bridge is gone.
            unsafe { side.bridge.send_directly(name, header, &words, &mut parts) }.unwrap();
        }
        for number in 0..3 {
            assert!(side.tx.has_room(&mut side.budget).unwrap());
            side.tx.push(Header::new(Kind::Inline, 8, number), &[round << 32 | u64::from(number)]);
        }
        side.turn();
    }
    assert!(side.bridge.is_sent(), "there is room for all of it");
    far.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut got = Vec::new();
    let _ = far.read_to_end(&mut got);
    let mut named = 0;
    let end = Instant::now() + Duration::from_secs(20);
    while named < 2 * ROUNDS {
        assert!(Instant::now() < end, "{named} are named");
        named += u64::from(side.bridge.take_sent().is_some());
    }
    got
}

/// Frames between long messages are as they were, however these leave.
#[test]
fn frames_are_copied_whatever_is_not() {
    let expected = stream(SendMode::Plain, false);
    assert!(expected.len() > 2 * ROUNDS as usize * LONG);
    let modes = [SendMode::TwoCopy, SendMode::PerSend, SendMode::Cached].map(|mode| (mode, true));
    for (mode, ring) in modes.into_iter().chain([(SendMode::PerSend, false)]) {
        let got = stream(mode, ring);
        assert_eq!(got.len(), expected.len(), "{mode:?}, ring {ring}");
        assert!(got == expected, "{mode:?}, ring {ring}");
    }
}

/// Others have their turn before a long message is sent, but a side that waits for the connection
/// to report room fills it.
#[test]
fn a_turn_is_a_share_of_a_long_message() {
    let memory = vec![1; 64 << 20];
    for waits in [false, true] {
        let (near, _far) = streams();
        near.set_nonblocking(true).unwrap();
        let mut side = Side::over(near.into(), 1 << 20, false);
        side.bridge.sending.share = 1;
        let part = Part { ptr: memory.as_ptr().cast_mut(), len: memory.len() };
        let header = Header::new(Kind::Eager, 0, 0);
        let words = frame::long_eager(0, memory.len() as u64);
        // SAFETY: the memory stays as it is until the bridge is gone.
        unsafe { side.bridge.send_directly(0, header, &words, &mut std::iter::once(part)) }
            .unwrap();
        // Nothing comes: the only thing to do at once is to send.
        let mut is_more = side.bridge.turn(waits, &mut side.budget).unwrap();
        assert_eq!(is_more, !waits);
        while is_more {
            is_more = side.bridge.turn(false, &mut side.budget).unwrap();
        }
    }
}
