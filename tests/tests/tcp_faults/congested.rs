//! The congestion controls that keep connections from sending more than the network takes.

use std::{
    fs,
    os::fd::BorrowedFd,
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::socket::stream::{congestion, peer_address};
use pinfold_tests::{
    Network, Stage,
    network::where_allowed,
    role::{hear, say},
    skip,
    stage::Player,
    stamp,
};

use super::{Args, LAST, PATIENCE, meet};

/// The file in which a network says with which congestion control its connections begin.
const WAY: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// A congestion control that sends at a pace.
const PACED: &str = "bbr";
const LEN: usize = 4 << 20;
/// More messages than a host needs to find that a network loses packets.
const ENOUGH: usize = 200;

/// The congestion control of this process's only connection beside the one with its starter.
#[allow(unsafe_code)]
fn way() -> String {
    let fds = fs::read_dir("/proc/self/fd").expect("what is open");
    let mut ways = fds.filter_map(|fd| {
        let fd = fd.ok()?.file_name().to_str()?.parse().ok()?;
        // SAFETY: no thread closes sockets meanwhile; if it was another file, this is an error.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        peer_address(socket).ok().filter(|peer| peer.is_ipv4())?;
        congestion::way(socket).ok()
    });
    let way = ways.next().expect("a connection");
    assert_eq!(ways.next(), None, "a second connection");
    way
}

/// Sends and takes as many messages as it is told, and says its congestion control then.
pub(super) fn congested(args: &Args) {
    let (endpoint, peer) = meet(args);
    say(format_args!("way {}", way()));
    loop {
        let count: u64 = hear().parse().expect("a number");
        if count == 0 {
            break;
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..count {
                    endpoint.send(peer, number, &stamp::bytes(LEN, number)).expect("it is there");
                }
            });
            for number in 0..count {
                let message = endpoint.recv_timeout(peer, number, PATIENCE).expect("it comes");
                stamp::check(&message, number);
            }
        });
        say(format_args!("way {}", way()));
    }
    let _ = endpoint.recv_timeout(peer, LAST, Duration::from_millis(1));
}

/// Two players in two places whose networks send at a pace, or `None` where they cannot.
fn pair(stage: &Stage, network: &Network) -> Option<[Player; 2]> {
    for place in 0..2 {
        let way =
            network.run(place, || fs::write(WAY, PACED).and_then(|()| fs::read_to_string(WAY)));
        if !way.as_ref().is_ok_and(|way| way.trim() == PACED) {
            skip(&format!("no network sends at a pace here: {way:?}"));
            return None;
        }
    }
    let role = || stage.role("congested").with("away_ms", 10_000).with("dedicated", 1);
    let called = role().with("listen", format!("{}:0", network.address(0)));
    let mut called = called.inside(network.namespace(0)).spawn();
    let to = called.hear();
    let caller = role().with("to", to).inside(network.namespace(1)).spawn();
    Some([called, caller])
}

fn ways(players: &mut [Player; 2]) -> [String; 2] {
    players.each_mut().map(|player| player.expect("way"))
}

/// Has both send so many messages. Returns their congestion controls then.
fn talk(players: &mut [Player; 2], count: usize) -> [String; 2] {
    players.iter_mut().for_each(|player| player.say(count));
    ways(players)
}

fn end(mut players: [Player; 2]) {
    players.iter_mut().for_each(|player| player.say(0));
    players.iter_mut().for_each(Player::end_well);
}

/// A short route is not paced: from the first byte on, or once a trip was short.
#[test]
fn a_short_route_is_not_paced() {
    where_allowed("congested::a_short_route_is_not_paced", || {
        let (network, stage) = (Network::new(2), Stage::new(240));
        let Some(mut players) = pair(&stage, &network) else { return };
        ways(&mut players);
        let limit = Instant::now() + PATIENCE;
        while talk(&mut players, 4) != [congestion::RENO; 2] {
            assert!(Instant::now() < limit, "they go by the host's way");
            thread::sleep(Duration::from_millis(10));
        }
        end(players);
    });
}

/// Where packets are lost on their way, there is a network, and the host knows best. A side that
/// loses them before they leave, as the other does here too, is told so by its own kernel.
#[test]
fn a_network_that_loses_packets_is_the_hosts() {
    where_allowed("congested::a_network_that_loses_packets_is_the_hosts", || {
        let (network, stage) = (Network::new(2), Stage::new(240));
        let Some(mut players) = pair(&stage, &network) else { return };
        ways(&mut players);
        if network.lose(1, 3) {
            let mut rounds = 0;
            while talk(&mut players, 2)[0] != PACED {
                rounds += 1;
                assert!(rounds < ENOUGH, "they never go by the host's way");
            }
            // The change is for good.
            assert_eq!(talk(&mut players, 4)[0], PACED);
        }
        end(players);
    });
}
