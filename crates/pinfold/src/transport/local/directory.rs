//! `Directory`: the directories of the socket files.
//!
//! An endpoint for its own user listens in the first of these that can be used: `$PINFOLD_DIR`;
//! `$XDG_RUNTIME_DIR/pinfold`; `/tmp/pinfold-UID`. Only that user can enter it. An endpoint that
//! admits others listens in `/tmp/pinfold-UID.open`, or `$PINFOLD_DIR.open`, which others may pass
//! through but neither list nor write.
//!
//! A directory is opened once without following links, the open file is checked, and only that
//! descriptor is used. So the directory that was checked is the one that is used, and a path of any
//! length will do.

use std::{
    env, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use pinfold_sys::failed::may_be_denied;
use rustix::{
    fs::{self, AtFlags, CWD, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::{access::describe, address::Address};
use crate::{Error, Result};

/// Kind of a directory, by the users that may pass through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its owner may pass.
    Private,
    /// Every user may pass; only its owner lists and writes it.
    Open,
}

impl Kind {
    const fn mode(self) -> u32 {
        match self {
            Kind::Private => 0o700,
            Kind::Open => 0o711,
        }
    }

    /// The permission bits that must not be set.
    const fn forbidden(self) -> u32 {
        match self {
            Kind::Private => 0o077,
            Kind::Open => 0o022,
        }
    }
}

/// Origin of a directory's name. A directory with a name of ours was made for Pinfold; one with a
/// given name may serve anything, so nothing of it is changed, and no message advises to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The name is from `$PINFOLD_DIR` or `$XDG_RUNTIME_DIR`.
    Given,
    /// The name is from this module.
    Ours,
}

/// A directory in which a name may be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub path: PathBuf,
    pub owner: u32,
    pub kind: Kind,
    pub origin: Origin,
}

impl Candidate {
    /// Opens the directory: see [`Directory::open`].
    pub(crate) fn open(&self) -> Result<Option<Directory>> {
        Directory::open(&self.path, self.owner, self.kind, self.origin)
    }
}

/// The settings that decide where the directories are: the environment, read once.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// `$PINFOLD_DIR`.
    pub explicit: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `/run/user`, where the runtime directories of login sessions are.
    pub sessions: PathBuf,
    /// `/tmp`, even if `$TMPDIR` names another: both sides have to agree on it.
    pub tmp: PathBuf,
    /// The number of this user.
    pub uid: u32,
}

impl Places {
    pub(crate) fn from_env() -> Places {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Places {
            explicit: set("PINFOLD_DIR").map(|path| std::path::absolute(&path).unwrap_or(path)),
            runtime: set("XDG_RUNTIME_DIR").filter(|path| path.is_absolute()),
            sessions: "/run/user".into(),
            tmp: "/tmp".into(),
            uid: pinfold_sys::user::uid(),
        }
    }

    /// The directories to search for an address, in order.
    ///
    /// Where `$PINFOLD_DIR` is set, this user's endpoints are only there. Otherwise every directory
    /// this user may listen in is a candidate, independently of the environment here, so that
    /// shells with and without `$XDG_RUNTIME_DIR` find each other.
    pub(crate) fn candidates(&self, address: &Address) -> Result<Vec<Candidate>> {
        let owner = address.owner(self.uid)?;
        let mut all = Vec::new();
        let mut add = |path: PathBuf, kind, origin| {
            let candidate = Candidate { path, owner, kind, origin };
            if !all.contains(&candidate) {
                all.push(candidate);
            }
        };
        let own = owner == self.uid;
        if let Some(explicit) = &self.explicit {
            if own {
                add(explicit.clone(), Kind::Private, Origin::Given);
            }
            add(opened(explicit), Kind::Open, Origin::Given);
        } else if own {
            let session = self.sessions.join(owner.to_string());
            for runtime in self.runtime.iter().chain([&session]) {
                if self.is_usable(runtime) {
                    add(runtime.join("pinfold"), Kind::Private, Origin::Ours);
                }
            }
            add(self.in_tmp(owner), Kind::Private, Origin::Ours);
        }
        if !own || self.explicit.is_none() {
            add(opened(&self.in_tmp(owner)), Kind::Open, Origin::Ours);
        }
        Ok(all)
    }

