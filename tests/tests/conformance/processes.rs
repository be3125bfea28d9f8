//! The two ends in processes of their own.

use pinfold::{Builder, Progress};
use pinfold_tests::{
    Args, Stage,
    network::Relay,
    role::{PATIENCE, hear, say},
    stage::{Casting, Player, all_end_well},
};

use crate::{
    order,
    pair::{End, LENGTHS, Transport, Way, builder},
};

/// Casts the end that listens.
pub fn listener<'a>(stage: &'a Stage, role: &str, on: Transport) -> Casting<'a> {
    let at = if on == Transport::Shm { "local:conformance" } else { "tcp:127.0.0.1:0" };
    stage.role(role).with("listen", at)
}

/// The place where others call a listener that has just been started, and what is on the way.
pub fn hear_address(listener: &mut Player, on: Transport) -> (String, Option<Relay>) {
    let address = listener.expect("listens at");
    let relay = on.relay(&address);
    (relay.as_ref().map_or(address, Relay::called_at), relay)
}

/// The end that a role's arguments say.
pub fn end(args: &Args, builder: Builder) -> End {
    if args.has("listen") {
        let endpoint = builder.listen(args.text("listen")).build().unwrap();
        let at = endpoint.listens_at().unwrap_or_else(|| args.text("listen").to_owned());
        say(format_args!("listens at {at}"));
        let peer = endpoint.accept_timeout(PATIENCE).unwrap();
        End::new(endpoint, peer, Way::Out, String::new())
    } else {
        let endpoint = builder.build().unwrap();
        let peer = endpoint.connect_wait(args.text("to"), PATIENCE).unwrap();
        End::new(endpoint, peer, Way::Back, String::new())
    }
}

/// Has two processes exchange the messages of `order`.
pub fn talk(on: Transport) {
    let stage = Stage::new(60);
    let mut called = listener(&stage, "talker", on).spawn();
    let (address, _relay) = hear_address(&mut called, on);
    let caller = stage.role("talker").with("to", address).spawn();
    let mut both = [called, caller];
    both.iter_mut().for_each(|player| drop(player.expect("through")));
    // Neither ends before the other has all it lacks.
    both.iter_mut().for_each(|player| player.say("over"));
    all_end_well(&mut both);
}

/// One of the two.
pub fn talker(args: &Args) {
    let builder = builder().progress(Progress::Dedicated).reconnect_timeout(PATIENCE);
    let end = end(args, builder);
    for late in [false, true] {
        order::stream(&end, &LENGTHS, late);
    }
    say("through");
    hear();
}
