//! `/sys` as a network namespace has it: a program that looks for networks there, and not by
//! `rtnetlink(7)`, finds those of the namespace that it was mounted from. See `sysfs(5)`,
//! `mount_namespaces(7)`.
#![allow(unsafe_code)]
// Invariant: only threads made here come here, and children between `fork` and `exec`; nothing is
// allocated. A mount is gone with the last process that has it.

use rustix::{
    io::Errno,
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

/// The call that mounts it.
pub(super) const MOUNT: &str = "mount(sysfs)";

/// Gives the calling thread mounts of its own, among them a `/sys` of the network namespace that it
/// is in. No other thread sees them. The `/sys` is for reading alone: a user namespace is often
/// allowed no other.
pub(super) fn show() -> Result<(), (&'static str, Errno)> {
    // SAFETY: memory and descriptors stay as they are; the thread is nobody's that counts on its
    // folder or mounts being those of others.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
        .map_err(|errno| ("unshare(CLONE_NEWNS)", errno))?;
    let alone = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change(c"/", alone).map_err(|errno| ("mount(MS_PRIVATE)", errno))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"sysfs", c"/sys", c"sysfs", flags, None).map_err(|errno| (MOUNT, errno))
}
