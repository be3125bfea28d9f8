//! A receiver without the calls that give a file its name.
#![allow(unsafe_code)]
// Invariant: the code between fork and exec only sets a filter on this very process.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

use pinfold_tests::filter::deny;

use crate::{
    BOX,
    harness::{PROGRAM, Place, pattern},
};

#[test]
fn files_arrive_although_links_are_denied() {
    for (calls, errno) in [
        (&[libc::SYS_linkat, libc::SYS_link][..], libc::EPERM),
        (&[libc::SYS_linkat, libc::SYS_link][..], libc::ENOSYS),
        (&[libc::SYS_linkat, libc::SYS_link, libc::SYS_renameat2], libc::EPERM),
    ] {
        let place = Place::new();
        place.dir("out");
        fs::write(place.dir("tree").join("file"), pattern(3 << 20, 1)).unwrap();
        fs::write(place.path("tree/other"), "x").unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["recv", BOX, "out"]);
        // SAFETY: the child has one thread, and glibc leaves it its allocator.
        unsafe {
            command.pre_exec(move || {
                deny(calls, errno);
                Ok(())
            })
        };
        let recv = place.run_in(command.stdin(Stdio::null()));
        place.send(&["tree", BOX]).end().assert_code(0);
        recv.end().assert_code(0);
        assert!(place.files("tree") == place.files("out/tree"), "{calls:?} {errno}");
    }
}
