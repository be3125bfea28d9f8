//! Tests in a process that may make networks.

use std::{env, process::Stdio};

use pinfold_netns::{Namespace, user};

use crate::skip;

/// The variable that marks a process which a test began again.
const AGAIN: &str = "PINFOLD_NETWORK_TEST_AGAIN";

/// Runs a test that makes networks: here as root, else in this very program, begun once more for
/// this one test as root in a user namespace. Where neither is allowed, skips.
///
/// `name` is the test's, as the runner calls it.
///
/// # Panics
/// If the test does.
pub fn where_allowed(name: &str, test: impl FnOnce()) {
    let refused = match Namespace::new() {
        Ok(_) => return test(),
        Err(refused) => refused,
    };
    assert!(refused.is_not_possible_here(), "{refused}");
    if env::var_os(AGAIN).is_some() {
        return skip(&format!("no networks, not even as root of a user namespace: {refused}"));
    }
    let mut again = crate::again();
    again.args(["--exact", "--nocapture", name]).env(AGAIN, "1").stderr(Stdio::inherit());
    user::make_root_inside(&mut again);
    match again.output() {
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success(), "as root of a user namespace: {said}");
            assert!(said.contains("test result: ok. 1 passed"), "there is no test {name}: {said}");
        }
        Err(error) => {
            let error = user::explain(&error);
            assert!(error.is_not_possible_here(), "{error}");
            skip(&format!("no networks: {error}"));
        }
    }
}
