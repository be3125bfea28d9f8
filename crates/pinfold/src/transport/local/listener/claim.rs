//! Ownership of names: the lock of a directory, and the names that are free in it.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use pinfold_sys::socket::seqpacket;
use rustix::{
    fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::super::{
    address::{Address, is_same_host},
    directory::{Directory, Origin, Places},
};
use crate::{Error, Result};

/// The lock file of a directory. No name begins with a dot.
pub(super) const LOCK: &str = ".lock";

/// The directory's lock, held until dropped.
pub(super) struct Lock {
    file: OwnedFd,
}

impl Lock {
    /// Takes the lock, at once or within `patience`.
    pub(super) fn take(directory: &Directory, patience: Duration) -> Result<Lock> {
        let os =
            |call, errno: Errno| Error::os(call, format!("{}/{LOCK}", directory.name()), errno);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let start = Instant::now();
        loop {
            let file = fs::openat(directory, LOCK, flags, Mode::from_raw_mode(0o600))
                .map_err(|errno| os("openat", errno))?;
            match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The file of this name may be another by now, with a lock of its own.
                Ok(()) => {
                    let locked = fs::fstat(&file).map_err(|errno| os("fstat", errno))?;
                    match identity(directory, LOCK) {
                        Ok(named) if named == (locked.st_dev, locked.st_ino) => {
                            return Ok(Lock { file });
                        }
                        Ok(_) | Err(Errno::NOENT) => {}
                        Err(errno) => return Err(os("newfstatat", errno)),
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if start.elapsed() < patience => {
                    pinfold_sys::cpu::clock::pause(Duration::from_millis(1));
                }
                Err(errno) => return Err(os("flock", errno)),
            }
            if directory.is_removed() {
                return Err(os("openat", Errno::NOENT));
            }
        }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing would do, but for copies of the descriptor in children that were forked
        // meanwhile.
        let _ = fs::flock(&self.file, FlockOperation::Unlock);
    }
}

pub(super) fn identity(directory: &Directory, file: &str) -> Result<(u64, u64), Errno> {
    let stat = fs::statat(directory, file, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Returns whether no endpoint has the name, here (any file left there after a sweep is in the way)
/// or in another directory that this user's names are searched for in.
pub(super) fn is_free(places: &Places, directory: &Directory, address: &Address) -> Result<bool> {
    match identity(directory, address.name()) {
        Err(Errno::NOENT) => {}
        Ok(_) => return Ok(false),
        Err(errno) => {
            let on = format!("{}/{}", directory.name(), address.name());
            return Err(Error::os("newfstatat", on, errno));
        }
    }
    for candidate in places.candidates(address)? {
        // A directory that cannot be used holds no name that a peer could find.
        let Ok(Some(other)) = candidate.open() else { continue };
        if seqpacket::is_served(&other.reach(address.name())).unwrap_or(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes the socket files of owners that are gone: all of them where there are only Pinfold's.
/// The caller holds the lock; files that cannot be removed stay.
///
/// The file of the wanted name goes as well if the owner is gone and has left its socket to a
/// child.
pub(super) fn sweep(directory: &Directory, wanted: &str) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = fs::openat(directory, ".", flags, Mode::empty()).and_then(fs::Dir::new)
    else {
        return;
    };
    // Where others may put their sockets, too, only files with names that only Pinfold gives may
    // go.
    let may_go = |name: &str| directory.origin() == Origin::Ours || is_same_host(name);
    for entry in listing.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name != wanted && !may_go(name) {
            continue;
        }
        let is_socket = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        let in_use = if name == wanted { seqpacket::is_served } else { seqpacket::is_bound };
        if is_socket && in_use(&directory.reach(name)).is_ok_and(|in_use| !in_use) {
            let _ = fs::unlinkat(directory, name, AtFlags::empty());
        }
    }
}
