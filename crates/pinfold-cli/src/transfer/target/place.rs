//! The naming of a file: only when it is complete, and never in place of another unless that is
//! wanted.
//!
//! A file system or a filter may lack any of the calls for it, so there are several ways, the best
//! first: a link to a file without a name, a rename that replaces nothing, a link to a file with a
//! temporary name, and last a rename over an empty file that was made for it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, RenameFlags, fstat, ftruncate, linkat, openat, renameat,
        renameat_with, statat, unlinkat,
    },
    io::{Errno, pread, pwrite},
};

use super::TEMPORARY;
use crate::transfer::{
    extent::{data_from, data_to},
    frame::BLOCK_BYTES,
};

/// Creates a file in `directory` that has no name, to write to. `None` if that is impossible, or if
/// it could not be given a name later, as far as can be told beforehand.
pub(super) fn create_nameless(directory: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE;
    let file = openat(directory, ".", flags, Mode::from_raw_mode(0o600)).ok()?;
    // The name "." is always taken. Another answer comes from a filter, or for want of /proc.
    let answer = link_nameless(file.as_fd(), directory, b".");
    (answer == Err(Errno::EXIST)).then_some(file)
}

/// Creates a file in `directory` to write to, under a temporary name.
pub(super) fn create_named(directory: BorrowedFd<'_>) -> Result<(OwnedFd, String), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    numbered(|name| openat(directory, name, flags, Mode::from_raw_mode(0o600)))
}

/// Tries temporary names until `make` finds one that is free.
pub(super) fn numbered<T>(
    mut make: impl FnMut(&str) -> Result<T, Errno>,
) -> Result<(T, String), Errno> {
    use std::hash::{BuildHasher, RandomState};
    for attempt in 0..100u32 {
        // `RandomState` is seeded by the system: no process can take the names beforehand.
        let random = RandomState::new().hash_one((std::process::id(), attempt));
        let name = format!("{TEMPORARY}{random:016x}.part");
        match make(&name) {
            Err(Errno::EXIST) => {}
            other => return other.map(|made| (made, name)),
        }
    }
    Err(Errno::EXIST)
}

/// Gives the nameless `file` the name `name`, which must be free.
pub(super) fn link_nameless(
    file: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &[u8],
) -> Result<(), Errno> {
    // By /proc, as `open(2)` shows it; directly if there is no /proc, which needs Linux 6.10 or a
    // capability.
    let by_proc = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, by_proc, directory, name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::NOENT) => linkat(file, "", directory, name, AtFlags::EMPTY_PATH),
        other => other,
    }
}

/// Renames `from` to `to`, which must be free.
pub(super) fn rename_new(directory: BorrowedFd<'_>, from: &str, to: &[u8]) -> Result<(), Errno> {
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // The file system, the kernel or a filter lacks that call.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
        other => return other,
    }
    // A link cannot replace anything either.
    match linkat(directory, from, directory, to, AtFlags::empty()) {
        Ok(()) => return unlinkat(directory, from, AtFlags::empty()),
        Err(Errno::EXIST) => return Err(Errno::EXIST),
        Err(_) => {}
    }
    rename_over_own(directory, from, to)
}

/// The same by a rename over an empty file that is made for that, which fails if there is one
/// already.
///
/// Killed in between, this process leaves that file, empty and with no permissions at all.
fn rename_over_own(directory: BorrowedFd<'_>, from: &str, to: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let own = fstat(openat(directory, to, flags, Mode::empty())?)?;
    let is_own = || {
        let there = statat(directory, to, AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|it| (it.st_dev, it.st_ino) == (own.st_dev, own.st_ino))
    };
    if !is_own() {
        return Err(Errno::EXIST);
    }
    renameat(directory, from, directory, to).inspect_err(|_| {
        if is_own() {
            // Only its being empty shows that it is not complete.
            let _ = unlinkat(directory, to, AtFlags::empty());
        }
    })
}

/// Copies all of a file into an empty one, holes as holes.
pub(super) fn copy(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let size = fstat(from)?.st_size as u64;
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = 0;
    while at < size {
        let data = data_from(from, at, size);
        if data == size {
            break;
        }
        at = data;
        let end = data_to(from, at, size);
        while at < end {
            let len = BLOCK_BYTES.min((end - at) as usize);
            match pread(from, &mut buffer[..len], at) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => {
                    write_all_at(to, &buffer[..count], at)?;
                    at += count as u64;
                }
                Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
    }
    extend(to, size)
}

/// Writes all of `bytes` to a place in a file.
pub(super) fn write_all_at(to: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match pwrite(to, &bytes[done..], at + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Makes a file that is shorter `size` bytes long, by a hole at its end.
pub(super) fn extend(file: BorrowedFd<'_>, size: u64) -> Result<(), Errno> {
    match ftruncate(file, size) {
        // `ftruncate(2)`: the file system need not do that.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) if size > 0 => {
            write_all_at(file, &[0], size - 1)
        }
        other => other,
    }
}
