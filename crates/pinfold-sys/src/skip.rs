//! Tests that cannot run here say so, as those of `pinfold-tests` do.

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write},
};

/// Says, past the test runner's capture, which part is not tested here and why, and appends a line
/// to the file that `PINFOLD_SKIP_LOG` names, so that skips can be counted.
pub(crate) fn skip(reason: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(io::stderr(), "SKIPPED: {test}: {reason}");
    if let Some(log) = env::var_os("PINFOLD_SKIP_LOG") {
        let log = OpenOptions::new().create(true).append(true).open(log);
        let line = format!("{test}: {reason}\n");
        log.and_then(|mut log| log.write_all(line.as_bytes())).expect("the skip log");
    }
}

/// Returns whether advice about memory is followed; if not, skips what follows.
pub(crate) fn is_advice_followed() -> bool {
    let is_followed = crate::mem::advice::is_followed();
    if !is_followed {
        skip("madvise(2) takes any advice here, and follows none");
    }
    is_followed
}
