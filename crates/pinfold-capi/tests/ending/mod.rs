//! The end of a program that a test started.

use std::{
    process::Child,
    thread,
    time::{Duration, Instant},
};

/// Waits for the end of a program for so long, and kills it if it does not come; the program must
/// end well.
pub fn end_well(name: &str, mut child: Child, patience: Duration) {
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if begun.elapsed() > patience {
            child.kill().expect("a child");
            child.wait().expect("a child");
            panic!("{name} did not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success(), "{name}: {status}");
}
