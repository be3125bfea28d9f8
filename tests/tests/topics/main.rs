//! Topics between processes that come, go, stop and are killed.

mod kills;
mod roles;

use std::time::Duration;

use pinfold_tests::{
    Stage,
    skip::is_root_or_skip,
    stage::{Casting, Player, all_end_well},
};
use rustix::process::Signal;

use self::roles::{publisher, steady, subscriber, subscribers};

const NOBODY: u32 = 65534;
const STRANGER: u32 = 65533;

pinfold_tests::roles!(publisher, steady, subscriber, subscribers);

/// One that has been told to go on.
fn ready(casting: Casting<'_>) -> Player {
    let mut player = casting.spawn();
    player.expect("ready");
    player
}

/// 64 subscribers in 8 processes read each sample from one copy.
#[test]
fn many_subscribers_share_one_copy() {
    let stage = Stage::new(180);
    let mut publisher = ready(stage.role("publisher").with("wait-for", 64).with("samples", 100));
    let mut players: Vec<_> =
        (0..8).map(|_| ready(stage.role("subscribers").with("samples", 100))).collect();
    publisher.say("go");
    let committed: u64 = publisher.expect("committed").parse().unwrap();
    // Up to two samples of 1 MiB are on their way to each, not the same ones to all.
    assert!(committed < 64 << 20, "{committed} bytes, and 128 MiB if each had its own");
    all_end_well(&mut players);
    publisher.end_well();
}

/// A subscriber that is stopped holds nobody up, not even one that opens: it joins once it runs
/// again.
#[test]
fn who_is_stopped_joins_later() {
    let stage = Stage::new(120);
    let mut stopped = ready(stage.role("subscriber").with("until", "end"));
    let mut other = ready(stage.role("subscriber").with("until", "end"));
    stopped.signal(Signal::STOP);
    let mut publisher = ready(stage.role("steady"));
    other.expect("first");
    stopped.signal(Signal::CONT);
    stopped.expect("first");
    for player in [&mut stopped, &mut other, &mut publisher] {
        player.say("end");
        player.end_well();
    }
}

/// A subscriber of another user names the topic by its publishers' user, and finds those that come
/// later.
#[test]
fn another_user_subscribes_if_that_is_allowed() {
    if !is_root_or_skip("being another user") {
        return;
    }
    let stage = Stage::new(120);
    // Each user has a directory of its own, and the publishers' open one is in `/tmp`.
    let cast = |role, user| {
        let casting = stage.role(role).with("topic", format!("guests-{}", std::process::id()));
        casting.env("PINFOLD_DIR", "").env("XDG_RUNTIME_DIR", stage.sockets(user))
    };
    let publisher = || cast("steady", 0);
    let guest = || cast("subscriber", NOBODY).with("owner", "root").user(NOBODY);
    let mut shut = ready(publisher().with("admit", STRANGER));
    let mut refused = guest().with("until", "refused").spawn();
    let why = refused.expect("refused");
    assert!(why.contains("rule") && why.contains("not user 65534"), "{why}");
    refused.end_well();
    shut.say("end");
    shut.end_well();

    let mut open = ready(publisher().with("admit", NOBODY));
    let mut guest = ready(guest().with("until", "end"));
    guest.expect("first");
    open.say("end");
    open.end_well();
    std::thread::sleep(Duration::from_millis(100));
    let mut later = ready(publisher().with("admit", NOBODY));
    guest.say("again");
    guest.expect("first");
    for player in [&mut guest, &mut later] {
        player.say("end");
        player.end_well();
    }
}
