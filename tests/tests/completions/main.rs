//! Completion queues: every operation's end comes once, with its buffer, whatever ends it.

mod ends;
mod kinds;
mod waits;

use pinfold::{Completion, CompletionQueue};
use pinfold_tests::{Pair, role::PATIENCE};

use self::{
    ends::{mortal, survivor},
    waits::{ringer, waiter},
};

pinfold_tests::roles!(mortal, survivor, ringer, waiter);

/// Waits until nothing is outstanding.
fn all(queue: &CompletionQueue) -> Vec<Completion> {
    let mut ended = Vec::new();
    while queue.outstanding() > 0 {
        let came = queue.wait(&mut ended, 7, Some(PATIENCE)).unwrap();
        assert!((1..=7).contains(&came), "{came} came, {} are outstanding", queue.outstanding());
    }
    ended
}
