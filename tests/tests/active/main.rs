//! Active messages: every size by every path, in order, answered, not answered, in floods, in both
//! directions at once, with handlers that panic, block, send and wait, and peers that die.

mod answers;
mod ends;
mod flows;
mod sizes;

use std::time::{Duration, Instant};

use pinfold::Endpoint;
use pinfold_tests::stage::Casting;

use self::{
    answers::{asking, crowd, failing, serving, wanting},
    ends::{asked, dying, forking, gone_early, heir, quitting, sleeping, waking},
    flows::{
        blocked, blocking, dripping, flooded, host, other, patient, player, probed, probing,
        spender, visitor,
    },
    sizes::{keeper, teller},
};

pinfold_tests::roles!(
    keeper, teller, serving, asking, crowd, failing, wanting, player, flooded, dripping, blocked,
    blocking, other, asked, dying, forking, gone_early, heir, quitting, sleeping, waking, patient,
    spender, host, visitor, probed, probing,
);

/// The longest time that any step may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers with the request's own bytes.
const ECHO: u32 = 1;
/// The handler that checks and counts.
const SINK: u32 = 2;

/// The tag of the last message.
const BYE: u64 = 99;

/// The ways in which an endpoint may be driven.
const WAYS: [Option<&str>; 2] = [None, Some("dedicated")];

fn driven<'a>(role: Casting<'a>, way: Option<&str>) -> Casting<'a> {
    match way {
        Some(way) => role.with(way, 1),
        None => role,
    }
}

/// Makes progress until `done`.
fn until(endpoint: &Endpoint, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        endpoint.progress().unwrap();
        assert!(Instant::now() < end, "in vain");
    }
}
