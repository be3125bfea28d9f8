//! Networks that fail: see `pinfold_tests::network`.

use std::{net::Ipv4Addr, thread, time::Duration};

use pinfold_tests::{
    Network, Stage,
    network::{Way, where_allowed},
    stage::Player,
};

/// Two talkers in two places: the first listens, the second calls.
fn talkers(
    stage: &Stage,
    network: &Network,
    away_ms: u64,
    rounds: usize,
    by: impl FnOnce(String) -> String,
) -> [Player; 2] {
    let role = || stage.role("talker").with("away_ms", away_ms).with("rounds", rounds);
    let listen = format!("{}:0", network.address(0));
    let called = role().with("listen", listen).with("dedicated", 1);
    let mut called = called.inside(network.namespace(0)).spawn();
    let to = by(called.hear());
    let caller = role().with("to", to).with("dedicated", 1).inside(network.namespace(1)).spawn();
    [called, caller]
}

/// Connections that each talker had beyond its first, once all rounds are over.
fn all_over(mut players: [Player; 2], rounds: std::ops::Range<usize>) -> [u64; 2] {
    for round in rounds {
        players.iter_mut().for_each(|player| drop(player.expect(&format!("round {round}"))));
    }
    let times =
        players.each_mut().map(|player| player.expect("reconnections").parse::<u64>().unwrap());
    for player in &mut players {
        player.say("over");
        player.end_well();
    }
    times
}

#[test]
fn losses_are_made_up_for() {
    where_allowed("links::losses_are_made_up_for", || {
        let (network, stage) = (Network::new(2), Stage::new(240));
        let mut players = talkers(&stage, &network, 10_000, 12, |to| to);
        players.iter_mut().for_each(|player| drop(player.expect("round 0")));
        if network.lose(1, 3) {
            all_over(players, 1..12);
        }
    });
}

/// The link is down for a moment, and the connection stays; it is down for longer, and there is
/// another connection.
#[test]
fn links_go_down_and_up() {
    where_allowed("links::links_go_down_and_up", || {
        let (network, stage) = (Network::new(2), Stage::new(240));
        let mut players = talkers(&stage, &network, 8_000, 400, |to| to);
        players.iter_mut().for_each(|player| drop(player.expect("round 0")));
        network.cut(1);
        thread::sleep(Duration::from_secs(2));
        network.mend(1);
        players.iter_mut().for_each(|player| drop(player.expect("round 1")));
        network.cut(0);
        // The sent bytes are not acknowledged for 12 s, after which both are without a connection.
        thread::sleep(Duration::from_millis(14_500));
        network.mend(0);
        let times = all_over(players, 2..400);
        assert!(times[0] > 0 && times[1] > 0, "{times:?}");
    });
}

/// Neither side sends anything, and each finds out by itself.
#[test]
fn who_is_cut_off_for_too_long_is_lost() {
    where_allowed("links::who_is_cut_off_for_too_long_is_lost", || {
        let (mut network, stage) = (Network::new(2), Stage::new(120));
        let role =
            |at: usize| stage.role("idler").with("away_ms", 1000).inside(network.namespace(at));
        let mut called = role(0).with("listen", format!("{}:0", network.address(0))).spawn();
        let to = called.hear();
        let mut caller = role(1).with("to", to).spawn();
        called.expect("met");
        caller.expect("met");
        network.partition(0, 1);
        for mut player in [called, caller] {
            let said = player.hear();
            assert!(said.contains("PeerGone") && said.contains("Lost"), "{said}");
            player.end_well();
        }
    });
}

/// The caller comes back from any address.
#[test]
fn a_caller_may_move() {
    where_allowed("links::a_caller_may_move", || {
        let (mut network, stage) = (Network::new(2), Stage::new(240));
        let mut players = talkers(&stage, &network, 6_000, 300, |to| to);
        players.iter_mut().for_each(|player| drop(player.expect("round 0")));
        network.change_address(1, Ipv4Addr::new(10, 77, 0, 77));
        let times = all_over(players, 1..300);
        assert!(times[0] > 0 && times[1] > 0, "{times:?}");
    });
}

#[test]
fn a_relay_between_places_breaks_connections() {
    where_allowed("links::a_relay_between_places_breaks_connections", || {
        let (network, stage) = (Network::new(2), Stage::new(240));
        let mut relay = None;
        let players = talkers(&stage, &network, 10_000, 3, |to| {
            let on = network.relay(to.strip_prefix("tcp:").unwrap().parse().unwrap());
            on.reset_after(Way::There, 700_000);
            let by = on.called_at();
            relay = Some(on);
            by
        });
        let times = all_over(players, 0..3);
        assert!(times[0] > 3 && times[1] > 3, "{times:?}");
        assert!(relay.unwrap().resets() > 3);
    });
}
