//! Where a receiver writes: files below a directory, or standard output.
//!
//! The module owns two invariants. First, a file has its name only once it is complete: it is
//! written without a name (`O_TMPFILE`, `open(2)`) or, where the file system cannot do that,
//! under a name starting with [`TEMPORARY`], and gets its own in one step. A process killed at
//! any moment therefore leaves nothing behind in the first case, and in the second a file that
//! does not look complete. Second, nothing outside the directory is touched: every component
//! of a name is opened relative to its parent with `O_NOFOLLOW`.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{
        AtFlags, CWD, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fsync,
        futimens, linkat, mkdirat, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};

use super::{
    failure::Failure,
    frame::FileOffer,
    name::{RelativeName, printable_path},
};

/// Names of files that are not complete yet start with it, where they need a name.
const TEMPORARY: &str = ".pinfold-";

/// How files are put in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Whether files that exist are replaced.
    pub(super) force: bool,
    /// Whether a file must be on the disk before it gets its name.
    pub(super) sync: bool,
    /// The permission bits not to give, `umask(2)`.
    pub(super) umask: u32,
    /// Whether to write files without a name where the file system can.
    pub(super) nameless: bool,
}

/// The directory that files go below.
#[derive(Debug)]
pub(super) struct Directory {
    root: OwnedFd,
    rules: Rules,
    /// The directory of the last file, since the next is likely to lie in it too.
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl Directory {
    /// Opens `path`, which must exist.
    pub(super) fn open(path: &Path, rules: Rules) -> Result<Directory, Failure> {
        let root =
            openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|why| match why {
                    Errno::NOENT => Failure::Unsuitable {
                        what: printable_path(path),
                        why: "there is no such directory; make it first".into(),
                    },
                    Errno::NOTDIR => Failure::Unsuitable {
                        what: printable_path(path),
                        why: "it is no directory; give one for the files to go in".into(),
                    },
                    why => Failure::local("opening the directory", printable_path(path), why),
                })?;
        Ok(Directory { root, rules, last: None })
    }

    /// Starts the file of `offer`, making the directories it lies in.
    ///
    /// # Errors
    ///
    /// [`Failure::Local`] where it exists and is not to be replaced, or cannot be written.
    pub(super) fn begin(&mut self, offer: &FileOffer) -> Result<Incoming, Failure> {
        let what = offer.name.to_string();
        let parent = self
            .parent(&offer.name)
            .map_err(|why| Failure::local("making the directory of", what.clone(), why))?;
        let failed = |why| Failure::local("creating", what.clone(), why);
        // Said before gigabytes are moved; `Incoming::commit` finds what appears until then.
        match statat(&parent, offer.name.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(why) => return Err(failed(why)),
            Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() => {
                return Err(failed(Errno::ISDIR));
            }
            Ok(_) if self.rules.force => {}
            Ok(_) => return Err(failed(Errno::EXIST)),
        }
        let (file, temporary) = create(&parent, self.rules.nameless).map_err(failed)?;
        let parent = ParentDirectory { directory: parent, temporary };
        Ok(Incoming { parent, file, offer: offer.clone(), rules: self.rules, written: 0 })
    }

    /// The directory that `name` lies in, made where it is missing.
    fn parent(&mut self, name: &RelativeName) -> Result<OwnedFd, Errno> {
        if let Some((path, directory)) = &self.last
            && path == name.parent()
        {
            return directory.try_clone().map_err(errno);
        }
        let mut directory = self.root.try_clone().map_err(errno)?;
        for component in name.parents() {
            directory = descend(directory.as_fd(), component)?;
        }
        let kept = directory.try_clone().map_err(errno)?;
        self.last = Some((name.parent().to_vec(), kept));
        Ok(directory)
    }
}

/// Opens the directory `component` of `parent`, making it first where it is missing.
fn descend(parent: BorrowedFd<'_>, component: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, component, flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    match mkdirat(parent, component, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => openat(parent, component, flags, Mode::empty()),
        Err(why) => Err(why),
    }
}

/// A file being written in `directory`, under a temporary name if it needs one.
struct ParentDirectory {
    directory: OwnedFd,
    /// The name to remove unless the file is put in place.
    temporary: Option<String>,
}

impl Drop for ParentDirectory {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Nothing better can be done about a failure than to leave a file that is
            // recognisably incomplete.
            let _ = unlinkat(&self.directory, name.as_str(), AtFlags::empty());
        }
    }
}

/// A file that is not complete yet. Dropping it removes what was written.
pub(super) struct Incoming {
    parent: ParentDirectory,
    file: OwnedFd,
    offer: FileOffer,
    rules: Rules,
    written: u64,
}