    /// The directory to listen in, made if need be.
    pub(crate) fn listening(&self, kind: Kind) -> Result<Directory> {
        let make = |path: &Path, origin| Directory::make(path, self.uid, kind, origin);
        match (&self.explicit, kind) {
            (Some(explicit), Kind::Open) => return make(&opened(explicit), Origin::Given),
            (Some(explicit), Kind::Private) => return make(explicit, Origin::Given),
            (None, Kind::Open) => return make(&opened(&self.in_tmp(self.uid)), Origin::Ours),
            (None, Kind::Private) => {}
        }
        if let Some(runtime) = self.runtime.as_ref().filter(|runtime| self.is_usable(runtime)) {
            match make(&runtime.join("pinfold"), Origin::Ours) {
                Err(Error::Os { .. }) => {}
                made => return made,
            }
        }
        make(&self.in_tmp(self.uid), Origin::Ours)
    }

    /// Returns whether a runtime directory can be used: one that is missing or another user's, as
    /// after `su`, cannot.
    fn is_usable(&self, runtime: &Path) -> bool {
        matches!(Directory::open(runtime, self.uid, Kind::Private, Origin::Given), Ok(Some(_)))
    }

    fn in_tmp(&self, uid: u32) -> PathBuf {
        self.tmp.join(format!("pinfold-{uid}"))
    }
}

fn opened(path: &Path) -> PathBuf {
    // The path is taken by components, so that a slash at the end does not count.
    let mut path = path.components().collect::<PathBuf>().into_os_string();
    path.push(".open");
    path.into()
}

/// Advice for a directory that cannot be used and that Pinfold must not change.
const ELSEWHERE: &str = "set PINFOLD_DIR, for all programs that are to meet, to a directory of this \
                         user's alone, or to a path where there is nothing yet: Pinfold makes it";

/// Length of the longest path that a socket's address holds, bytes.
const SOCKET_PATH_MAX: usize = 107;

/// A directory that was found to be safe to use.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Opened with `O_PATH`: enough to pass through, which is all that others may. This user's own
    /// can be opened for reading as well ([`Directory::open_up`]).
    fd: OwnedFd,
    path: PathBuf,
    origin: Origin,
}

