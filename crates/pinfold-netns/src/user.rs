//! Root within a user namespace: the way for a process without privileges to be allowed networks of
//! its own. See `user_namespaces(7)`.
//!
//! Only a process with a single thread can do this, so it is either the first thing that a program
//! does ([`become_root_inside`]), or done to a child before its program begins
//! ([`make_root_inside`]): a test runs its own program again, like that.
#![allow(unsafe_code)]
// Invariant: code between `fork` and `exec` makes system calls only; it allocates nothing.

use std::{io::Write, os::unix::process::CommandExt, process::Command};

use rustix::{
    fs::{self, Mode, OFlags},
    io::Errno,
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe},
};

use super::Error;

/// Returns whether this thread may make network namespaces and change them, as far as capabilities
/// go.
pub fn is_root_inside() -> bool {
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(wanted))
}

/// Puts this process, which has one thread, into a user namespace of its own in which it is root:
/// user and group 0, with every capability over objects made inside, none over those outside. Its
/// files stay those of the user that it was.
///
/// # Errors
/// [`Reason::Threads`](super::Reason::Threads) if there is another thread,
/// [`Reason::UserDenied`](super::Reason::UserDenied) where users may not, which names the setting,
/// if it is one, [`Reason::Exhausted`](super::Reason::Exhausted) at `user.max_user_namespaces`.
pub fn become_root_inside() -> Result<(), Error> {
    inside().map_err(|(call, errno)| Error::new(call, "this process", errno))
}

/// Has the process of `command` become root like that before its program begins.
///
/// A refusal comes from the start of the command, as an errno: see [`explain`].
pub fn make_root_inside(command: &mut Command) {
    // SAFETY: makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(|| inside().map_err(|(_, errno)| errno.into())) };
}

/// The error for a command that was to be root inside and did not start.
pub fn explain(refused: &std::io::Error) -> Error {
    Error::io("unshare(CLONE_NEWUSER)", "a child", refused)
}

fn inside() -> Result<(), (&'static str, Errno)> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // A process that has changed users does not own its files in /proc, before this or an `exec`.
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(|errno| ("prctl", errno))?;
    // SAFETY: descriptors and memory stay as they are; only rights change, for the one thread there
    // is.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }
        .map_err(|errno| ("unshare(CLONE_NEWUSER)", errno))?;
    // Without this the kernel lets nobody map groups. Before Linux 3.19 there was no such file.
    match put(c"/proc/self/setgroups", b"deny") {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(("write of /proc/self/setgroups for uid_map", errno)),
    }
    for (file, id, call) in [
        (c"/proc/self/uid_map", user.as_raw(), "write of /proc/self/uid_map"),
        (c"/proc/self/gid_map", group.as_raw(), "write of /proc/self/gid_map"),
    ] {
        let mut line = [0; 32];
        let mut rest = &mut line[..];
        writeln!(rest, "0 {id} 1").map_err(|_| (call, Errno::OVERFLOW))?;
        let len = 32 - rest.len();
        put(file, &line[..len]).map_err(|errno| (call, errno))?;
    }
    Ok(())
}

fn put(file: &std::ffi::CStr, bytes: &[u8]) -> Result<(), Errno> {
    let file = fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, bytes).map(drop)
}
