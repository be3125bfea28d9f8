//! Programs that only poll, as those over libfabric do: they never wait, and get room for their
//! sends all the same.

use std::time::{Duration, Instant};

use pinfold::Progress;
use pinfold_tests::stamp;

use super::{builder, pair};

/// Two of them are more than a lane has room for that may not grow, and one is too short for the
/// receiver to tell of its own accord that it has been taken.
const LEN: usize = 5000;
const MESSAGES: u64 = 20;

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn who_only_polls_hears_of_the_room_that_its_sends_wait_for() {
    let small = || builder(Progress::Inline).lane_bytes_max(0);
    let ((one, to_two), (two, to_one)) = pair(small(), small());
    let receive = |number| two.recv_owned(to_one, number, vec![0; LEN]);
    let send = |number| one.send_owned(to_two, number, stamp::bytes(LEN, number));
    let mut receives: Vec<_> = (0..MESSAGES).map(receive).collect();
    let sends: Vec<_> = (0..MESSAGES).map(send).collect();
    let end = Instant::now() + PATIENCE;
    for (number, receive) in receives.iter_mut().enumerate() {
        let (result, bytes) = loop {
            if let Some(came) = receive.try_wait() {
                break came;
            }
            one.progress().unwrap();
            two.progress().unwrap();
            assert!(Instant::now() < end, "message {number} waits for room for ever");
        };
        assert_eq!(result.unwrap().len, LEN as u64);
        stamp::check(&bytes, number as u64);
    }
    sends.into_iter().for_each(|send| {
        send.wait().0.unwrap();
    });
    // Most of them found none.
    assert!(one.counters().room_stalls >= MESSAGES / 2, "{}", one.counters().room_stalls);
}