impl Directory {
    /// Opens a directory of user `owner`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::NotAllowed`] if it is a link or no directory, belongs to another user, or lets
    /// others do more than it should.
    pub(crate) fn open(
        path: &Path,
        owner: u32,
        kind: Kind,
        origin: Origin,
    ) -> Result<Option<Directory>> {
        let name = || path.display().to_string();
        let refused = |why| Err(Error::NotAllowed { name: name(), why });
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return refused(format!(
                    "it is not a directory; see what is there (ls -ld {}), and {ELSEWHERE}",
                    quoted(path)
                ));
            }
            Err(errno @ Errno::ACCESS) => {
                return refused(format!(
                    "it cannot be reached ({}); see which directory above it does not let this \
                     user pass: namei -l {}",
                    io::Error::from(errno),
                    quoted(path)
                ));
            }
            Err(errno) => return Err(Error::os("openat", name(), errno)),
        };
        let stat = fs::fstat(&fd).map_err(|errno| Error::os("fstat", name(), errno))?;
        if stat.st_uid != owner {
            return refused(format!(
                "it belongs to {}, not to {}; {ELSEWHERE}",
                describe(stat.st_uid),
                describe(owner)
            ));
        }
        let mode = stat.st_mode & 0o7777;
        if mode & kind.forbidden() != 0 {
            let advice = match origin {
                Origin::Given => ELSEWHERE.to_owned(),
                Origin::Ours => format!("run: chmod {:o} {}", kind.mode(), quoted(path)),
            };
            return refused(format!(
                "its mode {mode:04o} lets other users in where they should not be; {advice}"
            ));
        }
        Ok(Some(Directory { fd, path: path.to_owned(), origin }))
    }

    /// Opens a directory of user `owner`, making it if there is none.
    ///
    /// # Errors
    /// As [`Directory::open`], and [`Error::Os`] if it cannot be made.
    pub(crate) fn make(path: &Path, owner: u32, kind: Kind, origin: Origin) -> Result<Directory> {
        let is_new = match fs::mkdirat(CWD, path, Mode::from_raw_mode(kind.mode())) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => {
                // The directory may be there, and need not be made.
                if may_be_denied(errno)
                    && let Some(there) = Directory::open(path, owner, kind, origin)?
                {
                    return Ok(there);
                }
                return Err(Error::os("mkdirat", path.display().to_string(), errno));
            }
        };
        let missing = || Error::os("openat", path.display().to_string(), Errno::NOENT);
        let directory = Directory::open(path, owner, kind, origin)?.ok_or_else(missing)?;
        // The umask may have removed permissions that this user needs, or that others need to pass.
        let stat = fs::fstat(&directory.fd)
            .map_err(|errno| Error::os("fstat", directory.name(), errno))?;
        let mode = stat.st_mode & 0o777;
        if mode & kind.mode() == kind.mode() {
            return Ok(directory);
        }
        if !is_new && origin == Origin::Given {
            return Err(Error::NotAllowed {
                name: directory.name(),
                why: format!("its mode {mode:04o} keeps out who has to use it; {ELSEWHERE}"),
            });
        }
        let mode = Mode::from_raw_mode(kind.mode());
        fs::chmodat(&directory.fd, ".", mode, AtFlags::empty())
            .map_err(|errno| Error::os("fchmodat", directory.name(), errno))?;
        Ok(directory)
    }

    /// A path that leads to `file` in exactly this directory, short enough for a socket's address
    /// (107 bytes), valid while the directory is open.
    pub(crate) fn reach(&self, file: &str) -> PathBuf {
        let short = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        // Without /proc the directory's own path must do. It leads to the same place: no other user
        // can rename a file of this user in a directory that this user owns or in a sticky one.
        if short.symlink_metadata().is_ok() { short.join(file) } else { self.path.join(file) }
    }

    /// The directory's own path to `file`, without links, if it fits into a socket's address and
    /// only root and this user can make it lead anywhere else.
    ///
    /// The kernel shows the path by which a socket was bound to all users (`/proc/net/unix`), and
    /// `systemd-tmpfiles` takes a socket file for that of a dead process if its path is not listed
    /// there.
    pub(crate) fn settled(&self, file: &str) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let path = std::fs::read_link(link).ok().filter(|path| path.is_absolute())?;
        let here = fs::fstat(&self.fd).ok()?;
        let there = fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let own = pinfold_sys::user::uid();
        let is_settled = |above: &Path| {
            fs::statat(CWD, above, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
                let sticky = stat.st_mode & Mode::SVTX.as_raw_mode() != 0;
                (stat.st_uid == 0 || stat.st_uid == own) && (sticky || stat.st_mode & 0o022 == 0)
            })
        };
        let fits = path.as_os_str().len() + 1 + file.len() <= SOCKET_PATH_MAX;
        let is_it = (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino);
        (fits && is_it && path.ancestors().skip(1).all(is_settled)).then(|| path.join(file))
    }

    /// Opens this user's own directory for reading, so that it can be locked. Where that is
    /// impossible, the directory stays as it is.
    pub(crate) fn open_up(mut self) -> Directory {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(fd) = fs::openat(&self.fd, ".", flags, Mode::empty()) {
            self.fd = fd;
        }
        self
    }

    /// Takes a shared lock on the directory, against `systemd-tmpfiles`, which leaves alone the
    /// files of a locked directory. Returns whether it is locked.
    pub(crate) fn hold(&self) -> bool {
        fs::flock(&self.fd, FlockOperation::NonBlockingLockShared).is_ok()
    }

    /// Returns whether it has been removed.
    pub(crate) fn is_removed(&self) -> bool {
        fs::fstat(&self.fd).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// The origin of its name.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// The path at which it was found, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A path, quoted as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@".contains(&byte);
    if text.bytes().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests;
