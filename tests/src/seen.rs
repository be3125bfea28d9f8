//! The public status of this process's own endpoints; waiting for a change of it.

use std::{
    thread,
    time::{Duration, Instant},
};

use pinfold::status::{self, EndpointStatus};

use crate::role::PATIENCE;

/// The public status of the endpoint of this process with a label.
///
/// # Panics
/// If there is none.
pub fn status_of(label: &str) -> EndpointStatus {
    let all = status::endpoints_of(std::process::id()).expect("/proc").endpoints;
    all.into_iter().find(|endpoint| endpoint.label == label).expect("it is to be seen")
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within [`PATIENCE`].
#[track_caller]
pub fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it does not come to that");
        thread::sleep(Duration::from_millis(1));
    }
}
