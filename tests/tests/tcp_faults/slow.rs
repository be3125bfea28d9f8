//! A peer that takes nothing for a long time is there; one that answers nothing is not.

use std::{thread, time::Duration};

use pinfold::Progress;
use pinfold_tests::{Network, Stage, network::where_allowed, role::say, stamp, tcp_pair};

use super::{Args, NEVER, PATIENCE, builder, meet};

/// More messages than the buffers of a connection have room for.
const MESSAGES: u64 = 24;
const LEN: usize = 1 << 20;
/// A connection of such endpoints whose other end does not answer ends after three seconds, and its
/// pair after four.
const AWAY: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(8);

/// A receiver that makes no call for longer than a host may be silent keeps its connection, and so
/// its peer, no matter which side had called.
#[test]
fn who_takes_nothing_for_long_is_not_taken_for_dead() {
    let make = |progress| builder(progress).reconnect_timeout(AWAY);
    thread::scope(|scope| {
        for sends_to_caller in [false, true] {
            scope.spawn(move || {
                let progress = |sends| if sends { Progress::Dedicated } else { Progress::Inline };
                let [one, two] =
                    [sends_to_caller, !sends_to_caller].map(|sends| make(progress(sends)));
                let (one, to_two, two, to_one) = tcp_pair(one, two, str::to_owned);
                let (from, to, at, by) = match sends_to_caller {
                    true => (&one, to_two, &two, to_one),
                    false => (&two, to_one, &one, to_two),
                };
                let sends: Vec<_> = (0..MESSAGES)
                    .map(|tag| from.send_owned(to, tag, stamp::bytes(LEN, tag)))
                    .collect();
                // The messages are asked for, so that they come.
                let receives: Vec<_> =
                    (0..MESSAGES).map(|tag| at.recv_owned(by, tag, vec![0; LEN])).collect();
                let _ = at.recv_timeout(by, NEVER, Duration::from_millis(20));
                thread::sleep(PAUSE);
                assert_eq!(from.peer(to).expect("it is there").reconnections, 0);
                for (tag, receive) in (0..).zip(receives) {
                    let (done, message) = receive.wait();
                    done.unwrap();
                    stamp::check(&message, tag);
                }
                // The peer's word that it has them.
                let _ = at.recv_timeout(by, NEVER, Duration::from_millis(20));
                for send in sends {
                    send.wait().0.unwrap();
                }
                assert_eq!(at.peer(by).unwrap().reconnections, 0);
            });
        }
    });
}

/// Sends more than there is room for, and says how the sends ended.
pub(super) fn pusher(args: &Args) {
    let (endpoint, peer) = meet(args);
    say("met");
    let sends = (0..MESSAGES).map(|tag| endpoint.send_owned(peer, tag, stamp::bytes(LEN, tag)));
    let error = sends.collect::<Vec<_>>().into_iter().find_map(|send| send.wait().0.err());
    say(format_args!("{:?}", error.expect("nobody takes it all")));
}

/// A host that is cut off while its program takes nothing is found out all the same.
#[test]
fn who_took_nothing_and_is_cut_off_is_lost() {
    where_allowed("slow::who_took_nothing_and_is_cut_off_is_lost", || {
        let (mut network, stage) = (Network::new(2), Stage::new(120));
        let role = |name: &str, at: usize| {
            stage.role(name).with("away_ms", AWAY.as_millis()).inside(network.namespace(at))
        };
        let mut taker =
            role("sleeper", 0).with("listen", format!("{}:0", network.address(0))).spawn();
        let to = taker.hear();
        let mut pusher = role("pusher", 1).with("to", to).with("dedicated", 1).spawn();
        taker.expect("met");
        pusher.expect("met");
        // Longer than a peer that does not answer would have.
        thread::sleep(Duration::from_secs(5));
        network.partition(0, 1);
        let said = pusher.hear();
        assert!(said.contains("PeerGone") && said.contains("Lost"), "{said}");
        pusher.end_well();
        taker.kill();
    });
}

/// Meets its peer, and takes nothing.
pub(super) fn sleeper(args: &Args) {
    let (_endpoint, _peer) = meet(args);
    say("met");
    thread::sleep(PATIENCE);
}
