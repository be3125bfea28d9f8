//! Resume: connections that last for less than a message lose nothing and repeat nothing, and both
//! ends count them.

use crate::{
    order::stream,
    pair::{Pair, Transport, break_after},
};

/// Most are longer than a connection lasts.
const LENGTHS: [usize; 10] =
    [1 << 20, 8, 5 << 20, 0, 300_000, 4 << 10, 3 << 20, 57, 64 << 10, 2 << 20];
/// Messages that no connection carries whole, one way.
const BROKEN: u64 = 5;

pub fn holds(on: Transport) {
    let pair = Pair::new(on);
    let relay = pair.relay.as_ref().expect("something that breaks connections");
    break_after(relay, 263_167, 290_021);
    pair.both(|end| stream(end, &LENGTHS, false));
    let resets = relay.resets() as u64;
    assert!(resets >= BROKEN, "{resets}");
    pair.calm();
    let connections = relay.connections() as u64;
    for end in [&pair.one, &pair.two] {
        let peer = end.endpoint.peer(end.peer).expect("it is there");
        let times = peer.reconnections;
        assert!((BROKEN..connections).contains(&times), "{times} of {connections}");
        let counters = end.endpoint.counters();
        assert_eq!((counters.peers_joined, counters.peers_gone), (1, 0));
    }
}