impl Incoming {
    /// What the sender said of the file.
    pub(super) fn offer(&self) -> &FileOffer {
        &self.offer
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Appends `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        write_all(self.file.as_fd(), bytes)
            .map_err(|(_, why)| Failure::local("writing", self.offer.name.to_string(), why))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Gives the file its mode, time and name. It is complete from here on.
    pub(super) fn commit(mut self) -> Result<(), Failure> {
        let what = self.offer.name.to_string();
        self.set_mode_and_time()
            .map_err(|why| Failure::local("setting the mode of", &what, why))?;
        if self.rules.sync {
            fsync(&self.file).map_err(|why| Failure::local("writing", &what, why))?;
        }
        self.put_in_place().map_err(|why| Failure::local("creating", &what, why))?;
        if self.rules.sync {
            fsync(&self.parent.directory)
                .map_err(|why| Failure::local("writing the directory of", &what, why))?;
        }
        Ok(())
    }

    fn set_mode_and_time(&self) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(self.offer.mode & 0o777 & !self.rules.umask);
        tolerate(fchmod(&self.file, mode))?;
        let (seconds, nanoseconds) = self.offer.modified;
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
        };
        tolerate(futimens(&self.file, &times))
    }

    fn put_in_place(&mut self) -> Result<(), Errno> {
        let directory = self.parent.directory.as_fd();
        let name = self.offer.name.file_name();
        if self.parent.temporary.is_none() {
            match link_nameless(self.file.as_fd(), directory, name) {
                Err(Errno::EXIST) if self.rules.force => {}
                other => return other,
            }
            // A link cannot replace a file, a rename can.
            let temporary = numbered(|temporary| {
                link_nameless(self.file.as_fd(), directory, temporary.as_bytes())
            })?;
            self.parent.temporary = Some(temporary.1);
        }
        let Some(temporary) = self.parent.temporary.as_deref() else { return Ok(()) };
        if self.rules.force {
            renameat(directory, temporary, directory, name)?;
        } else {
            rename_new(directory, temporary, name)?;
        }
        self.parent.temporary = None;
        Ok(())
    }
}

/// Creates a file in `directory` to write to: without a name if that is wanted and can be.
fn create(directory: &OwnedFd, nameless: bool) -> Result<(OwnedFd, Option<String>), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let private = Mode::from_raw_mode(0o600);
    if nameless {
        match openat(directory, ".", flags | OFlags::TMPFILE, private) {
            Ok(file) => return Ok((file, None)),
            // How file systems and kernels without it refuse, `open(2)`.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
            Err(why) => return Err(why),
        }
    }
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let (file, name) = numbered(|name| openat(directory, name, flags, private))?;
    Ok((file, Some(name)))
}

/// Tries temporary names until `make` finds one that is free.
fn numbered<T>(mut make: impl FnMut(&str) -> Result<T, Errno>) -> Result<(T, String), Errno> {
    use std::hash::{BuildHasher, RandomState};
    for attempt in 0..100u32 {
        // `RandomState` is seeded by the system: nobody can take the names beforehand.
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
fn link_nameless(
    file: BorrowedFd<'_>,
    directory: BorrowedFd<'_>,
    name: &[u8],
) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    // By /proc, as `open(2)` shows it; directly where there is no /proc, which needs Linux 6.10
    // or a capability.
    let by_proc = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, by_proc, directory, name, AtFlags::SYMLINK_FOLLOW) {
        Err(Errno::NOENT) => linkat(file, "", directory, name, AtFlags::EMPTY_PATH),
        other => other,
    }
}

/// Renames `from` to `to`, which must be free.
fn rename_new(directory: BorrowedFd<'_>, from: &str, to: &[u8]) -> Result<(), Errno> {
    match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        // The file system, or the kernel, cannot do that; a link cannot replace anything either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            linkat(directory, from, directory, to, AtFlags::empty())?;
            unlinkat(directory, from, AtFlags::empty())
        }
        other => other,
    }
}

/// Lets pass that a file system has no modes or times of this kind.
fn tolerate(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::INVAL | Errno::OVERFLOW) => Ok(()),
        other => other,
    }
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Standard output, or a stand-in for it.
pub(super) struct Output<F> {
    to: F,
    written: u64,
}

impl<F: AsFd> Output<F> {
    /// Writes to `to`.
    pub(super) fn new(to: F) -> Output<F> {
        // Fewer wake-ups on both ends of a pipe. Anything else refuses, and that is fine.
        let _ = rustix::pipe::fcntl_setpipe_size(&to, super::frame::BLOCK_BYTES);
        Output { to, written: 0 }
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes all of `bytes`, however long the reader takes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match write_all(self.to.as_fd(), bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            Err((some, Errno::PIPE)) => {
                Err(Failure::OutputClosed { bytes: self.written + some as u64 })
            }
            Err((_, why)) => Err(Failure::local("writing", "standard output", why)),
        }
    }
}

/// Writes all of `bytes`; on failure says how many went out before.
fn write_all(to: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), (usize, Errno)> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::write(to, &bytes[done..]) {
            Ok(0) => return Err((done, Errno::IO)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // Standard output may be non-blocking by someone else's choice.
            Err(Errno::AGAIN) => {
                let mut wanted = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
                match poll(&mut wanted, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(why) => return Err((done, why)),
                }
            }
            Err(why) => return Err((done, why)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
